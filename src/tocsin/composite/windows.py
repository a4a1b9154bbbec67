"""Operators with an opener: SEQ, NOT, A, A*, P, P*, PLUS. What each does in each context.

A *cell* is the state of one operator for one key: its open windows, oldest first. `recent` has one at most, and so has
`cumulative`, whose one window gathers all openers; `chronicle` and `continuous` have one for each opener.

At one instant closers come first, then middles and ticks, then openers. Outside `recent`, what closed something does
not open. Where only one thing arrives, as is usual, its role's method is all there is to call: see `Windows.takes`.
What is closed most, one event with another, has a module of its own (`pairs`).

Pure: a step changes the cell it is given and tells what occurred.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from tocsin.composite.expression import Context, Operator
from tocsin.composite.occurrence import Occurrence, Position, Window, joined, made_of, tick

__all__ = ["POOLS", "Cell", "Opening", "Rules", "Take", "Windows", "forget_old", "in_time", "next_due", "remove"]

Cell = list[Window]
Take = Callable[[list[Any], Occurrence, list[Occurrence]], object]
"""Takes one arrival into a cell of its operator, and adds what occurs to a list."""

POOLS = ("OR", "AND", "ANY")
"""Operators without an opener: see `pools`."""
_ROLES: dict[str, tuple[int, ...]] = {"SEQ": (0, 2), "NOT": (0, 1, 2), "A": (0, 1, 2), "A*": (0, 1, 2)} | dict.fromkeys(
    ("P", "P*"), (0, 2)
)
"""Which role each constituent has: 0 opens, 1 is between, 2 closes."""


class Rules(NamedTuple):
    """What an operator goes by."""

    operator: Operator
    context: Context
    interval: bool
    within: int | None = None
    period: int = 0
    least: int = 0
    """How many kinds ANY and AND want."""
    accept: Callable[[Occurrence], bool] | None = None
    """The condition on what is detected; None: there is none."""
    is_ordered: bool = False
    """Do openers come in the order in which they began, as those of leaves do? Then the oldest are in front."""


def in_time(rules: Rules, opener: Occurrence, now: int) -> bool:
    """Can something that began with this still be completed?"""
    return rules.within is None or now - opener.first <= rules.within


def forget_old(rules: Rules, openers: list[Occurrence], now: int) -> int:
    """Drop openers that cannot be completed any more; returns how many."""
    before = len(openers)
    if not rules.is_ordered:
        openers[:] = [opener for opener in openers if in_time(rules, opener, now)]
    elif before and not in_time(rules, openers[0], now):
        live = (place for place, opener in enumerate(openers) if in_time(rules, opener, now))
        del openers[: next(live, before)]
    return before - len(openers)


def remove(cell: Cell, spent: list[Window]) -> None:
    """Take windows out of a cell, given in their order, in one go: there may be many."""
    count = len(spent)
    if count and cell[count - 1] is spent[-1]:  # they are the first, as mostly
        del cell[:count]
    elif count:
        gone = set(map(id, spent))
        cell[:] = [window for window in cell if id(window) not in gone]


def next_due(rules: Rules, cell: Cell) -> int:
    """When a cell of an operator with a period ticks next. Windows of PLUS tick once, in the order they were opened."""
    return min([window.due for window in (cell[:1] if rules.operator == "PLUS" else cell) if window.due is not None])


class Opening:
    """What operators with an opener have in common: which of several arrivals open."""

    def __init__(self, rules: Rules) -> None:
        """Take what they go by."""
        self.rules = rules

    def openers(self, arrivals: Sequence[list[Occurrence]]) -> list[Occurrence]:
        """Those of several arrivals that may be kept."""
        return arrivals[0] if arrivals else []

    def unused(self, openers: list[Occurrence], closed: Sequence[Occurrence]) -> list[Occurrence]:
        """Those that still open when these have closed something."""
        if self.rules.context == "recent":
            return openers
        used = {made_of(occurrence) for occurrence in closed}
        return [opener for opener in openers if made_of(opener) not in used]


class Windows(Opening):
    """An operator at work, for all keys."""

    def __init__(self, rules: Rules) -> None:
        """Prepare what its rules decide."""
        super().__init__(rules)
        operator, context = rules.operator, rules.context
        self._roles = _ROLES.get(operator, (0,))
        single = context != "cumulative"  # each window has one opener
        by_role: tuple[Take, ...] = (self._open, self._middle, self._close)
        self.takes = tuple(by_role[role] for role in self._roles)
        """How one arrival alone is taken, by place."""
        self.opens = tuple(role == 0 for role in self._roles)
        """Does an arrival do something where nothing is open? By place."""
        self._ends = operator in ("A", "A*", "P", "P*")  # a closer of these ends windows, whether it fires or not
        gathers = operator in ("A*", "P*") or (
            operator == "NOT" and context == "recent"
        )  # that may be much, and counts
        self.size: Callable[[Cell], int] = len if single and not gathers else _contents
        """How much a cell holds."""

    def step(self, cell: Cell, arrivals: Sequence[list[Occurrence]], instant: int | None = None) -> list[Occurrence]:
        """What occurs when these arrive at one instant, by place; if it is a timer's, what is due ticks."""
        roles: list[list[Occurrence]] = [[], [], []]
        for role, came in zip(self._roles, arrivals, strict=False):
            roles[role] = came
        openers, middles, closers = roles
        found: list[Occurrence] = []
        closed = [closer for closer in closers if self._close(cell, closer, found)]
        for middle in middles:
            self._middle(cell, middle, found)
        if instant is not None:
            self._tick(cell, instant, found)
        for opener in self.unused(openers, closed) if closed else openers:
            self._open(cell, opener, found)
        return found

    # -- time

    def _tick(self, cell: Cell, instant: int, found: list[Occurrence]) -> None:
        rules = self.rules
        spent = []
        for window in cell:
            if window.due != instant:
                if rules.operator == "PLUS":
                    break  # the others come later: see `next_due`
                continue
            if rules.operator == "P*":
                window.gather(tick(instant))
            else:
                live = [opener for opener in window.openers if in_time(rules, opener, instant)]
                if live:
                    self._fire(joined(live, instant), found)
            if rules.operator == "PLUS" or not any(in_time(rules, opener, instant) for opener in window.openers):
                spent.append(window)
            else:
                window.due = instant + rules.period
        remove(cell, spent)

    def oldest(self, cell: Cell) -> int:
        """When the opener began that will be too old first."""
        if self.rules.is_ordered:
            return cell[0].openers[0].first
        return min([opener.first for window in cell for opener in window.openers])

    def expire(self, cell: Cell, now: int) -> int:
        """Drop openers that cannot be completed any more; returns how many."""
        dropped, spent = 0, []
        for window in cell:
            dropped += forget_old(self.rules, window.openers, now)
            if not window.openers:
                spent.append(window)
            elif self.rules.is_ordered:
                break
        remove(cell, spent)
        return dropped

    # -- arrivals

    def _usable(self, window: Window, by: Occurrence) -> list[Occurrence]:
        """The openers of a window that come before an occurrence, and not too long before."""
        border, within, last = self._border(by), self.rules.within, by.last
        return [
            opener
            for opener in window.openers
            if (opener.last, opener.end) < border and (within is None or last - opener.first <= within)
        ]

    def _border(self, occurrence: Occurrence) -> Position:
        """What must lie before an occurrence ends before this."""
        return (occurrence.first, occurrence.start) if self.rules.interval else (occurrence.last, occurrence.end)

    def _fire(self, occurrence: Occurrence, found: list[Occurrence]) -> bool:
        accept = self.rules.accept
        if accept is not None and not accept(occurrence):
            return False
        found.append(occurrence)
        return True

    def _close(self, cell: Cell, closer: Occurrence, found: list[Occurrence]) -> bool:
        """A closer: does it close something?"""
        rules, ends = self.rules, self._ends
        operator, context = rules.operator, rules.context
        did = False
        spent: list[Window] = []
        for window in cell:
            openers = self._usable(window, closer)
            if not openers:
                continue
            if operator == "NOT" and rules.interval:
                openers = [opener for opener in openers if not _forbidden(window, opener, closer)]
                if not openers:
                    continue
            if operator == "A*" or operator == "P*":
                middles = self._counted(window, openers, closer)
                fired = bool(middles) and self._fire(joined([*openers, *middles, closer]), found)
                if middles and not fired:
                    continue  # WHERE is not true: nothing is used up
            else:
                fired = not ends and self._fire(joined([*openers, closer]), found)
            if not (fired or ends):
                continue
            did = True
            if ends or context != "recent":
                _use_up(window, openers, spent)
            if context == "chronicle":
                break
        remove(cell, spent)
        return did

    def _counted(self, window: Window, openers: list[Occurrence], closer: Occurrence) -> list[Occurrence]:
        """The middles of A* and P* that go with these openers and this closer."""
        border = self._border(closer)
        first = min(opener.ends for opener in openers)
        return [
            middle
            for middle in window.middles
            if first < self._border(middle) and middle.ends < border and in_time(self.rules, middle, closer.last)
        ]

    def _middle(self, cell: Cell, middle: Occurrence, found: list[Occurrence]) -> None:
        operator, context = self.rules.operator, self.rules.context
        if operator == "NOT" and not self.rules.interval:
            cell.clear()
        elif operator in ("NOT", "A*"):
            border = self._border(middle)
            for window in cell:
                if any(opener.ends < border for opener in window.openers):
                    window.gather(middle)
        elif operator == "A":
            spent: list[Window] = []
            for window in cell:
                openers = self._usable(window, middle)
                if openers and self._fire(joined([*openers, middle]), found):
                    if context == "cumulative":
                        _use_up(window, openers, spent)
                    elif context == "chronicle":
                        break
            remove(cell, spent)

    def _open(self, cell: Cell, opener: Occurrence, found: list[Occurrence]) -> None:
        _, context, _, _, period, _, _, _ = self.rules
        if cell:
            if context == "cumulative":
                cell[0].openers.append(opener)
                return
            if context == "recent":
                cell.clear()
        cell.append(Window([opener], None, opener.last + period if period else None))


def _contents(cell: Cell) -> int:
    return sum([len(window.openers) + len(window.middles) for window in cell])


def _use_up(window: Window, used: list[Occurrence], spent: list[Window]) -> None:
    """Take used openers out of a window; with none left it is spent."""
    if len(used) == len(window.openers):
        spent.append(window)
    else:
        window.openers[:] = [opener for opener in window.openers if opener not in used]


def _forbidden(window: Window, opener: Occurrence, closer: Occurrence) -> bool:
    """Has a middle of NOT come between, in interval semantics?"""
    return any(opener.ends < middle.begins and middle.ends < closer.begins for middle in window.middles)
