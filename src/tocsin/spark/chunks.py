"""Chunks: what a bucket gets of some rows of the source, packed so that an engine has nothing to find out any more.

    offset, time │ seen: which filters are true │ id, source, level │ a key for each BY │ values for each WHERE

That is all that detection needs of an event, so it is all that is moved between tasks and kept as state: payloads stay
where they are. The bytes are Arrow's stream of one batch. Beside its columns stand, under a version, the lists of
filters that `seen` refers to (by their numbers in `Division.filters`) and what keys and values are of.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa

from tocsin.composite.keys import Key
from tocsin.composite.rows import Rows
from tocsin.composite.where import Needs
from tocsin.errors import DefinitionError

__all__ = ["CHUNK_VERSION", "Chunk", "Columns", "passed", "rows_of", "stream"]

CHUNK_VERSION = 1
_HEADER = b"tocsin"
_SMALL = 64 << 10
_PLAIN = pa.ipc.IpcWriteOptions()
_COMPRESSED = pa.ipc.IpcWriteOptions(compression="lz4" if pa.Codec.is_available("lz4") else None)


class Chunk(NamedTuple):
    """What a bucket gets of a chunk."""

    first: int
    last: int
    begin: int
    time: int
    keyless: int
    """Matches of events that have no key, and so take no part; they are told to the first bucket only."""
    events: bytes | None


def passed(offset: int) -> Chunk:
    """In place of a chunk, among others: rows up to this offset came before, so that what they hold from there is late.

    It begins at 0, where no chunk does.
    """
    return Chunk(0, offset, 0, 0, 0, None)


class _Header(msgspec.Struct, array_like=True):
    version: int
    matches: list[tuple[int, ...]]
    keys: list[tuple[str, ...]]
    values: list[Needs]


class Columns(NamedTuple):
    """Events on their way into chunks."""

    offsets: pa.Array
    times: pa.Array
    seen: pa.Array
    matches: list[tuple[int, ...]]
    ids: pa.Array
    sources: pa.Array
    levels: pa.Array | None
    keys: dict[tuple[str, ...], pa.Array]
    """Each of texts, of whole numbers, or of keys in MessagePack."""
    values: dict[Needs, pa.Array]
    """In MessagePack."""

    def batch(self) -> pa.RecordBatch:
        """As one batch, whose rows can be taken and packed."""
        columns = [self.offsets, self.times, self.seen, self.ids, self.sources]
        names = ["offset", "time", "seen", "id", "source"]
        if self.levels is not None:
            columns.append(self.levels)
            names.append("level")
        columns += [*self.keys.values(), *self.values.values()]
        names += [f"key{number}" for number in range(len(self.keys))]
        names += [f"value{number}" for number in range(len(self.values))]
        header = _Header(CHUNK_VERSION, self.matches, list(self.keys), list(self.values))
        return pa.record_batch(columns, names=names, metadata={_HEADER: msgspec.msgpack.encode(header)})


def stream(batch: pa.RecordBatch, *, is_large: bool = False) -> bytes:
    """A batch as Arrow's stream; one that may be large is compressed, since it is copied several times on its way."""
    sink, options = pa.BufferOutputStream(), _PLAIN
    if is_large and batch.nbytes > _SMALL:
        options = _COMPRESSED
    with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())


def rows_of(events: bytes, filters: Sequence[str]) -> Rows:
    """The events of a chunk.

    Args:
        events: what `Chunk.events` holds.
        filters: of the division for which it was packed.

    Raises:
        DefinitionError: a version that this program does not know.
    """
    with pa.ipc.open_stream(events) as reader:
        batch = reader.read_next_batch()
    raw = (batch.schema.metadata or {}).get(_HEADER, b"\xc0")
    version = msgspec.msgpack.decode(raw)
    if not isinstance(version, list) or version[:1] != [CHUNK_VERSION]:
        raise DefinitionError(
            f"events in the checkpoint are packed in a way that this program does not know (it knows {CHUNK_VERSION})",
            help="use the program that wrote it, or begin with a new checkpoint",
        )
    header = msgspec.msgpack.decode(raw, type=_Header)
    has_levels = batch.schema.get_field_index("level") >= 0
    return Rows(
        batch.column("offset").to_numpy().tolist(),
        batch.column("time").to_numpy().tolist(),
        batch.column("seen").to_numpy().tolist(),
        [tuple([filters[number] for number in match]) for match in header.matches],
        batch.column("id").to_pylist(),
        _shared(batch.column("source"), lambda text: text),
        batch.column("level").to_numpy().tolist() if has_levels else None,
        {by: _keys(batch.column(f"key{number}")) for number, by in enumerate(header.keys)},
        {needs: _values(batch.column(f"value{number}")) for number, needs in enumerate(header.values)},
    )


_read_key = msgspec.msgpack.Decoder(Key).decode
_read_values = msgspec.msgpack.Decoder(dict[str, Any]).decode


_known: dict[str | int | bytes, Key] = {}
_MOST = 200_000


def _keys(column: pa.Array) -> list[Key | None]:
    return _shared(column, _key_of)


def _key_of(value: str | int | bytes) -> Key:
    """A key, the same object from chunk to chunk: dictionaries find it without looking into it."""
    key = _known.get(value)
    if key is None:
        if len(_known) >= _MOST:
            _known.clear()
        key = _known[value] = _read_key(value) if isinstance(value, bytes) else (value,)
    return key


def _values(column: pa.Array) -> list[dict[str, Any] | None]:
    return [None if each is None else _read_values(each) for each in column.to_pylist()]


def _shared(column: pa.Array, made: Any) -> list[Any]:
    """A column in Python, equal values being one object."""
    coded = column.dictionary_encode()
    found = [made(each) for each in coded.dictionary.to_pylist()]
    if len(found) == 1 and not column.null_count:
        return found * len(column)
    if column.null_count:
        found.append(None)
        return [found[place] for place in coded.indices.fill_null(len(found) - 1).to_numpy().tolist()]
    return [found[place] for place in coded.indices.to_numpy().tolist()]
