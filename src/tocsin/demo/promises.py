"""What the demo promises to show: each thing, how often it was seen, and after how many seconds first.

A thing counts when it was observed, never when it was only attempted. What needs Spark is left out where no Spark was
asked for, and is missing where it was asked for and did not come.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, NamedTuple

__all__ = ["PROMISES", "Promise", "Promises", "Seen"]


class Promise(NamedTuple):
    """One thing that will be seen."""

    short: str
    """For the foot of the screen."""
    title: str
    is_spark: bool = False


PROMISES: Final = {
    "flow": Promise("events flow", "an event told to one who asked for such"),
    "stop": Promise("possible stop", "no value within the limit: possible stop"),
    "normal": Promise("back to normal", "the next value: back to normal"),
    "inactive": Promise("inactive", "the end of measuring: inactive, and not a stop"),
    "node": Promise("composite, node", "a composite event found by the node"),
    "spark": Promise("composite, Spark", "a composite event found by Spark", is_spark=True),
    "why": Promise("explained", "the explanation of one that Spark found", is_spark=True),
    "overtaking": Promise("overtaking", "an alert that overtook queued others"),
    "past": Promise("the past", "a late subscriber told the past, then what is live"),
    "answered": Promise("answered", "an alert answered, and its publisher told so"),
    "cancelled": Promise("cancelled", "an alert withdrawn, and those who had it told so"),
    "expired": Promise("time to live", "an event whose time ran out, never delivered"),
    "again": Promise("after a crash", "what a killed consumer held, delivered again"),
}


class Seen(NamedTuple):
    """How often something was seen, and first after how many seconds."""

    times: int = 0
    first: float | None = None


class Promises:
    """What was seen of what was promised."""

    def __init__(self, *, spark: bool = True, clock: Callable[[], float] = time.monotonic) -> None:
        """Begin: nothing was seen, and the seconds run from here."""
        self._clock = clock
        self._begun = clock()
        self.seen = {key: Seen() for key, promise in PROMISES.items() if spark or not promise.is_spark}

    @property
    def elapsed(self) -> float:
        """Seconds since the beginning."""
        return self._clock() - self._begun

    def saw(self, key: str) -> None:
        """It happened, once more."""
        if (before := self.seen.get(key)) is not None:
            first = before.first if before.first is not None else self.elapsed
            self.seen[key] = Seen(before.times + 1, first)

    @property
    def missing(self) -> list[str]:
        """What was not seen yet."""
        return [key for key, seen in self.seen.items() if not seen.times]
