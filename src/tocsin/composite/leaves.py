"""Which leaves an event matches: by its type where filters demand one, through the `Matcher` where they do not.

Most leaves say `type = '…'` and perhaps something more. A dictionary from types to plans makes all other events cost
one look. What is left is asked: few filters one after the other, many through one index of the kind subscriptions use.

Leaves do not see derived events, nor system records.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from tocsin.filters.filter import Filter
from tocsin.filters.index import Matcher, engine
from tocsin.filters.intervals import Cuts
from tocsin.filters.normal import NormalForm
from tocsin.model import Event

__all__ = ["CLOCK", "SOURCE", "SYSTEM", "LeafFinder", "Plan"]

SOURCE = "tocsin:definitions"
"""The source of derived events."""
SYSTEM = "tocsin."
"""How the types of system records begin."""
CLOCK = "tocsin.clock"
"""The type of records that say nothing but that time has passed."""
_FEW = 2  # filters of one type up to which asking each is quicker than the index with its kernels …
_MANY = 150  # … and without them


class Plan(NamedTuple):
    """How the leaves of one type of events are found. Filters are known by their numbers."""

    sure: list[int]
    """Those that are true of all of them."""
    asked: list[tuple[int, Callable[[Event], bool]]]
    """Those to be asked, few of them one by one …"""
    matcher: Matcher | None
    """… and many through the index of all; None: they are few."""

    @property
    def numbers(self) -> list[int]:
        """All that may be true."""
        return [*self.sure, *(number for number, _ in self.asked)]

    def find(self, event: Event) -> list[int]:
        """Those that are true."""
        if self.matcher is not None and (engine.kernels() is not None or len(self.asked) > _MANY):
            return [*self.sure, *self.matcher.match(event)]  # type: ignore[list-item]
        return [*self.sure, *[number for number, matches in self.asked if matches(event)]]


class LeafFinder:
    """Finds leaves by event."""

    def __init__(self, filters: Sequence[str]) -> None:
        """Sort filters by the types they demand."""
        self._tests = [Filter(text) for text in filters]
        everywhere: list[int] = []
        by_type: dict[str, list[int]] = {}
        self._sure: set[int] = set()
        for number, test in enumerate(self._tests):
            types = _types(test.form)
            if types is None:
                everywhere.append(number)
                continue
            for kind in types:
                by_type.setdefault(kind, []).append(number)
            if all(len(each.sets) == 1 and not each.residues for each in test.form.alternatives):
                self._sure.add(number)  # it demands a type, and nothing else
        asked = [number for number in range(len(filters)) if number not in self._sure]
        self._matcher = Matcher((number, self._tests[number]) for number in asked) if len(asked) > _FEW else None
        self.plans = {kind: self._plan(numbers + everywhere) for kind, numbers in by_type.items()}
        """By type."""
        self.rest = self._plan(everywhere) if everywhere else None
        """For all other types; None: no leaf sees them."""

    def _plan(self, numbers: list[int]) -> Plan:
        sure = [number for number in numbers if number in self._sure]
        tests = [(number, self._tests[number]) for number in numbers if number not in self._sure]
        matcher = self._matcher if len(tests) > _FEW else None
        return Plan(sure, [(number, test.matches) for number, test in tests], matcher)


def _types(form: NormalForm) -> set[str] | None:
    """The types that a filter demands; None: others may match too."""
    found: set[str] = set()
    for conjunction in form.alternatives:
        demanded = None
        for dimension, cuts in conjunction.sets.items():
            if dimension.term == "type" and dimension.kind == "text":
                demanded = _single_texts(cuts)
        if demanded is None:
            return None
        found |= demanded
    return found


def _single_texts(cuts: Cuts) -> set[str] | None:
    """The texts of a set, if it is a list of texts."""
    pairs = list(zip(cuts[::2], cuts[1::2], strict=True))
    if any(low[1] != high[1] or (low[2], high[2]) != (0, 1) for low, high in pairs):
        return None
    return {low[1] for low, _ in pairs}
