"""In which order triggered rules run, and what happens when one fails.

    immediate ─▶ now; the code that caused the event waits
    deferred  ─▶ kept until `commit`, dropped by `rollback`
    detached  ─▶ on its own thread or task

Off (the default), rules run one after the other as they were triggered, which is the order of definition. On, the
highest priority runs first, and rules of equal priority run together. A rule that causes events waits for the rules
they trigger: they are its children, one level deeper.

Promised: a rule that raises is reported and stops neither the others nor the code that caused the event. Deeper than
`max_depth` nothing is run, and who caused it gets `RuleDepthError`.
Not promised: any order between events that different threads cause.

One coroutine serves both worlds. Driven by `run` it never waits, since blocking code has no loop to wait on: coroutine
functions then run on a loop of their own. Driven by `run_async` it awaits them on the caller's loop.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextvars import Context, ContextVar, copy_context
from itertools import groupby
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from tocsin.errors import RuleDepthError, RuleError
from tocsin.filters.filter import Filter
from tocsin.model import Event
from tocsin.rules.rule import Failure, Rule

__all__ = ["MAX_DEPTH", "Awaiting", "Blocking", "Scheduler", "Triggered", "fire"]

MAX_DEPTH: Final = 32
"""Rules that trigger rules: so many levels."""
WORKERS: Final = 8
_log = logging.getLogger("tocsin")
_depth: ContextVar[int] = ContextVar("tocsin_rule_depth", default=0)


class Triggered(NamedTuple):
    """A rule, and the event it is to be run for."""

    rule: Rule
    event: Event
    """What a filter is asked of."""
    what: Any
    """What condition and action get."""


Work = Callable[[], Coroutine[Any, Any, None]]
T = TypeVar("T")


class _Way(Protocol):
    """How things are called and waited for."""

    async def call(self, function: Callable[[Any], Any], what: Any) -> Any:
        """Call it, and wait for what it returns."""

    async def together(self, works: list[Work]) -> None:
        """Do all at once; return when all are done."""

    def detach(self, work: Work) -> None:
        """Do it on its own."""


class Blocking:
    """For code without an event loop: threads."""

    def __init__(self, workers: int = WORKERS) -> None:
        """Begin with no threads; detached work has at most so many."""
        self._workers = workers
        self._pool: ThreadPoolExecutor | None = None
        self._lock = threading.Lock()
        self.detached: set[Future[None]] = set()

    async def call(self, function: Callable[[Any], Any], what: Any) -> Any:
        """See `_Way`."""
        result = function(what)
        return _finished(result) if inspect.isawaitable(result) else result

    async def together(self, works: list[Work]) -> None:
        """See `_Way`."""
        with ThreadPoolExecutor(min(len(works), self._workers), thread_name_prefix="tocsin-rule") as pool:
            for future in [pool.submit(copy_context().run, drive, work()) for work in works]:
                future.result()

    def detach(self, work: Work) -> None:
        """See `_Way`."""
        job = work()
        try:
            with self._lock:
                if self._pool is None:
                    self._pool = ThreadPoolExecutor(self._workers, thread_name_prefix="tocsin-rule")
                future = self._pool.submit(Context().run, drive, job)
                self.detached.add(future)
        except RuntimeError:  # the program ends, and no thread takes work any more: here, then
            Context().run(drive, job)
            return
        future.add_done_callback(self._ended)

    def _ended(self, future: Future[None]) -> None:
        self.detached.discard(future)
        if (error := future.exception()) is not None:  # no failure of a rule, which is reported: sys.exit(), say
            _log.error("a detached rule ended its thread: %r", error)

    def close(self) -> None:
        """Wait for what is detached, and end the threads."""
        with self._lock:
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown()


class Awaiting:
    """For code on an event loop: tasks. With `threads`, plain functions do not hold up the loop.

    The threads are its own: the loop's are few, and shared with whatever else the program does there.
    """

    def __init__(self, *, threads: int = 0) -> None:
        """Say in how many threads plain functions are called; 0: on the loop."""
        self._threads = threads
        self._pool: ThreadPoolExecutor | None = None
        self.detached: set[asyncio.Task[None]] = set()

    async def call(self, function: Callable[[Any], Any], what: Any) -> Any:
        """See `_Way`."""
        if not self._threads:
            result = function(what)
        else:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(self._threads, thread_name_prefix="tocsin-rule")
            loop = asyncio.get_running_loop()
            result = await loop.run_in_executor(self._pool, copy_context().run, _called, function, what)
        return await result if inspect.isawaitable(result) else result

    async def together(self, works: list[Work]) -> None:
        """See `_Way`."""
        await asyncio.gather(*(work() for work in works))

    def detach(self, work: Work) -> None:
        """See `_Way`."""
        task = asyncio.get_running_loop().create_task(work(), context=Context())
        self.detached.add(task)
        task.add_done_callback(self.detached.discard)

    def close(self) -> None:
        """End the threads; who is at work is not waited for. A later call begins new ones."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown(wait=False)


def _called(function: Callable[[Any], Any], what: Any) -> Any:
    try:
        return function(what)
    except StopIteration as error:  # no future can hold it: who waits would wait for ever
        raise RuntimeError("it raised StopIteration") from error


async def fire(triggered: Triggered, way: _Way) -> bool:
    """Ask the condition; if it holds, do the action. Returns whether it did.

    Raises:
        Exception: what they raise.
        RuleError: what they waited for was cancelled; we were not. Or they raised what is no `Exception`.
        KeyboardInterrupt, SystemExit: these are meant for the program, and no failure of the rule.
    """
    rule, event, what = triggered
    try:
        if isinstance(rule.when, Filter):
            holds = rule.when.matches(event)
        else:
            holds = rule.when is None or bool(await way.call(rule.when, what))  # type: ignore[arg-type]
        if holds:
            await way.call(rule.action, what)
    except asyncio.CancelledError as error:
        if _is_cancelled():
            raise
        raise RuleError("what it waited for was cancelled") from error
    except (Exception, KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as error:  # a class of its own, which nobody above would catch
        raise RuleError(f"it raised {type(error).__name__}") from error
    return holds


def _is_cancelled() -> bool:
    try:
        task = asyncio.current_task()
    except RuntimeError:  # no loop, and so nobody who could cancel
        return False
    return task is not None and task.cancelling() > 0


class Scheduler:
    """Runs rules that were triggered."""

    def __init__(
        self,
        report: Callable[[Failure], Iterable[Triggered]],
        *,
        on: bool = False,
        max_depth: int = MAX_DEPTH,
        workers: int = WORKERS,
    ) -> None:
        """Say who hears of failures: it returns the rules that are triggered by one."""
        self.on = on
        """By priority, equal ones together? Else one after the other, as triggered."""
        self.max_depth = max_depth
        self._report = report
        self._blocking = Blocking(workers)
        self._awaiting = (Awaiting(), Awaiting(threads=workers))
        self._deferred: list[tuple[int, Triggered]] = []
        self._lock = threading.Lock()

    # -- running

    def run(self, triggered: Iterable[Triggered]) -> None:
        """Run rules, from code without an event loop.

        Raises:
            RuleDepthError: rules have triggered rules too deeply; these were not run.
        """
        drive(self._run(list(triggered), self._blocking))

    async def run_async(self, triggered: Iterable[Triggered], *, threads: bool = False) -> None:
        """Run rules on this event loop; with `threads`, plain functions do not hold it up."""
        await self._run(list(triggered), self._awaiting[threads])

    async def _run(self, triggered: list[Triggered], way: _Way) -> None:
        if not triggered:
            return
        depth = _depth.get()
        if depth >= self.max_depth:
            raise RuleDepthError(
                f"{triggered[0].event.type} is caused by rules {depth} levels deep",
                help=f"rules seem to trigger each other for ever; max_depth is {self.max_depth}",
            )
        now = []
        for each in triggered:
            if each.rule.coupling == "immediate":
                now.append(each)
            elif each.rule.coupling == "detached":
                way.detach(lambda each=each: self._one(each, way))  # type: ignore[misc]
            else:
                with self._lock:
                    self._deferred.append((depth, each))
        await self._all(now, way)

    async def _all(self, triggered: list[Triggered], way: _Way) -> None:
        for equals in self._groups(triggered):
            await self._together(equals, way)

    def _groups(self, triggered: list[Triggered]) -> list[list[Triggered]]:
        """What runs one after the other; in each, what runs at the same time."""
        if not self.on:
            return [[each] for each in triggered]
        return [list(equals) for _, equals in groupby(sorted(triggered, key=_urgency), key=_urgency)]

    async def _together(self, equals: list[Triggered], way: _Way) -> None:
        works: list[Work] = [lambda each=each: self._one(each, way) for each in equals]  # type: ignore[misc]
        await (works[0]() if len(works) == 1 else way.together(works))

    async def _one(self, triggered: Triggered, way: _Way) -> None:
        level = _depth.set(_depth.get() + 1)
        try:
            await fire(triggered, way)
            return
        except Exception as error:
            failure = Failure(triggered.rule.name, triggered.event, error)
        finally:
            _depth.reset(level)
        await self._run(list(self._report(failure)), way)

    # -- deferred

    @property
    def deferred(self) -> int:
        """How many rules wait for `commit`."""
        return len(self._deferred)

    def commit(self) -> int:
        """Run what was deferred, and what that defers; returns how many rules that were."""
        return drive(self._commit(self._blocking))

    async def commit_async(self) -> int:
        """Do the same on this event loop."""
        return await self._commit(self._awaiting[False])

    async def _commit(self, way: _Way) -> int:
        count = 0
        while True:
            with self._lock:
                batch, self._deferred = self._deferred, []
            if not batch:
                return count
            depth = max(depth for depth, _ in batch)
            groups = deque(self._groups([each for _, each in batch]))
            level = _depth.set(depth)
            try:
                while groups:
                    equals = groups.popleft()
                    await self._together(equals, way)
                    count += len(equals)
            finally:
                _depth.reset(level)
                with self._lock:  # Ctrl-C or a cancelled task: what has not begun waits for the next commit
                    self._deferred[:0] = [(depth, each) for equals in groups for each in equals]

    def rollback(self) -> int:
        """Drop what was deferred; returns how many rules that were. What ran has run."""
        with self._lock:
            dropped, self._deferred = self._deferred, []
        return len(dropped)

    # -- detached

    def drain(self) -> None:
        """Wait until no detached rule runs, from code without an event loop."""
        while futures := set(self._blocking.detached):
            wait(futures)

    async def drain_async(self) -> None:
        """Wait until no detached rule runs."""
        while tasks := {task for way in self._awaiting for task in way.detached}:
            await asyncio.wait(tasks)
        await asyncio.to_thread(self.drain)

    def close(self) -> None:
        """Wait for detached rules, and end their threads."""
        self._blocking.close()
        self._awaiting[True].close()


def _urgency(triggered: Triggered) -> int:
    return -triggered.rule.priority


def drive(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never waits."""
    try:
        work.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    raise AssertionError("blocking code has waited on a loop")


def _finished(awaitable: Awaitable[Any]) -> Any:
    """Run it on a loop of its own, and wait for it. On a thread of its own, too, if this one has a loop."""

    async def outcome() -> Any:
        return await awaitable

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(outcome())
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(copy_context().run, asyncio.run, outcome()).result()
