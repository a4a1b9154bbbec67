"""Which leaves an event matches: by its type where filters demand one, through the `Matcher` where they do not.

Most leaves say `type = '…'` and perhaps something more. A dictionary from types to leaves makes all other events cost
one look. What is left is asked: few filters one after the other, many through the index that subscriptions use.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tocsin.filters.filter import Filter
from tocsin.filters.index import Matcher
from tocsin.filters.intervals import Cuts
from tocsin.filters.normal import NormalForm
from tocsin.model import Event

__all__ = ["LeafFinder"]

_MANY = 6  # filters of one type from which the index is quicker than asking each


class LeafFinder:
    """Finds leaves by event. The filters are known by their numbers."""

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
        self._by_type = {kind: self._plan(numbers + everywhere) for kind, numbers in by_type.items()}
        self._rest = self._plan(everywhere)

    def _plan(self, numbers: list[int]) -> tuple[list[int], list[tuple[int, Any]], Matcher | None]:
        """Those that are sure, those to be asked one by one, those to be asked through an index."""
        sure = [number for number in numbers if number in self._sure]
        asked = [number for number in numbers if number not in self._sure]
        if len(asked) <= _MANY:
            return sure, [(number, self._tests[number].matches) for number in asked], None
        return sure, [], Matcher((number, self._tests[number]) for number in asked)

    def find(self, event: Event) -> list[int]:
        """The numbers of the filters that are true, ascending."""
        sure, asked, matcher = self._by_type.get(event.type, self._rest)
        if matcher is not None:
            return sorted([*sure, *matcher.match(event)])  # type: ignore[list-item]
        if not asked:
            return sure
        return sorted([*sure, *(number for number, matches in asked if matches(event))])


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
