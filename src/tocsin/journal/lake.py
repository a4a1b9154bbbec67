"""Reading a lake: the archived part of a journal, as blocks.

Promised: what the newest manifest lists, whole, and nothing else. A chunk that is written anew meanwhile (compaction)
is found again by its offsets; what retention has dropped raises TrimmedError. Any number of threads may use one lake,
and any number of processes one directory; reading needs no lock.
Not promised: lakes anywhere but on local or shared file systems.
"""

from __future__ import annotations

import os
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterator, Sequence
from functools import cached_property, lru_cache

import msgspec
import pyarrow as pa

from tocsin.errors import JournalDamagedError, LakeError, TrimmedError
from tocsin.journal import durably, facts, lakefiles, manifest, rows
from tocsin.journal.blocks import statistics_of
from tocsin.journal.manifest import Chunk, Manifest
from tocsin.journal.statistics import Statistics
from tocsin.model import Event

__all__ = ["Lake", "LakeBlock", "remember_lake", "remembered_lake"]

_BLOCK_EVENTS = 2 * lakefiles.CUT
_BLOCK_BYTES = 2 << 20
"""How much a block holds at most; bytes are those of the files."""


class Lake:
    """The lake in a directory, which need not exist yet."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Read the newest manifest.

        Raises:
            LakeError: it cannot be read, or the path is none of a local or shared file system.
        """
        path = os.fspath(path)
        if "://" in path:
            raise LakeError(f"{path} is not a directory", path=path, help="give a path; object stores are not served")
        self.path = os.path.abspath(path)
        self._take(manifest.load(self.path))

    def refresh(self) -> bool:
        """See whether there is a newer manifest, and take it; True if there was."""
        before = self.manifest.version
        if manifest.is_newest(self.path, before):
            return False
        self._take(manifest.load(self.path))
        return before != self.manifest.version

    def _take(self, found: Manifest) -> None:
        first = found.last + 1
        for chunk in reversed(found.chunks):
            if chunk.last != first - 1:
                break
            first = chunk.first
        self.manifest = found
        self.first = first
        """The lowest offset from which on nothing is missing up to `last`; last + 1 if there is none."""

    @property
    def last(self) -> int:
        """The newest offset that was archived; 0 if none was."""
        return self.manifest.last

    @property
    def head(self) -> int:
        """The same, as a journal calls it: a lake can be read alone."""
        return self.last

    def state(self, prefix: str = "") -> dict[str, bytes]:
        """See `contract.Journal.state`: none is archived."""
        return {}

    def close(self) -> None:
        """Nothing is held."""

    def blocks(self, first: int = 1, last: int | None = None, *, backwards: bool = False) -> Iterator[LakeBlock]:
        """The blocks that hold any archived offset from `first` to `last`, in order or newest first.

        They may begin before and end after what was asked for. Where there are no chunks, there are no blocks.
        """
        last = self.last if last is None else last
        chunks = self._chunks(first, last)
        for chunk in reversed(chunks) if backwards else chunks:
            found = [block for block in _blocks(self, chunk) if max(block.first, first) <= min(block.last, last)]
            yield from reversed(found) if backwards else found

    def read(self, first: int, last: int, columns: Collection[str] | None = None) -> pa.RecordBatch:
        """Exactly these offsets, as `contract.Block.batch` gives them; lost ones are left out.

        Raises:
            TrimmedError: some are not there, or not any more.
            JournalDamagedError: a file is missing or was changed.
        """
        try:
            return self._read(first, last, columns)
        except (FileNotFoundError, TrimmedError) as error:
            if self.refresh():  # a chunk was written anew: its events lie in another file now
                return self.read(first, last, columns)
            if isinstance(error, TrimmedError):
                raise
            raise JournalDamagedError(
                f"a file of the lake is missing: {error.filename}",
                path=error.filename,
                first=first,
                last=last,
                help="restore it from a copy",
            ) from None

    def _read(self, first: int, last: int, columns: Collection[str] | None) -> pa.RecordBatch:
        parts = []
        for chunk in self._chunks(first, last):
            if chunk.first > first:
                break
            end = min(last, chunk.last)
            parts.append(lakefiles.read(self.path, chunk, first, end, columns))
            if end - first + 1 - _lost_in(chunk, first, end) != parts[-1].num_rows:
                raise JournalDamagedError(
                    f"the lake holds {parts[-1].num_rows} events from {first} to {end}",
                    path=self.path,
                    first=first,
                    last=end,
                    help="restore its files from a copy",
                )
            first = end + 1
            if first > last:
                return parts[0] if len(parts) == 1 else pa.concat_batches(parts)
        raise TrimmedError(f"offset {first} is not in the lake", first=self.first, path=self.path)

    def check_files(self, first: int, last: int) -> None:
        """See that the files of these offsets are there, each with as many bytes as it had.

        Raises:
            JournalDamagedError: one is not, or an offset is in none.
        """
        try:
            self._check_files(first, last)
        except JournalDamagedError:
            if not self.refresh():
                raise
            self.check_files(first, last)  # a chunk was written anew: its events lie in another file now

    def _check_files(self, first: int, last: int) -> None:
        for chunk in self._chunks(first, last):
            for file in chunk.files:
                lakefiles.check(self.path, file)
            first = chunk.last + 1 if chunk.first <= first else first
        if first <= last:
            raise JournalDamagedError(
                f"offset {first} is not in the lake", path=self.path, first=first, last=last, help="archive it again"
            )

    def offset_at(self, moment: int) -> int:
        """The first offset from `first` on that arrived at or after a moment (microseconds); last + 1 if none did."""
        chunks = self._chunks(self.first, self.last)
        place = bisect_left(chunks, moment, key=lambda chunk: chunk.arrived[1])
        if place == len(chunks):
            return self.last + 1
        try:
            return lakefiles.moment_in(self.path, chunks[place], moment)
        except FileNotFoundError:
            if self.refresh():
                return self.offset_at(moment)
            raise

    def _chunks(self, first: int, last: int) -> Sequence[Chunk]:
        """Those that hold any offset from `first` to `last`."""
        chunks = self.manifest.chunks
        start = bisect_left(chunks, first, key=lambda chunk: chunk.last)
        return (
            chunks[start : bisect_right(chunks, last, lo=start, key=lambda chunk: chunk.first)] if first <= last else ()
        )


class LakeBlock:
    """A stretch of a lake. See `contract.Block`."""

    def __init__(self, lake: Lake, chunk: Chunk, first: int, last: int) -> None:
        """Show the offsets from `first` to `last` of a chunk; nothing is read yet."""
        self._lake, self._chunk = lake, chunk
        self.first, self.last = first, last

    @property
    def arrived(self) -> tuple[int, int]:
        """See `contract.Block.arrived`."""
        if (self.first, self.last) == (self._chunk.first, self._chunk.last):
            return self._chunk.arrived
        found = self.batch(("arrived",)).column("arrived").cast(pa.int64())
        return (found[0].as_py(), found[-1].as_py()) if len(found) else self._chunk.arrived

    @cached_property
    def statistics(self) -> Statistics | None:
        """See `contract.Block.statistics`: those of its chunk, but only the types there are here."""
        known = _known(self._chunk.packed)
        if known is None:
            return None
        types = {file.type for file in self._chunk.files if file.first <= self.last and self.first <= file.last}
        here = facts.of_texts(pa.array(sorted(types), pa.string()))
        return msgspec.structs.replace(known, envelope={**known.envelope, "type": here})

    def events(self) -> list[Event]:
        """See `contract.Block.events`."""
        return rows.from_arrow(self.batch())

    def batch(self, columns: Collection[str] | None = None) -> pa.RecordBatch:
        """See `contract.Block.batch`."""
        return self._lake.read(self.first, self.last, columns)

    def __repr__(self) -> str:
        """Show where it is."""
        return f"<archived block {self.first}-{self.last}>"


def _blocks(lake: Lake, chunk: Chunk) -> Iterator[LakeBlock]:
    """A chunk in blocks. What was lost has blocks of its own: those of events have no gaps."""
    count, size = sum(file.rows for file in chunk.files), sum(file.bytes for file in chunk.files)
    step = max(1, min(_BLOCK_EVENTS, _BLOCK_BYTES * count // max(1, size)))
    first = chunk.first
    for low, high in (*chunk.lost, (chunk.last + 1, chunk.last)):
        while first < low:
            end = min(first + step - 1 - (first - 1) % step, low - 1)
            yield LakeBlock(lake, chunk, first, end)
            first = end + 1
        if low <= high:
            yield LakeBlock(lake, chunk, low, high)
            first = high + 1


_known = lru_cache(maxsize=64)(statistics_of)  # all blocks of a chunk share its statistics


def _lost_in(chunk: Chunk, first: int, last: int) -> int:
    return sum(max(0, min(high, last) - max(low, first) + 1) for low, high in chunk.lost)


# -- where a journal's lake is


class _Remembered(msgspec.Struct):
    lake: str


def remember_lake(path: str, lake: str) -> None:
    """Note beside a journal's file where its lake is: `<path>.lake`. A lake in the same directory may move with it."""
    path = os.path.realpath(path)
    directory, lake = os.path.dirname(path), os.path.abspath(lake)
    place = os.path.relpath(lake, directory) if os.path.commonpath([directory, lake]) == directory else lake
    if remembered_lake(path) != lake:
        durably.replace(f"{path}.lake", msgspec.json.encode(_Remembered(place)))


def remembered_lake(path: str) -> str | None:
    """Where a journal's lake is, as far as its file's neighbour knows.

    Raises:
        LakeError: there is such a file, and it cannot be read.
    """
    path = os.path.realpath(path)
    try:
        with open(f"{path}.lake", "rb") as file:
            found = msgspec.json.decode(file.read(), type=_Remembered)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError, ValueError) as error:
        help = "remove it, and name the lake yourself"
        raise LakeError(f"{path}.lake cannot be read: {error}", path=f"{path}.lake", help=help) from None
    return os.path.normpath(os.path.join(os.path.dirname(path), found.lake))
