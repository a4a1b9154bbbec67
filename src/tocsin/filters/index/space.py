"""The space filters live in: dimensions, dictionaries of values, and how a filter becomes whole numbers.

A *dimension* is a term read as one kind. There are two sorts:

- *coded*: values are looked up in a dictionary and become a code; codes are unique over all dimensions, so an equality test
  is one code. Texts, numbers and booleans that filters compare for equality, NULL or not, membership of arrays.
- *ordered*: values become 64-bit keys that keep their order; a range test is `low <= key <= high`. Numbers, timestamps, and
  texts: those get *labels*, numbers handed out between the texts that filters mention as ends of ranges or prefixes, so that
  a text no filter ever mentioned still falls into the right gap.

Dictionaries grow as filters arrive. Codes of forgotten filters are dropped by `without_unused` when the index is rebuilt.

Concurrency: one writer at a time (the matcher's lock). Readers never lock: dictionaries are read by single operations, and
labels are read under a version number that is odd while they change.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Any, NamedTuple

import numpy as np

from tocsin.filters import intervals, normal, values
from tocsin.filters.intervals import Cuts
from tocsin.filters.normal import Conjunction, Dimension
from tocsin.filters.language import parse
from tocsin.filters.printer import print_value
from tocsin.filters.syntax import Call, Condition, Field, IsNull, Literal, Value
from tocsin.filters.unparse import set_condition

__all__ = ["ABSENT", "HIGHEST", "IN", "MEMBER", "LOWEST", "NOT_IN", "WITHIN_CUTS", "Coded", "CodedConjunction", "Labels", "Ordered", "SetTest", "Space"]

ABSENT = -(2**63)
"""The key of a missing value: below every `low`, so that a missing value passes no range test."""
LOWEST, HIGHEST = ABSENT + 1, 2**63 - 2  # a cut just behind the highest must still be a machine word

IN, NOT_IN, WITHIN_CUTS = 0, 1, 2
"""Tests on a set: the code is one of these; is none of these (but there is one); the key lies between two of these cuts."""

MEMBER = "member"
MAX_COMPUTED_TERMS = 256
"""Terms that must be computed or dug out for every event; what goes beyond is tested on candidates only."""

_GAP = 2**32  # distance between labels; leaves room for 32 halvings before a relabelling


class Labels:
    """Numbers for the texts that bound ranges, in the order of the texts."""

    def __init__(self) -> None:
        self.version = 0
        self._texts: list[str] = []
        self._labels: list[int] = []

    def __len__(self) -> int:
        return len(self._texts)

    def label(self, text: str) -> int | None:
        """Return the label of a bound, making one; None when there is no room left between its neighbours."""
        place = bisect_right(self._texts, text)
        if place and self._texts[place - 1] == text:
            return self._labels[place - 1]
        if place == len(self._texts):
            label = self._labels[-1] + _GAP if place else 0
        elif place == 0:
            label = self._labels[0] - _GAP
        else:
            low, high = self._labels[place - 1], self._labels[place]
            label = (low + high) // 2 & ~3
            if label - low < 4:
                return None
        if not LOWEST + 8 < label < HIGHEST - 8:
            return None
        self.version += 1
        self._texts.insert(place, text)
        self._labels.insert(place, label)
        self.version += 1
        return label

    def key(self, text: str) -> int:
        """The key of a value: at a bound (label + 1), behind one (label + 2), or before all."""
        while True:
            version = self.version
            if not version & 1:
                place = bisect_right(self._texts, text)
                if not place:
                    key = LOWEST + 1
                else:
                    try:
                        key = self._labels[place - 1] + (1 if self._texts[place - 1] == text else 2)
                    except IndexError:
                        continue
                if version == self.version:
                    return key

    def closed(self, cut: Any, high: bool) -> int | None:
        """The key that a cut allows first (as a low end) or last (as a high end)."""
        if cut == intervals.TOP_TEXT:
            return HIGHEST
        if cut == intervals.BOTTOM_TEXT:
            return LOWEST
        label = self.label(cut[1])
        return None if label is None else label + (1 + cut[2] if not high else cut[2])

    def bound(self, key: int, high: bool) -> Any:
        """Undo `closed`."""
        if key == HIGHEST:
            return intervals.TOP_TEXT
        if key == LOWEST:
            return intervals.BOTTOM_TEXT
        place = bisect_right(self._labels, key) - 1
        return (0, self._texts[place], key - self._labels[place] - (0 if high else 1))

    def dump(self) -> tuple[list[str], list[int]]:
        """Texts and labels, to be stored."""
        return self._texts, self._labels

    @classmethod
    def load(cls, texts: list[str], labels: list[int]) -> Labels:
        """Undo `dump`."""
        made = cls()
        made._texts, made._labels = list(texts), list(labels)
        return made


class Coded:
    """A coded dimension: the dictionary of the values filters mention."""

    __slots__ = ("codes", "number", "other", "term", "test")

    def __init__(self, number: int, term: str, test: str) -> None:
        self.number, self.term, self.test = number, term, test
        self.codes: dict[Any, int] = {}
        self.other = -1
        """The code of a value no filter names; made when some filter says NOT IN."""


class Ordered:
    """An ordered dimension."""

    __slots__ = ("kind", "labels", "number", "term")

    def __init__(self, number: int, term: str, kind: str, labels: Labels | None = None) -> None:
        self.number, self.term, self.kind = number, term, kind
        self.labels = labels if labels is not None else (Labels() if kind in (values.TEXT, normal.REVERSED) else None)

    def close(self, cuts: Cuts) -> list[int] | None:
        """The cuts as closed pairs of keys; None when the labels ran out of room."""
        keys: list[int] = []
        for index, cut in enumerate(cuts):
            key = self.labels.closed(cut, bool(index % 2)) if self.labels is not None else cut - index % 2
            if key is None:
                return None
            keys.append(key)
        return keys

    def cuts(self, keys: list[int]) -> Cuts:
        """Undo `close`."""
        if self.labels is None:
            return tuple(key + index % 2 for index, key in enumerate(keys))
        return tuple(self.labels.bound(key, bool(index % 2)) for index, key in enumerate(keys))


class SetTest(NamedTuple):
    """A test that is neither one code nor one range."""

    dimension: int
    operation: int
    items: list[int]


class CodedConjunction(NamedTuple):
    """A conjunction as whole numbers; `residues` are what could not be written that way."""

    codes: list[int]
    ranges: list[tuple[int, int, int]]
    sets: list[SetTest]
    residues: tuple[str, ...]


class Space:
    """All dimensions of one matcher, and the values behind the codes."""

    def __init__(self) -> None:
        self.coded: list[Coded] = []
        self.ordered: list[Ordered] = []
        self.terms: dict[str, Value] = {}
        self.residues: dict[str, Condition] = {}
        self.code_values: list[Any] = []
        self.code_owner: list[int] = []
        self.version = 0
        """Grows when a dimension or a computed term is added: encoders are then made anew."""
        self._coded: dict[tuple[str, str], Coded] = {}
        self._ordered: dict[tuple[str, str], Ordered] = {}
        self.members = 0
        """Codes for members of arrays: an event may carry any number of them."""
        self._computed: set[str] = set()

    # -- making dimensions and codes

    def coded_dimension(self, term: str, test: str) -> Coded:
        """Find or make the coded dimension of a term."""
        found = self._coded.get((term, test))
        if found is None:
            found = self._coded[term, test] = Coded(len(self.coded), term, test)
            self.coded.append(found)
            if test == normal.NULLNESS:  # both, so that an encoder made now knows what to write
                self.code(found, 0), self.code(found, 1)
            self.version += 1
        return found

    def ordered_dimension(self, term: str, kind: str) -> Ordered:
        """Find or make the ordered dimension of a term."""
        found = self._ordered.get((term, kind))
        if found is None:
            found = self._ordered[term, kind] = Ordered(len(self.ordered), term, kind)
            self.ordered.append(found)
            self.version += 1
        return found

    def code(self, dimension: Coded, value: Any) -> int:
        """Find or make the code of a value."""
        code = dimension.codes.get(value)
        if code is None:
            code = self._new_code(dimension, value)
            dimension.codes[value] = code
        return code

    def other(self, dimension: Coded) -> int:
        """Find or make the code for 'some other value of this kind'."""
        if dimension.other < 0:
            dimension.other = self._new_code(dimension, None)
            self.version += 1
        return dimension.other

    def _new_code(self, dimension: Coded, value: Any) -> int:
        self.code_values.append(value)
        self.code_owner.append(dimension.number)
        self.members += dimension.test == MEMBER
        return len(self.code_values) - 1

    def _may_use(self, term: str, value: Value) -> bool:
        """A bare name is found while walking over an event; anything else costs every event, so it is limited."""
        if term in self.terms:
            return True
        if not (isinstance(value, Field) and len(value.path) == 1):
            if len(self._computed) >= MAX_COMPUTED_TERMS:
                return False
            self._computed.add(term)
        self.terms[term] = value
        return True

    # -- filters to numbers

    def encode(self, conjunction: Conjunction, terms: dict[str, Value]) -> CodedConjunction:
        """Write a conjunction as whole numbers, making codes and labels as needed."""
        codes: list[int] = []
        ranges: list[tuple[int, int, int]] = []
        sets: list[SetTest] = []
        residues: list[str] = []
        for dimension, cuts in conjunction.sets.items():
            if not (self._may_use(dimension.term, terms[dimension.term]) and self._encode_set(dimension, cuts, codes, ranges, sets)):
                residues.append(self._residue_of_set(dimension, cuts))
        for text, condition in conjunction.residues.items():
            member = self._member(condition)
            if member is not None:
                codes.append(member)
            else:
                self.residues[text] = condition
                residues.append(text)
        codes.sort()
        ranges.sort()
        sets.sort()
        return CodedConjunction(codes, ranges, sets, tuple(sorted(residues)))

    def _encode_set(
        self, dimension: Dimension, cuts: Cuts, codes: list[int], ranges: list[tuple[int, int, int]], sets: list[SetTest]
    ) -> bool:
        term, kind = dimension
        found = _points(cuts, kind)
        if found is not None:
            coded = self.coded_dimension(term, kind)
            listed = sorted(self.code(coded, value) for value in found)
            if len(listed) == 1:
                codes.append(listed[0])
            else:
                sets.append(SetTest(coded.number, IN, listed))
            return True
        if kind in (values.TEXT, values.NUMBER, values.BOOLEAN):
            bottom, top = normal.domain(kind)
            around = len(cuts) > 2 and cuts[0] == bottom and cuts[-1] == top
            excluded = _points(cuts[1:-1], kind) if around else None
            if excluded is not None:
                coded = self.coded_dimension(term, kind)
                self.other(coded)
                sets.append(SetTest(coded.number, NOT_IN, sorted(self.code(coded, value) for value in excluded)))
                return True
        ordered = self.ordered_dimension(term, kind)
        keys = ordered.close(cuts)
        if keys is None:
            return False
        if len(keys) == 2:
            ranges.append((ordered.number, keys[0], keys[1]))
        else:
            # Odd places of a sorted list of half-open cuts are inside.
            sets.append(SetTest(ordered.number, WITHIN_CUTS, [key + index % 2 for index, key in enumerate(keys)]))
        return True

    def _residue_of_set(self, dimension: Dimension, cuts: Cuts) -> str:

        text = set_condition(dimension.term, dimension.kind, cuts)
        self.residues[text] = parse(text)
        return text

    def _member(self, condition: Condition) -> int | None:
        """`array_contains(name, constant)` is one code: the event carries a code for each element a filter asks for."""
        if not (isinstance(condition, Call) and condition.name == "array_contains"):
            return None
        array, element = condition.args
        if not isinstance(array, Field) or not isinstance(element, Literal):
            return None
        value = element.value
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            return None
        if isinstance(value, int) and abs(value) >= 2**53:
            return None

        term = print_value(array)
        if not self._may_use(term, array):
            return None
        return self.code(self.coded_dimension(term, MEMBER), value)

    def row_of_code(self, code: int) -> int:
        """The place of a code in an event's row: its dimension; -1 for members of arrays, of which an event has many."""
        owner = self.coded[self.code_owner[code]]
        return -1 if owner.test == MEMBER else owner.number

    # -- restoring, see `wire`

    def restore_term(self, term: str, asked: Condition) -> None:
        """Make a term known; `asked` is `term IS NULL`, parsed."""
        if not isinstance(asked, IsNull):
            raise ValueError(f"{term!r} is not a term")
        self.terms[term] = asked.value
        if not (isinstance(asked.value, Field) and len(asked.value.path) == 1):
            self._computed.add(term)

    def restore_coded(self, term: str, test: str) -> None:
        """Make a coded dimension without codes."""
        self._coded[term, test] = Coded(len(self.coded), term, test)
        self.coded.append(self._coded[term, test])
        self.version += 1

    def restore_code(self, dimension: Coded, value: Any, is_other: bool) -> None:
        """Make the next code."""
        code = self._new_code(dimension, value)
        if is_other:
            dimension.other = code
        else:
            dimension.codes[value] = code

    def restore_ordered(self, term: str, kind: str, labels: Labels | None) -> None:
        """Make an ordered dimension with its labels."""
        self._ordered[term, kind] = Ordered(len(self.ordered), term, kind, labels)
        self.ordered.append(self._ordered[term, kind])
        self.version += 1

    # -- dropping what nobody uses

    def without_unused(self, used: np.ndarray) -> tuple[Space, np.ndarray]:
        """Return a space with only the `used` codes (a boolean per code), and the new number of each old code (or -1)."""
        fresh = Space()
        fresh.terms, fresh.residues, fresh._computed = dict(self.terms), dict(self.residues), set(self._computed)
        fresh.ordered, fresh._ordered = list(self.ordered), dict(self._ordered)
        fresh.version = self.version + 1
        moved = np.full(len(self.code_values), -1, np.int32)
        for old in self.coded:
            fresh._coded[old.term, old.test] = Coded(old.number, old.term, old.test)
            fresh.coded.append(fresh._coded[old.term, old.test])
        used = used.copy()
        for old in self.coded:
            keep = [*(old.codes.values() if old.test == normal.NULLNESS else ()), *([old.other] if old.other >= 0 else [])]
            used[keep] = True
        for code in np.flatnonzero(used).tolist():
            old = self.coded[self.code_owner[code]]
            new = fresh.coded[old.number]
            if code == old.other:
                moved[code] = fresh.other(new)
            else:
                moved[code] = fresh.code(new, self.code_values[code])
        return fresh, moved


def _points(cuts: Cuts, kind: str) -> list[Any] | None:
    """The values of a set that is a few single values; None if it is not."""
    if kind == values.TEXT:
        found: list[Any] = []
        for index in range(0, len(cuts), 2):
            low, high = cuts[index], cuts[index + 1]
            if high == intervals.TOP_TEXT or low[1] != high[1] or low[2] != 0:
                return None
            found.append(low[1])
        return found
    if kind == values.NUMBER:
        for index in range(0, len(cuts), 2):
            if cuts[index + 1] - cuts[index] != 1 or cuts[index] == intervals.NAN_KEY:
                return None
        return [intervals.number_from_key(key) for key in cuts[::2]]
    if kind in (values.BOOLEAN, normal.NULLNESS):
        keys = [key for index in range(0, len(cuts), 2) for key in range(cuts[index], cuts[index + 1])]
        return [bool(key) for key in keys] if kind == values.BOOLEAN else keys
    return None
