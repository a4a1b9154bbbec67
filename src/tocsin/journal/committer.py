"""The thread that writes: it gathers what was submitted into commits, so that publishers share a flush of the disk.

While one commit runs, the next collects; nobody waits for a timer unless `delay` says so. Between commits it runs jobs:
trimming, putting a merged block in place, closing. So everything that writes happens on one thread, one thing after
the other, and needs no lock; and a long chore, cut into jobs, lets a commit through after each.

Rule: only this thread touches the connection that writes. Anybody may call `submit` and `run`.
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
        self._closing = False
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    @property
    def queued(self) -> int:
        """How many requests wait."""
        return len(self._queue)

    @property
    def here(self) -> bool:
        """Is this the thread that writes?"""
        return threading.current_thread() is self._thread

    def submit(self, request: Request) -> None:
        """Take a request. Raises JournalError when closed."""
        with self._lock:
            if self._closing:
                raise JournalError("the journal is closed", help="open it again")
            self._queue.append(request)
            if self._idle:
                self._idle = False
                self._wake.notify()

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
                    self._idle = True
                    self._wake.wait()
                self._idle = False
            if self._queue:
                if self._delay > 0 and not self._closing:
                    time.sleep(self._delay)  # more come meanwhile; a bounded wait, so a plain one
                try:
                    self._commit(self._taken())
                except Exception:  # a defect of ours must not end the only thread that writes
                    _log.exception("a commit failed in an unexpected way")
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
