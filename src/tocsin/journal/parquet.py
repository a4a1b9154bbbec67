"""Events as a Parquet file that others can read: plain columns, payloads as text, attributes by kind.

The columns are those of `rows.SCHEMA`, except that

    attributes   map from name to {flag, whole, number, text}, of which the one that fits is not NULL
    data         the payload if it is JSON (as JSON text) or text
    data_binary  the payload if it is neither

Promised: `read(write(batches))` gives the same events, NaN and infinite attributes included, which JSON cannot hold.
A file of others is read too, if it has `id`, `source` and `type`; columns that it lacks are as in `Event(…)`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import IO, Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tocsin.clock import as_datetime
from tocsin.errors import EventError
from tocsin.journal.rows import SCHEMA
from tocsin.model import ENVELOPE, Event
from tocsin.payload import content_kind

__all__ = ["PARQUET", "read", "rows_in", "write"]

_KINDS = {bool: "flag", int: "whole", float: "number", str: "text"}
_VALUE = pa.struct([("flag", pa.bool_()), ("whole", pa.int64()), ("number", pa.float64()), ("text", pa.string())])
PARQUET = pa.schema(
    [
        *(field for field in SCHEMA if field.name in ENVELOPE),
        pa.field("attributes", pa.map_(pa.string(), _VALUE)),
        pa.field("data", pa.string()),
        pa.field("data_binary", pa.binary()),
    ],
    metadata={"tocsin": "1"},
)
"""The columns of a file."""

_GROUP_ROWS, _GROUP_BYTES = 65_536, 32 << 20  # a row group: what is held in memory before it is written
_READ_ROWS = 4096
_unpack = msgspec.msgpack.Decoder(dict).decode


def write(target: str | IO[bytes], batches: Iterable[pa.RecordBatch]) -> int:
    """Write batches with the columns of `rows.SCHEMA` to a file; returns how many events."""
    count = held = held_bytes = 0
    waiting: list[pa.RecordBatch] = []
    with pq.ParquetWriter(target, PARQUET, compression="zstd") as writer:
        for batch in batches:
            waiting.append(_shown(batch))
            count += batch.num_rows
            held += batch.num_rows
            held_bytes += waiting[-1].nbytes
            if held >= _GROUP_ROWS or held_bytes >= _GROUP_BYTES:
                writer.write_table(pa.Table.from_batches(waiting, PARQUET))
                waiting, held, held_bytes = [], 0, 0
        if waiting:
            writer.write_table(pa.Table.from_batches(waiting, PARQUET))
    return count


def rows_in(source: str | IO[bytes]) -> int:
    """How many rows a file has, by its footer.

    Raises:
        EventError: it is not a Parquet file of events.
    """
    return int(_open(source).metadata.num_rows)


def read(source: str | IO[bytes]) -> Iterator[Event]:
    """Give the events of a file in order, with `offset` and `arrived` where it has them.

    Raises:
        EventError: it is not a Parquet file of events, or a row is no event; names the row, from 1.
    """
    row = 0
    for batch in _open(source).iter_batches(_READ_ROWS):
        names = batch.schema.names
        columns = [
            batch.column(name).cast(PARQUET.field(name).type).to_pylist()
            if name not in ("arrived", "time")
            else [_moment(each) for each in batch.column(name).cast(PARQUET.field(name).type).cast(pa.int64())]
            for name in names
        ]
        for values in zip(*columns, strict=True):
            row += 1
            try:
                yield _event(dict(zip(names, values, strict=True)))
            except EventError as error:
                raise EventError(f"row {row}: {error.message}", field=error.field, help=error.help) from None


def _open(source: str | IO[bytes]) -> pq.ParquetFile:
    if not isinstance(source, str):
        source.seek(0)
    try:
        file = pq.ParquetFile(source)
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, FileNotFoundError):
            raise
        raise EventError(f"this is no Parquet file: {error}", help="give one, or JSON lines") from None
    names = file.schema_arrow.names
    for name in ("id", "source", "type"):
        if name not in names:
            raise EventError(f"the file has no column {name}", field=name, help="give id, source and type")
    for name in names:
        if name not in PARQUET.names:
            mend = f"put it into data or attributes; columns are {', '.join(PARQUET.names)}"
            raise EventError(f"the column {name} is not known", field=name, help=mend)
    return file


def _shown(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A batch of `rows.SCHEMA` as one of `PARQUET`."""
    data, media_type = batch.column("data"), batch.column("datacontenttype")
    binary = np.zeros(batch.num_rows, np.bool_)
    for each in media_type.unique().to_pylist():
        if each is not None and content_kind(each) == "binary":
            binary |= pc.equal(media_type, each).fill_null(False).to_numpy(zero_copy_only=False)
    nothing = pa.scalar(None, pa.binary())
    columns = [batch.column(field.name) for field in PARQUET if field.name in ENVELOPE]
    packed = batch.column("attributes").to_pylist()
    attributes = [None if each is None else [_kept(*item) for item in _unpack(each).items()] for each in packed]
    columns += [
        pa.array(attributes, PARQUET.field("attributes").type),
        pc.if_else(pa.array(binary), nothing, data).cast(pa.string()),
        pc.if_else(pa.array(binary), data, nothing),
    ]
    return pa.record_batch(columns, schema=PARQUET)


def _kept(name: str, value: Any) -> tuple[str, dict[str, Any]]:
    return name, {_KINDS[type(value)]: value}


def _moment(value: pa.Scalar) -> Any:
    micros = value.as_py()
    return None if micros is None else as_datetime(micros)


def _event(row: dict[str, Any]) -> Event:
    attributes = {}
    for name, kinds in row.pop("attributes", None) or ():
        found = [value for value in (kinds or {}).values() if value is not None]
        if len(found) != 1:
            mend = "give one of flag, whole, number and text"
            raise EventError(f"the attribute {name} has {len(found)} values", field=f"attributes.{name}", help=mend)
        attributes[name] = found[0]
    text, binary = row.pop("data", None), row.pop("data_binary", None)
    if text is not None and binary is not None:
        raise EventError("data and data_binary are both given", field="data_binary", help="give one of them")
    data: Any = binary
    if text is not None:
        media_type = row.get("datacontenttype")
        data = text
        if media_type is None or content_kind(media_type) == "json":
            try:
                data = msgspec.json.decode(text)
            except msgspec.DecodeError as error:
                raise EventError(f"data is not JSON: {error}", field="data", help="give JSON text") from None
    fields = {name: value for name, value in row.items() if value is not None}
    for name in ("id", "source", "type"):
        if name not in fields:
            raise EventError(f"{name} is missing", field=name, help="give id, source and type")
    return Event(data=data, attributes=attributes, **fields)
