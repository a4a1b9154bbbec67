"""Build an event that satisfies a conjunction: the proof behind `overlaps`.

For each name a few values are proposed: from its sets (ends and middles of intervals, texts with the prefix and the
ending asked for), from what is computed of it (`length(s) = 3` proposes 'aaa'), and from the constants of the filters.
They are combined into real events, and only an event that every filter matches is returned: a wrong proposal costs
time, not truth.

Promised: found for conjunctions of comparisons, IN, BETWEEN and prefixes if there is any such event; else often.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from tocsin.errors import EventError
from tocsin.filters import facts, intervals, patterns, syntax, values
from tocsin.filters.intervals import Cuts
from tocsin.filters.normal import NULLNESS, REVERSED, Conjunction
from tocsin.filters.syntax import Condition, Field, Literal, Value
from tocsin.model import ENVELOPE, Event, time_text

if TYPE_CHECKING:
    from tocsin.filters.filter import Filter

__all__ = ["find"]

Path = tuple[str, ...]
Sets = dict[str, Cuts]

_MAX_EVENTS = 400  # tried per way of placing names
_MAX_INTERVALS = 4  # of one set, from which values are proposed
_ANYTHING: list[Any] = [1, "a", True, 0, "", -1, 0.5, False, "2026-01-01T00:00:00Z", [], {}]
_MEDIA_TYPES = ["application/json", "text/plain", "application/xml", "application/octet-stream", "image/png"]
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST, _LAST = (values.micros(moment.replace(tzinfo=UTC)) for moment in (datetime(1000, 1, 1), datetime.max))
_INVALID: Any = object()
_DOCUMENT = "<a/>"  # a guess where XML is asked for: an XPath is not turned round


def find(known: Conjunction, terms: dict[str, Value], filters: Sequence[Filter]) -> Event | None:
    """Return an event that all `filters` match, built to satisfy `known` (an enriched conjunction), or None."""
    search = _Search(known, terms, filters)
    return search.run(attributes_first=True) or search.run(attributes_first=False)


class _Search:
    def __init__(self, known: Conjunction, terms: dict[str, Value], filters: Sequence[Filter]) -> None:
        self._known = known
        self._filters = filters
        self._sets: dict[Path, Sets] = {}
        self._hints: dict[Path, list[Any]] = {}
        self._free: set[Path] = set()  # names that take part in something computed: their values must be searched for
        for (term, kind), cuts in known.sets.items():
            value = terms[term]
            if isinstance(value, Field):
                self._sets.setdefault(value.path, {})[kind] = cuts
            elif kind != NULLNESS:
                self._note(value, propose({kind: cuts}))
        for residue in known.residues.values():
            self._note_residue(residue)
        self._pool = list(_unique(itertools.chain(*(_constants(one.condition) for one in filters))))

    def _note(self, value: Value | Condition, wanted: list[Any]) -> None:
        self._free.update(field.path for field in facts.fields(value))
        if isinstance(value, Field | Literal | syntax.Call):
            for path, proposed in _invert(value, wanted):
                self._hints.setdefault(path, []).extend(proposed)

    def _note_residue(self, residue: Condition) -> None:
        self._free.update(field.path for field in facts.fields(residue))
        test = residue.condition if isinstance(residue, syntax.Not) else residue
        if isinstance(test, syntax.Like):
            self._note(test.value, [_like_example(test)])
        elif isinstance(test, syntax.RLike):
            self._note(test.value, [_regex_example(test.pattern)])
        elif isinstance(test, syntax.Call) and isinstance(test.args[1], Literal):
            constant = _DOCUMENT if test.name in syntax.XPATH_FUNCTIONS else test.args[1].value
            self._note(test.args[0], [[constant]] if test.name == "array_contains" else [constant])

    def run(self, attributes_first: bool) -> Event | None:
        slots = self._slots(attributes_first)
        if slots is None:
            return None
        slots.sort(key=lambda slot: slot[1])
        places = [place for place, _, _ in slots]
        for chosen in itertools.islice(itertools.product(*(options for _, _, options in slots)), _MAX_EVENTS):
            event = self._build(dict(zip(places, chosen, strict=True)))
            if event is not None and all(one.matches(event) for one in self._filters):
                return event
        return None

    def _slots(self, attributes_first: bool) -> list[tuple[Path, bool, list[Any]]] | None:
        """Where a value goes (`attributes.x`, `data.…` or an envelope field), whether it is searched for, proposals."""
        wanted: dict[Path, list[Path]] = {}
        for path in {*self._sets, *self._free}:
            nullness = self._sets.get(path, {}).get(NULLNESS)
            inside = any(
                len(other) > len(path) and other[: len(path)] == path and self._needed(other) for other in self._sets
            )
            if nullness == facts.IS_NULL or inside or path == ("attributes",):
                continue
            wanted.setdefault(self._place(path, attributes_first), []).append(path)
        slots = []
        for place, paths in wanted.items():
            free = any(path in self._free for path in paths)
            options = self._options(place, paths, free)
            if not options:
                return None
            slots.append((place, free, options))
        return slots

    def _needed(self, path: Path) -> bool:
        return self._sets[path].get(NULLNESS) == facts.NOT_NULL

    def _place(self, path: Path, attributes_first: bool) -> Path:
        head = path[0]
        if head in (*ENVELOPE, "data", "attributes"):
            return path
        attribute = ("attributes", head)
        if len(path) > 1 or not facts.attributable(head) or self._null(attribute) or self._null(("attributes",)):
            return ("data", *path)
        return attribute if attributes_first or attribute in self._sets else ("data", head)

    def _null(self, path: Path) -> bool:
        return self._sets.get(path, {}).get(NULLNESS) == facts.IS_NULL

    def _options(self, place: Path, paths: list[Path], free: bool) -> list[Any]:
        sets: Sets = {}
        for path in paths:
            for kind, cuts in self._sets.get(path, {}).items():
                sets[kind] = intervals.intersect(sets[kind], cuts) if kind in sets else cuts
        if not all(sets.values()):
            return []
        hints = [hint for path in paths for hint in self._hints.get(path, ())]
        hints.insert(0, [member for hint in hints if isinstance(hint, list) for member in hint])
        direct = propose(sets, [hint for hint in hints if isinstance(hint, str)])
        found: Iterable[Any] = itertools.chain(hints, direct, self._pool, _ANYTHING) if free else direct
        if place == ("datacontenttype",):
            found = itertools.chain(_MEDIA_TYPES, found)
        if len(place) == 1 and place[0] in ("time", "arrived"):
            found = (_as_moment(value) for value in found)
        kept = (value for value in _unique(found) if _in_all(sets, value) and _fits(place, value))
        options: list[Any] = list(itertools.islice(kept, 12 if free else 3))
        if free and NULLNESS not in sets:
            options.append(None)
        return options

    def _build(self, chosen: dict[Path, Any]) -> Event | None:
        given: dict[str, Any] = {"type": "-", "source": "-", "id": "-"}
        attributes: dict[str, Any] = {}
        root: dict[str, Any] = {}
        for path, value in chosen.items():
            if value is None:
                continue
            if path[0] == "attributes":
                attributes[path[1]] = value
            elif path[0] == "data":
                node = root
                for name in path[:-1]:
                    node = node.setdefault(name, {})
                    if not isinstance(node, dict):
                        return None
                if path[-1] in node:  # something is inside already
                    return None
                node[path[-1]] = value
            else:
                given[path[0]] = value
        if self._sets.get(("attributes",), {}).get(NULLNESS) == facts.NOT_NULL and not attributes:
            attributes["witness"] = 1
        data = root.get("data")
        if data is None and not self._null(("data",)) and "datacontenttype" in given:
            data = ""
        try:
            return Event(**given, attributes=attributes, data=data)
        except EventError:
            return None


def propose(sets: Sets, parts: Iterable[str] = ()) -> list[Any]:
    """Return a few values that lie in all these sets; `parts` are texts worth having inside."""
    found: list[Any] = []
    if values.NUMBER in sets:
        found.extend(_numbers(sets[values.NUMBER]))
    elif values.BOOLEAN in sets:
        found.extend((True, False))
    elif values.TIME in sets:
        for moment in _moments(sets[values.TIME]):
            text = time_text(moment)
            found.extend((text, text.replace("T", " "), text.replace("Z", "+00:00")))
        found.extend(_texts(sets.get(values.TEXT, ())))
    elif values.TEXT in sets or REVERSED in sets:
        everything = intervals.prefix("")
        heads = list(_texts(sets.get(values.TEXT, everything)))
        tails = [text[::-1] for text in _texts(sets.get(REVERSED, everything))]
        found.extend(heads)
        found.extend(tails)
        found.extend(head + middle + tail for tail in tails for head in heads for middle in ("", *parts))
    else:
        found.extend(_ANYTHING)
    return [value for value in _unique(found) if _in_all(sets, value)]


def _in_all(sets: Sets, value: object) -> bool:
    for kind, cuts in sets.items():
        key = facts.key_of(value, kind)
        if key is None or not intervals.contains(cuts, key):
            return False
    return True


def _pairs(cuts: Cuts) -> Iterator[tuple[Any, Any]]:
    return itertools.islice(zip(cuts[::2], cuts[1::2], strict=True), _MAX_INTERVALS)


def _numbers(cuts: Cuts) -> Iterator[int | float]:
    for low_cut, high_cut in _pairs(cuts):
        low, high = intervals.number_from_key(low_cut), intervals.number_from_key(high_cut - 1)
        for value in (low, high):
            if math.isfinite(value):
                yield from (math.ceil(value), math.floor(value), value)
        yield from (0, low / 2 + high / 2, low, high)
        if math.isfinite(low):
            yield low + 1


def _texts(cuts: Cuts) -> Iterator[str]:
    for low, high in _pairs(cuts):
        start = _legal(low[1])
        yield start
        for more in ("a", " ", "!", "0", "\0"):
            yield start + more
        if len(high) > 1:  # just below the end: 'abc' → 'ab', 'abb~'
            end = high[1]
            yield from (end, end[:-1])
            if end and ord(end[-1]) > 0:
                below = _legal(end[:-1] + chr(ord(end[-1]) - 1))
                yield from (below, below + "~")


def _legal(text: str) -> str:
    """A text that UTF-8 can hold, not below the given one: half of a surrogate pair becomes what follows them all."""
    for place, character in enumerate(text):
        if 0xD800 <= ord(character) < 0xE000:
            return text[:place] + "\ue000"
    return text


def _moments(cuts: Cuts) -> Iterator[datetime]:
    for low, high in _pairs(cuts):
        for key in (low, high - 1, max(low, _FIRST), min(high - 1, _LAST), 0):
            try:
                yield _EPOCH + timedelta(microseconds=key)
            except OverflowError:
                continue


def _as_moment(value: object) -> object:
    if isinstance(value, str):
        try:
            return datetime.fromisoformat(value)
        except ValueError:
            return _INVALID
    return value


def _fits(place: Path, value: object) -> bool:
    """Can an event hold the value there?"""
    head, *rest = place
    try:
        if head in ENVELOPE:
            data = "" if head == "datacontenttype" else None
            given: dict[str, Any] = {"type": "-", "source": "-", head: value, "data": data}
            return getattr(Event(**given), head) is not None
        if head == "attributes":
            Event("-", "-", attributes={rest[0]: value})  # type: ignore[dict-item]
        else:
            Event("-", "-", data={"-": value})
    except EventError:
        return False
    return True


def _unique(found: Iterable[Any]) -> Iterator[Any]:
    seen: set[tuple[str, str]] = set()
    for value in found:
        mark = (type(value).__name__, repr(value))
        if mark not in seen and value is not _INVALID:
            seen.add(mark)
            yield value


def _constants(node: object) -> Iterator[Any]:
    """The constants of a filter, and values next to them."""
    if isinstance(node, Literal):
        value = node.value
        if isinstance(value, datetime):
            yield time_text(value)
        elif value is not None:
            yield value
            if isinstance(value, int | float) and not isinstance(value, bool):
                yield from (value + 1, value - 1)
            elif isinstance(value, str):
                yield from (value + "a", value.lower(), value.upper())
    elif isinstance(node, msgspec.Struct):
        for name in node.__struct_fields__:
            child = getattr(node, name)
            for part in child if isinstance(child, tuple) else (child,):
                yield from _constants(part)


def _invert(value: Value, wanted: list[Any]) -> Iterator[tuple[Path, list[Any]]]:
    """Values of the names below that would give one of the wanted values."""
    if isinstance(value, Field):
        yield value.path, wanted
        return
    if isinstance(value, Literal):
        return
    numbers = [float(w) for w in wanted if values.kind_of(w) == values.NUMBER]
    first, *others = value.args
    if value.name in ("lower", "upper"):
        yield from _invert(first, wanted)
    elif value.name in syntax.XPATH_FUNCTIONS:
        yield from _invert(first, [_DOCUMENT])
    elif value.name == "length":
        yield from _invert(first, ["a" * int(n) for n in numbers if 0 <= n <= 1_000])
    elif value.name in ("abs", "negate"):
        yield from _invert(first, [*numbers, *(-n for n in numbers)])
    elif value.name == "distance_km":
        places = [arg.value for arg in value.args if isinstance(arg, Literal)]
        for argument, opposite in zip(value.args, value.args[2:] + value.args[:2], strict=True):
            yield from _invert(argument, [opposite.value] if isinstance(opposite, Literal) else places or [0.0])
    else:
        second = others[0]
        right, left = _number(second), _number(first)
        yield from _invert(first, [w for n in numbers for w in _undo(value.name, n, right, True)])
        yield from _invert(second, [w for n in numbers for w in _undo(value.name, n, left, False)])


def _number(value: Value) -> float | None:
    known = value.value if isinstance(value, Literal) else None
    return float(known) if values.kind_of(known) == values.NUMBER else None  # type: ignore[arg-type]


def _undo(name: str, result: float, other: float | None, is_left: bool) -> Iterator[float]:
    """Values that with `other` give about `result`; if the other side is a name too, it is thought to be 0 or 1."""
    if other is None:
        neutral = 1.0 if name in "*/" else 0.0
        if not is_left:
            yield neutral
            return
        other = neutral
    if name == "+":
        yield result - other
    elif name == "-":
        yield result + other if is_left else other - result
    elif name == "*" and other:
        yield result / other
    elif name == "/":
        if is_left:
            yield result * other
        elif result:
            yield other / result
    elif name == "%" and is_left:
        yield result


def _like_example(test: syntax.Like) -> str:
    parts = patterns.like_parts(test.pattern, test.escape)
    return "".join(part if isinstance(part, str) else "a" * (part[0] == patterns.ONE) for part in parts)


def _regex_example(pattern: str) -> str:
    """A rough guess at a text that fits: first alternatives, first members of classes, everything once."""
    out: list[str] = []
    index = 4 if pattern.startswith(("(?i)", "(?s)")) else 0
    while index < len(pattern):
        character = pattern[index]
        index += 1
        if character == "\\" and index < len(pattern):
            out.append({"d": "1", "w": "a", "s": " ", "D": "a", "W": " ", "S": "a"}.get(pattern[index], pattern[index]))
            index += 1
        elif character == "[":
            end = pattern.find("]", index + 1)
            out.append("~" if pattern[index] == "^" else pattern[index])
            index = end + 1 if end > 0 else len(pattern)
        elif character == "{":
            index = pattern.find("}", index) + 1 or len(pattern)
        elif character == "|":
            break
        elif character == ".":
            out.append("a")
        elif character not in "^$()*+?":
            out.append(character)
    return "".join(out)
