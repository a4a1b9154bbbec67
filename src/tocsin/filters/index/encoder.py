"""Event → codes and keys: the numbers an index asks for.

An encoder is compiled from a `Space` and thrown away when the space gains a dimension. Bare names are found while
walking once over the event's attributes and payload; computed terms, dotted paths and envelope fields are fetched by
their getters; IS NULL is asked of its own getters.

Speed rules here: one dictionary look-up per name, one per text, plain memoryview writes, methods bound once. Everything
unusual (equality on numbers, ordered texts, arrays …) is behind `_More`, which only the names that need it pay for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tocsin.filters import normal, values
from tocsin.filters.evaluate import Getter, compile_value
from tocsin.filters.index.space import MEMBER, Space
from tocsin.filters.syntax import Field
from tocsin.filters.values import EXACT
from tocsin.model import ENVELOPE, Event

__all__ = ["Buffers", "Encoder"]

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


class _More:
    """What a name needs beyond text equality and number ranges."""

    def __init__(self) -> None:
        self.numbers: dict[Any, int] = {}
        self.number_other = -1
        self.booleans: dict[Any, int] = {}
        self.boolean_other = -1
        self.ordered_texts: list[tuple[int, Callable[[str], int], bool]] = []
        self.time = -1
        self.members: dict[Any, int] = {}

    def text(self, value: str, out: Buffers, row: int) -> None:
        for dimension, key, backwards in self.ordered_texts:
            out.wholes[row + dimension] = key(value[::-1] if backwards else value)
        if self.time >= 0:
            moment = values.text_as_time(value)
            if moment is not None:
                out.wholes[row + self.time] = values.micros(moment)

    def number(self, value: float, out: Buffers, codes: int) -> int:
        code = self.numbers.get(value if -EXACT < value < EXACT else float(value), self.number_other)
        if code >= 0:
            out.codes[codes] = code
            codes += 1
        return codes

    def rest(self, value: Any, out: Buffers, codes: int, row: int) -> int:
        """Booleans, timestamps and arrays."""
        if isinstance(value, bool):
            code = self.booleans.get(value, self.boolean_other)
            if code >= 0:
                out.codes[codes] = code
                codes += 1
        elif isinstance(value, list):
            if self.members:
                for code in self._member_codes(value):
                    out.codes[codes] = code
                    codes += 1
        elif self.time >= 0 and values.kind_of(value) == values.TIME:
            out.wholes[row + self.time] = values.micros(value)
        return codes

    def _member_codes(self, array: list[Any]) -> set[int]:
        found = set()
        for element in array:
            kind = values.kind_of(element)
            if kind == values.NUMBER:
                element = values.number(element)
                element = element if -EXACT < element < EXACT else float(element)
            if kind in (values.NUMBER, values.TEXT) and (code := self.members.get(element)) is not None:
                found.add(code)
        return found


# What is looked up for a name: `get` of the text codes, code for other texts (-1 = not wanted), number dimension (or
# -1), and the rest.
_Slot = tuple[Callable[[Any, int], int], int, int, _More | None]


class Encoder:
    """Writes events as numbers for one version of a space."""

    def __init__(self, space: Space) -> None:
        """Compile the look-ups for the space as it is now."""
        all_coded, all_ordered = list(space.coded), list(space.ordered)  # as they are now: another thread may be adding
        self.coded, self.width = len(all_coded), max(1, len(all_ordered))
        """Dimensions that events are read into."""
        self._slots: dict[str, _Slot] = {}
        self._computed: list[tuple[Getter, _Slot]] = []
        self._nullness: list[tuple[Getter, int, int]] = []
        slots: dict[str, list[Any]] = {}

        def slot_of(term: str) -> list[Any]:
            return slots.setdefault(term, [{}.get, -1, -1, None])

        def more_of(term: str) -> _More:
            slot = slot_of(term)
            if slot[3] is None:
                slot[3] = _More()
            more: _More = slot[3]
            return more

        for coded in all_coded:
            if coded.test == values.TEXT:
                slot_of(coded.term)[:2] = coded.codes.get, coded.other
            elif coded.test == values.NUMBER:
                more = more_of(coded.term)
                more.numbers, more.number_other = coded.codes, coded.other
            elif coded.test == values.BOOLEAN:
                more = more_of(coded.term)
                more.booleans, more.boolean_other = coded.codes, coded.other
            elif coded.test == MEMBER:
                more_of(coded.term).members = coded.codes
            elif coded.test == normal.NULLNESS:
                getter = compile_value(space.terms[coded.term])
                self._nullness.append((getter, coded.codes.get(0, -1), coded.codes.get(1, -1)))
        for ordered in all_ordered:
            if ordered.kind == values.NUMBER:
                slot_of(ordered.term)[2] = ordered.number
            elif ordered.kind == values.TIME:
                more_of(ordered.term).time = ordered.number
            elif ordered.labels is not None:
                backwards = ordered.kind == normal.REVERSED
                more_of(ordered.term).ordered_texts.append((ordered.number, ordered.labels.key, backwards))
        for term, slot in slots.items():
            value = space.terms[term]
            if isinstance(value, Field) and len(value.path) == 1 and value.path[0] not in _RESOLVED:
                self._slots[value.path[0]] = tuple(slot)
            else:
                self._computed.append((compile_value(value), tuple(slot)))

    def encode(self, event: Event, out: Buffers, codes: int = 0, row: int = 0) -> int:
        """Write an event: codes behind those already there, keys into the row that begins at `row`.

        Returns:
            The new number of codes.
        """
        started = codes
        find = self._slots.get
        out_codes, out_doubles = out.codes, out.doubles
        data, attributes = event.data, event.attributes
        items: Any  # pairs of name and value
        if type(data) is not dict:
            items = attributes.items()
        elif attributes:
            items = {**data, **attributes}.items()  # an attribute hides a payload field of the same name
        else:
            items = data.items()
        try:
            for name, value in items:
                slot = find(name)
                if slot is None:
                    continue
                code_of, other, number, more = slot
                kind = type(value)
                if kind is str:
                    code = code_of(value, other)
                    if code >= 0:
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
            for getter, slot in self._computed:
                codes = self._put(slot, getter(event), out, codes, row)
        except (OverflowError, ValueError):  # a whole number that no double can hold: the long way makes it infinite
            codes = started
            for name, value in items:
                if (slot := find(name)) is not None:
                    codes = self._put(slot, value, out, codes, row)
            for getter, slot in self._computed:
                codes = self._put(slot, getter(event), out, codes, row)
        for getter, null, present in self._nullness:
            code = null if getter(event) is None else present
            if code >= 0:
                out_codes[codes] = code
                codes += 1
        return codes

    @staticmethod
    def _put(slot: _Slot, value: Any, out: Buffers, codes: int, row: int) -> int:
        code_of, other, number, more = slot
        kind = values.kind_of(value)
        if kind == values.TEXT:
            code = code_of(value, other)
            if code >= 0:
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
