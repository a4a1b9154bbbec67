"""Batches into a journal's file: staged beside it by tasks (`staging.py`), appended by the driver in one transaction.

Executors never open the journal. The driver opens it for each commit, so several queries can write to one journal in
turn; what holds it longer (a node) is named in `JournalLockedError`.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
from collections.abc import Iterator, Sequence

from tocsin.clock import SystemClock
from tocsin.errors import JournalError, JournalLockedError, WriterError
from tocsin.journal.contract import Journal, Request
from tocsin.journal.ids import Ids
from tocsin.journal.opening import file_path
from tocsin.journal.owners import check_known, claim, too_late
from tocsin.journal.packed import PackedEvents
from tocsin.journal.sqlite import SqliteJournal
from tocsin.spark.staging import Piece, Stage, StagedFile, chunks_in

__all__ = ["FileTarget"]


class FileTarget:
    """A journal's file. See `sink.Target` for each method."""

    most: int | None = None
    size: int | None = None

    def __init__(self, url: str, stage: Stage) -> None:
        """Check that a journal can be there.

        Raises:
            JournalError: there is no such directory.
        """
        self.url, self.stage = url, stage
        folder = os.path.dirname(file_path(url))
        if not os.path.isdir(folder):
            raise JournalError(f"there is no directory {folder}", path=folder, help="make it, or correct the url")
        stage.prepare()

    def attempt(self, partition: int) -> StagedFile:
        """A file for the rows of one attempt of a task."""
        return StagedFile(self.stage, partition)

    def store(
        self,
        staged: Sequence[tuple[str, list[Piece]]],
        writer: str | None,
        position: int | None,
        query: str | None,
        *,
        streaming: bool,
        unique: bool,
    ) -> None:
        """Append what was staged, in one transaction."""
        chunks = [chunk for path, pieces in staged for chunk in chunks_in(path, pieces)]
        if chunks:  # a batch without rows need not be remembered: repeated, it has none or is stored then
            self._append(PackedEvents(chunks, unique=unique), writer, position, query, streaming=streaming)
        self.clear()

    def _append(
        self, events: PackedEvents, writer: str | None, position: int | None, query: str | None, *, streaming: bool
    ) -> None:
        with _opened(self.url) as journal:
            state = claim(journal, writer, query, streaming=streaming) if writer is not None else {}
            request = Request(SystemClock().now(), events, writer, position, by=writer or "spark", state=state)
            try:
                _submit(journal, request)
            except WriterError as error:
                raise too_late(error) from None
            if writer is not None:
                check_known(journal, writer)

    def clear(self) -> None:
        """Remove what was staged."""
        self.stage.clear()


_ids: dict[str, Ids] = {}
"""By path, what the last commit of this process knew of each journal's ids: Spark lets one process do many commits."""


@contextlib.contextmanager
def _opened(url: str) -> Iterator[SqliteJournal]:
    """The journal, open for one commit."""
    path = os.path.realpath(file_path(url))  # one file, one lock, whatever links lead to it
    try:
        turn = os.open(f"{path}.sink.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        help = "check its directory and permissions"
        raise JournalError(f"{path} cannot be written to: {error.strerror}", path=path, help=help) from None
    try:
        fcntl.flock(turn, fcntl.LOCK_EX)  # other sinks hold the journal for a moment only: wait for them
        try:
            journal = SqliteJournal(path, lazy=True, ids=_ids.pop(path, None))
        except JournalLockedError as error:
            mend = "close it while this query runs; to write beside a node, give its address: http://host:8420"
            raise JournalLockedError(error.message, path=path, holder=error.holder, help=mend) from None
        try:
            yield journal
        finally:
            journal.close()
            _ids[path] = journal.ids
    finally:
        os.close(turn)


def _submit(journal: Journal, request: Request) -> None:
    stored = threading.Event()
    request.done = lambda _: stored.set()
    journal.submit(request)
    stored.wait()
    if request.error is not None:
        raise request.error
