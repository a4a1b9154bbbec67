"""What every journal does: one page, and the conformance suite in tests/conformance/journal_suite.py checks it.

Promised
    - Offsets are 1, 2, 3 … without a gap, in the order of commits, and never change or come back, also after trimming.
    - `arrived` never decreases with the offset. It is given by the caller of `submit` (the node's clock) and raised to
      the newest one stored if it is older; after a request that `closes` its instant it is raised above that.
    - When a request is `done` without an error, everything in it (events, state, notes) is on stable storage, all or
      nothing; a request that is not `durable` is done when its offsets are known, and stored with the next commit.
    - An event whose (source, id) was stored within `DEDUP_SECONDS` of journal time, or among the last `DEDUP_LEAST`
      events, is not stored again: its first offset is the answer. Never more than `DEDUP_MOST` ids are remembered, and
      none of what was trimmed.
    - A writer's position that was stored once is answered from what is stored, for ever, and nothing else of the
      request is done; positions of one writer grow. Of a client (`CLIENT`) the last `POSITIONS_KEPT` are.
    - A request that cannot be stored fails alone; a failed commit leaves the journal as it was, and usable.
    - `listeners` hear of every commit in the order of offsets, before its requests are done, on the committing thread.
      They may submit, not wait (`append`) or close; one that raises is logged and stops nothing.
    - Readers in any thread or process see whole commits only, and never wait for the writer.

Not promised
    - That a request which failed or was not answered is not stored: repeat it with the same ids (or position).
    - That a request which is not `durable` survives a commit that fails: its offsets are given out again.
    - Which requests share a commit; how long a commit takes; that a range below `first` can still be read.
    - More than one writer: opening a second time raises `JournalLockedError`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Protocol

import msgspec
import pyarrow as pa

from tocsin.journal.statistics import Statistics
from tocsin.model import Event

__all__ = [
    "CANCELLED",
    "CLIENT",
    "DEDUP_LEAST",
    "DEDUP_MOST",
    "DEDUP_SECONDS",
    "Block",
    "Committed",
    "Journal",
    "Note",
    "POSITIONS_KEPT",
    "Request",
]

DEDUP_SECONDS = 600
DEDUP_LEAST = 100_000
DEDUP_MOST = 1_000_000
CANCELLED = "cancelled/"
"""How the names of state begin that say which offsets a node has cancelled; the offset follows."""
CLIENT = "client/"
"""How the names of writers begin that are clients, who number without end and repeat only what was not answered."""
POSITIONS_KEPT = 1000


class Note(msgspec.Struct, frozen=True, array_like=True):
    """A line of the audit trail: what happened to an event, when, and who did it."""

    offset: int
    at: int
    step: str
    who: str = ""


class Request(msgspec.Struct):
    """Something to be stored. The journal fills in `offsets` or `error` and then calls `done`, on its own thread."""

    arrived: int
    """Journal time of the events, in microseconds."""
    events: Sequence[Event] = ()
    """What to store; a `packed.PackedEvents` goes into blocks as it is, however large."""
    writer: str | None = None
    position: int | None = None
    durable: bool = True
    largest: int = 0
    """The most bytes the payload of one event may have; 0: any number. A larger one refuses the request."""
    by: str = ""
    """Who publishes: remembered with the events, for rights and receipts."""
    state: Mapping[str, bytes | None] = {}
    """Small state to be kept under names; None removes a name."""
    notes: Sequence[Note] = ()
    closes: bool = False
    """Nothing else arrives at the instant of its events: what comes later, as long as the journal is open, is later."""
    done: Callable[[Request], None] | None = None
    offsets: Sequence[int] = []
    """The offset of each event, in order."""
    fresh: int = 0
    """How many of the events were stored now, and not before."""
    error: Exception | None = None


class Committed(msgspec.Struct):
    """What one commit added: events with `offset` and `arrived` set, in order."""

    events: list[Event]
    requests: list[Request]
    """Those it answers without an error, also if they added no event."""
    rows: Mapping[int, bytes] = {}
    """The packed rows of some of the events, by offset: see `rowed.Rowed`."""
    unread: tuple[int, int] | None = None
    """First and last offset of what came packed and is not among the events: it may be more than memory holds. Who
    wants to see it reads it; it comes after the events."""


class Block(Protocol):
    """A stretch of the journal: the unit of reading. It stays readable when it is merged, until it is trimmed.

    A block that was damaged and taken out by `repair` keeps its offsets and has no events.
    """

    @property
    def first(self) -> int:
        """Its first offset."""

    @property
    def last(self) -> int:
        """Its last offset."""

    @property
    def arrived(self) -> tuple[int, int]:
        """Journal times of its first and last event."""

    @property
    def statistics(self) -> Statistics | None:
        """What is known of its events without reading them; None: nothing."""

    def events(self) -> list[Event]:
        """Its events, with offset and arrived. Raises JournalDamagedError."""

    def batch(self, columns: Collection[str] | None = None) -> pa.RecordBatch:
        """Its events as Arrow, with the columns of `rows.SCHEMA`. Raises JournalDamagedError.

        Args:
            columns: names of those that are wanted; others are left out, and cost nothing where they are stored apart.
                `offset` always comes, and the order is that of the schema. None: all.
        """


class Journal(Protocol):
    """A journal, open for writing."""

    listeners: list[Callable[[Committed], None]]

    @property
    def head(self) -> int:
        """The newest offset; 0 while it is empty."""

    @property
    def first(self) -> int:
        """The oldest offset that can be read; head + 1 if there is none."""

    @property
    def kept(self) -> int:
        """The oldest offset in the journal itself. It differs from `first` if there is an archive (`archived.py`)."""

    @property
    def crashed(self) -> bool:
        """Was the journal not closed when it was last used?"""

    def submit(self, request: Request, *, wake: bool = True) -> None:
        """Take a request into the next commit. Does not wait. Raises JournalError if the journal is closed.

        Unless `wake`, that commit is made when somebody else asks for one, or `commit_here` is called.
        """

    def commit_here(self) -> None:
        """Commit what was submitted, on this thread, unless another commits just now, which will then see to it."""

    def append(self, events: Sequence[Event], writer: str | None = None, position: int | None = None) -> list[int]:
        """Store events and wait for it; returns their offsets. Raises what `Request.error` would hold."""

    def blocks(self, first: int = 1, last: int | None = None, *, backwards: bool = False) -> Iterator[Block]:
        """The blocks that hold any offset from `first` to `last` (the head now), in order or newest first.

        They may begin before and end after what was asked for; no offset comes twice.

        Raises:
            TrimmedError: `first` is above 1 and no longer kept, or the walk was overtaken by a trim.
        """

    def read(self, first: int = 1, last: int | None = None) -> Iterator[pa.RecordBatch]:
        """Exactly these offsets as Arrow, in order."""

    def offset_at(self, moment: int) -> int:
        """The first offset that arrived at or after a moment (microseconds); head + 1 if there is none."""

    def state(self, prefix: str = "") -> dict[str, bytes]:
        """All state whose names begin with `prefix`, as of the last commit."""

    def notes(self, offset: int) -> list[Note]:
        """The audit trail of one event, oldest first."""

    def publisher(self, offset: int) -> str:
        """Who published the event at an offset (`Request.by`); empty if that was not said."""

    def trim(self, before: int) -> int:
        """Drop whole blocks below an offset, with their notes; returns the new `kept`. Space returns to the disk."""

    def stats(self) -> dict[str, Any]:
        """Numbers for people: events, blocks, bytes, commits, remembered ids and more."""

    def abandon(self) -> None:
        """Let go without finishing anything, as the end of the process would: for tests of crashes."""

    def close(self) -> None:
        """Finish what was submitted, mark the journal as cleanly closed, let others open it. May be repeated."""
