"""The thread that writes: it gathers what was submitted into commits, so that publishers share a flush of the disk.

While one commit runs, the next collects; nobody waits for a timer unless `delay` says so. Between commits it runs jobs:
trimming, putting a merged block in place, closing. So what writes happens one thing after the other; and a long chore,
cut into jobs, lets a commit through after each.

A small commit to a quick disk takes less time than waking a thread, which must then win the interpreter back from the
one that has woken it, twice. Who knows that may have a commit done where it is (`commit_here`).

Rule: only who holds `_writing` touches the connection that writes and what belongs to it. Anybody may call the rest.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import TypeVar

from tocsin.errors import JournalError
from tocsin.journal.contract import Request

__all__ = ["Committer"]

_T = TypeVar("_T")
_log = logging.getLogger(__name__)


class Committer:
    """A queue of requests and a thread that empties it."""

    def __init__(self, commit: Callable[[Iterator[Request]], None], *, delay: float, name: str) -> None:
        """Start the thread.

        Args:
            commit: stores requests; takes from the iterator as many as one commit should hold, calls `done` for each.
            delay: seconds to wait for company after the first request; 0 takes what has gathered meanwhile.
            name: the thread's name.
        """
        self._commit = commit
        self._delay = delay
        self._queue: deque[Request] = deque()
        self._jobs: deque[tuple[Callable[[], object], Future[object]]] = deque()
        self._lock = threading.Lock()
        self._wake = threading.Condition(self._lock)
        self._idle = True
        self._woken = False  # for something that is queued: it is the thread's
        self._closing = False
        self._writing = threading.Lock()
        self._writer = 0  # the thread that holds it
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    @property
    def queued(self) -> int:
        """How many requests wait."""
        return len(self._queue)

    @property
    def here(self) -> bool:
        """Is this the thread that writes?"""
        return threading.get_ident() in (self._thread.ident, self._writer)

    def submit(self, request: Request, *, wake: bool = True) -> None:
        """Take a request; unless `wake`, the caller has it committed. Raises JournalError when closed."""
        with self._lock:
            if self._closing:
                raise JournalError("the journal is closed", help="open it again")
            self._queue.append(request)
            if wake:
                self._woken = True
                self._wake_up()

    def _wake_up(self) -> None:
        if self._idle:
            self._idle = False
            self._wake.notify()

    def commit_here(self) -> None:
        """Commit what is queued on this thread, unless the other was woken for it or writes: then that sees to it.

        The other may be awake and have nothing to write. If that were left to it, too, it would hardly ever fall asleep
        again where much is committed, and every commit would wait for it.
        """
        if not self._woken and not self._delay and self._writing.acquire(blocking=False):
            try:
                self._commit_queued()
            finally:
                self._writing.release()
        with self._lock:
            if self._queue:
                self._wake_up()

    def _commit_queued(self) -> None:
        self._writer = threading.get_ident()
        try:
            if self._queue:
                self._commit(self._taken())
        except Exception:  # a defect of ours must not end the only thread that writes
            _log.exception("a commit failed in an unexpected way")
        finally:
            self._writer = 0

    def run(self, job: Callable[[], _T]) -> _T:
        """Run a job between two commits and wait for it; returns or raises what it does."""
        if self.here:  # a listener trims, say: it is between two commits already
            return job()
        future: Future[object] = Future()
        with self._lock:
            if self._closing:
                raise JournalError("the journal is closed", help="open it again")
            self._jobs.append((job, future))
            self._wake.notify()
        return future.result()  # type: ignore[return-value]

    def close(self, last: Callable[[], None]) -> None:
        """Commit what is queued, then run `last` and end the thread. Raises what `last` raises."""
        future: Future[object] = Future()
        with self._lock:
            self._closing = True
            self._jobs.append((last, future))
            self._wake.notify()
        self._thread.join()
        future.result()

    def abandon(self, last: Callable[[], None]) -> None:
        """End the thread after the commit at hand; what is queued fails. Then run `last`."""
        with self._lock:
            self._closing = True
        dropped = list(self._taken())
        for request in dropped:
            request.error = JournalError("the journal was abandoned before this was stored")
            if request.done is not None:
                request.done(request)
        self.close(last)

    def _work(self) -> None:
        while True:
            with self._lock:
                while not self._queue and not self._jobs:
                    self._idle, self._woken = True, False
                    self._wake.wait()
                self._idle = False
            if self._queue and self._delay > 0 and not self._closing:
                time.sleep(self._delay)  # more come meanwhile; a bounded wait, so a plain one
            with self._writing:
                self._woken = False
                self._commit_queued()
                self._woken = self._woken or bool(self._queue)  # what one commit did not hold may be large
                job = self._next_job()
                if job is not None:
                    call, future = job
                    try:
                        future.set_result(call())
                    except BaseException as error:  # handed to who waits for it
                        future.set_exception(error)
            if self._closing and not self._queue and not self._jobs:
                return

    def _taken(self) -> Iterator[Request]:
        # popleft and append of a deque are atomic, so no lock per request; abandoning may take from it as well.
        with contextlib.suppress(IndexError):
            while True:
                yield self._queue.popleft()

    def _next_job(self) -> tuple[Callable[[], object], Future[object]] | None:
        with self._lock:
            if not self._jobs or (self._closing and self._queue):
                return None  # while closing, requests first: the last job closes the file
            return self._jobs.popleft()
