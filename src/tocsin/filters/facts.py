"""What a conjunction implies beyond what it says: the knowledge about events that makes relations decide.

    `attributes.x > 3`   says something about `x`, because an attribute goes before the payload
    `data.a.b = 1`       says that `data.a` is neither NULL nor a number
    `lower(s) = 'eu'`    says that `s` is a text
    `priority > 9`       says that priority is 10

`enrich` adds such sets to a conjunction, or finds that no event can satisfy it. Promised: everything added is true of
every event that satisfies the conjunction, and "no event" is certain. Not promised: to find everything.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator

import msgspec

from tocsin.errors import EventError
from tocsin.filters import intervals, syntax, values
from tocsin.filters.evaluate import compile_condition, compile_value
from tocsin.filters.intervals import Cuts
from tocsin.filters.normal import NULLNESS, REVERSED, Conjunction, Dimension, domain
from tocsin.filters.printer import print_condition, print_value
from tocsin.filters.syntax import Condition, Field, Literal, Value
from tocsin.filters.values import EXACT
from tocsin.model import ACK, CANCEL, CLASSIFICATION, ENVELOPE, MAX_INT, MAX_PRIORITY, MAX_TTL, MIN_PRIORITY, Event

__all__ = ["attributable", "enrich", "fields", "key_of", "opposite", "point_values", "settled", "true_at_points"]

IS_NULL, NOT_NULL = (0, 1), (1, 2)

_MAX_COMBINATIONS = 128
_SAY_TEXT = frozenset({"lower", "upper", "xpath_string"})
_ASK_TEXT = frozenset({"lower", "upper", "length", *syntax.XPATH_FUNCTIONS})
_FAMILY = {values.NUMBER: "n", values.BOOLEAN: "b", values.TEXT: "t", REVERSED: "t", values.TIME: "t"}
_OPPOSITE = {"=": "<>", "<>": "=", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}
_NO_EVENT = Event("-", "-", id="-")


def _numbers(low: float, high: float) -> Cuts:
    return (intervals.number_key(low), intervals.after(intervals.number_key(high)))


def _texts(*allowed: str) -> Cuts:
    return intervals.points(map(intervals.text_key, allowed))


_SOME_TEXT: Cuts = (intervals.after(intervals.BOTTOM_TEXT), intervals.TOP_TEXT)
_DOMAINS: dict[str, tuple[str, Cuts]] = {
    "priority": (
        values.NUMBER,
        intervals.points(intervals.number_key(float(level)) for level in range(MIN_PRIORITY, MAX_PRIORITY + 1)),
    ),
    "offset": (values.NUMBER, _numbers(1, MAX_INT)),
    "ttl": (values.NUMBER, _numbers(5e-324, MAX_TTL)),
    "persistent": (values.BOOLEAN, (0, 2)),
    "time": (values.TIME, domain(values.TIME)),
    "arrived": (values.TIME, domain(values.TIME)),
    "ack": (values.TEXT, _texts(*ACK)),
    "cancel": (values.TEXT, _texts(*CANCEL)),
    "classification": (values.TEXT, _texts(*CLASSIFICATION)),
    **{
        name: (values.TEXT, _SOME_TEXT)
        for name in ("id", "source", "type", "subject", "correlation_id", "datacontenttype")
    },
}
"""What an event can hold in its envelope (`tocsin.model` refuses the rest)."""
_NEVER_NULL = frozenset({"id", "source", "type", "priority", "persistent", "ack", "cancel", "classification"})


class _ImpossibleError(Exception):
    """No event satisfies the conjunction."""


@functools.lru_cache(maxsize=4096)
def attributable(name: str) -> bool:
    """Can an event have an attribute of this name?"""
    try:
        Event("-", "-", id="-", attributes={name: 1})
    except EventError:
        return False
    return True


def fields(node: Value | Condition) -> Iterator[Field]:
    """Every name below a node."""
    if isinstance(node, Field):
        yield node
    elif not isinstance(node, Literal):
        for name in node.__struct_fields__:
            child = getattr(node, name)
            for part in child if isinstance(child, tuple) else (child,):
                if isinstance(part, msgspec.Struct):
                    yield from fields(part)  # type: ignore[arg-type]


def opposite(condition: Condition) -> Condition:
    """The residue that is true where this one is false."""
    if isinstance(condition, syntax.Compare):
        return syntax.Compare(_OPPOSITE[condition.op], condition.left, condition.right)
    return condition.condition if isinstance(condition, syntax.Not) else syntax.Not(condition)


def key_of(value: object, kind: str) -> object:
    """The place of a Python value in the domain of a kind, or None if it is not of that kind."""
    if kind == NULLNESS:
        return int(value is not None)
    have = values.kind_of(value)
    if kind == values.TIME and have == values.TEXT:
        value = values.text_as_time(value)  # type: ignore[arg-type]
        have = values.kind_of(value)
    if have != (values.TEXT if kind == REVERSED else kind):
        return None
    if kind == values.NUMBER:
        return intervals.number_key(float(values.number(value)))  # type: ignore[arg-type]
    if kind == values.BOOLEAN:
        return int(value)  # type: ignore[call-overload]
    if kind == values.TIME:
        return values.micros(value)  # type: ignore[arg-type]
    return intervals.text_key(value if kind == values.TEXT else value[::-1])  # type: ignore[arg-type, index]


def settled(cuts: Cuts) -> Cuts:
    """Text cuts in one spelling: the cut after `s` is the cut before `s` followed by the lowest character."""
    if not any(len(cut) > 1 and cut[1].endswith("\0") for cut in cuts):
        return cuts
    lowest = [(0, cut[1] + "\0", 0) if len(cut) > 1 and cut[2] else cut for cut in cuts]
    pairs = zip(lowest[::2], lowest[1::2], strict=True)
    return intervals.union(*(pair for pair in pairs if pair[0] < pair[1]))


def enrich(conjunction: Conjunction, terms: dict[str, Value]) -> Conjunction | None:
    """Return the conjunction with what it implies, or None if no event satisfies it.

    Args:
        conjunction: tests that must all be true.
        terms: the values behind its term names; names that are added come in here too.
    """
    work = _Enrichment(conjunction, terms)
    try:
        return work.run()
    except _ImpossibleError:
        return None


class _Enrichment:
    """One worklist: every new or narrower set may imply others."""

    def __init__(self, conjunction: Conjunction, terms: dict[str, Value]) -> None:
        self._terms = terms
        self._sets: dict[Dimension, Cuts] = {}
        self._residues = conjunction.residues
        self._given = conjunction.sets
        self._pending: list[Dimension] = []
        self._family: dict[str, str] = {}

    def run(self) -> Conjunction:
        for dimension, cuts in self._given.items():
            self._add(dimension.term, dimension.kind, cuts)
        for term, value in list(self._terms.items()):
            if isinstance(value, Field) and len(value.path) == 1 and value.path[0] in _NEVER_NULL:
                self._add(term, NULLNESS, NOT_NULL)
        for text, residue in self._residues.items():
            if print_condition(opposite(residue)) in self._residues:
                raise _ImpossibleError(text)
            self._residue(residue)
        while self._pending:
            dimension = self._pending.pop()
            self._imply(dimension, self._terms[dimension.term])
        self._try_points()
        return Conjunction(self._sets, self._residues)

    def _add(self, term: str, kind: str, cuts: Cuts) -> None:
        dimension = Dimension(term, kind)
        have = self._sets.get(dimension)
        both = cuts if have is None else intervals.intersect(have, cuts)
        if kind in (values.TEXT, REVERSED):
            both = settled(both)
        if not both:
            raise _ImpossibleError(term)
        if both != have:
            self._sets[dimension] = both
            self._pending.append(dimension)

    def _about(self, value: Value, kind: str, cuts: Cuts | None = None) -> None:
        """The value is of this kind (and in the set)."""
        if isinstance(value, Literal):
            have = values.kind_of(value.value)
            if (have is None) if kind == NULLNESS else (have != kind):
                raise _ImpossibleError(kind)
            return
        term = print_value(value)
        self._terms.setdefault(term, value)
        self._add(term, kind, cuts or (NOT_NULL if kind == NULLNESS else domain(kind)))

    def _imply(self, dimension: Dimension, value: Value) -> None:
        term, kind = dimension
        cuts = self._sets[dimension]
        if kind == NULLNESS:
            if cuts == IS_NULL and isinstance(value, Field) and value.path[0] in _NEVER_NULL and len(value.path) == 1:
                raise _ImpossibleError(term)
            if cuts == NOT_NULL:
                self._exists(value)
            return
        family = _FAMILY[kind]
        if self._family.setdefault(term, family) != family:
            raise _ImpossibleError(term)
        self._add(term, NULLNESS, NOT_NULL)
        if kind in (values.TEXT, REVERSED):
            self._add(term, REVERSED if kind == values.TEXT else values.TEXT, domain(values.TEXT))
        if isinstance(value, Field):
            for alias in _aliases(value.path):
                self._about(Field(alias), kind, cuts)

    def _exists(self, value: Value) -> None:
        """The value is not NULL."""
        if isinstance(value, syntax.Call):
            for argument in value.args:
                self._about(argument, values.TEXT if value.name in _ASK_TEXT else values.NUMBER)
            result = values.TEXT if value.name in _SAY_TEXT else values.NUMBER
            lowest = _numbers(0, float("nan")) if value.name in ("length", "abs", "distance_km") else None
            self._about(value, result, lowest)
            return
        if isinstance(value, Literal):
            return
        head, *rest = path = value.path
        if head in ENVELOPE:
            if rest:
                raise _ImpossibleError(head)
            self._about(value, *_DOMAINS[head])
        elif head == "attributes":
            if len(rest) > 1 or (rest and not attributable(rest[0])):
                raise _ImpossibleError(head)
            self._object(("attributes",))
        elif rest and head != "data":
            self._about(Field(("attributes", head)), NULLNESS, IS_NULL)
        if head not in ("attributes", *ENVELOPE):
            for length in range(1, len(path)):  # whatever has fields is an object
                self._object(path[:length])
        for alias in _aliases(path):
            self._about(Field(alias), NULLNESS)

    def _object(self, path: tuple[str, ...]) -> None:
        term = print_value(Field(path))
        if self._family.setdefault(term, "object") != "object":
            raise _ImpossibleError(term)
        self._about(Field(path), NULLNESS)

    def _residue(self, residue: Condition) -> None:
        test = residue.condition if isinstance(residue, syntax.Not) else residue
        if isinstance(test, syntax.Compare):
            self._about(test.left, NULLNESS)
            self._about(test.right, NULLNESS)
            self._far_number(test)
        elif isinstance(test, syntax.Like | syntax.RLike):
            self._about(test.value, values.TEXT)
        elif isinstance(test, syntax.Call):
            for argument in test.args:
                self._about(argument, NULLNESS if test.name == "array_contains" else values.TEXT)

    def _far_number(self, test: syntax.Compare) -> None:
        """A whole number beyond 2^53 has no exact place among doubles, but a neighbourhood."""
        if isinstance(test.right, Literal) and not isinstance(test.left, Literal):
            limit = test.right.value
            if isinstance(limit, int) and not isinstance(limit, bool):
                near, (bottom, top) = float(limit), domain(values.NUMBER)
                self._about(test.left, values.NUMBER)
                if test.op in (">", ">=", "="):
                    self._about(test.left, values.NUMBER, (intervals.number_key(near), top))
                if test.op in ("<", "<=", "="):
                    self._about(test.left, values.NUMBER, (bottom, intervals.number_key(near) + 1))

    def _try_points(self) -> None:
        """Where a few values are left, try them: `s IN ('ab', 'b') AND endswith(s, 'x')` is impossible."""
        known = Conjunction(self._sets, self._residues)
        for (term, kind), cuts in list(self._sets.items()):
            if kind in (REVERSED, values.TIME) and (texts := point_values(known, term)) is not None:
                kept = [text for text in texts if _inside(cuts, text, kind)]
                if not kept:
                    raise _ImpossibleError(term)
                keys = (intervals.text_key(str(text)) for text in kept)
                self._sets[Dimension(term, values.TEXT)] = settled(intervals.points(keys))
            elif isinstance(self._terms[term], syntax.Call) and cuts != domain(kind):
                self._possible(known, Dimension(term, kind), cuts)
        for text, residue in self._residues.items():
            answers = _answers(known, residue)
            if answers is not None and True not in answers:
                raise _ImpossibleError(text)

    def _possible(self, known: Conjunction, dimension: Dimension, cuts: Cuts) -> None:
        answers = _answers(known, self._terms[dimension.term])
        if answers is not None and not any(_inside(cuts, answer, dimension.kind) for answer in answers):
            raise _ImpossibleError(dimension.term)


def _inside(cuts: Cuts, value: object, kind: str) -> bool:
    key = key_of(value, kind)
    return key is not None and intervals.contains(cuts, key)


def _aliases(path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Other paths that hold the same value whenever this one is not NULL."""
    head, *rest = path
    if head in ENVELOPE:
        return
    if head == "attributes":
        if len(rest) == 1 and attributable(rest[0]):
            yield (rest[0],)
    elif head == "data":
        if rest and rest[0] not in (*ENVELOPE, "data", "attributes") and not attributable(rest[0]):
            yield tuple(rest)
    elif rest or not attributable(head):
        yield ("data", *path)


def point_values(known: Conjunction, term: str) -> list[object] | None:
    """The few values a name can have, as Python values; None if they are many or not exactly known."""
    for kind in (values.NUMBER, values.TEXT, values.BOOLEAN):
        cuts = known.sets.get(Dimension(term, kind))
        if cuts is None or len(cuts) > 2 * _MAX_COMBINATIONS:
            continue
        lows, highs = cuts[::2], cuts[1::2]
        if kind == values.BOOLEAN:
            return [bool(key) for key in (0, 1) if intervals.contains(cuts, key)]
        if kind == values.TEXT:
            if all(
                high in (intervals.after(low), (0, low[1] + "\0", 0)) for low, high in zip(lows, highs, strict=True)
            ):
                return [low[1] for low in lows]
        elif all(low + 1 == high for low, high in zip(lows, highs, strict=True)):
            numbers = [intervals.number_from_key(low) for low in lows]
            if all(abs(number) < EXACT for number in numbers):  # beyond, several whole numbers share a double
                return list(numbers)
    return None


def _answers(known: Conjunction, node: Value | Condition) -> list[object] | None:
    """The values a node takes over all combinations of the few values its names can have; None if they are many."""
    paths = {print_value(field): field.path for field in fields(node)}
    options: list[list[object]] = []
    size = 1
    for term in paths:
        found = point_values(known, term)
        size *= len(found or ())
        if found is None or size > _MAX_COMBINATIONS:
            return None
        options.append(found)
    result: list[object] = []
    for chosen in itertools.product(*options):
        fixed = _replace(node, dict(zip(paths.values(), chosen, strict=True)))
        if isinstance(fixed, Field | Literal) or _is_value(fixed):
            result.append(compile_value(fixed)(_NO_EVENT))  # type: ignore[arg-type]
        else:
            result.append(compile_condition(fixed)(_NO_EVENT))
    return result


def true_at_points(known: Conjunction, test: Value | Condition, kind: str | None = None, cuts: Cuts = ()) -> bool:
    """Is the test true for each of the few values its names can have? False if they are many.

    `test` is a condition, or a value that must lie in `cuts` of `kind`.
    """
    answers = _answers(known, test)
    if not answers:
        return False
    if kind is None:
        return all(answer is True for answer in answers)
    return all(_inside(cuts, answer, kind) for answer in answers)


def _is_value(node: object) -> bool:
    return isinstance(node, syntax.Call) and node.name not in syntax.CONDITION_FUNCTIONS


def _replace(node: Value | Condition, by: dict[tuple[str, ...], object]) -> Value | Condition:
    if isinstance(node, Field):
        return Literal(by[node.path])  # type: ignore[arg-type]
    if isinstance(node, Literal):
        return node
    parts: dict[str, object] = {}
    for name in node.__struct_fields__:
        child = getattr(node, name)
        if isinstance(child, tuple):
            parts[name] = tuple(_replace(part, by) for part in child)
        else:
            parts[name] = _replace(child, by) if isinstance(child, msgspec.Struct) else child  # type: ignore[arg-type]
    return type(node)(**parts)  # type: ignore[arg-type]
