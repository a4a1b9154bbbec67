"""Syntax tree → normal form: alternatives, each a set of tests that must all be true.

    condition ─▶ negations pushed inward ─▶ alternatives (conjunctions) ─▶ per dimension one set of values

A *dimension* is a term (a name or a computed value, by its canonical text) seen as one kind: `temp` as a number, `temp`
as a text. A conjunction maps dimensions to the set of values allowed there (`tocsin.filters.intervals`); a value of
another kind, or a missing one, is in no set. What has no such form (RLIKE, contains, field against field) stays whole
as a *residue*: a condition that must be true besides.

Only truth is kept: the form is true exactly where the condition is true. Whether it is otherwise false or NULL is
forgotten; pushing negations inward first makes that exact (De Morgan holds in three-valued logic).

The index, the relations and the schema check all read this form. Pure functions of the tree.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import NamedTuple

import msgspec

from tocsin.errors import FilterLimitError
from tocsin.filters import intervals, patterns, syntax, values
from tocsin.filters.evaluate import compile_condition
from tocsin.filters.intervals import Cuts
from tocsin.filters.limits import Limits
from tocsin.filters.printer import print_condition, print_value
from tocsin.filters.syntax import Condition, Literal, Value
from tocsin.filters.values import EXACT
from tocsin.model import Event

__all__ = [
    "NULLNESS",
    "REVERSED",
    "Conjunction",
    "Dimension",
    "NormalForm",
    "calls",
    "domain",
    "fields",
    "join",
    "meet",
    "normalise",
]

NULLNESS, REVERSED = "nullness", "reversed"
"""Two further kinds: is the term NULL (0) or not (1); and a text read backwards, so that an ending is a prefix."""

_TIME_LIMIT = 2**62
_DOMAINS: dict[str, tuple[object, object]] = {
    values.NUMBER: (intervals.BOTTOM_NUMBER, intervals.TOP_NUMBER),
    values.TEXT: (intervals.BOTTOM_TEXT, intervals.TOP_TEXT),
    REVERSED: (intervals.BOTTOM_TEXT, intervals.TOP_TEXT),
    values.BOOLEAN: (0, 2),
    NULLNESS: (0, 2),
    values.TIME: (-_TIME_LIMIT, _TIME_LIMIT),
}
_EXCLUSIVE = {values.NUMBER: "n", values.BOOLEAN: "b", values.TEXT: "t", REVERSED: "t"}  # no value is two of these
_ENVELOPE_KINDS = {
    **dict.fromkeys(("offset", "priority", "ttl"), values.NUMBER),
    **dict.fromkeys(("time", "arrived"), values.TIME),
    "persistent": values.BOOLEAN,
    **dict.fromkeys(
        ("id", "source", "type", "subject", "ack", "cancel", "correlation_id", "classification", "datacontenttype"),
        values.TEXT,
    ),
}
_FLIPPED = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_OPPOSITE = {"=": "<>", "<>": "=", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}


class Dimension(NamedTuple):
    """A term and the kind it is read as."""

    term: str
    kind: str


class Conjunction(msgspec.Struct, frozen=True):
    """Tests that must all be true; both maps in no particular order."""

    sets: dict[Dimension, Cuts]
    residues: dict[str, Condition]

    def key(self) -> tuple[object, ...]:
        """Two conjunctions with equal keys are the same."""
        return (tuple(sorted(self.sets.items())), tuple(sorted(self.residues)))


class NormalForm(msgspec.Struct, frozen=True):
    """Alternatives, and the values behind the term names they mention. No alternatives: never true."""

    alternatives: tuple[Conjunction, ...]
    terms: dict[str, Value]

    def key(self) -> tuple[object, ...]:
        """Two forms with equal keys are the same filter."""
        return tuple(sorted(conjunction.key() for conjunction in self.alternatives))


TRUE = Conjunction({}, {})


def domain(kind: str) -> tuple[object, object]:
    """Lowest and highest cut of a kind."""
    return _DOMAINS[kind]


def normalise(condition: Condition, limits: Limits) -> NormalForm:
    """Bring a condition into normal form.

    Raises:
        FilterLimitError: more alternatives or tests than `limits` allow.
    """
    builder = _Builder(limits)
    alternatives = _unique(builder.form(condition, True))
    return NormalForm(tuple(alternatives), builder.terms)


def meet(left: Conjunction, right: Conjunction) -> Conjunction | None:
    """Both at once; None if that is impossible."""
    sets = dict(left.sets)
    for dimension, cuts in right.sets.items():
        have = sets.get(dimension)
        if have is not None:
            cuts = intervals.intersect(have, cuts)
            if not cuts:
                return None
        sets[dimension] = cuts
    if len(sets) > 1 and not _consistent(sets):
        return None
    return Conjunction(sets, left.residues | right.residues)


def _consistent(sets: dict[Dimension, Cuts]) -> bool:
    """Can one value per term be of all the kinds asked for? Drops `IS NOT NULL` where a kind says it already."""
    kinds: dict[str, str] = {}
    typed: set[str] = set()
    timed: set[str] = set()
    for term, kind in sets:
        if kind != NULLNESS:
            typed.add(term)
            group = _EXCLUSIVE.get(kind)
            if group is not None and kinds.setdefault(term, group) != group:
                return False
            if kind == values.TIME:
                timed.add(term)
    for term in timed:
        if kinds.get(term) in ("n", "b"):  # but a text may be a time too
            return False
    for term in typed:
        nullness = sets.get(Dimension(term, NULLNESS))
        if nullness is not None:
            if nullness == (0, 1):
                return False
            del sets[Dimension(term, NULLNESS)]
    return True


def join(left: Conjunction, right: Conjunction) -> Conjunction | None:
    """Either of two, as one conjunction, where that is exact: they differ in one dimension at most."""
    if left.sets.keys() != right.sets.keys() or left.residues.keys() != right.residues.keys():
        return None
    different = [dimension for dimension, cuts in left.sets.items() if right.sets[dimension] != cuts]
    if len(different) > 1:
        return None
    if not different:
        return left
    dimension = different[0]
    return Conjunction(
        left.sets | {dimension: intervals.union(left.sets[dimension], right.sets[dimension])}, left.residues
    )


def _unique(alternatives: list[Conjunction]) -> list[Conjunction]:
    """Drop repeated alternatives; join those that differ in one dimension (few at a time: the search is quadratic)."""
    if len(alternatives) < 2:
        return alternatives
    if any(not a.sets and not a.residues for a in alternatives):
        return [TRUE]
    kept = list({conjunction.key(): conjunction for conjunction in alternatives}.values())
    if len(kept) > 64:
        return kept
    index = 0
    while index < len(kept):
        for other in range(index + 1, len(kept)):
            joined = join(kept[index], kept[other])
            if joined is not None:
                kept[index] = joined
                del kept[other]
                index = -1
                break
        index += 1
    return kept


class _Builder:
    """One pass over the tree; collects terms."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.terms: dict[str, Value] = {}

    def form(self, node: Condition, want: bool) -> list[Conjunction]:
        """Alternatives under which `node` is true (or, `want` false, false: not NULL)."""
        match node:
            case syntax.And():
                return self._all(node.parts, want) if want else self._any(node.parts, want)
            case syntax.Or():
                return self._any(node.parts, want) if want else self._all(node.parts, want)
            case syntax.Not():
                return self.form(node.condition, not want)
            case syntax.IsTruth() if node.negated is not want:
                return self.form(node.condition, node.truth)
            case syntax.IsTruth():  # NOT (c IS TRUE) is c IS NOT TRUE: one spelling for one residue, here and below
                return self._residue(syntax.IsTruth(node.condition, node.truth, True), True)
            case syntax.RLike():
                return self._residue(syntax.RLike(node.value, node.pattern), want is not node.negated)
            case syntax.Between():
                low, high = syntax.Compare(">=", node.value, node.low), syntax.Compare("<=", node.value, node.high)
                return self.form(syntax.And((low, high)), want is not node.negated)
            case syntax.In():
                return self._in(node, want is not node.negated)
            case syntax.Compare():
                return self._compare(node, want)
            case syntax.IsNull():
                key = int((not node.negated) is not want)
                return self._set(node.value, NULLNESS, (key, key + 1), node, want)
            case syntax.Truth():
                return self._set(node.value, values.BOOLEAN, (int(want), int(want) + 1), node, want)
            case syntax.Like():
                return self._like(node, want is not node.negated)
            case syntax.Call():
                return self._call(node, want)

    def _all(self, parts: Iterable[Condition], want: bool) -> list[Conjunction]:
        # Most parts leave no choice. Their tests are gathered first and intersected once per dimension: a chain of
        # thousands of ANDs must not be met one by one, each time looking at all that came before.
        certain: dict[Dimension, list[Cuts]] = {}
        residues: dict[str, Condition] = {}
        choices: list[list[Conjunction]] = []
        for part in parts:
            options = self.form(part, want)
            if not options:
                return []
            if len(options) > 1:
                choices.append(options)
                continue
            for dimension, cuts in options[0].sets.items():
                certain.setdefault(dimension, []).append(cuts)
            residues |= options[0].residues
        sets = {d: found[0] if len(found) == 1 else intervals.intersect(*found) for d, found in certain.items()}
        if not all(sets.values()) or not _consistent(sets):
            return []
        result = [Conjunction(sets, residues)]
        for options in choices:
            if len(result) * len(options) > self._limits.conjunctions:
                result = _unique(result)
            if len(result) * len(options) > self._limits.conjunctions:
                raise self._too_large("conjunctions", len(result) * len(options), self._limits.conjunctions)
            result = [both for left in result for right in options if (both := meet(left, right)) is not None]
        return result

    def _any(self, parts: Iterable[Condition], want: bool) -> list[Conjunction]:
        # x = 1 OR x = 2 OR … is one set, however long: collect single tests per dimension before counting.
        single: dict[Dimension, list[Cuts]] = {}
        result: list[Conjunction] = []
        for part in parts:
            for option in self.form(part, want):
                if len(option.sets) == 1 and not option.residues:
                    ((dimension, cuts),) = option.sets.items()
                    single.setdefault(dimension, []).append(cuts)
                else:
                    result.append(option)
        result.extend(Conjunction({dimension: intervals.union(*sets)}, {}) for dimension, sets in single.items())
        result = _unique(result)
        if len(result) > self._limits.conjunctions:
            raise self._too_large("conjunctions", len(result), self._limits.conjunctions)
        atoms = sum(len(option.sets) + len(option.residues) for option in result)
        if atoms > self._limits.atoms:
            raise self._too_large("atoms", atoms, self._limits.atoms)
        return result

    def _too_large(self, limit: str, have: int, allowed: int) -> FilterLimitError:
        return FilterLimitError(
            f"the filter has {have:,} {limit} in normal form, {allowed:,} are allowed",
            limit=limit,
            help="split it into several subscriptions, or use IN for many values of one name",
        )

    # -- tests

    def _set(self, value: Value, kind: str, cuts: Cuts, node: Condition, want: bool) -> list[Conjunction]:
        """The term's value, read as `kind`, is in the set."""
        if _is_constant(value):
            return self._constant(node, want)
        if isinstance(value, syntax.Field) and len(value.path) == 1:
            envelope_kind = _ENVELOPE_KINDS.get(value.path[0], kind)
            if kind not in (envelope_kind, NULLNESS) and not (kind == REVERSED and envelope_kind == values.TEXT):
                return []
        if not cuts:
            return []
        term = print_value(value)
        self.terms[term] = value
        return [Conjunction({Dimension(term, kind): cuts}, {})]

    def _constant(self, node: Condition, want: bool) -> list[Conjunction]:
        answer = compile_condition(node)(_NO_EVENT)
        return [TRUE] if answer is want else []

    def _residue(self, node: Condition, want: bool) -> list[Conjunction]:
        if _is_constant(node):
            return self._constant(node, want)
        wanted: Condition = node if want else syntax.Not(node)
        return [Conjunction({}, {print_condition(wanted): wanted})]

    def _compare(self, node: syntax.Compare, want: bool) -> list[Conjunction]:
        op, value, other = node.op, node.left, node.right
        if isinstance(value, Literal):
            op, value, other = _FLIPPED[op], other, value
        wanted = (
            node if want else syntax.Compare(_OPPOSITE[node.op], node.left, node.right)
        )  # exact: both only fail on NULL
        if not isinstance(other, Literal) or isinstance(value, Literal):
            return self._residue(wanted, True)
        place = _key(_as_time(other.value, value))
        if place is None:
            return [] if other.value is None else self._residue(wanted, True)
        kind, key = place
        alternatives = self._set(value, kind, _side(op if want else _OPPOSITE[op], kind, key), node, want)
        return self._with_box(alternatives, value, op if want else _OPPOSITE[op], other.value)

    def _in(self, node: syntax.In, want: bool) -> list[Conjunction]:
        keys: dict[str, list[object]] = {}
        rest: list[Condition] = []
        for item in node.items:
            place = _key(item.value) if isinstance(item, Literal) else None
            if place is not None and not _is_constant(node.value):
                keys.setdefault(place[0], []).append(place[1])
            else:
                rest.append(syntax.Compare("=", node.value, item))
        options: list[list[Conjunction]] = []
        for kind, found in keys.items():
            cuts = intervals.points(found)
            options.append(self._set(node.value, kind, cuts if want else _outside(kind, cuts), node, want))
        if want:
            return _unique([c for option in options for c in option] + (self._any(rest, True) if rest else []))
        result = self._all(rest, False)
        for option in options:
            result = [both for left in result for right in option if (both := meet(left, right)) is not None]
        return result

    def _like(self, node: syntax.Like, want: bool) -> list[Conjunction]:
        shape, text = patterns.like_shape(node.pattern, node.escape)
        plain = syntax.Like(node.value, node.pattern, node.escape)
        if shape == "exact":
            return self._text_set(node.value, values.TEXT, intervals.points([intervals.text_key(text)]), plain, want)
        if shape == "prefix":
            return self._text_set(node.value, values.TEXT, intervals.prefix(text), plain, want)
        if shape == "suffix":
            return self._text_set(node.value, REVERSED, intervals.prefix(text[::-1]), plain, want)
        residue = self._residue(plain, want)
        if want and shape == "general" and text and residue and residue[0].residues:
            # 'abc%def' is a residue that implies a prefix, and the prefix can be indexed.
            start = self._set(node.value, values.TEXT, intervals.prefix(text), plain, True)
            return [both for left in start if (both := meet(left, residue[0])) is not None]
        return residue

    def _text_set(self, value: Value, kind: str, cuts: Cuts, node: Condition, want: bool) -> list[Conjunction]:
        return self._set(value, kind, cuts if want else _outside(kind, cuts), node, want)

    def _call(self, node: syntax.Call, want: bool) -> list[Conjunction]:
        value, part = node.args
        if isinstance(part, Literal) and isinstance(part.value, str):
            if node.name == "startswith":
                return self._text_set(value, values.TEXT, intervals.prefix(part.value), node, want)
            if node.name == "endswith":
                return self._text_set(value, REVERSED, intervals.prefix(part.value[::-1]), node, want)
        return self._residue(node, want)

    def _with_box(self, found: list[Conjunction], value: Value, op: str, limit: syntax.Scalar) -> list[Conjunction]:
        """A distance below a limit implies a box of latitudes and longitudes, which can be indexed."""
        if not (isinstance(value, syntax.Call) and value.name == "distance_km" and op in ("<", "<=") and found):
            return found
        if values.kind_of(limit) != values.NUMBER or float(limit) < 0:  # type: ignore[arg-type]
            return found  # no distance is below 0, or text: nothing to be gained
        latitude, longitude, *centre = value.args
        if not all(isinstance(c, Literal) and values.kind_of(c.value) == values.NUMBER for c in centre):
            return found
        lat, lon = (float(c.value) for c in centre if isinstance(c, Literal))  # type: ignore[arg-type]
        for part, kind_cuts in zip((latitude, longitude), _box(lat, lon, float(limit)), strict=True):  # type: ignore[arg-type]
            box = (
                self._set(part, values.NUMBER, kind_cuts, syntax.IsNull(part), True)
                if not _is_constant(part)
                else [TRUE]
            )
            found = [both for left in found for right in box if (both := meet(left, right)) is not None]
        return found


_NO_EVENT = Event("-", "-", id="-")


def fields(node: Value | Condition) -> list[syntax.Field]:
    """All names a value or condition mentions, in the order of its text."""
    return [part for part in _walk(node) if isinstance(part, syntax.Field)]


def calls(node: Value | Condition) -> list[syntax.Call]:
    """All functions and calculations of a value or condition."""
    return [part for part in _walk(node) if isinstance(part, syntax.Call)]


def _as_time(constant: syntax.Scalar, other: Value) -> syntax.Scalar:
    """A text compared with `time` or `arrived`. Most are timestamps already, but not in `'…' IN (time, s)`."""
    is_time = isinstance(other, syntax.Field) and other.path in (("time",), ("arrived",))
    return values.text_as_time(constant) or constant if is_time and isinstance(constant, str) else constant


def _is_constant(node: Value | Condition) -> bool:
    return not any(isinstance(part, syntax.Field) for part in _walk(node))


def _walk(node: object) -> Iterator[object]:
    yield node
    if isinstance(node, msgspec.Struct) and not isinstance(node, syntax.Field | Literal):
        for name in node.__struct_fields__:
            child = getattr(node, name)
            for part in child if isinstance(child, tuple) else (child,):
                if isinstance(part, msgspec.Struct):
                    yield from _walk(part)


def _key(value: syntax.Scalar) -> tuple[str, object] | None:
    """Kind and key of a constant; None where it has no exact place (NULL, whole numbers beyond 2^53)."""
    if isinstance(value, bool):
        return values.BOOLEAN, int(value)
    if isinstance(value, str):
        return values.TEXT, intervals.text_key(value)
    if isinstance(value, datetime):
        return values.TIME, values.micros(value)
    if isinstance(value, float) or (isinstance(value, int) and abs(value) < EXACT):
        return values.NUMBER, intervals.number_key(float(value))
    return None


def _side(op: str, kind: str, key: object) -> Cuts:
    bottom, top = _DOMAINS[kind]
    beyond = intervals.after(key)
    if op == "<>":
        return _outside(kind, (key, beyond))
    cuts = {"=": (key, beyond), "<": (bottom, key), "<=": (bottom, beyond), ">": (beyond, top), ">=": (key, top)}[op]
    return cuts if cuts[0] < cuts[1] else intervals.EMPTY


def _outside(kind: str, cuts: Cuts) -> Cuts:
    bottom, top = _DOMAINS[kind]
    return intervals.complement(cuts, bottom, top)


def _box(latitude: float, longitude: float, radius: float) -> tuple[Cuts, Cuts]:
    """Latitudes and longitudes that a circle on Earth can touch, a little generously (rounding must never exclude)."""
    angle = radius / values.EARTH_RADIUS_KM * (1 + 1e-9) + 1e-9
    spread = math.degrees(angle)
    south, north = latitude - spread, latitude + spread
    if south <= -90 or north >= 90 or angle >= math.pi / 2:
        return _degrees(south, north), _degrees(-180, 180)  # a pole is inside: every longitude
    ratio = math.sin(angle) / math.cos(math.radians(latitude))
    if ratio >= 1:
        return _degrees(south, north), _degrees(-180, 180)
    reach = math.degrees(math.asin(ratio)) * (1 + 1e-9) + 1e-9
    west, east = longitude - reach, longitude + reach
    wrapped = [_degrees(west, east), _degrees(west + 360, 180), _degrees(-180, east - 360)]
    return _degrees(south, north), intervals.union(*(cuts for cuts in wrapped if cuts))


def _degrees(low: float, high: float) -> Cuts:
    if not low <= high:
        return intervals.EMPTY
    return (intervals.number_key(low), intervals.number_key(high) + 1)
