"""A block of events as bytes on disk, and back: Arrow IPC with compressed buffers.

    encode:  batch ─▶ repeated texts become dictionaries ─▶ IPC stream, zstd ─▶ mark, checksum, stream
    decode:  bytes ─▶ checked ─▶ plain columns again

A reader sees one schema, `rows.SCHEMA`, whatever was chosen on the way to the disk: dictionaries differ from block to
block and would have to be unified by everybody who reads two.

Promised: `decode(encode(batch))` equals the batch. Bytes that were changed, cut or are something else raise
`JournalDamagedError`; they never come out as other events. Measured: an event of 5 fields and 200 random letters (264
bytes of JSON) takes 180 bytes on disk in a block of 4,096, and 65 with ordinary words.
Not promised: small results for few events; a block of one has 5 KB of frame, so write those as rows.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection

import pyarrow as pa

from tocsin.errors import JournalDamagedError
from tocsin.journal.rows import SCHEMA, wanted

__all__ = ["between", "decode", "encode"]

_MARK = b"TSG\x01"  # the last byte is the version
_HEAD = len(_MARK) + 4
_OPTIONS = pa.ipc.IpcWriteOptions(
    compression=pa.Codec("zstd", compression_level=3),  # 1 is hardly faster, 9 is eight times slower for 4 % less
    use_threads=False,  # it runs in the background: the other core is the pipeline's
)
_REPEATING = frozenset(
    field.name for field in SCHEMA if field.type in (pa.string(), pa.binary()) and field.name not in ("id", "data")
)


def encode(batch: pa.RecordBatch) -> bytes:
    """Return a batch with the columns of `rows.SCHEMA` as bytes.

    Raises:
        ValueError: the columns are others: a mistake of the caller.
    """
    if not batch.schema.equals(SCHEMA):
        raise ValueError(f"a segment has the columns of rows.SCHEMA, not {batch.schema.names}")
    columns = [_shortened(name, column) for name, column in zip(SCHEMA.names, batch.columns, strict=True)]
    stored = pa.record_batch(columns, names=SCHEMA.names)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, stored.schema, options=_OPTIONS) as writer:
        writer.write_batch(stored)
    body = sink.getvalue()
    return b"".join((_MARK, zlib.crc32(body).to_bytes(4, "little"), body))


def decode(
    data: bytes | memoryview, columns: Collection[str] | None = None, *, verified: bool = False
) -> pa.RecordBatch:
    """Undo `encode`. Columns that were not compressed may refer to `data` rather than copy it.

    Args:
        data: the bytes.
        columns: as in `contract.Block.batch`; those left out are not decompressed.
        verified: the caller has compared a checksum over all of these bytes; where few columns are wanted, doing so
            twice costs as much as the rest.

    Raises:
        JournalDamagedError: these are not the bytes that `encode` made.
    """
    view = memoryview(data)
    body = view[_HEAD:]
    if bytes(view[: len(_MARK)]) != _MARK:
        raise _damaged("it does not begin like a segment of this version")
    if not verified and zlib.crc32(body).to_bytes(4, "little") != bytes(view[len(_MARK) : _HEAD]):
        raise _damaged("its checksum is wrong")
    names = wanted(columns)
    # Every field is no selection: the reader then need not leave out any.
    chosen = [SCHEMA.get_field_index(name) for name in names] if len(names) < len(SCHEMA) else []
    try:
        with pa.ipc.open_stream(pa.py_buffer(body), options=pa.ipc.IpcReadOptions(included_fields=chosen)) as reader:
            stored = reader.read_next_batch()
    except (pa.ArrowException, OSError, StopIteration) as error:
        raise _damaged(str(error)) from None
    if stored.schema.names != names:
        raise _damaged("its columns are not those of this version")
    schema = pa.schema([SCHEMA.field(name) for name in names])
    return pa.record_batch([_plain(column) for column in stored.columns], schema=schema)


def between(batch: pa.RecordBatch, first: int, last: int) -> pa.RecordBatch:
    """Return the rows with offsets from `first` to `last`, without copying. A block's offsets have no gaps."""
    if not batch.num_rows:
        return batch
    low: int = batch.column(0)[0].as_py()
    start = max(0, first - low)
    stop = min(batch.num_rows, last - low + 1)
    return batch.slice(start, max(0, stop - start))


def _shortened(name: str, column: pa.Array) -> pa.Array:
    """The column as a dictionary, if its values repeat."""
    if name not in _REPEATING:
        return column
    found = column.dictionary_encode()
    count = len(found.dictionary)
    if count > len(column) // 2:
        return column
    width = pa.int8() if count < 1 << 7 else pa.int16() if count < 1 << 15 else pa.int32()
    return pa.DictionaryArray.from_arrays(found.indices.cast(width), found.dictionary)


def _plain(column: pa.Array) -> pa.Array:
    return column.dictionary_decode() if isinstance(column, pa.DictionaryArray) else column


def _damaged(why: str) -> JournalDamagedError:
    return JournalDamagedError(f"a segment cannot be read: {why}", help="restore it from a copy, or `journal repair`")
