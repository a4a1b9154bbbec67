"""Declared discrete domains (thesis §5.1): what an attribute's values are, as indices from 0.

A domain is a numeric grid `lo, lo + step … hi` or an ordered list of texts. The tree places expressions and looks up
events by index alone, and two functions decide all of it:

    hull(sets)   where an expression lies: the least interval of indices that holds every declared value it accepts
    span(value)  where an event lies: one index if its value is declared

Promises: if a filter's sets accept a value, then the hull of the sets and the span of the value have an index in
common, whatever the value. Events need not be declared for the tree to be right: a number between two grid points spans
both, one beyond the ends spans the end, a text not listed spans the whole domain. Grid points are exact: with step 0.1
the fourth is 0.3.

Does not promise: rounding to the grid (a schema does that at admission), or refusing values (a schema does that too).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from math import lcm
from typing import Any

from tocsin.errors import SchemaError
from tocsin.filters import intervals, values
from tocsin.filters.evaluate import getter
from tocsin.filters.intervals import Cuts
from tocsin.filters.normal import REVERSED, Dimension
from tocsin.filters.printer import print_value
from tocsin.filters.reference.scores import Span
from tocsin.filters.syntax import Field
from tocsin.model import ENVELOPE, Event

__all__ = ["Domain", "Domains"]


class Domain:
    """The values an attribute is declared to have.

    Args:
        name: the attribute, or a way into the payload: `data.a.b`.
        lo: least value of a numeric grid.
        hi: greatest value; the grid ends at the last step that does not exceed it.
        step: distance of neighbours on the grid.
        values: in place of the grid, all texts, in their order.

    Raises:
        SchemaError: neither or both kinds are given, or there is no value.
    """

    __slots__ = ("_base", "_denominator", "_index", "_step", "name", "size", "texts")

    def __init__(
        self,
        name: str,
        lo: float | None = None,
        hi: float | None = None,
        step: float = 1,
        *,
        values: Iterable[str] | None = None,
    ) -> None:
        """Declare a domain."""
        self.name = name
        self.texts = None if values is None else tuple(values)
        if self.texts is not None:
            if lo is not None or hi is not None or len(set(self.texts)) != len(self.texts) or not self.texts:
                raise _bad(name, "its texts are missing or repeated, or come with a grid")
            self._index = {text: index for index, text in enumerate(self.texts)}
            self.size = len(self.texts)
            return
        if lo is None or hi is None or not step > 0 or not lo <= hi:
            raise _bad(name, f"there is no grid from {lo} to {hi} by {step}")
        # As fractions of one denominator a grid point is two whole numbers and one division, hence rounded once. The
        # decimal text of a double is what its writer meant: 0.1 is a tenth here.
        try:
            first, last, width = (Fraction(repr(number)) for number in (lo, hi, step))
        except ValueError:  # inf, nan
            raise _bad(name, f"there is no grid from {lo} to {hi} by {step}") from None
        self._denominator = lcm(first.denominator, width.denominator)
        self._base, self._step = int(first * self._denominator), int(width * self._denominator)
        self.size = int((last - first) / width) + 1
        if self.size > 1 and (self.point(0) == self.point(1) or self.point(self.size - 2) == self.point(self.size - 1)):
            raise _bad(name, f"doubles near {lo} or {hi} are further apart than {step}")

    @property
    def whole(self) -> Span:
        """The span of the whole domain."""
        return (0, self.size - 1)

    def point(self, index: int) -> float:
        """The number at an index of the grid."""
        return (self._base + index * self._step) / self._denominator

    def span(self, value: Any) -> Span | None:
        """Where an event with this value lies; None if no set of this domain's kind can accept the value."""
        if self.texts is not None:
            if not isinstance(value, str):
                return None
            index = self._index.get(value)
            return self.whole if index is None else (index, index)
        if values.kind_of(value) != values.NUMBER:
            return None
        return self._neighbours(float(values.number(value)))

    def hull(self, sets: Mapping[Dimension, Cuts], term: str) -> Span | None:
        """Where an expression with these sets lies; None if they say nothing about the attribute with this term.

        Table 5.1 of the thesis comes out of it: on the grid `< v` is `[0, v-1]`, `> v` is `[v+1, max]`, IN is its hull.
        All tests of an attribute count together ([OURS]: test by test `x > 3 AND x < 6` would never leave the root).
        """
        if self.texts is not None:
            return self._hull_of_texts(sets.get(Dimension(term, values.TEXT)), sets.get(Dimension(term, REVERSED)))
        cuts = sets.get(Dimension(term, values.NUMBER))
        if not cuts:
            return None
        low = self._neighbours(intervals.number_from_key(cuts[0]))[1]
        high = self._neighbours(intervals.number_from_key(cuts[-1] - 1))[0]
        # No grid point inside, as in 3.2 < x < 3.8: both neighbours, as a value there spans both too.
        return (low, high) if low <= high else (high, low)

    def _hull_of_texts(self, cuts: Cuts | None, backwards: Cuts | None) -> Span | None:
        if not cuts and not backwards:
            return None
        accepted = [
            index
            for text, index in self._index.items()
            if (cuts is None or intervals.contains(cuts, intervals.text_key(text)))
            and (backwards is None or intervals.contains(backwards, intervals.text_key(text[::-1])))
        ]
        # Texts that are not declared alone: no place of its own.
        return (accepted[0], accepted[-1]) if accepted else None

    def _neighbours(self, number: float) -> Span:
        """Indices of the grid points below and above a number: the same one if it is on the grid or beyond an end."""
        last = self.size - 1
        if number != number or number >= self.point(last):  # NaN is greatest
            return (last, last)
        if number <= self.point(0):
            return (0, 0)
        above, below = number.as_integer_ratio()
        index = (above * self._denominator - self._base * below) // (self._step * below)
        while self.point(index) > number:  # a point is a rounded double: the index may be one off
            index -= 1
        while self.point(index + 1) <= number:
            index += 1
        return (index, index if self.point(index) == number else index + 1)


class Domains:
    """All declared domains, in the order of their declaration, which breaks ties."""

    def __init__(self, domains: Iterable[Domain] = ()) -> None:
        """Take domains in order.

        Raises:
            SchemaError: two have the same name.
        """
        self._domains: dict[str, Domain] = {}
        self.rank: dict[str, int] = {}
        self._terms: dict[str, str] = {}
        self._plain: dict[str, Domain] = {}
        self._others: list[tuple[Domain, Callable[[Event], Any]]] = []
        for domain in domains:
            name, path = domain.name, tuple(domain.name.split("."))
            if name in self._domains:
                raise _bad(name, "it is declared twice")
            self.rank[name] = len(self._domains)
            self._domains[name] = domain
            self._terms[print_value(Field(path))] = name
            if len(path) == 1 and name not in ENVELOPE:
                self._plain[name] = domain
            else:
                self._others.append((domain, getter(path)))

    def __getitem__(self, name: str) -> Domain:
        """The domain of an attribute."""
        return self._domains[name]

    def hulls(self, sets: Mapping[Dimension, Cuts]) -> dict[str, Span]:
        """Where a conjunction lies, attribute by attribute, in declared order; what is not declared is left out."""
        names = {name: term for term, _ in sets if (name := self._terms.get(term)) is not None}
        found = {name: self._domains[name].hull(sets, names[name]) for name in sorted(names, key=self.rank.__getitem__)}
        return {name: span for name, span in found.items() if span is not None}

    def spans(self, event: Event) -> dict[str, Span]:
        """Where an event lies. Costs as much as the event has attributes, however many are declared."""
        found: dict[str, Span | None] = {}
        plain, attributes, data = self._plain, event.attributes, event.data
        for name in attributes:
            if name in plain:
                found[name] = plain[name].span(attributes[name])
        if isinstance(data, dict):
            for name in data:
                if name in plain and name not in attributes:  # an attribute hides a field of the payload
                    found[name] = plain[name].span(data[name])
        for domain, read in self._others:
            found[domain.name] = domain.span(read(event))
        return {name: span for name, span in found.items() if span is not None}


def _bad(name: str, reason: str) -> SchemaError:
    return SchemaError(
        f"the domain of {name} is not acceptable: {reason}", field=name, help="give lo, hi and step, or a list of texts"
    )
