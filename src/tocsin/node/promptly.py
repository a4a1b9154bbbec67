"""Committing where events come in, as long as that is quicker than having another thread do it.

A commit of a few events to a quick disk takes a third of a millisecond. Waking a thread for it, which must then win the
interpreter back from the loop that has woken it, takes longer, and costs both of them. So what comes in one turn of the
loop is committed at its end, by the loop. That stops everything else for as long as the disk takes, so slow commits
(above 2 ms) are counted. What they take is paid back by a hundredth of the time that passes; while more than 20 ms are
owed, the journal's own thread commits. So a hiccup of a quick disk changes nothing, and on a slow disk the thread does
nearly all: in the long run the loop stands still for a hundredth of the time. Large commits are always the thread's: it
works while the loop reads on. So is what need not wait for the disk.

Where events come often, what holds none (a consumer's place, mostly) waits a moment for the next of them, and shares
its commit: at a thousand events a second, each settled by itself, that is half as many flushes of the disk.

Concurrency: the node's loop only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import perf_counter

from tocsin.journal.contract import Journal, Request
from tocsin.journal.packed import PackedEvents
from tocsin.journal.rowed import Rowed
from tocsin.journal.window import size_of

__all__ = ["Promptly"]

_FEW = 64  # events, states and notes that are committed in one turn
_SMALL = 128 * 1024  # bytes of them, about
_QUICK = 0.002  # seconds a commit may take
_SHARE = 100  # what longer ones took is paid back in so many times as long …
_OWED = 0.02  # … and if it is more seconds than this, nothing is committed here
_APART = 0.2  # seconds that nothing is committed here after something large
_COMPANY = 0.002  # seconds that what holds no events waits for some, where they come more often than that


class Promptly:
    """Hands requests to a journal."""

    def __init__(self, journal: Callable[[], Journal], heard: Callable[[], None]) -> None:
        """Submit to a journal; `heard` is called after a commit here, when all it has to say was said."""
        self._journal, self._heard = journal, heard
        self._loop = asyncio.get_running_loop()
        self._is_due = False
        self._count = self._size = 0  # submitted since it is due: how many, and bytes
        self._not_before = 0.0  # something large came
        self._paid_at = 0.0  # when nothing is owed for slow commits
        self._waiting: asyncio.TimerHandle | None = None  # what is due holds no events, and waits for some
        self._last = 0.0  # when some came, …
        self._between = 1.0  # … and how many seconds lie between, lately
        self.is_committing = False
        """Is a commit being made here?"""

    def submit(self, request: Request) -> None:
        """Submit a request. Raises JournalError if the journal is closed."""
        if not self._is_due:
            self._count = self._size = 0
        self._count += len(request.events) + len(request.state) + len(request.notes)
        is_small = self._count <= _FEW
        if is_small:
            self._size += _size_of(request)
            is_small = self._size <= _SMALL
        if request.durable and not is_small:  # small ones that come with large ones share their commits
            self._not_before = perf_counter() + _APART
        is_ours = request.durable and is_small and (self._is_due or self._may_commit())
        self._journal().submit(request, wake=not is_ours)  # once woken, the thread takes all that came before, too
        if is_ours:
            self._commit_soon(has_events=bool(request.events))

    def _may_commit(self) -> bool:
        now = perf_counter()
        return now >= self._not_before and self._paid_at - now <= _SHARE * _OWED

    def _commit_soon(self, *, has_events: bool) -> None:
        now = perf_counter()
        if has_events:
            self._between = (3 * self._between + min(now - self._last, 1.0)) / 4
            self._last = now
        if self._is_due and (self._waiting is None or not has_events):
            return
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None
        self._is_due = True
        if has_events or self._between > _COMPANY or now - self._last > _COMPANY:
            self._loop.call_soon(self._commit)
        else:
            self._waiting = self._loop.call_later(_COMPANY, self._commit)

    def _commit(self) -> None:
        self._is_due, self.is_committing, self._waiting = False, True, None
        began = perf_counter()
        try:
            self._journal().commit_here()
        finally:
            self.is_committing = False
        took = perf_counter() - began
        if took > _QUICK:
            self._paid_at = max(self._paid_at, began) + _SHARE * took
        self._heard()


def _size_of(request: Request) -> int:
    """About as many bytes as a request of a few events stores."""
    events, state = request.events, request.state
    size = sum([len(value or b"") for value in state.values()]) if state else 0
    if isinstance(events, Rowed):
        rows = zip(events, events.rows, strict=True)
        return size + sum([size_of(event) if row.attributes else len(row.data or b"") for event, row in rows])
    if isinstance(events, PackedEvents):  # they are not looked at before it is known that they are to be stored
        return size + sum(chunk.size for chunk in events.chunks)
    return size + sum(map(size_of, events))
