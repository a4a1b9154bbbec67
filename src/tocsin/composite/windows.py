"""Operators with an opener: SEQ, NOT, A, A*, P, P*, PLUS. What each does in each context.

A *cell* is the state of one operator for one key: its open windows, oldest first. `recent` has one at most, and so has
`cumulative`, whose one window gathers all openers; `chronicle` and `continuous` have one for each opener.

At one instant closers come first, then middles and ticks, then openers. Outside `recent`, what closed something does
not open.

Pure: a step changes the cell it is given and returns what occurred.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from tocsin.composite.expression import Context, Operator
from tocsin.composite.occurrence import TIMER, Occurrence, Part, Position, Window, joined, made_of

__all__ = ["Cell", "Rules", "expire", "in_time", "step"]

Cell = list[Window]


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


def step(
    rules: Rules,
    cell: Cell,
    openers: list[Occurrence],
    middles: list[Occurrence],
    closers: list[Occurrence],
    instant: int | None = None,
) -> list[Occurrence]:
    """What occurs when these arrive at one instant; if it is a timer's, windows of P, P* and PLUS may be due."""
    found: list[Occurrence] = []
    closed: list[Occurrence] = []
    for closer in closers:
        if _close(rules, cell, closer, found):
            closed.append(closer)
    for middle in middles:
        _take_middle(rules, cell, middle, found)
    if instant is not None:
        _tick(rules, cell, instant, found)
    if closed and rules.context != "recent":
        used = {made_of(occurrence) for occurrence in closed}
        openers = [opener for opener in openers if made_of(opener) not in used]
    for opener in openers:
        _open(rules, cell, opener)
    return found


def _tick(rules: Rules, cell: Cell, instant: int, found: list[Occurrence]) -> None:
    for window in list(cell):
        if window.due != instant:
            continue
        if rules.operator == "P*":
            window.middles.append(_tick_part(instant))
        else:
            live = [opener for opener in window.openers if in_time(rules, opener, instant)]
            if live:
                _fire(rules, joined(live, instant), found)
        if rules.operator == "PLUS" or not any(in_time(rules, opener, instant) for opener in window.openers):
            cell.remove(window)
        else:
            window.due = instant + rules.period


def expire(rules: Rules, cell: Cell, now: int) -> int:
    """Drop openers that cannot be completed any more; returns how many."""
    dropped = 0
    for window in list(cell):
        live = [opener for opener in window.openers if in_time(rules, opener, now)]
        dropped += len(window.openers) - len(live)
        window.openers[:] = live
        if not live:
            cell.remove(window)
    return dropped


def _tick_part(instant: int) -> Occurrence:
    return Occurrence(instant, TIMER, instant, TIMER, (Part(None, None, "", "", instant),))


def in_time(rules: Rules, opener: Occurrence, now: int) -> bool:
    """Can something that began with this still be completed?"""
    return rules.within is None or now - opener.first <= rules.within


def _border(rules: Rules, occurrence: Occurrence) -> Position:
    """What must lie before an occurrence ends before this."""
    return occurrence.begins if rules.interval else occurrence.ends


def _usable(rules: Rules, window: Window, by: Occurrence) -> list[Occurrence]:
    """The openers of a window that come before an occurrence, and not too long before."""
    border = _border(rules, by)
    return [opener for opener in window.openers if opener.ends < border and in_time(rules, opener, by.last)]


def _fire(rules: Rules, occurrence: Occurrence, found: list[Occurrence]) -> bool:
    if rules.accept is not None and not rules.accept(occurrence):
        return False
    found.append(occurrence)
    return True


def _remove(cell: Cell, window: Window, used: list[Occurrence]) -> None:
    """Take used openers out of a window, and the window if nothing is left in it."""
    if len(used) == len(window.openers):
        cell.remove(window)
    else:
        window.openers[:] = [opener for opener in window.openers if opener not in used]


def _close(rules: Rules, cell: Cell, closer: Occurrence, found: list[Occurrence]) -> bool:
    """A closer: does it close something?"""
    operator, context = rules.operator, rules.context
    ends = operator in ("A", "A*", "P", "P*")  # a closer of these ends windows, whether it fires or not
    did = False
    for window in list(cell):
        openers = _usable(rules, window, closer)
        if not openers:
            continue
        if operator == "NOT" and rules.interval:
            openers = [opener for opener in openers if not _forbidden(window, opener, closer)]
            if not openers:
                continue
        if operator in ("A*", "P*"):
            middles = _counted(rules, window, openers, closer)
            fired = bool(middles) and _fire(rules, joined([*openers, *middles, closer]), found)
            if middles and not fired:
                continue  # WHERE is not true: nothing is used up
        elif operator in ("SEQ", "NOT"):
            fired = _fire(rules, joined([*openers, closer]), found)
        else:
            fired = False
        if not (fired or ends):
            continue
        did = True
        if ends or context != "recent":
            _remove(cell, window, openers)
        if context == "chronicle":
            break
    return did


def _forbidden(window: Window, opener: Occurrence, closer: Occurrence) -> bool:
    """Has a middle of NOT come between, in interval semantics?"""
    return any(opener.ends < middle.begins and middle.ends < closer.begins for middle in window.middles)


def _counted(rules: Rules, window: Window, openers: list[Occurrence], closer: Occurrence) -> list[Occurrence]:
    """The middles of A* and P* that go with these openers and this closer."""
    border = _border(rules, closer)
    first = min(opener.ends for opener in openers)
    return [
        middle
        for middle in window.middles
        if first < _border(rules, middle) and middle.ends < border and in_time(rules, middle, closer.last)
    ]


def _take_middle(rules: Rules, cell: Cell, middle: Occurrence, found: list[Occurrence]) -> None:
    operator, context = rules.operator, rules.context
    if operator == "NOT" and not rules.interval:
        cell.clear()
    elif operator in ("NOT", "A*"):
        border = _border(rules, middle)
        for window in cell:
            if any(opener.ends < border for opener in window.openers):
                window.middles.append(middle)
    elif operator == "A":
        for window in list(cell):
            openers = _usable(rules, window, middle)
            if openers and _fire(rules, joined([*openers, middle]), found):
                if context == "cumulative":
                    _remove(cell, window, openers)
                elif context == "chronicle":
                    break


def _open(rules: Rules, cell: Cell, opener: Occurrence) -> None:
    due = opener.last + rules.period if rules.period else None
    if rules.context == "cumulative" and cell:
        cell[0].openers.append(opener)
        return
    if rules.context == "recent":
        cell.clear()
    cell.append(Window([opener], [], due))
