"""The files of a filter set: one small file for every version, and now and then the whole set beside one.

    00000000000000000007.change     Arrow IPC: key, filter (NULL: removed), before (NULL: was not there);
                                    in its metadata the layout of the shards, unless there is only one
    00000000000000000007.base       Arrow IPC: key, filter; all of version 7
    00000000000000000007.index      the same compiled: `Matcher.to_bytes`
    oldest/00000000000000000007     versions before 7 were pruned; 7 has a base

Promises:
    - A version is made by linking a finished, synced file to its name. A name can be taken once, so of two writers one
      makes version 8; a writer that dies leaves the set as it was.
    - Versions begin at 1 and have no gaps; their files never change. They are removed from the oldest on, and only
      after a mark says so: whatever lies before it counts for nothing, also if whoever pruned has died half-way.
    - A change can be undone as well as done: it holds what was there before.
    - A version says by itself of which kind the keys are, and how its filters are divided into shards.
    - A base says nothing that the changes do not; but for the oldest version's, once some were pruned, a set is
      complete without any.
Does not promise:
    - File systems without hard links; or pruning by two machines at once, where `flock` is not for both.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec
import pyarrow as pa

from tocsin.errors import FilterSetError, MatcherError
from tocsin.filters.index.registry import Key
from tocsin.journal import durably
from tocsin.spark.shards import Layout

__all__ = ["Change", "Files", "Row"]

_LEFTOVER = 3600.0  # seconds after which a file that was being written is taken for a dead writer's
_LAYOUT = b"layout"
_ENDINGS = ("change", "base", "index")
_KINDS: dict[type[str] | type[int] | None, pa.DataType] = {str: pa.string(), int: pa.int64(), None: pa.null()}


class Row(NamedTuple):
    """What a version changes for one key."""

    key: Key
    after: str | None
    before: str | None


class Change(NamedTuple):
    """One version: its rows, of which kind its keys are, and how the whole set is divided from then on."""

    rows: list[Row]
    kind: type[str] | type[int] | None
    layout: Layout = Layout()


class Files:
    """The directory of one set."""

    def __init__(self, path: str) -> None:
        """Nothing is looked at yet."""
        self.path = path
        self._newest = 0
        self._marks = os.path.join(path, "oldest")

    def newest(self) -> int:
        """The newest version; 0 if there is no set. Cheap to ask again: only what came since is looked for."""
        newest = self._newest  # counted in a variable of its own: two threads that add to one would go beyond the end
        if newest and (newest < self.oldest() or not self._change(newest).exists()):
            newest = 0  # it was pruned, or another set is in this place now
        if not newest:
            newest = max(self._numbers("change"), default=0)
        while self._change(newest + 1).exists():
            newest += 1
        self._newest = newest
        return newest

    def oldest(self) -> int:
        """The first version that can be loaded; 1 if none was pruned."""
        try:
            return max((int(name) for name in os.listdir(self._marks) if name.isdigit()), default=1)
        except FileNotFoundError:
            return 1

    def bases(self) -> list[int]:
        """Versions that have a base, in order."""
        oldest = self.oldest()
        both = set(self._numbers("base")) & set(self._numbers("index"))
        return sorted(version for version in both if version >= oldest)

    def _numbers(self, ending: str) -> Iterable[int]:
        with contextlib.suppress(FileNotFoundError):
            for name in os.listdir(self.path):
                number, _, rest = name.partition(".")
                if rest == ending and number.isdigit():
                    yield int(number)

    def size(self, first: int, last: int) -> int:
        """Bytes of the changes from one version to another, both included."""
        return sum(self._size(self._change(version)) for version in range(first, last + 1))

    def index_size(self, version: int) -> int:
        """Bytes of the compiled index of a base."""
        return self._size(self._place(version, "index"))

    def _size(self, place: Path) -> int:
        try:
            return place.stat().st_size
        except FileNotFoundError:
            raise self._missing(place) from None

    # -- reading

    def change(self, version: int) -> Change:
        """What a version changed.

        Raises:
            FilterSetError: there is no such version, or its file is damaged.
        """
        table = self._table(self._change(version))
        columns = (table.column(name).to_pylist() for name in ("key", "filter", "before"))
        layout = self._layout(self._change(version), table.schema)
        return Change(list(map(Row, *columns)), _kind_of(table.schema), layout)

    def kind(self, version: int) -> type[str] | type[int] | None:
        """Of which kind the keys of a version are; None: there has been none.

        Raises:
            FilterSetError: there is no such version, or its file is damaged.
        """
        with self._opened(self._change(version)) as reader:
            return _kind_of(reader.schema)

    def layout(self, version: int) -> Layout:
        """How the filters of a version are divided.

        Raises:
            FilterSetError: there is no such version, or its file is damaged.
        """
        place = self._change(version)
        with self._opened(place) as reader:
            return self._layout(place, reader.schema)

    def _layout(self, place: Path, schema: pa.Schema) -> Layout:
        said = (schema.metadata or {}).get(_LAYOUT)
        try:
            return Layout() if said is None else msgspec.json.decode(said, type=Layout)
        except (msgspec.MsgspecError, MatcherError) as error:
            raise FilterSetError(f"{place} is damaged: {error}", path=self.path, help="restore it") from None

    def base(self, version: int) -> dict[Key, str]:
        """All filters of a version that has a base."""
        table = self._table(self._place(version, "base"))
        return dict(zip(table.column("key").to_pylist(), table.column("filter").to_pylist(), strict=True))

    def index(self, version: int) -> bytes:
        """The compiled filters of a version that has a base."""
        try:
            return self._place(version, "index").read_bytes()
        except FileNotFoundError:
            raise self._missing(self._place(version, "index")) from None

    def _table(self, place: Path) -> pa.Table:
        with self._opened(place) as reader:
            return reader.read_all()

    @contextlib.contextmanager
    def _opened(self, place: Path) -> Iterator[pa.ipc.RecordBatchFileReader]:
        try:
            with pa.OSFile(str(place)) as file:
                yield pa.ipc.open_file(file)
        except FileNotFoundError:
            raise self._missing(place) from None
        except (pa.ArrowException, OSError) as error:
            raise FilterSetError(f"{place} is damaged: {error}", path=self.path, help="restore it") from None

    def _missing(self, place: Path) -> FilterSetError:
        return FilterSetError(
            f"there is no {place.name} in the filter set {self.path}", path=self.path, help="was it removed? try again"
        )

    # -- writing

    def write_change(self, version: int, change: Change) -> bool:
        """Make a version; False if another writer was quicker, and nothing was done."""
        keys, after, before = zip(*change.rows, strict=True) if change.rows else ((), (), ())
        columns = {"key": pa.array(keys, _KINDS[change.kind])}
        columns |= {"filter": pa.array(after, pa.string()), "before": pa.array(before, pa.string())}
        table = pa.table(columns)
        if len(change.layout) > 1:
            table = table.replace_schema_metadata({_LAYOUT: msgspec.json.encode(change.layout)})
        if not os.path.isdir(self.path):
            os.makedirs(self.path, exist_ok=True)
            durably.sync_directory(os.path.dirname(self.path))
        try:
            durably.create(str(self._change(version)), _as_bytes(table))
        except FileExistsError:
            return False
        except OSError as error:
            raise FilterSetError(
                f"no version can be made in {self.path}: {error}", path=self.path, help="it needs space, and hard links"
            ) from None
        if version < self.oldest():  # others went on, and pruned the one that had this name: it was free for nobody
            self._change(version).unlink(missing_ok=True)
            return False
        return True

    def write_base(self, version: int, filters: dict[Key, str], kind: type | None, index: bytes) -> None:
        """Put the whole set beside a version. Done twice it is the same."""
        columns = {
            "key": pa.array(list(filters), _KINDS[kind]),
            "filter": pa.array(list(filters.values()), pa.string()),
        }
        durably.replace(str(self._place(version, "index")), index)
        durably.replace(str(self._place(version, "base")), _as_bytes(pa.table(columns), "zstd"))

    def remove_base(self, version: int) -> None:
        """Remove what stands beside a version; the version stays."""
        for ending in ("base", "index"):
            self._place(version, ending).unlink(missing_ok=True)

    @contextlib.contextmanager
    def pruning(self) -> Iterator[None]:
        """Keep others from pruning: two would remove the bases that the other counts on. Writing goes on."""
        place = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.flock(place, fcntl.LOCK_EX)
            yield
        finally:
            fcntl.flock(place, fcntl.LOCK_UN)  # not only closed: a child forked this instant has it open too
            os.close(place)

    def mark_oldest(self, version: int) -> None:
        """From now on there are no versions before this one, which has a base."""
        if not os.path.isdir(self._marks):
            os.makedirs(self._marks, exist_ok=True)
            durably.sync_directory(self.path)
        with contextlib.suppress(FileExistsError):
            durably.create(os.path.join(self._marks, f"{version:020d}"), b"")

    def remove_pruned(self) -> int:
        """Remove the files of versions before the oldest; returns how many versions went. Done twice it is the same."""
        oldest, count = self.oldest(), 0
        for name in os.listdir(self.path):
            number, _, ending = name.partition(".")
            if number.isdigit() and int(number) < oldest and ending in _ENDINGS:
                Path(self.path, name).unlink(missing_ok=True)
                count += ending == "change"
        for name in os.listdir(self._marks) if oldest > 1 else ():
            if name.isdigit() and int(name) < oldest:
                Path(self._marks, name).unlink(missing_ok=True)
        return count

    def sweep(self) -> None:
        """Remove what writers left that died while they wrote."""
        for folder in (self.path, self._marks):
            for name in os.listdir(folder) if os.path.isdir(folder) else ():
                place = Path(folder, name)
                with contextlib.suppress(FileNotFoundError):
                    if name.startswith(".") and time.time() - place.stat().st_mtime > _LEFTOVER:
                        place.unlink()

    def _change(self, version: int) -> Path:
        return self._place(version, "change")

    def _place(self, version: int, ending: str) -> Path:
        return Path(self.path, f"{version:020d}.{ending}")


def _kind_of(schema: pa.Schema) -> type[str] | type[int] | None:
    return next(kind for kind, of_arrow in _KINDS.items() if of_arrow == schema.field("key").type)


def _as_bytes(table: pa.Table, compression: str | None = None) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue().to_pybytes())
