"""Ids and payloads of pairs of events that were detected, by columns: there are many, and all are alike.

    offset, id, source of opener and closer, the key ─▶ id, data

Those that window functions found (`Pairing`): what openers and closer are, the definition's number, the key. All other
columns of a derived event Spark makes itself, so nobody who does not want these three waits for Python. Those that
engines found (`detected`) need no more than `derived_columns`.

Keys come as `filters.sparksql.render_value` writes them. What an id is made of is known by `composite.deriving` alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import islice
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tocsin.composite.deriving import Derived, Deriver, begun, event_names
from tocsin.composite.expression import Definition
from tocsin.composite.keys import Key, settled, shown
from tocsin.composite.occurrence import Occurrence, Part

__all__ = ["MADE", "Pairing", "derived_columns", "read_key", "written_key"]

MADE = "id STRING, key STRING, data STRING"
"""What Python makes, as Spark's DDL."""
_NAMES = ["id", "key", "data"]
_pack = msgspec.msgpack.Encoder().encode
_write = msgspec.json.Encoder().encode
_KEPT = 50_000
"""Keys that a process keeps as they are written."""

_Asked = tuple[int, str, str]
"""A part: offset, id, source."""


class Pairing(msgspec.Struct, frozen=True):
    """Makes them; made in the driver, pickled to executors."""

    definitions: tuple[Definition, ...]
    names: tuple[tuple[str | None, str | None], ...]
    """What opener and closer of each are called."""

    def pairs(self, *columns: pa.Array) -> pa.Array:
        """For `arrow_udf`: three columns of the opener, three of the closer, the definition's number, the key."""
        numbers = columns[6].to_numpy()
        if len(self.definitions) == 1:
            return self._paired(0, columns)
        order = np.argsort(numbers, kind="stable")
        cuts = np.searchsorted(numbers[order], np.arange(len(self.definitions) + 1))
        made = []
        for number in range(len(self.definitions)):
            mine = pa.array(order[cuts[number] : cuts[number + 1]])
            made.append(self._paired(number, [column.take(mine) for column in columns]))
        return pa.concat_arrays(made).take(pa.array(np.argsort(order)))

    def _paired(self, number: int, columns: Sequence[pa.Array]) -> pa.Array:
        definition = self.definitions[number]
        packed, key = _keys(definition.by, columns[7:], len(columns[6]))
        names = event_names(self.names[number])
        ids, data = derived_columns(begun(definition).copy, names, columns[:3], columns[3:6], packed, key)
        key = key if definition.by else pa.nulls(len(ids), pa.string())
        return pa.StructArray.from_arrays([ids, key, data], _NAMES)

    def gathered(self, *columns: pa.Array) -> pa.Array:
        """The same of several openers: a column of lists in the place of three."""
        openers, closer, (numbers, *keys) = columns[0], columns[1:4], columns[4:]
        flat = openers.flatten()
        each = _rows([flat.field(place) for place in range(3)])
        lists = (list(islice(each, count)) for count in openers.value_lengths().to_pylist())
        return self._made(lists, _rows(closer), numbers, keys)

    def _made(
        self, openers: Iterable[list[_Asked]], closers: Iterable[_Asked], numbers: pa.Array, keys: list[pa.Array]
    ) -> pa.Array:
        derived = Derived()
        derivers = [Deriver(each, {}) for each in self.definitions]
        texts = zip(*(column.to_pylist() for column in keys), strict=True) if keys else [()] * len(numbers)
        for number, text, before, (offset, id, source) in zip(
            numbers.to_pylist(), texts, openers, closers, strict=True
        ):
            opener, closer = self.names[number]
            parts = [Part(opener, *each, 0) for each in before]
            parts.append(Part(closer, offset, id, source, 0))
            # Nothing but parts is asked for: time and classification Spark knows itself.
            derivers[number].add(
                derived, read_key(text), Occurrence(0, parts[0].offset or 0, 0, offset, tuple(parts)), None
            )
        return pa.StructArray.from_arrays(
            [pa.array(column, pa.string()) for column in (derived.ids, derived.keys, derived.data)],
            ["id", "key", "data"],
        )


# -- columns


def derived_columns(
    copy: Callable[[], Any],
    names: Sequence[str],
    opener: Sequence[pa.Array],
    closer: Sequence[pa.Array],
    packed: pa.Array,
    key: pa.Array,
) -> tuple[pa.Array, pa.Array]:
    """Ids and payloads of what one definition has detected.

    Args:
        copy: makes a hash as `deriving.begun` gives it.
        names: what opener and closer are called.
        opener: offset, id and source of each.
        closer: the same.
        packed: the keys in MessagePack.
        key: the same as JSON.
    """
    told = ['{"parts":[', *_told(names[0], opener), ",", *_told(names[1], closer), '],"key":', key, "}"]
    # The rest of what `composite.deriving` says an id is made of: key, primitives, and neither ticks nor instants.
    hashed = [packed, b"\x92", *_packed(opener), *_packed(closer), b"\x90\x90"]
    ids = []
    for message in _joined(hashed, pa.binary()).to_pylist():
        made = copy()
        made.update(message)
        ids.append(made.hexdigest())
    return pa.array(ids, pa.string()), _joined(told, pa.string())


def written_key(by: tuple[str, ...], key: Key) -> tuple[bytes, bytes]:
    """A key as MessagePack and as JSON."""
    return _pack(key), _write(shown(by, key))


def _keys(by: tuple[str, ...], texts: Sequence[pa.Array], count: int) -> tuple[pa.Array, pa.Array]:
    """Keys as MessagePack and as JSON, each made once."""
    known: dict[Any, int] = {}
    if len(texts) == 1:
        coded = texts[0].dictionary_encode()
        distinct, places = [(text,) for text in coded.dictionary.to_pylist()], coded.indices
    else:
        rows = list(_rows(texts)) if texts else [()] * count
        places = pa.array([known.setdefault(row, len(known)) for row in rows], pa.int32())
        distinct = list(known)
    packed, written = zip(*(_key(by, each) for each in distinct), strict=True) if distinct else ((), ())
    return pa.array(packed, pa.binary()).take(places), pa.array(written, pa.string()).take(places)


@lru_cache(maxsize=_KEPT)
def _key(by: tuple[str, ...], texts: tuple[str, ...]) -> tuple[bytes, bytes]:
    return written_key(by, read_key(texts))


def _told(name: str, part: Sequence[pa.Array]) -> list[Any]:
    """What is told of a part, as JSON."""
    offset, id, source = part
    begin = f'{{"name":{_write(name).decode()},"offset":'
    return [begin, offset.cast(pa.string()), ',"id":"', _escaped(id), '","source":"', _escaped(source), '"}']


def _packed(part: Sequence[pa.Array]) -> list[Any]:
    """Source and id of a part, as MessagePack."""
    _, id, source = part
    return [b"\x92", _head(source), source.cast(pa.binary()), _head(id), id.cast(pa.binary())]


def _head(texts: pa.Array) -> pa.Array:
    """How a text begins in MessagePack: with its length."""
    lengths = pc.binary_length(texts).dictionary_encode()
    heads = [_pack("x" * length)[:-length] if length else _pack("") for length in lengths.dictionary.to_pylist()]
    return pa.array(heads, pa.binary()).take(lengths.indices)


def _escaped(texts: pa.Array) -> pa.Array:
    """Texts as they stand in JSON, between the quotes. Mostly all may stand as they are: that is seen at once."""
    texts = texts.cast(pa.string())  # Spark may be told to give texts with longer offsets
    _, borders, content = texts.buffers()
    if content is None:
        return texts
    begin, end = np.frombuffer(borders, np.int32)[[texts.offset, texts.offset + len(texts)]]
    found = np.frombuffer(content, np.uint8)[begin:end]
    if not any(mark.any() for mark in (found < 0x20, found == ord('"'), found == ord("\\"))):
        return texts
    return pa.array([_write(text)[1:-1].decode() for text in texts.to_pylist()], pa.string())


def _joined(parts: list[Any], kind: pa.DataType) -> pa.Array:
    """Columns and constants, side by side."""
    given = [part if isinstance(part, pa.Array) else pa.scalar(part, kind) for part in parts]
    return pc.binary_join_element_wise(*given, pa.scalar("" if pa.types.is_string(kind) else b"", kind))


def _rows(columns: Iterable[pa.Array]) -> Iterator[Any]:
    return zip(*(column.to_pylist() for column in columns), strict=True)


def read_key(texts: Iterable[str]) -> Key:
    """What `filters.sparksql.render_value` wrote, as the engine has it."""
    return tuple([_value(text) for text in texts if text])


def _value(text: str) -> str | int | float:
    kind, rest = text[0], text[1:]
    if kind == "t":
        return rest
    value = settled(int(rest) if kind == "n" else float(rest) if kind == "d" else rest == "true")
    assert value is not None
    return value
