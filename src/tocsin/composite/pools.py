"""Operators without an order: OR, AND, ANY. AND is ANY of all.

The cell of AND and ANY holds in `recent`, `chronicle` and `cumulative` one window for each kind, with those that wait;
in `continuous` one window for each initiator, with what it has met so far.

At one instant every arrival first tries to complete something with what came before. Outside `recent`, one that did is
used up. The others are then added one after the other, and may complete something together: so AND(a, b) occurs at an
event that is both. What is made of the same events as one that is used up is not kept either.

Pure: a step changes the cell it is given and returns what occurred.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import combinations, product

from tocsin.composite.occurrence import Occurrence, Window, distinct, joined, made_of
from tocsin.composite.windows import Cell, Rules, in_time

__all__ = ["either", "expire", "step"]

Arrivals = Sequence[list[Occurrence]]
"""What came, by kind."""


def either(rules: Rules, arrivals: Arrivals) -> list[Occurrence]:
    """OR: everything that counts, once."""
    return distinct(occurrence for kind in arrivals for occurrence in kind if _fits(rules, occurrence))


def step(rules: Rules, cell: Cell, arrivals: Arrivals) -> list[Occurrence]:
    """What occurs when these arrive at one instant."""
    pool = _POOLS[rules.context](rules, cell, len(arrivals))
    found: list[Occurrence] = []
    closed: set[object] = set()
    came = [(kind, occurrence) for kind, occurrences in enumerate(arrivals) for occurrence in occurrences]
    for kind, occurrence in came:
        if pool.complete(kind, occurrence, found):
            closed.add(made_of(occurrence))
    for kind, occurrence in came:
        if rules.context == "recent":
            if not closed:
                pool.complete(kind, occurrence, found)
            pool.add(kind, occurrence)
        elif not closed or made_of(occurrence) not in closed:
            if pool.complete(kind, occurrence, found):
                closed.add(made_of(occurrence))
                pool.forget([each for _, each in came if made_of(each) in closed])
            else:
                pool.add(kind, occurrence)
    if not any(window.openers for window in cell):
        cell.clear()
    return found


def expire(rules: Rules, cell: Cell, now: int) -> int:
    """Drop what cannot be completed any more; returns how many."""
    dropped = 0
    for window in list(cell):
        if rules.context == "continuous":
            if not in_time(rules, window.openers[0], now):
                cell.remove(window)
                dropped += 1
            continue
        live = [opener for opener in window.openers if in_time(rules, opener, now)]
        dropped += len(window.openers) - len(live)
        window.openers[:] = live
    if not any(window.openers for window in cell):
        cell.clear()
    return dropped


def _fits(rules: Rules, occurrence: Occurrence) -> bool:
    if rules.within is not None and occurrence.last - occurrence.first > rules.within:
        return False
    return rules.accept is None or rules.accept(occurrence)


def _in_order(occurrences: Sequence[Occurrence]) -> list[Occurrence]:
    return sorted(occurrences, key=lambda occurrence: (occurrence.ends, occurrence.begins))


class _Pool(ABC):
    """One window for each kind."""

    def __init__(self, rules: Rules, cell: Cell, kinds: int) -> None:
        while len(cell) < kinds:
            cell.append(Window([]))
        self.rules, self.cell = rules, cell

    def usable(self, by: Occurrence) -> list[list[Occurrence]]:
        """For each kind those that are not too old."""
        return [[o for o in window.openers if in_time(self.rules, o, by.last)] for window in self.cell]

    @abstractmethod
    def complete(self, kind: int, occurrence: Occurrence, found: list[Occurrence]) -> bool:
        """Does it complete something with those of other kinds? Then what occurs is found, and what is used up gone."""

    def add(self, kind: int, occurrence: Occurrence) -> None:
        """Keep it."""
        self.cell[kind].openers.append(occurrence)

    def forget(self, gone: list[Occurrence]) -> None:
        """Do not keep these, which came at this instant and are made of the same as what is used up."""
        for window in self.cell:
            window.openers[:] = [o for o in window.openers if not any(o is each for each in gone)]

    def fire(self, items: Sequence[Occurrence], found: list[Occurrence]) -> bool:
        """Does this combination count?"""
        made = joined(_in_order(items))
        if not _fits(self.rules, made):
            return False
        found.append(made)
        return True


class _Recent(_Pool):
    def complete(self, kind: int, occurrence: Occurrence, found: list[Occurrence]) -> bool:
        usable = self.usable(occurrence)
        others = _in_order([o for number, waiting in enumerate(usable) if number != kind for o in waiting])
        wanted = self.rules.least - 1
        return len(others) >= wanted and self.fire([*others[len(others) - wanted :], occurrence], found)

    def add(self, kind: int, occurrence: Occurrence) -> None:
        self.cell[kind].openers[:] = [occurrence]


class _Chronicle(_Pool):
    def complete(self, kind: int, occurrence: Occurrence, found: list[Occurrence]) -> bool:
        usable = self.usable(occurrence)
        others = [number for number, waiting in enumerate(usable) if waiting and number != kind]
        for numbers in combinations(others, self.rules.least - 1):
            for chosen in product(*[usable[number] for number in numbers]):  # the oldest of each first
                if self.fire([*chosen, occurrence], found):
                    for number, used in zip(numbers, chosen, strict=True):
                        self.cell[number].openers.remove(used)  # it may wait as another kind, too
                    return True
        return False


class _Cumulative(_Pool):
    def complete(self, kind: int, occurrence: Occurrence, found: list[Occurrence]) -> bool:
        live = self.usable(occurrence)
        if sum(1 for number, waiting in enumerate(live) if waiting and number != kind) < self.rules.least - 1:
            return False
        if not self.fire([*(o for waiting in live for o in waiting), occurrence], found):
            return False
        for window in self.cell:
            window.openers.clear()
        return True


class _Continuous(_Pool):
    """One window for each initiator."""

    def __init__(self, rules: Rules, cell: Cell, kinds: int) -> None:
        self.rules, self.cell = rules, cell

    def complete(self, kind: int, occurrence: Occurrence, found: list[Occurrence]) -> bool:
        did = False
        for window in list(self.cell):
            wanted = len(window.kinds) + 1 == self.rules.least and kind not in window.kinds
            if wanted and self.fire([*window.openers, occurrence], found):
                self.cell.remove(window)
                did = True
        return did

    def add(self, kind: int, occurrence: Occurrence) -> None:
        for window in self.cell:
            if kind not in window.kinds and len(window.kinds) + 1 < self.rules.least:
                window.openers.append(occurrence)
                window.kinds.append(kind)
        self.cell.append(Window([occurrence], [], None, [kind]))

    def forget(self, gone: list[Occurrence]) -> None:
        self.cell[:] = [window for window in self.cell if not any(window.openers[0] is each for each in gone)]


_POOLS: dict[str, type[_Pool]] = {
    "recent": _Recent,
    "chronicle": _Chronicle,
    "continuous": _Continuous,
    "cumulative": _Cumulative,
}
