"""SEQ and NOT of which each opener is an event by itself: what is open most, in as little as can be.

A *cell* is here a list of openers, oldest first, and an opener is nothing but its `Part`: of a leaf's occurrence that
is all there is to know. A closer takes openers and nothing else; a middle of NOT leaves none. `recent` has one opener
at most. Other operators, and openers that are made of something, have windows (`windows`).

Pure: a step changes the cell it is given and tells what occurred.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tocsin.composite.occurrence import Occurrence, Part, alone, paired
from tocsin.composite.windows import Opening, Rules, Take

__all__ = ["Pairs"]

PartCell = list[Part]


class Pairs(Opening):
    """An operator at work, for all keys."""

    def __init__(self, rules: Rules) -> None:
        """Prepare what its rules decide."""
        super().__init__(rules)
        middle = (self._middle,) if rules.operator == "NOT" else ()
        self.takes: tuple[Take, ...] = (self._open, *middle, self.close)
        """How one arrival alone is taken, by place."""
        self.opens = (True, *(False for _ in middle), False)
        """Does an arrival do something where nothing is open? By place."""
        self.size: Callable[[PartCell], int] = len
        """How much a cell holds."""

    @staticmethod
    def can(rules: Rules) -> bool:
        """Is this an operator that can be kept so?"""
        pairs = rules.operator == "SEQ" or (rules.operator == "NOT" and not rules.interval)
        return pairs and rules.context != "cumulative" and rules.is_ordered

    def step(
        self, cell: PartCell, arrivals: Sequence[list[Occurrence]], instant: int | None = None
    ) -> list[Occurrence]:
        """What occurs when these arrive at one instant, by place."""
        found: list[Occurrence] = []
        closers = arrivals[-1] if len(arrivals) == len(self.takes) else []
        closed = [closer for closer in closers if self.close(cell, closer, found)]
        if len(self.takes) > 2 and len(arrivals) > 1 and arrivals[1]:
            cell.clear()
        openers = self.openers(arrivals)
        for opener in self.unused(openers, closed) if closed else openers:
            self._open(cell, opener, found)
        return found

    def oldest(self, cell: PartCell) -> int:
        """When the opener began that will be too old first."""
        return cell[0].time

    def expire(self, cell: PartCell, now: int) -> int:
        """Drop openers that cannot be completed any more; returns how many."""
        within = self.rules.within
        gone = 0
        for part in cell if within is not None else ():
            if now - part.time <= within:  # type: ignore[operator]
                break
            gone += 1
        del cell[:gone]
        return gone

    # -- arrivals

    def _open(self, cell: PartCell, opener: Occurrence, found: list[Occurrence]) -> None:
        if cell and self.rules.context == "recent":
            cell.clear()
        cell.append(opener.parts[0])

    def _middle(self, cell: PartCell, middle: Occurrence, found: list[Occurrence]) -> None:
        cell.clear()

    def close(self, cell: PartCell, closer: Occurrence, found: list[Occurrence]) -> bool:
        """A closer: does it close something?"""
        _, context, interval, within, _, _, accept, _ = self.rules
        time, place = (closer.first, closer.start) if interval else (closer.last, closer.end)
        spent = []
        for number, part in enumerate(cell):
            began = part.time
            if began > time or (began == time and (part.offset is None or part.offset >= place)):
                continue
            if within is not None and closer.last - began > within:
                continue
            pair = paired(alone(part), closer)
            if accept is None or accept(pair):
                found.append(pair)
                spent.append(number)
                if context == "chronicle":
                    break
        if context != "recent":
            _remove(cell, spent)
        return bool(spent)


def _remove(cell: PartCell, spent: list[int]) -> None:
    """Take openers out of a cell, given by their places, in one go: there may be many."""
    count = len(spent)
    if count and spent[-1] == count - 1:  # they are the first, as mostly
        del cell[:count]
    elif count:
        gone = set(spent)
        cell[:] = [part for place, part in enumerate(cell) if place not in gone]
