"""Why does a filter match an event, or not? Read the tests back from the index and ask each on its own.

The answer comes from the texts of the tests and `tocsin.filters.evaluate`, not from the kernels: it shows what *should*
be.
"""

from __future__ import annotations

from typing import Any

import msgspec

from tocsin.filters import intervals, normal, values
from tocsin.filters.evaluate import compile_value
from tocsin.filters.filter import Filter
from tocsin.filters.index.registry import Key
from tocsin.filters.index.space import MEMBER, NOT_IN, WITHIN_CUTS, Coded, CodedConjunction
from tocsin.filters.index.view import View
from tocsin.filters.normal import fields
from tocsin.filters.printer import print_scalar, print_value
from tocsin.filters.syntax import Value
from tocsin.filters.unparse import set_condition
from tocsin.model import Event

__all__ = ["Explanation", "Test", "explain", "row_tests"]


class Test(msgspec.Struct, frozen=True):
    """One test of one alternative: its text, its verdict (None is NULL), and what the event has under its names."""

    text: str
    verdict: bool | None
    values: dict[str, Any] = {}

    @property
    def value(self) -> Any:
        """The value asked about, where the test is about one name."""
        return next(iter(self.values.values())) if len(self.values) == 1 else None

    def __str__(self) -> str:
        """One line."""
        if self.verdict or not self.values:
            return f"{'✓' if self.verdict else '✗'} {self.text}"
        alone = len(self.values) == 1
        found = (
            f"{'it' if alone else name} is {'missing' if value is None else _short(value)}"
            for name, value in self.values.items()
        )
        return f"✗ {self.text}   ({', '.join(found)})"


class Explanation(msgspec.Struct, frozen=True):
    """The verdict on one filter, and the tests of each of its alternatives."""

    key: Key
    matches: bool
    alternatives: list[list[Test]]

    @property
    def failed(self) -> list[Test]:
        """The tests that are not true, over all alternatives; empty if the filter matches."""
        return (
            [] if self.matches else [test for tests in self.alternatives for test in tests if test.verdict is not True]
        )

    def __str__(self) -> str:
        """A few lines for people."""
        lines = [f"{self.key}: {'matches' if self.matches else 'does not match'}"]
        if not self.alternatives:
            lines.append("  ✗ no event can match this filter")
        for number, tests in enumerate(self.alternatives, 1):
            indent = "  "
            if len(self.alternatives) > 1:
                lines.append(f"  alternative {number} of {len(self.alternatives)}:")
                indent = "    "
            lines.extend(f"{indent}{test}" for test in tests or [Test("TRUE", True)])
        return "\n".join(lines)


_Readable = tuple[str, dict[str, Value]]


def row_tests(view: View, row: int) -> list[_Readable]:
    """The tests of a conjunction as filter texts, each with the values it asks about."""
    return _texts(view, view.record(row)[0])


def _texts(view: View, row: CodedConjunction) -> list[_Readable]:
    space = view.space
    found: list[_Readable] = []
    for code in row.codes:
        owner = space.coded[space.code_owner[code]]
        value = space.terms[owner.term]
        if owner.test == MEMBER:
            found.append(
                (f"array_contains({owner.term}, {print_scalar(space.code_values[code])})", {owner.term: value})
            )
        else:
            found.append(
                (set_condition(owner.term, owner.test, _points(owner, [space.code_values[code]])), {owner.term: value})
            )
    for dimension, low, high in row.ranges:
        ordered = space.ordered[dimension]
        found.append(
            (
                set_condition(ordered.term, ordered.kind, ordered.cuts([low, high])),
                {ordered.term: space.terms[ordered.term]},
            )
        )
    for test in row.sets:
        if test.operation == WITHIN_CUTS:
            ordered = space.ordered[test.dimension]
            cuts = ordered.cuts([key - index % 2 for index, key in enumerate(test.items)])
            found.append((set_condition(ordered.term, ordered.kind, cuts), {ordered.term: space.terms[ordered.term]}))
        else:
            owner = space.coded[test.dimension]
            cuts = _points(owner, [space.code_values[code] for code in test.items])
            if test.operation == NOT_IN:
                cuts = intervals.complement(cuts, *normal.domain(owner.test))
            found.append((set_condition(owner.term, owner.test, cuts), {owner.term: space.terms[owner.term]}))
    for text in row.residues:
        names = fields(Filter(text).condition)
        found.append((text, {print_value(field): field for field in names}))
    return found


def _points(owner: Coded, found: list[Any]) -> intervals.Cuts:
    key = {values.TEXT: intervals.text_key, values.NUMBER: intervals.number_key}.get(owner.test, int)
    return intervals.points(key(value) for value in found)  # type: ignore[operator]


def explain(key: Key, alternatives: list[list[_Readable]], event: Event) -> Explanation:
    """Ask every test of the event."""
    asked = [
        [
            Test(
                text, Filter(text).evaluate(event), {name: compile_value(value)(event) for name, value in terms.items()}
            )
            for text, terms in tests
        ]
        for tests in alternatives
    ]
    return Explanation(key, any(all(test.verdict is True for test in tests) for tests in asked), asked)


def _short(value: Any) -> str:
    text = print_scalar(value) if values.kind_of(value) not in (None, values.OTHER) else repr(value)
    return text if len(text) <= 60 else text[:57] + "…"
