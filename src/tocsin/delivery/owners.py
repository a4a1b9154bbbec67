"""Whose is an event, if several subscriptions of a consumer match it: one lane's, always the same, whoever asks.

Live it is the first open lane that accepts it. Later, when a lane looks through the journal, the answer must be the
same, so epochs are remembered: from which offset on which lanes were open. A lane that has ended owns what it has
settled, and that stays away; what it has dropped may be taken up by a lane made since, and by no other, since those
there before have passed it by. Pure state, no clock, no I/O.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from tocsin.delivery.lane import ANY_LEVEL, Lane
from tocsin.model import Event

__all__ = ["Epoch", "Options", "Owners"]


class Options(msgspec.Struct, frozen=True):
    """What belongs to a consumer, and must be the same whenever it subscribes."""

    order: str = "priority"
    group: str | None = None
    durable: bool = True
    ack_wait: float = 30.0
    max_in_flight: int = 256
    max_deliver: int | None = None
    auto_ack: bool = False
    fair: float = 0.0
    placement: str = "node"
    """Where its subscriptions are matched."""

    @staticmethod
    def given(**options: Any) -> dict[str, Any]:
        """Those that were said; of the others there is `UNSET`."""
        return {name: value for name, value in options.items() if value is not msgspec.UNSET}


class Epoch(msgspec.Struct, frozen=True, array_like=True):
    """From an offset on, these lanes were open, in this order."""

    first: int
    lanes: list[str]


class Owners:
    """The lanes of one consumer, in the order they were made."""

    def __init__(self, options: Options) -> None:
        """Start with none."""
        self.options = options
        self.lanes: dict[str, Lane] = {}
        self.epochs: list[Epoch] = []
        """Which lanes were open from which offset on."""

    def level_of(self, event: Event) -> int:
        """The queue an event belongs in."""
        return event.priority if self.options.order == "priority" else ANY_LEVEL

    def add(self, lane: Lane) -> None:
        """Take in a subscription that was just made."""
        lane.record.number = 1 + self._newest_number()
        self.lanes[lane.id] = lane

    def end(self, lane: Lane, head: int) -> Callable[[], None]:
        """A subscription ends; returns what undoes that."""
        lane.record.last = self._newest_number()
        return lane.end(head)

    def _newest_number(self) -> int:
        return max((each.record.number for each in self.lanes.values()), default=0)

    def comes_first(self, lane: str, other: str) -> bool:
        """Which of two lanes was made first?"""
        return next(each for each in self.lanes if each in (lane, other)) == lane

    def note_open(self, open_lanes: list[str], head: int) -> None:
        """From the next offset on, these lanes are open."""
        epoch = Epoch(head + 1, [lane for lane in self.lanes if lane in open_lanes])
        if self.epochs and self.epochs[-1].first == epoch.first:
            self.epochs.pop()
        if not self.epochs or self.epochs[-1].lanes != epoch.lanes:
            self.epochs.append(epoch)
        lowest = min(
            (
                lane.frontier(level, head)
                for lane in self.lanes.values()
                if not lane.record.ended or lane.is_ragged()
                for level in lane.levels
            ),
            default=0,
        )
        while len(self.epochs) > 1 and self.epochs[1].first <= lowest:
            self.epochs.pop(0)

    def lanes_about(self, first: int, last: int) -> list[Lane]:
        """Those that may have to do with these offsets: of a thousand that have ended, few."""
        return [lane for lane in self.lanes.values() if lane.record.start <= last and lane.reaches(first)]

    def owner_of(self, event: Event, among: Sequence[Lane] | None = None) -> Lane | None:
        """The one lane that delivers an event, or has: of those there when it came, the first open one that accepts it.

        If there was none, or it has ended before the event was settled: the first made since then that accepts it.
        `among`: what `lanes_about` says of a range that holds the event.
        """
        level, offset = self.level_of(event), event.offset or 0
        lanes = self.lanes_about(offset, offset) if among is None else among
        place = bisect_right(self.epochs, offset, key=lambda epoch: epoch.first)
        opened = self.epochs[place - 1].lanes if place else []
        last = -1
        for lane in (*(self.lanes[name] for name in opened if name in self.lanes), *lanes):
            if lane.was_there(offset) and lane.accepts(event):
                if not lane.has_dropped(offset, level):
                    return lane
                last = lane.record.last or -1
                break
        for lane in lanes:
            if lane.record.number > last and lane.record.seam >= offset and lane.accepts(event):
                if not lane.has_dropped(offset, level):
                    return lane
                last = lane.record.last or -1
        return None
