"""A plan: what `native` looks up in an event, as flat arrays of addresses.

    plan ─▶ names: dictionary from attribute name to the address of its slot
         ─▶ fetches: envelope fields, dotted paths and IS NULL, found one by one ─▶ slot, or two codes
    slot ─▶ dictionaries of codes, dimension of numbers, labels of ordered texts

The look-ups are an `Encoder`'s, laid out once (`Lookups`); a plan adds the buffers of one scratch space and is used by
one match at a time. Both hold names only; what must be computed is `Encoder.compute`'s.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tocsin.filters.index.encoder import Encoder, More, Slot
from tocsin.filters.index.layout import Array
from tocsin.model import ENVELOPE, Event

__all__ = ["CELL", "DEFER", "FETCH", "FETCH_WORDS", "LABEL", "LABEL_WORDS", "PLAN", "ROOT", "SLOT", "Lookups", "Plan"]

DEFER = -1
"""What `native.read_event` answers when an event is not for it."""


class _Plan(NamedTuple):
    """Places in a plan: addresses of objects, of types, of arrays."""

    names: int
    fetches: int
    fetch_count: int
    codes: int
    keys: int
    cells: int
    event_type: int
    data_name: int
    attributes_name: int
    none: int
    none_type: int
    str_type: int
    float_type: int
    int_type: int
    bool_type: int
    list_type: int
    dict_type: int
    bytes_type: int


class _Slot(NamedTuple):
    """Places in a slot: dictionaries of codes (0: none), what other values get, dimensions (-1: none)."""

    texts: int
    text_other: int
    numbers: int
    number_other: int
    booleans: int
    boolean_other: int
    members: int
    number: int
    time: int
    labels: int
    label_count: int


class _Label(NamedTuple):
    """Places in a label's record: two lists, the dimension, and whether texts are read from their end."""

    texts: int
    labels: int
    dimension: int
    backwards: int


class _Fetch(NamedTuple):
    """Places in a fetch: where to begin, the names on the way; a slot, or the codes of NULL and of anything else."""

    root: int
    steps: int
    step_count: int
    slot: int
    null: int
    present: int


class _Root(NamedTuple):
    """Where a fetch begins."""

    envelope: int = 0
    data: int = 1
    attributes: int = 2
    anywhere: int = 3


class _Cell(NamedTuple):
    """Places the C functions write to."""

    position: int = 0
    key: int = 1
    value: int = 2
    overflow: int = 3


PLAN = _Plan(*range(len(_Plan._fields)))
SLOT = _Slot(*range(len(_Slot._fields)))
LABEL = _Label(*range(len(_Label._fields)))
FETCH = _Fetch(*range(len(_Fetch._fields)))
ROOT, CELL = _Root(), _Cell()
LABEL_WORDS, FETCH_WORDS = len(LABEL), len(FETCH)
_NOTHING_MORE = More()


class Lookups:
    """The slots and fetches of an encoder, laid out once for all plans that read by it."""

    def __init__(self, encoder: Encoder) -> None:
        """Lay out the look-ups."""
        self._kept: list[Any] = []
        self._slots: list[int] = []
        self._labels: list[int] = []
        numbers = {name: self._add(slot) for name, slot in encoder.slots.items()}
        fetched = [(path, self._add(slot), -1, -1) for path, slot in encoder.fetched]
        fetched += [(path, -1, null, present) for path, null, present in encoder.nullness]
        labels = self._array(self._labels)
        slots: Array = np.array(self._slots, np.int64).reshape(-1, len(SLOT))
        slots[:, SLOT.labels] = labels + 8 * LABEL_WORDS * slots[:, SLOT.labels]
        base = self._array(slots)
        words = 8 * len(SLOT)
        self.names = self._object({name: base + words * number for name, number in numbers.items()})
        fetches: list[int] = []
        for path, number, null, present in fetched:
            fetches += self._fetch(path, base + words * number if number >= 0 else 0, null, present)
        self.fetches, self.fetch_count = self._array(fetches), len(fetched)

    def _object(self, value: Any) -> int:
        self._kept.append(value)
        return id(value)

    def _array(self, numbers: Any) -> int:
        array: Array = np.array(numbers, np.int64)
        self._kept.append(array)
        return int(array.ctypes.data)

    def _add(self, slot: Slot) -> int:
        """Lay out a slot; returns its number. Labels are given by number until their place is known."""
        more = slot.more if slot.more is not None else _NOTHING_MORE
        first = len(self._labels) // LABEL_WORDS
        for dimension, mine, backwards in more.ordered_texts:
            texts, labels = mine.dump()
            self._labels += _Label(self._object(texts), self._object(labels), dimension, backwards)
        self._slots += _Slot(
            texts=self._object(slot.codes) if slot.codes is not None else 0,
            text_other=slot.other,
            numbers=self._object(more.numbers) if more.numbers is not None else 0,
            number_other=more.number_other,
            booleans=self._object(more.booleans) if more.booleans is not None else 0,
            boolean_other=more.boolean_other,
            members=self._object(more.members) if more.members is not None else 0,
            number=slot.number,
            time=more.time,
            labels=first,
            label_count=len(more.ordered_texts),
        )
        return len(self._slots) // len(SLOT) - 1

    def _fetch(self, path: tuple[str, ...], slot: int, null: int, present: int) -> _Fetch:
        head, rest = path[0], path[1:]
        root, steps = ROOT.anywhere, path
        if head in ENVELOPE:
            root = ROOT.envelope
        elif head == "data":
            root, steps = ROOT.data, rest
        elif head == "attributes":
            root, steps = ROOT.attributes, rest
        return _Fetch(root, self._array([self._object(name) for name in steps]), len(steps), slot, null, present)


class Plan:
    """Look-ups and the buffers of one scratch space; `address` is what the kernel gets."""

    def __init__(self, lookups: Lookups, codes: Array, keys: Array) -> None:
        """Point to everything, and keep it alive."""
        cells: Array = np.zeros(len(CELL), np.int64)
        names = ("data", "attributes")
        words: Array = np.array(
            _Plan(
                names=lookups.names,
                fetches=lookups.fetches,
                fetch_count=lookups.fetch_count,
                codes=codes.ctypes.data,
                keys=keys.ctypes.data,
                cells=cells.ctypes.data,
                event_type=id(Event),
                data_name=id(names[0]),
                attributes_name=id(names[1]),
                none=id(None),
                none_type=id(type(None)),
                str_type=id(str),
                float_type=id(float),
                int_type=id(int),
                bool_type=id(bool),
                list_type=id(list),
                dict_type=id(dict),
                bytes_type=id(bytes),
            ),
            np.int64,
        )
        self.address = int(words.ctypes.data)
        self._kept = (lookups, codes, keys, cells, names, words)
