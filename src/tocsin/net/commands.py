"""Commands of one connection that are open: begun in the order they came, carried out side by side, each answered.

Most commands wait for the journal and nothing else. Those have no task: the answer is sent when what they wait for is
there. What has more to do is a task. While a task has not begun, what comes after it waits for its turn as a task, too,
so that everything begins in the order it came.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from msgspec import Raw

from tocsin.errors import OverloadError, TocsinError
from tocsin.net import frames
from tocsin.net.faults import to_wire
from tocsin.net.outgoing import Outgoing
from tocsin.net.protocol import Limits

__all__ = ["Begun", "Commands"]

Begun = Coroutine[Any, Any, Raw] | tuple["asyncio.Future[Any]", Callable[[Any], Raw]]
"""A command that has begun: what is left to do, or what it waits for and what makes its answer of that."""
_log = logging.getLogger("tocsin.net")


class Commands:
    """What a client has asked for and got no answer to."""

    def __init__(self, outgoing: Outgoing, limits: Limits, answered: Callable[[], None]) -> None:
        """Begin with none; `answered` is called after each answer."""
        self._outgoing, self._limits, self._has_answered = outgoing, limits, answered
        self._loop = asyncio.get_running_loop()
        self._open: set[asyncio.Future[Any]] = set()
        self._count = self._unbegun = 0  # commands that are open, and tasks of theirs that have not begun
        self._asking: dict[int, asyncio.Task[None]] = {}  # requests that may be dropped
        self.held = 0
        """Bytes of those that are open."""

    def begin(self, frame: Any, command: Callable[[Any], Begun], size: int) -> asyncio.Task[None] | None:
        """Carry out a command of so many bytes, and answer it; returns its task, if it has one."""
        if self._count >= self._limits.max_open:
            self._refuse(frame.n, OverloadError(f"{self._count:,} commands are open", help="wait for answers first"))
            return None
        if self._unbegun:
            return self._begin_task(frame, self._later(command, frame), size)
        try:
            begun = command(frame)
        except Exception as error:
            self._refuse(frame.n, error)
            return None
        if not isinstance(begun, tuple):
            return self._begin_task(frame, begun, size)
        waited, answer = begun
        self._opened(waited, size)
        waited.add_done_callback(partial(self._is_there, frame.n, answer, size))
        return None

    def drop(self, n: int) -> None:
        """Nobody waits for the answer to a request any more."""
        if (task := self._asking.pop(n, None)) is not None:
            task.cancel()

    async def finished(self, patience: float) -> None:
        """Wait until all are answered, but not for ever."""
        if self._open:
            await asyncio.wait(list(self._open), timeout=patience)

    async def drop_all(self) -> None:
        """End what is under way. What the journal has stays there, and its future is others' too."""
        tasks = [each for each in self._open if isinstance(each, asyncio.Task)]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # -- without a task

    def _is_there(self, n: int | None, answer: Callable[[Any], Raw], size: int, waited: asyncio.Future[Any]) -> None:
        try:
            self._answer(n, answer(waited.result()))
        except asyncio.CancelledError:  # the node is closing
            pass
        except Exception as error:
            self._refuse(n, error)
        self._closed(waited, size)

    # -- with a task

    async def _later(self, command: Callable[[Any], Begun], frame: Any) -> Raw:
        begun = command(frame)
        if not isinstance(begun, tuple):
            return await begun
        waited, answer = begun
        return answer(await asyncio.shield(waited))

    def _begin_task(self, frame: Any, work: Coroutine[Any, Any, Raw], size: int) -> asyncio.Task[None]:
        task = self._loop.create_task(self._answered(frame.n, work))
        self._unbegun += 1
        self._opened(task, size)
        task.add_done_callback(partial(self._is_done, work, size))
        if isinstance(frame, frames.Request):
            self._asking[frame.n] = task
            task.add_done_callback(partial(self._request_is_done, frame.n))
        return task

    async def _answered(self, n: int | None, work: Coroutine[Any, Any, Raw]) -> None:
        self._unbegun -= 1
        try:
            self._answer(n, await work)
        except Exception as error:
            self._refuse(n, error)

    def _is_done(self, work: Coroutine[Any, Any, Raw], size: int, task: asyncio.Task[None]) -> None:
        if inspect.getcoroutinestate(work) == inspect.CORO_CREATED:  # it was cancelled before it began
            self._unbegun -= 1
            work.close()
        self._closed(task, size)

    def _request_is_done(self, n: int, task: asyncio.Task[None]) -> None:
        if self._asking.get(n) is task:
            del self._asking[n]

    # -- counting and answering

    def _opened(self, waited: asyncio.Future[Any], size: int) -> None:
        self._open.add(waited)
        self._count += 1
        self.held += size

    def _closed(self, waited: asyncio.Future[Any], size: int) -> None:
        self._open.discard(waited)
        self._count -= 1
        self.held -= size
        self._has_answered()

    def _answer(self, n: int | None, value: Raw) -> None:
        if n is not None:
            self._outgoing.put(frames.Done(n, value))

    def _refuse(self, n: int | None, error: Exception) -> None:
        if not isinstance(error, TocsinError):
            _log.error("a command has failed", exc_info=error)
        self._outgoing.put(frames.Failed(to_wire(error), n))
