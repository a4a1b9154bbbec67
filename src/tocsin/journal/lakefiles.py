"""The files of a lake: how events lie in Parquet, where, and reading them back.

    lake/day=2026-01-31/type=door.open/1-100000.parquet            one day, one type, of the offsets 1 to 100000
    lake/_system/day=2026-01-31/type=tocsin.ack/1-100000.parquet   the node's own records, apart

Columns are those of the Spark source without `type`, which is in the path (pandas refuses a column that is in both);
rows are in order of offset. `attributes` is a map of VARIANTs. pyarrow cannot write Parquet's mark for those, so each
file carries its schema in Spark's own words too (`FOOTER`), and `spark.read.parquet` finds MAP<STRING, VARIANT>.

Readers guess the type of partition columns. Where all types look like numbers, say that they are text: on Spark
`spark.read.schema(…)` or `spark.sql.sources.partitionColumnTypeInference.enabled=false`, in DuckDB
`hive_types_autocast=false`, in pyarrow and pandas `partitioning=` with a schema.

Promised: `read` gives the events that `lakewriter.write` was given; bytes that changed raise JournalDamagedError.
Not promised: a type too long for the name of a directory is cut in the path (the manifest has it whole).
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
from collections.abc import Collection

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tocsin.errors import JournalDamagedError
from tocsin.journal import statistics
from tocsin.journal.columns import SOURCE_ARROW, Columns, to_journal
from tocsin.journal.manifest import Chunk, File
from tocsin.journal.rows import SCHEMA, wanted

__all__ = ["CUT", "FOOTER", "LAKE", "SYSTEM", "check", "directory_of", "moment_in", "read", "to_lake"]

SYSTEM = "_system"
"""Where system records lie; readers of Parquet pass over names that begin so."""

LAKE = pa.schema([field for field in SOURCE_ARROW if field.name != "type"])
"""The columns of a file."""

CUT = 4096
"""Offsets after which a row group may end, so that who reads some thousand offsets need not read many more."""
_LONGEST = 200  # bytes of a type in a path
_SPECIAL = re.compile(r"[\x00-\x1f\x7f\"#%'*/:=?\\{}\[\]^]")  # what Spark and Hive escape in names of partitions
_FOOTERS = 512  # kept in memory: some kilobytes each

_SPARK = {"int64": "long", "int32": "integer", "double": "double", "bool": "boolean", "string": "string"}
_MAP = {"type": "map", "keyType": "string", "valueType": "variant", "valueContainsNull": True}
_FIELDS = [
    {
        "name": each.name,
        "type": _MAP if each.name == "attributes" else _SPARK.get(str(each.type), "timestamp"),
        "nullable": True,
        "metadata": {},
    }
    for each in LAKE
]
_FORM = Columns(LAKE)
FOOTER = {"org.apache.spark.sql.parquet.row.metadata": msgspec.json.encode({"type": "struct", "fields": _FIELDS})}
"""What a file says of itself, for Spark."""


def directory_of(day: str, type: str) -> str:
    """The directory of a day and a type, below the lake."""
    name = _SPECIAL.sub(lambda found: f"%{ord(found[0]):02X}", type)
    if len(name.encode()) > _LONGEST:
        beginning = name.encode()[: _LONGEST - 20].decode(errors="ignore")
        name = f"{beginning}~{hashlib.blake2b(type.encode(), digest_size=8).hexdigest()}"
    place = f"day={day}/type={name}"
    return f"{SYSTEM}/{place}" if type.startswith(statistics.SYSTEM) else place


def to_lake(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A batch of `rows.SCHEMA` with the columns of a file; the type is in its path."""
    return _FORM.of_journal(batch)


# -- reading


def read(lake: str, chunk: Chunk, first: int, last: int, columns: Collection[str] | None = None) -> pa.RecordBatch:
    """The events of a chunk from `first` to `last`, with the columns of `rows.SCHEMA`; see `contract.Block.batch`.

    Raises:
        FileNotFoundError: a file is gone.
        JournalDamagedError: one is not what was written.
    """
    names = wanted(columns)
    stored = {*names, "datacontenttype"} if "data" in names else {*names}
    parts = []
    for file in chunk.files:
        if file.first <= last and first <= file.last:
            table = _rows(lake, file, first, last, [name for name in LAKE.names if name in stored])
            if "type" in names:
                table = table.append_column("type", pa.repeat(file.type, table.num_rows))
            parts.append(table)
    if not parts:
        return pa.RecordBatch.from_pylist([], schema=pa.schema([SCHEMA.field(name) for name in names]))
    table = pa.concat_tables(parts)
    if len(parts) > 1:
        table = table.take(pa.array(np.argsort(table.column("offset").to_numpy())))
    # The cast brings back the marks of VARIANTs, which Parquet does not keep.
    given = [table.column(name).combine_chunks().cast(SOURCE_ARROW.field(name).type) for name in table.column_names]
    return to_journal(pa.record_batch(given, names=table.column_names), names)


def moment_in(lake: str, chunk: Chunk, moment: int) -> int:
    """The first offset of a chunk that arrived at or after a moment; beyond its end if there is none."""
    found = chunk.last + 1
    for file in chunk.files:
        table = _rows(lake, file, chunk.first, chunk.last, ["offset", "arrived"])
        place = int(np.searchsorted(table.column("arrived").cast(pa.int64()).to_numpy(), moment))
        if place < table.num_rows:
            found = min(found, table.column("offset")[place].as_py())
    return found


def _rows(lake: str, file: File, first: int, last: int, names: list[str]) -> pa.Table:
    """The rows of one file between two offsets. Of row groups that hold none, nothing is read."""
    path = os.path.join(lake, file.path)
    try:
        footer = _footer(path, file.bytes)
        ends = [footer.row_group(number).column(0).statistics for number in range(footer.num_row_groups)]
        groups = [number for number, end in enumerate(ends) if end.min <= last and first <= end.max]
        with pq.ParquetFile(path, metadata=footer, page_checksum_verification=True) as opened:
            table = opened.read_row_groups(groups, names, use_threads=False)
        offsets = table.column("offset").to_numpy()
    except FileNotFoundError:
        raise
    except (pa.ArrowException, OSError, ValueError) as error:
        raise _damaged(lake, file, error) from None
    start, end = np.searchsorted(offsets, [first, last + 1])
    return table.slice(start, end - start)


@functools.lru_cache(maxsize=_FOOTERS)
def _footer(path: str, size: int) -> pq.FileMetaData:
    found = os.path.getsize(path)
    if found != size:
        raise ValueError(f"it has {found} bytes, not {size}")
    return pq.read_metadata(path)


def check(lake: str, file: File) -> None:
    """See that a file is there, with as many bytes as it had.

    Raises:
        JournalDamagedError: it is not.
    """
    try:
        found = os.path.getsize(os.path.join(lake, file.path))
    except OSError as error:
        raise _damaged(lake, file, error) from None
    if found != file.bytes:
        raise _damaged(lake, file, f"it has {found} bytes, not {file.bytes}")


def _damaged(lake: str, file: File, why: object) -> JournalDamagedError:
    return JournalDamagedError(
        f"{file.path} of the lake cannot be read: {why}",
        path=os.path.join(lake, file.path),
        first=file.first,
        last=file.last,
        help="restore the file from a copy",
    )
