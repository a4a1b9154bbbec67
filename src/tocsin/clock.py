"""Time: what moment it is, and waiting for one. Whole microseconds since 1970, UTC, everywhere inside.

`SystemClock` reads the wall clock once and then follows the monotonic clock, so that a wall clock set back or forth
does not disturb journal time; `drift` tells by how much the two have come apart. `ManualClock` stands still until it is
turned by hand: tests wait for nothing.
"""

from __future__ import annotations

import asyncio
import threading
import time
from datetime import UTC, datetime, timedelta
from typing import Final, Protocol

__all__ = ["SECOND", "Clock", "ManualClock", "SystemClock", "as_datetime", "as_micros"]

SECOND: Final = 1_000_000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


def as_micros(moment: datetime) -> int:
    """An aware datetime as microseconds since 1970, exactly."""
    return (moment - _EPOCH) // _MICROSECOND


def as_datetime(micros: int) -> datetime:
    """Undo `as_micros`."""
    return _EPOCH + timedelta(0, 0, micros)  # by place: half as long as by name


class Clock(Protocol):
    """What the node asks of a clock."""

    def now(self) -> int:
        """The moment, in microseconds since 1970; never earlier than it said before."""

    def drift(self) -> float:
        """Seconds by which the wall clock is ahead of what `now` says."""

    async def wait(self, wake: asyncio.Event, until: int | None) -> None:
        """Return when `wake` is set, or when it is `until`; None: wait for `wake` only."""


class SystemClock:
    """The machine's clock."""

    def __init__(self) -> None:
        """Take the wall clock's time as the beginning."""
        self._ahead = time.time_ns() - time.monotonic_ns()

    def now(self) -> int:
        """See `Clock.now`."""
        return (time.monotonic_ns() + self._ahead) // 1000

    def drift(self) -> float:
        """See `Clock.drift`."""
        return (time.time_ns() - time.monotonic_ns() - self._ahead) / 1e9

    async def wait(self, wake: asyncio.Event, until: int | None) -> None:
        """See `Clock.wait`."""
        if until is None:
            await wake.wait()
            return
        delay = (until - self.now()) / SECOND
        if delay <= 0 or wake.is_set():
            return
        try:
            async with asyncio.timeout(delay):
                await wake.wait()
        except TimeoutError:
            return


class ManualClock:
    """A clock that moves only when told to. May be turned from any thread."""

    def __init__(self, start: datetime | None = None) -> None:
        """Begin at `start`, else at a fixed moment of 2026."""
        self._now = as_micros(start if start is not None else datetime(2026, 1, 1, tzinfo=UTC))
        self._drift = 0.0
        self._lock = threading.Lock()
        self._waiting: list[tuple[int, asyncio.AbstractEventLoop, asyncio.Event]] = []

    def now(self) -> int:
        """See `Clock.now`."""
        return self._now

    def drift(self) -> float:
        """See `Clock.drift`."""
        return self._drift

    def advance(self, seconds: float) -> None:
        """Let so many seconds pass, and wake who waited for it."""
        if seconds < 0:
            raise ValueError("journal time does not go backward; see jump() for a wall clock that does")
        with self._lock:
            self._now += round(seconds * SECOND)
            due = [each for each in self._waiting if each[0] <= self._now]
            self._waiting = [each for each in self._waiting if each[0] > self._now]
        for _, loop, event in due:
            loop.call_soon_threadsafe(event.set)

    def jump(self, seconds: float) -> None:
        """Set the wall clock, not journal time: what `drift` reports."""
        self._drift += seconds

    async def wait(self, wake: asyncio.Event, until: int | None) -> None:
        """See `Clock.wait`."""
        if until is None:
            await wake.wait()
            return
        turned = asyncio.Event()
        entry = (until, asyncio.get_running_loop(), turned)
        with self._lock:
            if until <= self._now:
                return
            self._waiting.append(entry)
        waits = [asyncio.ensure_future(wake.wait()), asyncio.ensure_future(turned.wait())]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waits:
                each.cancel()
            with self._lock:
                self._waiting = [each for each in self._waiting if each is not entry]
