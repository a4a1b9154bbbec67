"""The journal in a file: SQLite in WAL mode, one row per block of events, one block per commit.

    submit ─▶ queue ─▶ committer: Draft ─▶ one transaction ─▶ listeners ─▶ done
    reading: connections of its own (`reader.py`), never the writer's

Promised: what `contract.py` promises. `synchronous=FULL`: a commit is on stable storage when it returns. A failed one
leaves everything as it was, in memory too, and the journal goes on when the disk does.

Not promised: that a request which is not `durable` survives a failed commit: it was answered before, so its offsets go
to others and its events are lost; `stats()["lost"]` counts them.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from tocsin.clock import Clock, SystemClock
from tocsin.errors import JournalDamagedError, JournalError
from tocsin.journal.blocks import Stored, identities_of
from tocsin.journal.checkpointer import Checkpointer
from tocsin.journal.committer import Committer
from tocsin.journal.contract import Block, Committed, Note, Request
from tocsin.journal.draft import Draft
from tocsin.journal.faults import as_journal_error, translated
from tocsin.journal.ids import Identity, Ids
from tocsin.journal.lockfile import LockFile
from tocsin.journal.lookup import Lookup
from tocsin.journal.merge import Merger
from tocsin.journal.reader import Reader
from tocsin.journal.store import Store
from tocsin.model import Event

__all__ = ["SqliteJournal"]

_log = logging.getLogger(__name__)


class SqliteJournal:
    """A journal in a file. See `contract.Journal` for each method.

    Concurrency: what changes the file or the counters below is the committer's, one thing at a time; other threads only
    read the counters, which are single attributes, and the file, through `Reader`.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        clock: Clock | None = None,
        commit_delay: float = 0.0,
        merge: bool = True,
        lazy: bool = False,
        ids: Ids | None = None,
    ) -> None:
        """Open the journal at `path`, or make it.

        Args:
            path: the file; `<path>.lock`, `<path>-wal` and `<path>-shm` lie beside it.
            clock: where `append` takes the time from; the system's if left out.
            commit_delay: seconds a commit waits for company. 0 is right unless a flush of the disk is very slow.
            merge: whether blocks are merged in the background; `merge_now` works either way.
            lazy: read the remembered ids (up to a second) not now but when an event comes that may be a repetition. For
                who opens, stores something of its own and closes.
            ids: what an earlier opening of this file, closed by now, has left in `ids`: only what came since is read.

        Raises:
            JournalLockedError: it is open for writing already.
            JournalError: it cannot be opened, or is not a journal.
        """
        self.path = os.path.realpath(path)  # one file, one lock, whatever links lead to it
        self.listeners: list[Callable[[Committed], None]] = []
        self._clock: Clock = clock if clock is not None else SystemClock()
        self._highest: dict[str, int | None] = {}
        self._draft: Draft | None = None
        self._commits = self._lost = 0
        self._lazy, self._earlier = lazy, ids
        self._closed = False
        self._closing = threading.Lock()
        if os.path.isdir(self.path):
            raise JournalError(f"{self.path} is a directory", path=self.path, help="name a file in it")
        try:
            self._lock = LockFile(self.path)
        except OSError as error:
            help = "make its directory first, and check its permissions"
            raise JournalError(f"{self.path} cannot be opened: {error.strerror}", path=self.path, help=help) from None
        try:
            with translated(self.path):
                self._store = Store(self.path)
                try:
                    self._load()
                except BaseException:
                    self._store.close(clean=not self._store.crashed)
                    raise
        except BaseException:
            self._lock.release()
            raise
        self._reader = Reader(self.path)
        self._committer = Committer(self._commit, delay=commit_delay, name=f"tocsin journal {self.path}")
        self._checkpointer = Checkpointer(self.path, lambda: self._committer.run(self._store.checkpoint))
        self._merger = Merger(self._reader, self._replace, background=merge)

    @property
    def head(self) -> int:
        """See `contract.Journal.head`."""
        return self._head

    @property
    def first(self) -> int:
        """See `contract.Journal.first`."""
        return self._first

    @property
    def kept(self) -> int:
        """See `contract.Journal.kept`: there is nothing else."""
        return self._first

    @property
    def crashed(self) -> bool:
        """See `contract.Journal.crashed`."""
        return self._store.crashed

    @property
    def file_id(self) -> str:
        """Made with the file and kept with it: tells whether a position belongs to this journal."""
        return self._store.file_id

    @property
    def ids(self) -> Ids:
        """What is remembered, for the next opening by this process; see `__init__`."""
        return self._ids

    def submit(self, request: Request, *, wake: bool = True) -> None:
        """See `contract.Journal.submit`."""
        self._committer.submit(request, wake=wake)

    def commit_here(self) -> None:
        """See `contract.Journal.commit_here`."""
        self._committer.commit_here()

    def append(self, events: Sequence[Event], writer: str | None = None, position: int | None = None) -> list[int]:
        """See `contract.Journal.append`."""
        if self._committer.here:
            raise JournalError("a listener cannot wait for a commit", path=self.path, help="use submit")
        stored = threading.Event()
        request = Request(self._clock.now(), events, writer, position, done=lambda _: stored.set())
        self.submit(request)
        stored.wait()
        if request.error is not None:
            raise request.error
        return list(request.offsets)

    def blocks(self, first: int = 1, last: int | None = None, *, backwards: bool = False) -> Iterator[Block]:
        """See `contract.Journal.blocks`."""
        return self._reader.blocks(first, last, backwards=backwards)

    def read(self, first: int = 1, last: int | None = None) -> Iterator[pa.RecordBatch]:
        """See `contract.Journal.read`."""
        return self._reader.read(first, last)

    def offset_at(self, moment: int) -> int:
        """See `contract.Journal.offset_at`."""
        return self._reader.offset_at(moment)

    def state(self, prefix: str = "") -> dict[str, bytes]:
        """See `contract.Journal.state`."""
        return self._reader.state(prefix)

    def notes(self, offset: int) -> list[Note]:
        """See `contract.Journal.notes`."""
        return self._reader.notes(offset)

    def publisher(self, offset: int) -> str:
        """See `contract.Journal.publisher`."""
        return self._reader.publisher(offset)

    def trim(self, before: int) -> int:
        """See `contract.Journal.trim`. Done in steps, with commits in between."""
        with translated(self.path):
            while self._committer.run(lambda: self._trim(before)):
                pass
        try:
            while self._committer.run(self._store.vacuum):
                pass
            self._committer.run(self._store.shrink)
        except sqlite3.Error as error:  # the blocks are gone and their pages free: the journal will use them again
            _log.warning("space was not returned: %s", as_journal_error(error, self.path))
        return self._first

    def merge_now(self) -> int:
        """Merge all blocks that can be merged, and wait for it; returns how many there were."""
        return self._merger.merge_all()

    def stats(self) -> dict[str, Any]:
        """See `contract.Journal.stats`."""
        with self._reader.connection() as db:
            blocks, segments = db.execute("SELECT count(*), total(format = 'a') FROM blocks").fetchone()
        return {
            "first": self._first,
            "head": self._head,
            "events": self._head - self._first + 1,
            "blocks": blocks,
            "segments": int(segments),
            "bytes": sum(os.path.getsize(p) for p in (self.path, f"{self.path}-wal") if os.path.exists(p)),
            "commits": self._commits,
            "ids": len(self._ids),
            "queued": self._committer.queued,
            "lost": self._lost,
            "merged": self._merger.merged,
        }

    def close(self) -> None:
        """See `contract.Journal.close`."""
        self._let_go(lambda: self._committer.close(lambda: self._finish(clean=True)))

    def abandon(self) -> None:
        """See `contract.Journal.abandon`. Requests that wait are answered with an error, so that nobody hangs."""
        self._let_go(lambda: self._committer.abandon(lambda: self._finish(clean=False)))

    def _let_go(self, end: Callable[[], None]) -> None:
        if self._committer.here:
            raise JournalError("a listener cannot close the journal", path=self.path, help="close it elsewhere")
        with self._closing:
            if self._closed:
                return
            self._closed = True
            self._merger.close()
            self._checkpointer.close()
            try:
                end()
            finally:
                self._lock.release()

    def __enter__(self) -> SqliteJournal:
        """Use it in a `with` block."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()

    # Opening and closing.

    def _load(self) -> None:
        """Learn from the file where it stands. Also after a failed commit, whose outcome only the file knows."""
        self._head, self._first, self._newest = self._store.standing()
        self._highest.clear()
        self._lookup = Lookup(self._store.db, self.path, self._head, self._first, self._drafted)
        earlier, self._earlier = self._earlier, None
        fits = earlier is not None and earlier.file == self.file_id and earlier.upto <= self._head
        self._ids = earlier if earlier is not None and fits else Ids(self._lookup.at)
        self._ids.follow(self.file_id, self._lookup.at, self._recall)
        if not self._lazy:
            self._ids.complete()

    def _recall(self, ids: Ids) -> None:
        for block in self._store.newest_blocks(ids.upto):
            ids.stamp(block.first, block.arrived_first)
            held = max(0, ids.upto + 1 - block.first)  # it may have been merged with older ones
            try:
                ids.load(block.first + held, identities_of(block, self.path)[held:])
            except JournalDamagedError as error:
                _log.warning("%s; its events would be stored again if they were sent again", error)

    def _finish(self, *, clean: bool) -> None:
        self._reader.close()  # before the writer: the last connection removes the log, if it may write
        try:
            self._store.close(clean=clean)
        except sqlite3.Error as error:  # the next opening will say that it was not closed; nothing is lost
            _log.warning("the journal was not closed properly: %s", as_journal_error(error, self.path))

    # Committing: all of it by the committer.

    def _commit(self, queue: Iterator[Request]) -> None:
        draft = self._draft = Draft(self._head, self._newest, self._ids, self._answered)
        for request in queue:
            if not draft.add(request) or not request.durable:
                _call(request)
            if draft.full:
                break
        if not draft.requests:
            return
        try:
            if not draft.empty:
                self._store.write(draft)
                self._commits += 1
        except Exception as error:
            self._give_up(draft, error)
            return
        self._head, self._newest = draft.head, draft.newest
        self._lookup.head = draft.head
        for writer, position in draft.writers:
            self._highest[writer] = position
        self._ids.clear_old(self._head, self._newest)
        self._tell(draft)
        for request in draft.requests:
            if request.durable:
                _call(request)
        with contextlib.suppress(sqlite3.Error, OSError):  # chores: they come round again
            if self._store.tidy():
                self._checkpointer.poke()
        self._merger.poke(draft.head - draft.base)

    def _tell(self, draft: Draft) -> None:
        """Let listeners hear of a commit."""
        if not self.listeners:
            return
        unread = (draft.unpacked + 1, draft.head) if draft.unpacked < draft.head else None
        committed = Committed(draft.events, draft.requests, draft.rows, unread)
        for listener in list(self.listeners):
            try:
                listener(committed)
            except Exception:  # it has its own affairs; the journal's must go on
                _log.exception("a listener failed")

    def _give_up(self, draft: Draft, error: Exception) -> None:
        """Undo a commit that failed, and tell everybody."""
        self._store.undo()
        self._ids.back_to(self._head)
        with contextlib.suppress(sqlite3.Error):
            # A commit can fail after it took place, for instance in the flush. What the file says is what counts.
            if self._store.standing()[0] != self._head:
                self._load()
        for request in draft.requests:
            # An error for each: it will be raised in several places, and each adds its traceback.
            request.error = (
                as_journal_error(error, self.path)
                if isinstance(error, sqlite3.Error)
                else JournalError(f"a commit failed: {type(error).__name__}: {error}", path=self.path)
            )
            request.error.__cause__ = error
            if request.durable:
                request.offsets, request.fresh = [], 0
                _call(request)
            else:
                self._lost += request.fresh

    def _drafted(self, offset: int) -> Identity | None:
        return self._draft.look(offset) if self._draft is not None else None

    def _answered(self, writer: str, position: int) -> list[int] | None:
        """What was answered to a writer's position; None if it is the next."""
        with translated(self.path):
            if writer not in self._highest:
                self._highest[writer] = self._store.highest(writer)
            highest = self._highest[writer]
            return None if highest is None or position > highest else self._store.answer(writer, position)

    # Jobs: the committer's, between two commits.

    def _replace(self, merged: Stored, count: int) -> bool:
        with translated(self.path):
            return self._committer.run(lambda: self._store.replace(merged, count))

    def _trim(self, before: int) -> bool:
        first = self._store.trim(before)
        if first is not None:
            self._first = self._lookup.first = first
        return first is not None


def _call(request: Request) -> None:
    if request.done is not None:
        try:
            request.done(request)
        except Exception:  # such as a loop that was closed meanwhile
            _log.exception("the callback of a request failed")
