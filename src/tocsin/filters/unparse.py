"""Normal form → filter text: the inverse of `normal`, for mergers and for explanations.

    cuts of one dimension ─ set_condition ─▶ `temp > 80`, `region IN ('eu', 'us')`, `NOT startswith(id, 'x')`
    conjunction ─ conjunction_text ─▶ tests joined by AND          form ─ form_text ─▶ conjunctions joined by OR

Promised: `Filter(set_condition(term, kind, cuts)).form` has exactly these cuts, for every set that some filter has. Of
two equal bounds (`> 3`, `>= 3.0000000000000004`) the shorter one is written.
Not promised: the author's own words. A set remembers values, not how they were asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from tocsin.filters import intervals, values
from tocsin.filters.intervals import Cuts
from tocsin.filters.normal import NULLNESS, REVERSED, Conjunction, NormalForm, domain
from tocsin.filters.printer import print_scalar
from tocsin.filters.values import EXACT

__all__ = ["conjunction_text", "form_text", "set_condition"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST = values.micros(datetime.min.replace(tzinfo=UTC))
_LAST = values.micros(datetime.max.replace(tzinfo=UTC))

Interval = tuple[Any, Any]


def form_text(form: NormalForm) -> str:
    """Return filter text with this normal form; `FALSE` if it has no alternatives."""
    return " OR ".join(map(conjunction_text, form.alternatives)) or "FALSE"


def conjunction_text(conjunction: Conjunction) -> str:
    """Return filter text of one alternative; `TRUE` if it asks for nothing."""
    tests = [set_condition(term, kind, cuts) for (term, kind), cuts in conjunction.sets.items()]
    return " AND ".join([*tests, *conjunction.residues]) or "TRUE"


def set_condition(term: str, kind: str, cuts: Cuts) -> str:
    """Return the condition that the term's value, read as `kind`, lies in the set.

    The text can stand as it is between ANDs (a choice comes in brackets); put brackets around it behind NOT.

    Args:
        term: canonical text of the value, e.g. `temp` or `lower(region)`.
        kind: one of the kinds of a `Dimension`.
        cuts: the set; an empty one gives `FALSE`.

    Raises:
        ValueError: a set of reversed texts that no filter has.
    """
    if not cuts:
        return "FALSE"
    if kind == REVERSED:
        return _Endings(term, cuts).text
    if kind == NULLNESS:
        tests = [f"{term} IS {'NOT ' * bit}NULL" for bit in (0, 1) if intervals.contains(cuts, bit)]
        return _any(tests)
    return _Set(term, kind, cuts).text()


def _any(tests: list[str]) -> str:
    return tests[0] if len(tests) == 1 else f"({' OR '.join(tests)})"


def _pairs(cuts: Cuts) -> list[Interval]:
    return list(zip(cuts[::2], cuts[1::2], strict=True))


class _Set:
    """A set of numbers, texts, booleans or timestamps under one term."""

    def __init__(self, term: str, kind: str, cuts: Cuts) -> None:
        self._term = term
        self._kind = kind
        self._cuts = cuts
        self._bottom, self._top = domain(kind)
        self._spell: Callable[[Any], str | None] = _SPELLINGS[kind]

    def text(self) -> str:
        pairs = _pairs(self._cuts)
        points = [key for pair in pairs if (key := self._point(pair)) is not None]
        if len(points) == len(pairs):
            return self._among(points)
        if self._kind == values.BOOLEAN:
            return self._among([0, 1])
        if len(pairs) > 1 and (text := self._with_gaps(pairs)) is not None:
            return text
        tests = [self._interval(pair) for pair in pairs if self._point(pair) is None]
        if points:
            tests.append(self._among(points))
        return _any(tests)

    def _point(self, pair: Interval) -> Any:
        """The key of an interval that holds one value with a spelling (NaN has none); else None."""
        low, high = pair
        return low if intervals.after(low) == high and self._spell(low) is not None else None

    def _among(self, keys: list[Any], negated: bool = False) -> str:
        listed = [text for key in keys if (text := self._spell(key)) is not None]
        if len(listed) == 1:
            return f"{self._term} {'<>' if negated else '='} {listed[0]}"
        return f"{self._term} {'NOT ' * negated}IN ({', '.join(listed)})"

    def _with_gaps(self, pairs: list[Interval]) -> str | None:
        """An interval with a few values or prefixes taken out: `x > 3 AND x <> 5`. None if that is not what it is."""
        low, high = pairs[0][0], pairs[-1][1]
        gaps = _pairs(self._cuts[1:-1])
        points = [key for gap in gaps if (key := self._point(gap)) is not None]
        others = [gap for gap in gaps if self._point(gap) is None]
        if len(others) > 1 or (others and len(gaps) > 1 and len(pairs) > 3):
            return None  # a union says it better
        tests = [] if (low, high) == (self._bottom, self._top) else [self._interval((low, high))]
        for gap in others:
            start = self._prefix(gap)
            if start is not None:
                tests.append(f"NOT startswith({self._term}, {print_scalar(start)})")
                continue
            (first, first_text), (second, second_text) = self._low(gap[0]), self._high(gap[1])
            if not (first == ">=" and second == "<=" and not tests):
                return None
            tests.append(f"{self._term} NOT BETWEEN {first_text} AND {second_text}")
        if points:
            tests.append(self._among(points, negated=True))
        return " AND ".join(tests)

    def _interval(self, pair: Interval) -> str:
        low, high = pair
        term = self._term
        if (start := self._prefix(pair)) is not None:
            return f"startswith({term}, {print_scalar(start)})" if start else f"{term} LIKE '%'"
        lower = self._low(low) if low != self._bottom else None
        upper = self._high(high) if high != self._top else None
        if lower and upper:
            if lower[0] == ">=" and upper[0] == "<=":
                return f"{term} BETWEEN {lower[1]} AND {upper[1]}"
            return f"{term} {lower[0]} {lower[1]} AND {term} {upper[0]} {upper[1]}"
        if lower or upper:
            op, bound = lower or upper or ("", "")
            return f"{term} {op} {bound}"
        if self._kind == values.NUMBER:
            return f"{term} >= -1e999"
        epoch = print_scalar(_EPOCH)  # any timestamp: there is no lowest one to compare with
        return f"({term} < {epoch} OR {term} >= {epoch})"

    def _prefix(self, pair: Interval) -> str | None:
        if self._kind != values.TEXT or pair[0][2] != 0:
            return None
        text: str = pair[0][1]
        return text if intervals.prefix(text) == pair else None

    def _low(self, cut: Any) -> tuple[str, str]:
        """Operator and constant of a lower bound."""
        if self._kind == values.TEXT:
            return (">=" if cut[2] == 0 else ">"), print_scalar(cut[1])
        return self._shorter(cut, cut - 1, ">=", ">")

    def _high(self, cut: Any) -> tuple[str, str]:
        if self._kind == values.TEXT:
            return ("<" if cut[2] == 0 else "<="), print_scalar(cut[1])
        return self._shorter(cut - 1, cut, "<=", "<")

    def _shorter(self, closed: int, opened: int, closed_op: str, open_op: str) -> tuple[str, str]:
        inside, outside = self._spell(closed), self._spell(opened)
        if inside is None or (outside is not None and len(outside) < len(inside)):
            if outside is None:
                raise ValueError(f"the cut between {closed} and {opened} cannot be written")
            return open_op, outside
        return closed_op, inside


def _number(key: int) -> str | None:
    if not intervals.BOTTOM_NUMBER <= key < intervals.NAN_KEY:
        return None
    value = intervals.number_from_key(key)
    return print_scalar(int(value) if abs(value) < EXACT and value.is_integer() else value)


def _time(key: int) -> str | None:
    return print_scalar(_EPOCH + timedelta(microseconds=key)) if _FIRST <= key <= _LAST else None


_SPELLINGS: dict[str, Callable[[Any], str | None]] = {
    values.NUMBER: _number,
    values.TEXT: lambda key: print_scalar(key[1]),
    values.BOOLEAN: lambda key: print_scalar(bool(key)),
    values.TIME: _time,
}


class _Endings:
    """A set of texts read backwards, written with `endswith`.

    Such a set is built from endings by AND, OR, NOT. Its cuts name the endings; nested in each other they form a tree,
    and each ending either belongs to the set, but for some longer ones, or does not, but for some longer ones.
    """

    def __init__(self, term: str, cuts: Cuts) -> None:
        self._term = term
        self._cuts = cuts
        starts = sorted({start for cut in cuts if len(cut) > 1 for start in _starts(cut[1])} | {""})
        self._children: dict[str, list[str]] = {start: [] for start in starts}
        for start in starts[1:]:
            parent = next(p for p in (start[:n] for n in range(len(start) - 1, -1, -1)) if p in self._children)
            self._children[parent].append(start)
        text, covered = self._write("")
        if covered != cuts or text is None:
            raise ValueError("no filter has this set of endings")
        self.text = text

    def _write(self, start: str) -> tuple[str | None, Cuts]:
        """The part of the set under one ending: its text (None if empty) and its cuts."""
        whole = intervals.prefix(start)
        part = intervals.intersect(self._cuts, whole)
        if not part:
            return None, part
        if part == whole:
            return self._ends(start), whole
        below = [self._write(child) for child in self._children[start]]
        if not intervals.contains(self._cuts, intervals.text_key(start)):
            return _any([text for text, _ in below if text]), intervals.union(*(cuts for _, cuts in below))
        tests = [self._ends(start)] if start else []
        cuts = whole
        for child, (text, inside) in zip(self._children[start], below, strict=True):
            everything = intervals.prefix(child)
            if inside == everything:
                continue
            tests.append(f"NOT {self._ends(child)}" if text is None else f"(NOT {self._ends(child)} OR {text})")
            outside = intervals.complement(everything, intervals.BOTTOM_TEXT, intervals.TOP_TEXT)
            cuts = intervals.intersect(cuts, intervals.union(outside, inside))
        return " AND ".join(tests) or None, cuts

    def _ends(self, start: str) -> str:
        return f"endswith({self._term}, {print_scalar(start[::-1])})"


def _starts(text: str) -> Iterable[str]:
    """Prefixes that may begin or end at the cut just before `text`."""
    yield text
    if text and ord(text[-1]) > 0:
        yield text[:-1] + chr(ord(text[-1]) - 1)
