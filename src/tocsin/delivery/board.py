"""What became of an event: `Status`, `Alert`, `Receipt`, and the steps of its audit trail.

Nothing here is stored apart: matched, delivered, acked and pending follow from the mailboxes and the audit trail, so
they are the same after a restart. Tracked events (with ttl or ack, or cancelled) have every step in the trail.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Literal

import msgspec

from tocsin.clock import as_datetime
from tocsin.delivery.mailbox import Mailbox
from tocsin.journal.contract import Note
from tocsin.model import Event

__all__ = ["Alert", "ConsumerInfo", "Receipt", "Status", "Step", "is_tracked", "status_of", "steps"]

State = Literal["live", "settled", "expired", "cancelled"]


class Status(msgspec.Struct, frozen=True):
    """What became of an event; the lists hold names of consumers."""

    id: str
    source: str
    offset: int
    state: State
    matched: list[str]
    delivered: list[str]
    acked: list[str]
    pending: list[str]


class Alert(msgspec.Struct, frozen=True):
    """A live alert: who has acknowledged it, and who has yet to."""

    event: Event
    acked: list[str]
    pending: list[str]


class Receipt(msgspec.Struct, frozen=True):
    """Word to a publisher that a consumer has settled its event."""

    id: str
    source: str
    offset: int
    consumer: str
    at: datetime


class Step(msgspec.Struct, frozen=True):
    """One line of an audit trail."""

    step: str
    at: datetime
    who: str


class ConsumerInfo(msgspec.Struct, frozen=True):
    """A consumer, for people and programs that watch."""

    name: str
    order: str
    group: str | None
    durable: bool
    open: bool
    subscriptions: list[tuple[str, str]]
    """Id and filter."""
    lag: int
    """Events it has yet to settle, as far as they are known, and offsets it has yet to look at."""
    in_flight: int
    delivered: int
    redelivered: int
    settled: int
    dead: int
    max_in_flight: int = 0
    """The most it may have in flight."""
    ack_wait: float = 0
    """Seconds after which what is not settled comes again."""
    placement: str = "node"
    """Where what comes is matched for it: `node` or `spark`."""
    halted: str | None = None
    """Why what comes is not matched for it; None: it is. What comes meanwhile is delivered later."""


def is_tracked(event: Event) -> bool:
    """Is every step of this event written down?"""
    return event.ttl is not None or event.ack != "none"


def status_of(
    event: Event,
    mailboxes: Iterable[Mailbox],
    notes: list[Note],
    head: int,
    ended: str | None = None,
) -> Status:
    """Put together what is known of an event; `ended` says why it is not delivered any more, if so."""
    matched, delivered, acked, pending = set(), set(), set(), set()
    dead = {note.who for note in notes if note.step == "dead"}
    for note in notes:
        if note.step == "delivered":
            delivered.add(note.who)
        elif note.step == "acked":
            acked.add(note.who)
    for mailbox in mailboxes:
        if not mailbox.wants(event):
            continue
        if ended == "cancelled":
            matched.add(mailbox.title)
            continue
        offset, name = event.offset or 0, mailbox.title
        if mailbox.options.group is None:
            matched.add(name)
        if offset in mailbox.flying and mailbox.flying[offset].attempt:
            delivered.add(mailbox.flying[offset].member)
        if not mailbox.has_settled(event, head):
            pending.add(name)
        elif not is_tracked(event):
            name = mailbox.settled_by.get(offset, name)
            delivered.add(name)
            if mailbox.title not in dead:
                acked.add(name)
    matched |= delivered | acked | pending
    state: State = "live"
    if ended is not None:
        state = "cancelled" if ended == "cancelled" else "expired"
        pending.clear()
    elif matched and not pending:
        state = "settled"
    return Status(
        event.id, event.source, event.offset or 0, state,
        sorted(matched), sorted(delivered), sorted(acked), sorted(pending),
    )  # fmt: skip


def steps(notes: list[Note]) -> list[Step]:
    """An audit trail for people."""
    return [Step(note.step, as_datetime(note.at), note.who) for note in notes]
