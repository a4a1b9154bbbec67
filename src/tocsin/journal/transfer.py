"""Taking events out of a journal and into another: JSON lines or Parquet.

    export_lines, export_parquet    a range of offsets ─▶ file
    import_lines, import_parquet    file ─▶ journal

A line is a CloudEvent in structured form, with `offset` and `arrived` beside its fields. An import keeps the events'
own times as journal time: `arrived`, else `time`. Offsets are given anew, in the order of the file.

Promised: an import that was interrupted and is repeated with the same file goes on where it was and stores nothing
twice; a file that has grown meanwhile is read on. Every event keeps its journal time. A file whose times go backward,
that lacks them, or that begins before the newest event of the journal is refused at that line; the lines before it are
stored, and the same import may be repeated when the file is mended from there on.
Not promised: an import beside other writers; what they publish meanwhile is newer than history. JSON lines cannot hold
NaN or an infinity in attributes; Parquet can.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import IO, NamedTuple

import msgspec
import pyarrow as pa

from tocsin.clock import as_datetime, as_micros
from tocsin.cloudevents import from_json, to_json
from tocsin.errors import EventError, JournalError, TrimmedError
from tocsin.filters.filter import Filter
from tocsin.journal import history, parquet
from tocsin.journal.contract import Journal, Request
from tocsin.journal.sieve import Report, Sieve
from tocsin.journal.statistics import SYSTEM
from tocsin.model import Event, time_text

__all__ = ["Imported", "Progress", "export_lines", "export_parquet", "import_lines", "import_parquet"]

Progress = Callable[[int, int | None], None]
"""Called now and then with how much is done and how much there is: events of an export, bytes of lines, rows of
Parquet. None: that is not known."""

_BATCH = 2048  # events stored before the place in the file is noted
_TELL = 4096  # events between two words on progress
_STATE = "import/"
_ALL = {0: Filter("TRUE")}


class Imported(NamedTuple):
    """What an import did."""

    stored: int
    """Events that are new in the journal."""
    known: int
    """Events it had already: from an interrupted import, or with an id published lately."""
    hidden: int
    """System records that were passed over."""


def export_lines(
    journal: Journal,
    target: IO[bytes],
    first: int = 1,
    last: int | None = None,
    *,
    system: bool = False,
    progress: Progress | None = None,
) -> int:
    """Write events as JSON lines; returns how many.

    Args:
        journal: where they are.
        target: a file open for writing bytes.
        first: the first offset.
        last: the last offset; None: the head now.
        system: whether to write system records.
        progress: told how many events are done.

    Raises:
        TrimmedError: `first` is above 1 and no longer kept.
        JournalDamagedError: a block cannot be read.
        EventError: an event has an attribute that JSON cannot hold; names the offset.
    """
    last = journal.head if last is None else last
    begin = _begin(journal, first)
    count = 0
    for offset, event, _ in history.scan(journal, _ALL, begin, last, system=system):
        try:
            target.write(to_json(event) + b"\n")
        except EventError as error:
            message = f"offset {offset}: {error.message}"
            raise EventError(message, field=error.field, help="export it as Parquet") from None
        count += 1
        if progress is not None and count % _TELL == 0:
            progress(offset - begin + 1, last - begin + 1)
    if progress is not None and last >= begin:
        progress(last - begin + 1, last - begin + 1)
    return count


def export_parquet(
    journal: Journal,
    target: str | IO[bytes],
    first: int = 1,
    last: int | None = None,
    *,
    system: bool = False,
    progress: Progress | None = None,
) -> int:
    """Write events as Parquet (`parquet.PARQUET` says how); returns how many. Else as `export_lines`."""
    begin = _begin(journal, first)  # raises before a file is made
    return parquet.write(target, _batches(journal, begin, last, system, progress))


def import_lines(
    journal: Journal,
    source: IO[bytes],
    *,
    writer: str | None = None,
    system: bool = False,
    progress: Progress | None = None,
) -> Imported:
    """Store the events of JSON lines. Empty lines are passed over.

    Args:
        journal: where they go. Nobody else should write meanwhile.
        source: a file open for reading bytes, from its beginning.
        writer: the name under which the place in the file is kept; None: one made of the first event.
        system: whether to store system records.
        progress: told how many bytes are done.

    Raises:
        EventError: a line is no event, has no time, or an earlier one than the line before; names the line.
        JournalError: it could not be stored, or another file was imported under this name.
    """
    total = _size_of(source)
    return _store(journal, _lines(source), "line", writer, system, progress, total)


def import_parquet(
    journal: Journal,
    source: str | IO[bytes],
    *,
    writer: str | None = None,
    system: bool = False,
    progress: Progress | None = None,
) -> Imported:
    """Store the events of a Parquet file. As `import_lines`, with rows for lines."""
    total = parquet.rows_in(source)
    entries = (_Entry(row, event, row) for row, event in enumerate(parquet.read(source), 1))
    return _store(journal, entries, "row", writer, system, progress, total)


# -- out


def _begin(journal: Journal, first: int) -> int:
    """The first offset of an export. From 1 means from the oldest that is kept."""
    kept = journal.first
    if 1 < first < kept:
        raise TrimmedError(f"offset {first} is no longer kept", first=kept, help=f"export from {kept} on")
    return max(first, kept)


def _batches(
    journal: Journal, begin: int, last: int | None, system: bool, progress: Progress | None
) -> Iterator[pa.RecordBatch]:
    """The batches of a range, without system records unless they are asked for."""
    last = journal.head if last is None else last
    sieve, report = Sieve(None, system=system), Report()
    for batch in journal.read(begin, last):
        for places in sieve.rows(batch, report):
            yield batch if len(places) == batch.num_rows else batch.take(pa.array(places))
        if progress is not None and batch.num_rows:
            progress(batch.column("offset")[-1].as_py() - begin + 1, last - begin + 1)


# -- in


class _Entry(NamedTuple):
    """An event of a file."""

    line: int
    event: Event
    read: int
    """How much of the file is read with it, for progress."""


class _Place(msgspec.Struct, array_like=True):
    """How far an import came: kept as state of the journal, in one commit with the events."""

    line: int
    source: str
    id: str


def _lines(source: IO[bytes]) -> Iterator[_Entry]:
    done = 0
    for line, text in enumerate(source, 1):
        done += len(text)
        if not text.strip():
            continue
        try:
            yield _Entry(line, from_json(text), done)
        except EventError as error:
            message = f"line {line}: {error.message}"
            raise EventError(message, field=error.field, position=error.position, help=error.help) from None


def _size_of(source: IO[bytes]) -> int | None:
    try:
        return os.fstat(source.fileno()).st_size
    except (OSError, AttributeError):  # not a file of the disk
        return None


def _store(
    journal: Journal,
    entries: Iterator[_Entry],
    unit: str,
    writer: str | None,
    system: bool,
    progress: Progress | None,
    total: int | None,
) -> Imported:
    """Store entries batch by batch, noting the place after each."""
    head = next(entries, None)
    if head is None:  # an empty file
        return Imported(0, 0, 0)
    if writer is None:  # the same in whichever format, so that a journal's export is known again
        writer = hashlib.blake2b(f"{head.event.source}\0{head.event.id}".encode(), digest_size=8).hexdigest()
    state = _STATE + writer
    entries = itertools.chain([head], entries)
    known = _skip(entries, journal.state(state).get(state), writer, unit)
    newest, lately = _tail(journal)
    stored = hidden = 0
    while True:
        batch, failure = _taken(entries)
        kept = [entry for entry in batch if system or not entry.event.type.startswith(SYSTEM)]
        fresh = [entry for entry in kept if (entry.event.source, entry.event.id) not in lately]
        timed, untimed = _timed(fresh, newest, unit)
        failure = untimed or failure
        if failure is not None:
            _submit(journal, timed, None, None)
            raise failure
        if not batch:
            return Imported(stored, known, hidden)
        new = _submit(journal, timed, writer, _Place(batch[-1].line, batch[-1].event.source, batch[-1].event.id))
        stored, known, hidden = stored + new, known + len(kept) - new, hidden + len(batch) - len(kept)
        newest = timed[-1][0] if timed else newest
        lately = frozenset()  # only the first batch may have been stored in part
        if progress is not None:
            progress(batch[-1].read, total)


def _taken(entries: Iterator[_Entry]) -> tuple[list[_Entry], EventError | None]:
    """The next batch, up to the first line that is no event, and what is wrong with that."""
    batch: list[_Entry] = []
    try:
        for entry in itertools.islice(entries, _BATCH):
            batch.append(entry)
    except EventError as error:
        return batch, error
    return batch, None


def _skip(entries: Iterator[_Entry], kept: bytes | None, writer: str, unit: str) -> int:
    """Pass over what an earlier import has stored; returns how many."""
    if kept is None:
        return 0
    place = msgspec.msgpack.decode(kept, type=_Place)
    for count, entry in enumerate(entries, 1):
        if entry.line >= place.line:
            if _Place(entry.line, entry.event.source, entry.event.id) == place:
                return count
            break
    there = f"the event {place.id!r} of {place.source!r} in {unit} {place.line}"
    raise JournalError(
        f"another file was imported as {writer!r}: it had {there}", help="give this import a name of its own (writer=…)"
    )


def _tail(journal: Journal) -> tuple[int | None, frozenset[tuple[str, str]]]:
    """Journal time of the newest event, and the identities of the newest ones."""
    first = max(journal.first, journal.head - 2 * _BATCH + 1)
    if journal.head < first:
        return None, frozenset()
    newest = 0
    found = []
    for _, event, _ in history.scan(journal, _ALL, first, journal.head, system=True):
        found.append((event.source, event.id))
        newest = as_micros(event.arrived) if event.arrived is not None else newest
    return newest, frozenset(found)


def _timed(
    entries: Iterable[_Entry], newest: int | None, unit: str
) -> tuple[list[tuple[int, Event]], EventError | None]:
    """Events with their journal time, up to the first that cannot be stored, and why it cannot."""
    timed: list[tuple[int, Event]] = []
    for line, event, _ in entries:
        moment = event.arrived if event.arrived is not None else event.time
        if moment is None:
            mend = "give time or arrived: history needs its own"
            return timed, EventError(f"{unit} {line}: the event has no time", field="time", help=mend)
        micros = as_micros(moment)
        if newest is not None and micros < newest:
            before = "the one before" if timed else "the newest event of the journal"
            message = f"{unit} {line}: {time_text(moment)} is earlier than {before}, {time_text(as_datetime(newest))}"
            mend = "sort the file by time" if timed else "import history before newer events, into a journal of its own"
            return timed, EventError(message, field="arrived" if event.arrived is not None else "time", help=mend)
        newest = micros
        timed.append((micros, event.replace(offset=None, arrived=None)))
    return timed, None


def _submit(journal: Journal, timed: list[tuple[int, Event]], writer: str | None, place: _Place | None) -> int:
    """Store events, then the place in the file; returns how many were new.

    A request has one arrival, so there is one for each moment; they share commits. The place goes along with the last
    of them, when the others are stored: wherever this is cut off, what follows the place noted is in the journal only
    as a run of its newest events, which `_tail` finds.
    """
    requests = [
        Request(micros, [event for _, event in group])
        for micros, group in itertools.groupby(timed, key=lambda each: each[0])
    ]
    if place is not None and writer is not None:
        if not requests:
            requests = [Request(0)]
        requests[-1].state = {_STATE + writer: msgspec.msgpack.encode(place)}
        requests[-1].writer, requests[-1].position = f"{_STATE}{writer}", place.line
        _wait(journal, requests[:-1])
        _wait(journal, requests[-1:])
    else:
        _wait(journal, requests)
    return sum(request.fresh for request in requests)


def _wait(journal: Journal, requests: list[Request]) -> None:
    """Submit requests and wait for all of them. Raises the first error."""
    missing = len(requests)
    lock, over = threading.Lock(), threading.Event()

    def done(_: Request) -> None:
        nonlocal missing
        with lock:
            missing -= 1
            if not missing:
                over.set()

    for request in requests:
        request.done = done
        journal.submit(request)
    if requests:
        over.wait()
    for request in requests:
        if request.error is not None:
            raise request.error
