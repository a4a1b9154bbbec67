"""The connection to a node: kept up, heard, and asked.

A link connects when it is first used, and again whenever it was lost, with pauses that grow from 0.1 s to 5 s. Commands
that were not answered are sent again; all of them may be, unless who asks says otherwise. Before anything else is sent
on a new connection, what was open on the old one is opened again (`resume`).

Concurrency: one event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import random
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from msgspec import Raw
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidURI

from tocsin.errors import ConnectionLostError, JournalError, NetworkError, ProtocolError, TocsinError
from tocsin.net import frames
from tocsin.net.faults import from_wire
from tocsin.net.protocol import LIMITS, MSGPACK, VERSION
from tocsin.remote.credentials import NONE, Credentials
from tocsin.remote.wire import Lost, Socket, Wire, open_socket, replaced

__all__ = ["Link", "Lost"]

T = TypeVar("T")
SHORTEST, LONGEST = 0.1, 5.0
"""Seconds between attempts to connect."""
_FIRST_ATTEMPT = 2.0  # seconds that who need not be connected at once waits for it
_log = logging.getLogger("tocsin.remote")


class Link:
    """One session with a node, over as many connections as it takes."""

    def __init__(
        self,
        url: str,
        name: str | None,
        patience: float,
        *,
        resume: Callable[[], Awaitable[None]],
        hear: Callable[[frames.ServerFrame], None],
        before: Callable[[], None],
        lost: Callable[[], None],
        over: Callable[[TocsinError], None],
        options: dict[str, Any],
        credentials: Credentials = NONE,
    ) -> None:
        """Prepare; nothing is opened yet.

        Args:
            url: `ws://host:port`.
            name: who; None: the node gives a name, which stays.
            patience: seconds without a connection after which a command fails.
            resume: opens again what was open; called on every connection but the first.
            hear: gets every frame that is no answer.
            before: called before a command is sent, to send what is to come first.
            lost: called when the connection is lost.
            over: called when there will be no other.
            options: said in hello.
            credentials: what to show, and whom to trust.
        """
        self.url, self.name, self._patience, self._options = url, name, patience, options
        self._credentials = credentials
        self._resume, self._hear, self._before, self._lost, self._over = resume, hear, before, lost, over
        self.received = 0
        """Frames that were no answers."""
        self.generation = 0
        """How many connections there were."""
        self.limits: dict[str, float] = {name: getattr(LIMITS, name) for name in LIMITS.__struct_fields__}
        self._fatal: TocsinError | None = None
        self._ready: asyncio.Event | None = None
        self._tried: asyncio.Event | None = None  # has the first attempt come to an end, good or bad?
        self._first: asyncio.Future[None] | None = None
        self._must_begin = False  # is it an error if the first attempt fails?
        self._task: asyncio.Task[None] | None = None
        self._wire: Wire | None = None
        self._numbers = itertools.count(1)
        self._pending: dict[int, asyncio.Future[Any]] = {}
        self._slots: asyncio.Semaphore | None = None
        self._now = (0, 0.0)

    # -- asking

    async def ask(self, build: Callable[[int], frames.ClientFrame], *, repeat: bool = True) -> Raw:
        """Send a command and return its answer; on a new connection if need be.

        Args:
            build: makes the frame for a number.
            repeat: may it be carried out twice?

        Raises:
            ConnectionLostError: there was no connection for too long, or it was lost and the command cannot be
                repeated. It may have been carried out.
            TocsinError: what the node says.
        """
        while True:
            await self.ready()
            try:
                return await self.ask_now(build)
            except Lost:
                if not repeat:
                    raise ConnectionLostError(
                        "the connection was lost before the answer came",
                        help="it may have been done: look, then repeat",
                    ) from None

    async def ask_now(self, build: Callable[[int], frames.ClientFrame]) -> Raw:
        """As `ask`, on this connection alone.

        Raises:
            Lost: it was lost.
        """
        if self._slots is None:
            self._slots = asyncio.Semaphore(round(self.limits["max_open"]))
        async with self._slots:  # the node takes so many at a time
            return await self._ask(build)

    async def _ask(self, build: Callable[[int], frames.ClientFrame]) -> Raw:
        if self._wire is None:
            raise Lost
        n = next(self._numbers)
        answer: asyncio.Future[Raw] = asyncio.get_running_loop().create_future()
        message = MSGPACK.encode(build(n))
        if len(message) > self.limits["max_frame"]:
            raise self.too_large(len(message))
        self._before()
        self._pending[n] = answer
        self._wire.put(message)
        try:
            return await answer
        finally:
            self._pending.pop(n, None)

    def too_large(self, size: int) -> ProtocolError:
        """The error for a frame that the node does not take."""
        return ProtocolError(
            f"this has {size:,} bytes, {self.limits['max_frame']:,.0f} are allowed in one frame",
            help="send less at a time",
        )

    def tell(self, frame: frames.ClientFrame) -> None:
        """Send a frame that is not answered; without a connection it is dropped."""
        if self._wire is not None:
            self._wire.put(MSGPACK.encode(frame))

    async def ping(self) -> None:
        """Wait until everything sent before was read by the node, and what it had to send has come.

        Raises:
            Lost: the connection was lost.
        """
        n = next(self._numbers)
        self._pending[n] = asyncio.get_running_loop().create_future()
        self.tell(frames.Ping(n))
        try:
            await self._pending[n]
        finally:
            self._pending.pop(n, None)

    def now(self) -> int:
        """Journal time, as far as it is known here: in microseconds."""
        said, at = self._now
        return said + round((time.monotonic() - at) * 1e6)

    # -- being there

    @property
    def is_up(self) -> bool:
        """Is there a connection at this moment?"""
        return self._wire is not None

    @property
    def is_ready(self) -> bool:
        """Is there a connection on which everything is as it was?"""
        return self._ready is not None and self._ready.is_set() and self._fatal is None

    @property
    def error(self) -> TocsinError | None:
        """Why there will be no other, if there will not."""
        return self._fatal

    async def ready(self) -> None:
        """Wait for a connection on which everything is as it was.

        Raises:
            ConnectionLostError: that took too long.
            NetworkError: it is closed, or was refused.
        """
        if self._task is None:
            self._begin()
        if self._fatal is not None:
            raise self._fatal
        assert self._ready is not None
        if self._ready.is_set():
            return
        try:
            async with asyncio.timeout(self._patience):
                await self._ready.wait()
        except TimeoutError:
            raise ConnectionLostError(
                f"{self.url} could not be reached for {self._patience:g} s", help="is the node up? then try again"
            ) from None
        if self._fatal is not None:
            raise self._fatal

    async def open(self) -> None:
        """Connect for the first time.

        Raises:
            NetworkError: nobody is there, or one who does not let you in.
        """
        self._must_begin = True
        self._begin()
        assert self._first is not None
        await self._first

    async def begin(self) -> None:
        """Begin to connect; returns when there is a connection, the first attempt has failed, or that takes long."""
        self._begin()
        assert self._tried is not None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_FIRST_ATTEMPT):
                await self._tried.wait()

    def _begin(self) -> None:
        if self._task is None:
            loop = asyncio.get_running_loop()
            self._ready, self._tried, self._first = asyncio.Event(), asyncio.Event(), loop.create_future()
            self._task = loop.create_task(self._run())

    async def close(self) -> None:
        """Say goodbye, and end."""
        if self._fatal is None:
            self._end(JournalError("the bus is closed", help="connect again"))
        wire, self._wire = self._wire, None
        if wire is not None:
            await wire.close()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def abort(self) -> None:
        """Break off without a word, as a crash would, and end."""
        wire = self._wire
        self._end(JournalError("the bus is closed", help="connect again"))
        self._wire = None
        if wire is not None:
            wire.abort()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _end(self, error: TocsinError) -> None:
        """There will be no other connection."""
        self._fatal = error
        self._fail_all(lambda: error)
        if self._ready is not None:
            self._ready.set()
        self._over(error)

    # -- the connection

    async def _run(self) -> None:
        pause = SHORTEST
        assert self._first is not None and self._ready is not None
        while not self._is_over():
            try:
                async with open_socket(self.url, self._credentials, self.limits["hello"]) as socket:
                    await self._live(socket)
                pause = SHORTEST
            except (OSError, TimeoutError, ConnectionClosed, InvalidHandshake, Lost) as error:
                said: BaseException = error
            except InvalidURI:
                self._refuse(NetworkError(f"{self.url} is no address", field="url", help="give ws://host:port"))
                return
            except NetworkError as error:
                self._refuse(error)
                return
            except TocsinError as error:  # what was open could not be opened again, for now
                said = error
            except Exception as error:  # a defect of ours: who waits must hear of it
                _log.exception("the connection to %s has failed", self.url)
                self._refuse(NetworkError(f"the connection has failed: {error}", help="connect again"))
                return
            else:
                said = Lost()
            was_up = self._ready.is_set()
            self._drop()
            if self._must_begin and not self._first.done():
                self._refuse(NetworkError(f"{self.url} cannot be reached: {said}", field="url", help="is the node up?"))
                return
            pause = SHORTEST if was_up else min(LONGEST, pause * 2)
            if not self._is_over():
                if was_up:
                    _log.info("the connection to %s was lost; waiting for it to come back", self.url)
                await asyncio.sleep(pause * random.uniform(0.5, 1))

    def _is_over(self) -> bool:
        return self._fatal is not None

    def _refuse(self, error: NetworkError) -> None:
        assert self._first is not None
        self._drop()
        self._end(error)
        if self._must_begin and not self._first.done():
            self._first.set_exception(error)
        else:
            _log.error("the connection to %s is over: %s", self.url, error)

    async def _live(self, socket: Socket) -> None:
        """One connection, from hello to its end."""
        loop = asyncio.get_running_loop()
        wire = Wire(socket, self._take)
        hello = frames.Hello(VERSION, self.name, self._credentials.token, self._options)
        first = await wire.greet(hello, self.limits["hello"])
        self.name, self.limits = first.name, {**self.limits, **first.limits}
        self._set_now(first.now)
        self._wire = wire
        self.generation += 1
        tasks = wire.begin(self.limits)
        try:
            if self.generation > 1:
                resuming = loop.create_task(_whole(self._resume()))
                tasks.append(resuming)
                await asyncio.wait([resuming, tasks[0]], return_when=asyncio.FIRST_COMPLETED)
                if not resuming.done():
                    self._drop()
                await resuming
                tasks.remove(resuming)
                _log.info("connected to %s again", self.url)
            assert self._first is not None and self._ready is not None and self._tried is not None
            self._ready.set()
            self._tried.set()
            if not self._first.done():
                self._first.set_result(None)
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if (refusal := wire.refusal) is not None:
                self._fail_all(lambda: refusal)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _drop(self) -> None:
        """The connection is lost: who waits for an answer must ask again."""
        if self._tried is not None:
            self._tried.set()
        if self._ready is not None and self._fatal is None:
            self._ready.clear()
        self._wire = None
        self._fail_all(Lost)
        self._lost()

    def _fail_all(self, make: Callable[[], Exception]) -> None:
        for answer in list(self._pending.values()):
            if not answer.done():
                answer.set_exception(make())

    def _take(self, frame: frames.ServerFrame) -> None:
        match frame:
            case frames.Done():
                self._answer(frame.re, frame.value)
            case frames.Failed():
                error = from_wire(frame.error)
                answer = self._pending.get(frame.re) if frame.re is not None else None
                if answer is not None and not answer.done():
                    answer.set_exception(error)
                elif frame.re is None:
                    _log.warning("the node at %s refuses: %s", self.url, error)
            case frames.Pong():
                self._set_now(frame.now)
                self._answer(frame.n, None)
            case frames.Ping():
                self.tell(frames.Pong(frame.n))
            case frames.Bye(reason="replaced"):
                self._end(replaced(self.name))
            case _:
                if isinstance(frame, frames.Deliver):
                    self._set_now(frame.now)
                self.received += 1
                self._hear(frame)

    def _answer(self, n: int, value: Any) -> None:
        answer = self._pending.get(n)
        if answer is not None and not answer.done():
            answer.set_result(value)

    def _set_now(self, now: int) -> None:
        self._now = now, time.monotonic()


async def _whole(work: Awaitable[T] | Coroutine[Any, Any, T]) -> T:
    return await work
