"""Reading: blocks are chosen on the driver, read on executors, and leave as Arrow batches of a good size.

    driver      blocks' statistics ─ may anything in it be wanted? ─▶ shares for tasks (`ranges.py`)
    executor    blocks ─ gather ─▶ batches ─ sieve ─▶ wanted rows ─ columns ─▶ what Spark gets

Planning reads no events. Columns that nobody wants are not decompressed.

Promised: exactly the wanted events of a share, in order. A stretch that was trimmed after it was planned is a
`TrimmedError`, or with `allowGaps` a warning; one that is not there for another reason is an error always.
Not promised: batches of equal size; with a selective filter they are small.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing

import pyarrow as pa

from tocsin.errors import JournalDamagedError, TrimmedError
from tocsin.filters.filter import Filter
from tocsin.journal.gather import Gathering, sized
from tocsin.journal.segments import between
from tocsin.journal.sieve import Report, Sieve, Sieves
from tocsin.spark.asking import is_address
from tocsin.spark.columns import Columns
from tocsin.spark.distant import Wanted
from tocsin.spark.options import ReadOptions
from tocsin.spark.origin import Origin, open_origin
from tocsin.spark.pushdown import NOTHING, Pushed
from tocsin.spark.ranges import Range, check_range, pieces, share_size, shares

__all__ = ["VERSION", "Scan"]

VERSION = "filters"
"""The column that holds the version of the filter set."""

_ROWS = 16_384
_BYTES = 32 << 20
"""The most of a batch: large enough that its frame does not count, small enough for a task's memory and caches."""

_log = logging.getLogger(__name__)


class Scan:
    """How one DataFrame reads a journal. It is made on the driver and sent to the executors.

    Args:
        options: the options of the source.
        schema: the columns that Spark wants, in Arrow.
        pushed: what is known of the query's conditions.

    Raises:
        SchemaError: a column cannot be made.
    """

    def __init__(self, options: ReadOptions, schema: pa.Schema, pushed: Pushed = NOTHING) -> None:
        """Check that the columns can be made."""
        self.options = options
        self.schema = schema
        self.pushed = pushed
        Columns(_without_version(schema))

    def open(self, *, patience: float | None = None, columns: Collection[str] | None = None) -> Origin:
        """Open what is read.

        Args:
            patience: seconds that a node may be away; None: those of the options.
            columns: names of those that are read. None: none is, only questions are asked.
        """
        options, wanted = self.options, None
        if columns is not None:
            wanted = Wanted(self._asked_of_node(), options.system, tuple(columns))
        patience = options.patience if patience is None else min(patience, options.patience)
        return open_origin(options.url, options.lake, options.token, ca=options.ca, patience=patience, wanted=wanted)

    def _asked_of_node(self) -> str | None:
        """The filter that a node can apply: both that of the user and what Spark has pushed."""
        filters = [each for each in (self.options.filter, self.pushed.filter) if each is not None]
        return " AND ".join(f"({each})" for each in filters) if filters else None

    def narrowed(self, origin: Origin, wanted: Range) -> Range:
        """What of a range the query's conditions leave."""
        first, last, pushed = wanted.first, wanted.last, self.pushed
        if pushed.since is not None:
            first = max(first, origin.offset_at(pushed.since))
        if pushed.until is not None:
            last = min(last, origin.offset_at(pushed.until + 1) - 1)
        return Range(max(first, pushed.first or first), last if pushed.last is None else min(last, pushed.last))

    def plan(self, origin: Origin, wanted: Range, report: Report | None = None) -> list[tuple[Range, ...]]:
        """Divide a range among tasks, without the blocks in which nothing can be wanted.

        Args:
            origin: what is read.
            wanted: the range; what of it was trimmed must have been dealt with.
            report: filled with how many blocks are read and skipped.

        Raises:
            TrimmedError: it was trimmed meanwhile, and gaps are not allowed.
        """
        report = report if report is not None else Report()
        wanted = self.narrowed(origin, wanted)
        if wanted.last < wanted.first:
            return []
        while True:
            wanted = check_range(origin, wanted, self.options)
            report.read = report.skipped = 0
            try:
                size = share_size(wanted, self.options)
                if is_address(self.options.url):  # a node skips blocks itself, where they are
                    return pieces(wanted, size)
                found = shares(self._hopeful(origin, wanted, report), wanted, size)
                break
            except TrimmedError:  # between two looks at the list of blocks: what is left is planned anew
                continue
        _log.info(
            "offsets %d to %d: %d blocks to read in %d tasks, %d skipped by their statistics",
            wanted.first,
            wanted.last,
            report.read,
            len(found),
            report.skipped,
        )
        return found

    def _hopeful(self, origin: Origin, wanted: Range, report: Report) -> Iterator[Range]:
        sieves = _sieves(self.options, self.pushed)
        for block in origin.blocks(wanted.first, wanted.last):
            if sieves.may_match(block.statistics):
                report.read += 1
                yield Range(block.first, block.last)
            else:
                report.skipped += 1

    def read(
        self, share: Sequence[Range], version: int | None = None, report: Report | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Give the wanted events of a share as Spark wants them.

        Args:
            share: from `plan`.
            version: of the filter set, for the column of that name.
            report: filled with what was done, as it goes on.

        Raises:
            TrimmedError: it was trimmed meanwhile, and gaps are not allowed.
            JournalError: it cannot be read.
        """
        report = report if report is not None else Report()
        sieves = _sieves(self.options, self.pushed)
        columns = Columns(_without_version(self.schema))
        names = {*columns.needs, *sieves.columns}
        with closing(self.open(columns=names)) as origin:
            for batch in sized(self._batches(origin, share, sieves, names, report), _ROWS, _BYTES):
                found = sieves.passed(batch, report)
                if found.num_rows:
                    report.found += found.num_rows
                    yield self._versioned(columns.of_journal(found), found.num_rows, version)
        _log.debug("%s: %s", share, report)

    def _batches(
        self, origin: Origin, share: Sequence[Range], sieves: Sieves, names: set[str], report: Report
    ) -> Iterator[pa.RecordBatch]:
        """Everything in the blocks of a share that may hold something wanted, within its ranges."""
        gathering = Gathering(names)
        for wanted in share:
            for batch in self._walk(origin, wanted, sieves, gathering, report):
                batch = between(batch, *wanted)
                report.rows += batch.num_rows
                yield batch

    def _walk(
        self, origin: Origin, wanted: Range, sieves: Sieves, gathering: Gathering, report: Report
    ) -> Iterator[pa.RecordBatch]:
        expected = wanted.first
        while expected <= wanted.last:
            try:
                for block in origin.blocks(expected, wanted.last):
                    if block.first > expected:  # asked for offset 1, a journal begins with what it has
                        break
                    if sieves.may_match(block.statistics):
                        yield from gathering.add(block)
                        report.read += 1
                    else:
                        report.skipped += 1
                    expected = block.last + 1
            except TrimmedError:
                pass  # which is found out again below, with what can be done about it
            yield from gathering.rest()
            if expected <= wanted.last:
                expected = self._resumed(origin, Range(expected, wanted.last))

    def _resumed(self, origin: Origin, missing: Range) -> int:
        """Where to go on when offsets are not there: behind the gap, if gaps are allowed and this is one."""
        kept = check_range(origin, missing, self.options).first
        if kept == missing.first:
            raise JournalDamagedError(
                f"offsets from {missing.first} on are missing",
                path=self.options.url,
                first=missing.first,
                last=missing.last,
                help="see `tocsin journal check`",
            )
        last = min(kept - 1, missing.last)
        url = self.options.url
        _log.warning("%s: offsets %d to %d were trimmed before they were read: skipped", url, missing.first, last)
        return kept

    def _versioned(self, batch: pa.RecordBatch, rows: int, version: int | None) -> pa.RecordBatch:
        place = self.schema.get_field_index(VERSION)
        if place < 0:
            return batch
        column = pa.repeat(pa.scalar(version, pa.int64()), rows)
        return pa.RecordBatch.from_arrays([*batch.columns[:place], column, *batch.columns[place:]], schema=self.schema)


def _sieves(options: ReadOptions, pushed: Pushed) -> Sieves:
    """What must hold of an event: the user's filter, and what Spark has pushed."""
    # What Spark pushed is asked of whole columns only, so it goes first and spares the other its rows.
    asked = Sieve(Filter(pushed.filter), system=True) if pushed.filter is not None else None
    wanted = Filter(options.filter) if options.filter is not None else None
    return Sieves(asked, Sieve(wanted, system=options.system) if wanted is not None or not options.system else None)


def _without_version(schema: pa.Schema) -> pa.Schema:
    place = schema.get_field_index(VERSION)
    return schema if place < 0 else schema.remove(place)
