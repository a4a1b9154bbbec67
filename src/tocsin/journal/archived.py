"""A journal and its lake as one: what was trimmed from the journal is read from the lake.

    offset   1 ………………………… kept-1 │ kept ………………………… head
             read from the lake   │ read from the journal

The border is where the journal begins now; the lake may hold more. It moves while somebody reads, when the journal is
trimmed: whoever was on its way through the trimmed part goes on in the lake.

Promised: what `contract.py` promises of reading, with no gap and no double at the border, also while the journal is
trimmed and the lake grows. Writing is the journal's own. Publishers and audit trails are not archived: they end where
the journal begins.
Not promised: if the journal was trimmed beyond what the lake has, everything before that gap is out of reach; `first`
is the journal's then, and a warning says so.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import pyarrow as pa

from tocsin.errors import JournalDamagedError, LakeError, TrimmedError
from tocsin.journal.contract import Block, Committed, Journal, Note, Request
from tocsin.journal.lake import Lake
from tocsin.journal.part import Part
from tocsin.journal.reader import open_reader
from tocsin.journal.segments import between
from tocsin.model import Event

__all__ = ["ArchivedJournal", "Joined", "Readable", "check_same", "open_archived"]

_log = logging.getLogger(__name__)


class Readable(Protocol):
    """What of a journal is needed to read it: `reader.Reader` has it too."""

    @property
    def head(self) -> int:
        """See `contract.Journal.head`."""

    @property
    def first(self) -> int:
        """See `contract.Journal.first`."""

    def blocks(self, first: int = 1, last: int | None = None, *, backwards: bool = False) -> Iterator[Block]:
        """See `contract.Journal.blocks`."""

    def offset_at(self, moment: int) -> int:
        """See `contract.Journal.offset_at`."""

    def state(self, prefix: str = "") -> dict[str, bytes]:
        """See `contract.Journal.state`."""

    def close(self) -> None:
        """See `contract.Journal.close`."""


class Joined:
    """A journal, or a reader of one, and a lake: for reading."""

    def __init__(self, journal: Readable, lake: Lake) -> None:
        """Join them; `check_same` tells whether they belong together."""
        self.journal, self.lake = journal, lake
        self._warned = 0

    @property
    def head(self) -> int:
        """See `contract.Journal.head`."""
        return self.journal.head

    @property
    def kept(self) -> int:
        """See `contract.Journal.kept`."""
        return self.journal.first

    @property
    def archived(self) -> int:
        """The newest offset that the lake has."""
        self.lake.refresh()
        return self.lake.last

    @property
    def first(self) -> int:
        """The oldest offset that can be read, there or here."""
        kept = self.journal.first
        if kept == 1:
            return 1
        self.lake.refresh()
        if self.lake.last >= kept - 1:
            return min(self.lake.first, kept)
        if self._warned < kept:
            self._warned = kept
            _log.warning(
                "the journal begins at offset %d and its lake %s ends at %d: what lies before is out of reach",
                kept,
                self.lake.path,
                self.lake.last,
            )
        return kept

    def blocks(self, first: int = 1, last: int | None = None, *, backwards: bool = False) -> Iterator[Block]:
        """See `contract.Journal.blocks`."""
        readable, head = self.first, self.head
        if 1 < first < readable:
            raise _trimmed(first, readable)
        low, high = max(first, readable), head if last is None else min(last, head)
        return self._backwards(low, high) if backwards else self._forwards(low, high)

    def read(self, first: int = 1, last: int | None = None) -> Iterator[pa.RecordBatch]:
        """See `contract.Journal.read`."""
        last = self.head if last is None else last
        batches = (between(block.batch(), first, last) for block in self.blocks(first, last))
        return (batch for batch in batches if batch.num_rows)

    def offset_at(self, moment: int) -> int:
        """See `contract.Journal.offset_at`."""
        found = self.journal.offset_at(moment)
        kept = self.journal.first
        if found > kept or self.first == kept:
            return found
        archived = self.lake.offset_at(moment)
        return archived if archived < kept else max(found, kept)

    def state(self, prefix: str = "") -> dict[str, bytes]:
        """See `contract.Journal.state`."""
        return self.journal.state(prefix)

    def close(self) -> None:
        """Close the journal."""
        self.journal.close()

    def __enter__(self) -> Joined:
        """Use it in a `with` block."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()

    # Each walk goes through one side as far as that reaches, then looks anew where the journal begins and goes on with
    # the first offset it has not given. A trim that overtakes it on the journal's side sends it to the lake.

    def _forwards(self, first: int, last: int) -> Iterator[Block]:
        expected, begun = first, False
        while expected <= last:
            kept, before = self.journal.first, expected
            stop = last if expected >= kept else min(last, kept - 1)
            for block in self._side(expected, stop, kept):
                if block.first > expected:  # what lies between was trimmed this moment
                    break
                end = block.last if expected >= kept else min(block.last, kept - 1)
                yield Part(self.lake, block, expected if begun else block.first, end)
                expected, begun = end + 1, True
            self._check_progress(expected, before, kept)

    def _backwards(self, first: int, last: int) -> Iterator[Block]:
        expected, begun = last, False
        while expected >= first:
            kept, before = self.journal.first, expected
            for block in self._side(first if expected < kept else max(first, kept), expected, kept, backwards=True):
                if block.last < expected:
                    break
                end = block.last if expected >= kept else min(block.last, kept - 1)
                yield Part(self.lake, block, block.first, min(end, expected) if begun else end)
                expected, begun = block.first - 1, True
            self._check_progress(expected, before, kept)

    def _side(self, first: int, last: int, kept: int, *, backwards: bool = False) -> Iterator[Block]:
        """Blocks of the journal, if the range lies in it, else of the lake; they end where a trim begins."""
        if first < kept:
            if self.lake.last < last:
                self.lake.refresh()
            yield from self.lake.blocks(first, last, backwards=backwards)
            return
        try:
            yield from self.journal.blocks(first, last, backwards=backwards)
        except TrimmedError:
            return

    def _check_progress(self, expected: int, before: int, kept: int) -> None:
        """Raise an error if a side gave nothing, and not because of a trim: the lake lacks it."""
        if expected == before and (expected < kept or self.journal.first == kept):
            raise _trimmed(expected, self.first)


class ArchivedJournal(Joined):
    """A journal that is open for writing, and its lake. See `contract.Journal` for each method."""

    journal: Journal

    def __init__(self, journal: Journal, lake: Lake) -> None:
        """Join them.

        Raises:
            LakeError: the lake is another journal's.
        """
        check_same(journal, lake)
        super().__init__(journal, lake)
        self.listeners: list[Callable[[Committed], None]] = journal.listeners

    @property
    def crashed(self) -> bool:
        """See `contract.Journal.crashed`."""
        return self.journal.crashed

    def submit(self, request: Request, *, wake: bool = True) -> None:
        """See `contract.Journal.submit`."""
        self.journal.submit(request, wake=wake)

    def commit_here(self) -> None:
        """See `contract.Journal.commit_here`."""
        self.journal.commit_here()

    def append(self, events: Sequence[Event], writer: str | None = None, position: int | None = None) -> list[int]:
        """See `contract.Journal.append`."""
        return self.journal.append(events, writer, position)

    def notes(self, offset: int) -> list[Note]:
        """See `contract.Journal.notes`."""
        return self.journal.notes(offset)

    def publisher(self, offset: int) -> str:
        """See `contract.Journal.publisher`."""
        return self.journal.publisher(offset)

    def trim(self, before: int) -> int:
        """See `contract.Journal.trim`. Nothing is asked here; what may go is the caller's to know."""
        return self.journal.trim(before)

    def stats(self) -> dict[str, Any]:
        """See `contract.Journal.stats`: the journal's, and how much is archived."""
        return {**self.journal.stats(), "archived": self.archived, "lake": self.lake.path}

    def abandon(self) -> None:
        """See `contract.Journal.abandon`."""
        self.journal.abandon()


def open_archived(path: str | os.PathLike[str], lake: str | os.PathLike[str]) -> Joined:
    """Open a journal's file and its lake for reading; others may be writing to both.

    Raises:
        JournalError: there is no such file, or it is not a journal.
        LakeError: the lake is another journal's, or cannot be read.
    """
    reader = open_reader(path)
    try:
        joined = Joined(reader, Lake(lake))
        check_same(reader, joined.lake)
    except BaseException:
        reader.close()
        raise
    return joined


# -- do they belong together?


def check_same(journal: Readable, lake: Lake) -> None:
    """Compare what both hold: the first and the last of such events.

    Raises:
        LakeError: they differ, or the lake holds more than there ever was.
    """
    head, kept = journal.head, journal.first
    if lake.last > head:
        raise _foreign(lake, f"it holds offsets up to {lake.last}, the journal ends at {head}")
    ends = [
        (offset, id, arrived)
        for chunk in lake.manifest.chunks
        for offset, id, arrived in zip((chunk.first, chunk.last), chunk.ids, chunk.arrived, strict=True)
        if kept <= offset and id
    ]
    for offset, id, arrived in ends[:1] + ends[-1:]:
        found = _identity(journal, offset)
        if found is not None and found != (id, arrived):
            raise _foreign(lake, f"offset {offset} is event {id!r} there and {found[0]!r} here")
    name = getattr(journal, "file_id", "")  # a journal in memory has none
    if not ends and lake.last and name and lake.manifest.journal not in ("", name):
        raise _foreign(lake, "it was made from another file")


def _identity(journal: Readable, offset: int) -> tuple[str, int] | None:
    """Id and arrival of an event; None if it cannot be read."""
    try:
        for block in journal.blocks(offset, offset):
            batch = between(block.batch(("id", "arrived")), offset, offset)
            if batch.num_rows:
                return batch.column("id")[0].as_py(), batch.column("arrived").cast(pa.int64())[0].as_py()
    except (TrimmedError, JournalDamagedError):  # just trimmed; or `journal check` will tell
        pass
    return None


def _foreign(lake: Lake, why: str) -> LakeError:
    return LakeError(
        f"the lake {lake.path} is another journal's: {why}",
        path=lake.path,
        help="name this journal's own lake, or an empty directory",
    )


def _trimmed(asked: int, first: int) -> TrimmedError:
    return TrimmedError(f"offset {asked} is neither kept nor archived; {first} is the first that is", first=first)
