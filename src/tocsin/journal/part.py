"""A block of a journal that has a lake: when the journal is trimmed under a reader's hands, the lake has the events.

A walk over both (`archived.py`) gives these. One may be less than its block: what comes before the border, or what was
not given yet when the walk began anew.
"""

from __future__ import annotations

from collections.abc import Collection

import pyarrow as pa

from tocsin.errors import TrimmedError
from tocsin.journal import rows
from tocsin.journal.blocks import Stored
from tocsin.journal.contract import Block
from tocsin.journal.lake import Lake
from tocsin.journal.reader import StoredBlock
from tocsin.journal.segments import between
from tocsin.journal.statistics import Statistics
from tocsin.model import Event

__all__ = ["Part"]


class Part:
    """A block, or what of it was not given yet. It stays readable when the journal is trimmed. See `contract.Block`."""

    def __init__(self, lake: Lake, block: Block, first: int, last: int) -> None:
        """Show the offsets from `first` to `last` of a block."""
        self._lake, self._block = lake, block
        self.first, self.last = first, last

    @property
    def arrived(self) -> tuple[int, int]:
        """See `contract.Block.arrived`."""
        if self._is_whole:
            return self._block.arrived
        found = self.batch(("arrived",)).column("arrived").cast(pa.int64())
        return (found[0].as_py(), found[-1].as_py()) if len(found) else self._block.arrived

    @property
    def statistics(self) -> Statistics | None:
        """See `contract.Block.statistics`."""
        return self._block.statistics

    def events(self) -> list[Event]:
        """See `contract.Block.events`."""
        try:
            return [event for event in self._block.events() if self.first <= (event.offset or 0) <= self.last]
        except TrimmedError:
            return rows.from_arrow(self._archived(None))

    def batch(self, columns: Collection[str] | None = None) -> pa.RecordBatch:
        """See `contract.Block.batch`."""
        try:
            return between(self._block.batch(columns), self.first, self.last)
        except TrimmedError:
            return self._archived(columns)

    @property
    def path(self) -> str:
        """See `reader.StoredBlock.path`; empty if it is not in a file of rows."""
        return self._block.path if isinstance(self._block, StoredBlock) else ""

    def as_rows(self) -> Stored | None:
        """See `reader.StoredBlock.as_rows`."""
        try:
            return self._block.as_rows() if isinstance(self._block, StoredBlock) and self._is_whole else None
        except TrimmedError:
            return None

    @property
    def _is_whole(self) -> bool:
        return self.first == self._block.first and self.last == self._block.last

    def _archived(self, columns: Collection[str] | None) -> pa.RecordBatch:
        self._lake.refresh()
        return self._lake.read(self.first, self.last, columns)

    def __repr__(self) -> str:
        """Show where it is."""
        return f"<part {self.first}-{self.last} of {self._block!r}>"
