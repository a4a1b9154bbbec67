"""Event → codes and keys: the numbers an index asks for.

An encoder is compiled from a `Space` and thrown away when the space gains a dimension. Bare names are found while
walking once over the event's attributes and payload; computed terms, dotted paths and envelope fields are fetched by
their getters; IS NULL is asked of its own getters.

This is the complete version, in Python: where the kernels run, `native` reads events by the same look-ups (`plan`) and
leaves here what is unusual. Everything beyond text equality and number ranges is behind `More`, which only the names
that need it pay for.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from tocsin.filters import normal, values
from tocsin.filters.evaluate import Getter, compile_value
from tocsin.filters.index.labels import Labels
from tocsin.filters.index.space import MEMBER, Space
from tocsin.filters.syntax import Field, Value
from tocsin.filters.values import EXACT
from tocsin.model import ENVELOPE, Event

__all__ = ["Buffers", "Encoder", "More", "Slot"]

_RESOLVED = frozenset((*ENVELOPE, "data", "attributes"))


class Buffers:
    """Where events are written: codes one after the other, keys in rows with a place for every ordered dimension.

    `doubles` and `wholes` are two views of the same eight bytes each. A place nothing was written to holds `NO_KEY`.
    """

    __slots__ = ("codes", "doubles", "wholes")

    def __init__(self, codes: Any, keys: Any) -> None:
        """Look at two arrays: of 32-bit codes and of 64-bit keys."""
        self.codes, self.wholes = memoryview(codes), memoryview(keys)
        self.doubles = self.wholes.cast("B").cast("d")


class More:
    """What a name needs beyond text equality and number ranges; None and -1 where filters do not ask."""

    def __init__(self) -> None:
        """Nothing is asked for yet."""
        self.numbers: dict[Any, int] | None = None
        self.number_other = -1
        self.booleans: dict[Any, int] | None = None
        self.boolean_other = -1
        self.ordered_texts: list[tuple[int, Labels, bool]] = []
        """Dimension, labels, and whether texts are read from their end."""
        self.time = -1
        self.members: dict[Any, int] | None = None

    def text(self, value: str, out: Buffers, row: int) -> None:
        """Write a text's keys."""
        for dimension, labels, backwards in self.ordered_texts:
            out.wholes[row + dimension] = labels.key(value[::-1] if backwards else value)
        if self.time >= 0:
            moment = values.text_as_time(value)
            if moment is not None:
                out.wholes[row + self.time] = values.micros(moment)

    def number(self, value: float, out: Buffers, codes: int) -> int:
        """Write a number's code."""
        if self.numbers is None:
            return codes
        code = self.numbers.get(value if -EXACT < value < EXACT else float(value), self.number_other)
        if code >= 0:
            out.codes[codes] = code
            codes += 1
        return codes

    def rest(self, value: Any, out: Buffers, codes: int, row: int) -> int:
        """Write booleans, timestamps and arrays."""
        if isinstance(value, bool):
            code = self.booleans.get(value, self.boolean_other) if self.booleans is not None else -1
            if code >= 0:
                out.codes[codes] = code
                codes += 1
        elif isinstance(value, list):
            if self.members is not None:
                for code in _member_codes(value, self.members):
                    out.codes[codes] = code
                    codes += 1
        elif self.time >= 0 and values.kind_of(value) == values.TIME:
            out.wholes[row + self.time] = values.micros(value)
        return codes


def _member_codes(array: list[Any], members: dict[Any, int]) -> set[int]:
    found = set()
    for element in array:
        kind = values.kind_of(element)
        if kind == values.NUMBER:
            element = values.number(element)
            element = element if -EXACT < element < EXACT else float(element)
        if kind in (values.NUMBER, values.TEXT) and (code := members.get(element)) is not None:
            found.add(code)
    return found


class Slot(NamedTuple):
    """What is looked up for a name: codes of texts and of other texts (-1: not wanted), dimension of numbers, more."""

    codes: dict[Any, int] | None = None
    other: int = -1
    number: int = -1
    more: More | None = None


_Path = tuple[str, ...]


class Encoder:
    """Writes events as numbers for one version of a space."""

    def __init__(self, space: Space) -> None:
        """Compile the look-ups for the space as it is now."""
        self.version = space.version
        all_coded, all_ordered = list(space.coded), list(space.ordered)  # as they are now: another thread may be adding
        self.coded, self.width = len(all_coded), max(1, len(all_ordered))
        """Dimensions that events are read into."""
        self.slots: dict[str, Slot] = {}
        """Bare names, found while walking over an event."""
        self.fetched: list[tuple[_Path, Slot]] = []
        """Envelope fields and dotted paths."""
        self.nullness: list[tuple[_Path, int, int]] = []
        """Names asked for NULL: code if it is, code if not."""
        self._getters: list[tuple[Getter, Slot]] = []
        self._nullness: list[tuple[Getter, int, int]] = []
        self._computed: list[tuple[Getter, Slot]] = []
        self._computed_nullness: list[tuple[Getter, int, int]] = []
        slots: dict[str, Slot] = {}

        def slot_of(term: str) -> Slot:
            return slots.setdefault(term, Slot())

        def more_of(term: str) -> More:
            slot = slot_of(term)
            more = slot.more if slot.more is not None else More()
            slots[term] = slot._replace(more=more)
            return more

        for coded in all_coded:
            if coded.test == values.TEXT:
                slots[coded.term] = slot_of(coded.term)._replace(codes=coded.codes, other=coded.other)
            elif coded.test == values.NUMBER:
                more = more_of(coded.term)
                more.numbers, more.number_other = coded.codes, coded.other
            elif coded.test == values.BOOLEAN:
                more = more_of(coded.term)
                more.booleans, more.boolean_other = coded.codes, coded.other
            elif coded.test == MEMBER:
                more_of(coded.term).members = coded.codes
            elif coded.test == normal.NULLNESS:
                self._add_nullness(space.terms[coded.term], coded.codes.get(0, -1), coded.codes.get(1, -1))
        for ordered in all_ordered:
            if ordered.kind == values.NUMBER:
                slots[ordered.term] = slot_of(ordered.term)._replace(number=ordered.number)
            elif ordered.kind == values.TIME:
                more_of(ordered.term).time = ordered.number
            elif ordered.labels is not None:
                backwards = ordered.kind == normal.REVERSED
                more_of(ordered.term).ordered_texts.append((ordered.number, ordered.labels, backwards))
        for term, slot in slots.items():
            self._add_slot(space.terms[term], slot)
        self.computes = bool(self._computed or self._computed_nullness)
        """Is there anything for `compute` to do?"""

    def _add_slot(self, value: Value, slot: Slot) -> None:
        path = _path(value)
        if path is None:
            self._computed.append((compile_value(value), slot))
        elif len(path) == 1 and path[0] not in _RESOLVED:
            self.slots[path[0]] = slot
        else:
            self.fetched.append((path, slot))
            self._getters.append((compile_value(value), slot))

    def _add_nullness(self, value: Value, null: int, present: int) -> None:
        path = _path(value)
        if path is None:
            self._computed_nullness.append((compile_value(value), null, present))
        else:
            self.nullness.append((path, null, present))
            self._nullness.append((compile_value(value), null, present))

    def encode(self, event: Event, out: Buffers, codes: int = 0, row: int = 0) -> int:
        """Write an event: codes behind those already there, keys into the row that begins at `row`.

        Returns:
            The new number of codes.
        """
        data, attributes = event.data, event.attributes
        items: Any  # pairs of name and value
        if type(data) is not dict:
            items = attributes.items()
        elif attributes:
            items = {**data, **attributes}.items()  # an attribute hides a payload field of the same name
        else:
            items = data.items()
        try:
            written = self._put_quickly(items, out, codes, row)
        except (OverflowError, ValueError):  # a whole number that no double can hold: the long way makes it infinite
            written = codes
            for name, value in items:
                if (slot := self.slots.get(name)) is not None:
                    written = _put(slot, value, out, written, row)
        written = _put_all(event, self._getters, self._nullness, out, written, row)
        return self.compute(event, out, written, row) if self.computes else written

    def compute(self, event: Event, out: Buffers, codes: int, row: int) -> int:
        """Write the terms that are more than a name; returns the new number of codes."""
        return _put_all(event, self._computed, self._computed_nullness, out, codes, row)

    def _put_quickly(self, items: Any, out: Buffers, codes: int, row: int) -> int:
        """As `_put` does for each item, with the usual kinds first."""
        find = self.slots.get
        out_codes, out_doubles = out.codes, out.doubles
        for name, value in items:
            slot = find(name)
            if slot is None:
                continue
            texts, other, number, more = slot
            kind = type(value)
            if kind is str:
                if texts is not None and (code := texts.get(value, other)) >= 0:
                    out_codes[codes] = code
                    codes += 1
                if more is not None:
                    more.text(value, out, row)
            elif kind is float or kind is int:
                if number >= 0:
                    out_doubles[row + number] = value
                if more is not None:
                    codes = more.number(value, out, codes)
            elif more is not None and value is not None:
                codes = more.rest(value, out, codes, row)
        return codes


def _path(value: Value) -> _Path | None:
    """The path of a name that can be fetched step by step; None where it is more, or can never be there."""
    if not isinstance(value, Field):
        return None
    head, rest = value.path[0], value.path[1:]
    if (head in ENVELOPE and rest) or (head == "attributes" and len(rest) != 1):
        return None
    return value.path


def _put_all(
    event: Event,
    terms: list[tuple[Getter, Slot]],
    nullness: list[tuple[Getter, int, int]],
    out: Buffers,
    codes: int,
    row: int,
) -> int:
    for getter, slot in terms:
        codes = _put(slot, getter(event), out, codes, row)
    for getter, null, present in nullness:
        code = null if getter(event) is None else present
        if code >= 0:
            out.codes[codes] = code
            codes += 1
    return codes


def _put(slot: Slot, value: Any, out: Buffers, codes: int, row: int) -> int:
    texts, other, number, more = slot
    kind = values.kind_of(value)
    if kind == values.TEXT:
        if texts is not None and (code := texts.get(value, other)) >= 0:
            out.codes[codes] = code
            codes += 1
        if more is not None:
            more.text(value, out, row)
    elif kind == values.NUMBER:
        value = values.number(value)
        if number >= 0:
            out.doubles[row + number] = value
        if more is not None:
            codes = more.number(value, out, codes)
    elif more is not None and value is not None:
        codes = more.rest(value, out, codes, row)
    return codes
