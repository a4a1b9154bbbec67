"""Operators without an order: OR, AND, ANY. AND is ANY of all.

The cell of AND and ANY holds in `recent`, `chronicle` and `cumulative` one window for each kind, with those that wait;
in `continuous` one window for each initiator, with what it has met so far.

At one instant every arrival first tries to complete something with what came before. Outside `recent`, one that did is
used up. The others are then added one after the other, and may complete something together: so AND(a, b) occurs at an
event that is both. What is made of the same events as one that is used up is not kept either.

Pure: a step changes the cell it is given and tells what occurred.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from itertools import combinations, product

from tocsin.composite.occurrence import Occurrence, Window, distinct, joined, made_of
from tocsin.composite.windows import Cell, Rules, Take, forget_old, in_time, remove

__all__ = ["Either", "Pools"]

Arrivals = Sequence[list[Occurrence]]
"""What came, by kind."""


class Either:
    """OR: everything that counts, once. It keeps nothing."""

    def __init__(self, rules: Rules, kinds: int) -> None:
        """Prepare what its rules decide."""
        self.rules = rules
        self.size: Callable[[Cell], int] = len
        self.takes: tuple[Take, ...] = (self._take,) * kinds
        self.opens = (True,) * kinds

    def step(self, cell: Cell, arrivals: Arrivals, instant: int | None = None) -> list[Occurrence]:
        """What occurs when these arrive at one instant."""
        return distinct(occurrence for kind in arrivals for occurrence in kind if _fits(self.rules, occurrence))

    def _take(self, cell: Cell, occurrence: Occurrence, found: list[Occurrence]) -> None:
        if _fits(self.rules, occurrence):
            found.append(occurrence)

    def openers(self, arrivals: Arrivals) -> list[Occurrence]:
        """Those of several arrivals that may be kept."""
        return []

    def oldest(self, cell: Cell) -> int:
        """Nothing is kept."""
        raise AssertionError("OR keeps nothing")

    def expire(self, cell: Cell, now: int) -> int:
        """Nothing is kept."""
        return 0


class Pools:
    """AND or ANY at work, for all keys."""

    def __init__(self, rules: Rules, kinds: int) -> None:
        """Prepare what its rules decide."""
        self.rules, self._pool = rules, _POOLS[rules.context]
        self._is_recent = rules.context == "recent"
        self.takes: tuple[Take, ...] = tuple(partial(self._take, kind) for kind in range(kinds))
        """How one arrival alone is taken, by place."""
        self.opens = (True,) * kinds
        """Does an arrival do something where nothing is open? By place."""
        singles = rules.context == "continuous" and rules.least == 2  # one opener in each window
        self.size: Callable[[Cell], int] = len if singles else _contents
        """How much a cell holds."""

    def _take(self, kind: int, cell: Cell, occurrence: Occurrence, found: list[Occurrence]) -> None:
        """As `step` with one arrival: it completes something, or is kept; in `recent` it is kept anyway."""
        pool = self._pool(self.rules, cell, kind + 1)
        if not pool.complete(kind, occurrence, found) or self._is_recent:
            pool.add(kind, occurrence)
        elif not any(window.openers for window in cell):
            cell.clear()

    def step(self, cell: Cell, arrivals: Arrivals, instant: int | None = None) -> list[Occurrence]:
        """What occurs when these arrive at one instant."""
        pool = self._pool(self.rules, cell, len(arrivals))
        found: list[Occurrence] = []
        closed: set[object] = set()
        came = [(kind, occurrence) for kind, occurrences in enumerate(arrivals) for occurrence in occurrences]
        for kind, occurrence in came:
            if pool.complete(kind, occurrence, found):
                closed.add(made_of(occurrence))
        for kind, occurrence in came:
            if self._is_recent:
                if not closed and len(came) > 1:
                    pool.complete(kind, occurrence, found)
                pool.add(kind, occurrence)
            elif not closed or made_of(occurrence) not in closed:
                if len(came) > 1 and pool.complete(kind, occurrence, found):
                    closed.add(made_of(occurrence))
                    pool.forget([each for _, each in came if made_of(each) in closed])
                else:
                    pool.add(kind, occurrence)
        if not any(window.openers for window in cell):
            cell.clear()
        return found

    def openers(self, arrivals: Arrivals) -> list[Occurrence]:
        """Those of several arrivals that may be kept."""
        return [opener for came in arrivals for opener in came]

    def oldest(self, cell: Cell) -> int:
        """When the one began that will be too old first."""
        ordered, continuous = self.rules.is_ordered, self.rules.context == "continuous"
        if continuous:  # there the initiator counts
            return min([window.openers[0].first for window in (cell[:1] if ordered else cell)])
        return min([o.first for window in cell for o in (window.openers[:1] if ordered else window.openers)])

    def expire(self, cell: Cell, now: int) -> int:
        """Drop what cannot be completed any more; returns how many."""
        rules, dropped = self.rules, 0
        if rules.context == "continuous":
            spent = []
            for window in cell:
                if not in_time(rules, window.openers[0], now):
                    spent.append(window)
                elif rules.is_ordered:
                    break
            remove(cell, spent)
            return len(spent)
        for window in cell:
            dropped += forget_old(rules, window.openers, now)
        if not any(window.openers for window in cell):
            cell.clear()
        return dropped


def _contents(cell: Cell) -> int:
    return sum([len(window.openers) for window in cell])


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

    def others(self, kind: int) -> list[tuple[int, list[Occurrence]]]:
        """Those of other kinds that wait, by kind. None is too old: at every instant those are dropped first."""
        return [(n, window.openers) for n, window in enumerate(self.cell) if window.openers and n != kind]

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
        others = _in_order([opener for _, waiting in self.others(kind) for opener in waiting])
        wanted = self.rules.least - 1
        return len(others) >= wanted and self.fire([*others[len(others) - wanted :], occurrence], found)

    def add(self, kind: int, occurrence: Occurrence) -> None:
        self.cell[kind].openers[:] = [occurrence]


class _Chronicle(_Pool):
    def complete(self, kind: int, occurrence: Occurrence, found: list[Occurrence]) -> bool:
        for others in combinations(self.others(kind), self.rules.least - 1):
            for chosen in product(*[waiting for _, waiting in others]):  # the oldest of each first
                if self.fire([*chosen, occurrence], found):
                    for (_, waiting), used in zip(others, chosen, strict=True):
                        waiting.remove(used)  # it may wait as another kind, too
                    return True
        return False


class _Cumulative(_Pool):
    def complete(self, kind: int, occurrence: Occurrence, found: list[Occurrence]) -> bool:
        if len(self.others(kind)) < self.rules.least - 1:
            return False
        if not self.fire([*(opener for window in self.cell for opener in window.openers), occurrence], found):
            return False
        for window in self.cell:
            window.openers.clear()
        return True


class _Continuous(_Pool):
    """One window for each initiator."""

    def __init__(self, rules: Rules, cell: Cell, kinds: int) -> None:
        self.rules, self.cell = rules, cell

    def complete(self, kind: int, occurrence: Occurrence, found: list[Occurrence]) -> bool:
        wanted, spent = self.rules.least - 1, []
        for window in self.cell:
            met = window.met or ()
            if len(met) == wanted and kind not in met and self.fire([*window.openers, occurrence], found):
                spent.append(window)
        remove(self.cell, spent)
        return bool(spent)

    def add(self, kind: int, occurrence: Occurrence) -> None:
        most = self.rules.least - 1
        for window in self.cell if most > 1 else ():
            met = window.met or []
            if len(met) < most and kind not in met:
                window.openers.append(occurrence)
                window.met = [*met, kind]
        self.cell.append(Window([occurrence], met=[kind]))

    def forget(self, gone: list[Occurrence]) -> None:
        self.cell[:] = [window for window in self.cell if not any(window.openers[0] is each for each in gone)]


_POOLS: dict[str, type[_Pool]] = {
    "recent": _Recent,
    "chronicle": _Chronicle,
    "continuous": _Continuous,
    "cumulative": _Cumulative,
}
