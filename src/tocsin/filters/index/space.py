"""The space filters live in: dimensions, dictionaries of values, and how a filter becomes whole numbers.

A *dimension* is a term read as one kind. There are two sorts:

- *coded*: values are looked up in a dictionary and become a code; codes are unique over all dimensions, so an equality
  test is one code. Texts, numbers and booleans that filters compare for equality, NULL or not, membership of arrays.
- *ordered*: values become 64-bit keys that keep their order; a range test is `low <= key <= high`. Numbers, timestamps,
  and texts (`tocsin.filters.index.labels`).

Dictionaries grow as filters arrive. `renumbered` drops the codes of filters long removed and makes room between labels.

Concurrency: one writer at a time (the matcher's lock). Readers never lock: a dictionary is read by single operations.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tocsin.filters import intervals, normal, values
from tocsin.filters.index.labels import Labels
from tocsin.filters.index.texts import Bounds, Named, Numbers
from tocsin.filters.intervals import Cuts
from tocsin.filters.language import parse
from tocsin.filters.normal import Conjunction, Dimension
from tocsin.filters.printer import print_value
from tocsin.filters.syntax import Call, Condition, Field, IsNull, Literal, Value
from tocsin.filters.unparse import set_condition

__all__ = ["IN", "MEMBER", "NOT_IN", "WITHIN_CUTS", "Coded", "CodedConjunction", "Ordered", "SetTest", "Space"]

IN, NOT_IN, WITHIN_CUTS = 0, 1, 2
"""Tests on a set: the code is one of these; is none of these (but there is one); the key lies between two of these
cuts."""

MEMBER = "member"
MAX_COMPUTED_TERMS = 256
"""Terms that must be computed or dug out for every event; what goes beyond is tested on candidates only."""


class Coded:
    """A coded dimension: the dictionary of the values filters mention."""

    __slots__ = ("codes", "names", "number", "numbers", "other", "term", "test")

    def __init__(self, number: int, term: str, test: str) -> None:
        """A dimension without codes yet."""
        self.number, self.term, self.test = number, term, test
        self.codes: dict[Any, int] = {}
        self.other = -1
        """The code of a value no filter names; made when some filter says NOT IN."""
        self.names: Named | None = None
        """The texts of `codes` for Arrow columns, see `texts`."""
        self.numbers: Numbers | None = None
        """The numbers of `codes` for Arrow columns, see `texts`."""


class Ordered:
    """An ordered dimension."""

    __slots__ = ("bounds", "kind", "labels", "number", "term")

    def __init__(self, number: int, term: str, kind: str, labels: Labels | None = None) -> None:
        """A dimension; one of texts gets empty labels if none are given."""
        self.number, self.term, self.kind = number, term, kind
        self.labels = labels if labels is not None else (Labels() if kind in (values.TEXT, normal.REVERSED) else None)
        self.bounds: Bounds | None = None
        """The texts of `labels` for Arrow columns, see `texts`."""

    def close(self, cuts: Cuts) -> list[int]:
        """The cuts as closed pairs of keys."""
        if self.labels is None:
            return [cut - index % 2 for index, cut in enumerate(cuts)]
        if len(cuts) > 2:
            self.labels.make(sorted({cut[1] for cut in cuts if len(cut) > 1 and cut != intervals.BOTTOM_TEXT}))
        return [self.labels.closed(cut, bool(index % 2)) for index, cut in enumerate(cuts)]

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
        """No dimensions yet."""
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
        if not _is_bare(value):
            # A distance has its own centre in every filter: its box is indexed, itself it is asked of candidates only.
            if len(self._computed) >= MAX_COMPUTED_TERMS or (isinstance(value, Call) and value.name == "distance_km"):
                return False
            self._computed.add(term)
        self.terms[term] = value
        return True

    # -- filters to numbers

    def encode(self, conjunction: Conjunction, terms: dict[str, Value]) -> CodedConjunction:
        """Write a conjunction as whole numbers, making codes and labels as needed.

        Raises:
            CrowdedError: there is no room for a label; nothing but a few unused codes was made.
        """
        codes: list[int] = []
        ranges: list[tuple[int, int, int]] = []
        sets: list[SetTest] = []
        residues: list[str] = []
        known = self.terms
        for dimension, cuts in conjunction.sets.items():
            term, kind = dimension
            if term not in known and not self._may_use(term, terms[term]):
                residues.append(self._residue_of_set(dimension, cuts))
            elif (
                kind == values.NUMBER and len(cuts) == 2 and cuts[1] - cuts[0] != 1
            ):  # most tests are ranges of numbers
                ordered = self._ordered.get(dimension) or self.ordered_dimension(term, kind)
                ranges.append((ordered.number, cuts[0], cuts[1] - 1))
            else:
                self._encode_set(dimension, cuts, codes, ranges, sets)
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
        return CodedConjunction(codes, ranges, sets, tuple(sorted(residues)) if residues else ())

    def _encode_set(
        self,
        dimension: Dimension,
        cuts: Cuts,
        codes: list[int],
        ranges: list[tuple[int, int, int]],
        sets: list[SetTest],
    ) -> None:
        term, kind = dimension
        found = _points(cuts, kind)
        if found is not None:
            coded = self._coded.get(dimension) or self.coded_dimension(term, kind)
            if len(found) == 1:
                code = coded.codes.get(found[0])
                codes.append(code if code is not None else self.code(coded, found[0]))
            else:
                sets.append(SetTest(coded.number, IN, sorted([self.code(coded, value) for value in found])))
            return
        if len(cuts) > 2 and kind in (values.TEXT, values.NUMBER):
            bottom, top = normal.domain(kind)
            excluded = _points(cuts[1:-1], kind) if cuts[0] == bottom and cuts[-1] == top else None
            if excluded is not None:
                coded = self.coded_dimension(term, kind)
                self.other(coded)
                sets.append(SetTest(coded.number, NOT_IN, sorted([self.code(coded, value) for value in excluded])))
                return
        ordered = self.ordered_dimension(term, kind)
        keys = ordered.close(cuts)
        if len(keys) == 2:
            ranges.append((ordered.number, keys[0], keys[1]))
        else:
            # Odd places of a sorted list of half-open cuts are inside.
            sets.append(SetTest(ordered.number, WITHIN_CUTS, [key + index % 2 for index, key in enumerate(keys)]))

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

    @property
    def size_in_bytes(self) -> int:
        """Memory of the dictionaries and of the texts in them, as far as they are of Python's making."""
        texts = sum(value.__sizeof__() for value in self.code_values if isinstance(value, str))
        tables = sum(coded.codes.__sizeof__() + (coded.names.nbytes if coded.names else 0) for coded in self.coded)
        return texts + tables + 32 * len(self.code_values) + 2 * self.code_values.__sizeof__()

    def row_of_code(self, code: int) -> int:
        """A code's place in an event's row: its dimension; -1 for members of arrays, of which an event has many."""
        owner = self.coded[self.code_owner[code]]
        return -1 if owner.test == MEMBER else owner.number

    # -- restoring, see `wire`

    def restore_term(self, term: str, asked: Condition) -> None:
        """Make a term known; `asked` is `term IS NULL`, parsed."""
        if not isinstance(asked, IsNull):
            raise ValueError(f"{term!r} is not a term")
        self.terms[term] = asked.value
        if not _is_bare(asked.value):
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

    def adopt(self, other: Space) -> tuple[list[int], list[int], list[int]]:
        """Take over all that another space has, its labels excepted.

        Returns:
            The new numbers of its codes, of its coded and of its ordered dimensions.
        """
        for term, value in other.terms.items():
            if term not in self.terms:
                self.terms[term] = value
                if not _is_bare(value):
                    self._computed.add(term)
        self.residues |= other.residues
        coded = [self.coded_dimension(dimension.term, dimension.test) for dimension in other.coded]
        codes = []
        for code, (owner, value) in enumerate(zip(other.code_owner, other.code_values, strict=True)):
            is_other = code == other.coded[owner].other
            codes.append(self.other(coded[owner]) if is_other else self.code(coded[owner], value))
        ordered = [self.ordered_dimension(dimension.term, dimension.kind).number for dimension in other.ordered]
        return codes, [dimension.number for dimension in coded], ordered

    # -- renumbering

    def renumbered(self, used: np.ndarray) -> tuple[Space, np.ndarray]:
        """Return a space with only the `used` codes (a boolean per code) and with labels spread out.

        Returns:
            The space, and the new number of each old code, or -1. New numbers keep the order of the old.
        """
        fresh = Space()
        fresh.terms, fresh.residues, fresh._computed = dict(self.terms), dict(self.residues), set(self._computed)
        for old in self.ordered:
            fresh.restore_ordered(old.term, old.kind, old.labels.relabelled() if old.labels is not None else None)
        kept = used.copy()
        for dimension in self.coded:
            fresh.restore_coded(dimension.term, dimension.test)
            if dimension.other >= 0:
                kept[dimension.other] = True
            if dimension.test == normal.NULLNESS:
                kept[list(dimension.codes.values())] = True
        moved = np.full(len(self.code_values), -1, np.int32)
        for code in np.flatnonzero(kept).tolist():
            owner = self.coded[self.code_owner[code]]
            moved[code] = len(fresh.code_values)
            fresh.restore_code(fresh.coded[owner.number], self.code_values[code], code == owner.other)
        fresh.version = self.version + 1
        return fresh, moved


def _is_bare(value: Value) -> bool:
    return isinstance(value, Field) and len(value.path) == 1


def _points(cuts: Cuts, kind: str) -> list[Any] | None:
    """The values of a set that is a few single values; None if it is not."""
    if kind == values.TEXT:
        if len(cuts) == 2:
            low, high = cuts
            return [low[1]] if len(high) > 1 and low[1] == high[1] and low[2] == 0 else None
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
