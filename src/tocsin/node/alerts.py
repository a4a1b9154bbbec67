"""The life of an alert: cancel, status, the board of live alerts, the audit trail.

Cancelling is authorised here, by who published (remembered with the event), never by what the caller claims. It is one
commit: a system record that others may hear, the mark that withdraws waiting copies, and a line of the trail.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, NamedTuple

import pyarrow as pa

from tocsin.clock import as_datetime
from tocsin.delivery.board import Alert, Status, Step, is_tracked, status_of, steps
from tocsin.delivery.durable import PLACE, dump_place
from tocsin.delivery.mailbox import Notice
from tocsin.errors import CancelError, TocsinError, TrimmedError, UnknownEventError
from tocsin.filters.filter import Filter
from tocsin.journal import contract, history, rows
from tocsin.journal.contract import Note
from tocsin.journal.gather import Gathering
from tocsin.journal.rows import expires
from tocsin.journal.sieve import Report, Sieve
from tocsin.model import Event
from tocsin.node.pipeline import Node, seen_through

CANCELLED = "tocsin.cancelled"
MARK = contract.CANCELLED
_TRACKED: Final = Filter("ttl IS NOT NULL OR ack != 'none'")  # as `is_tracked` has it
_SLICE: Final = 64  # alerts between which others get the loop

__all__ = ["CANCELLED", "MARK", "Live", "alerts", "audit", "cancel", "locate", "status"]


async def locate(node: Node, id: str, source: str | None) -> Event:
    """Find an event by its id.

    Raises:
        UnknownEventError: there is none, or several sources use this id and `source` is not given.
    """
    found = await asyncio.to_thread(history.of_id, node.journal, id, source)
    if not found:
        await node.store()  # what was published without waiting for the disk is in the journal after this
        found = await asyncio.to_thread(history.of_id, node.journal, id, source)
    if not found:
        raise UnknownEventError(f"there is no event {id!r}", field="id", help="it was never published, or is trimmed")
    sources = {event.source for event in found}
    if len(sources) > 1:
        raise UnknownEventError(
            f"several sources use the id {id!r}: {', '.join(sorted(sources)[:5])}",
            field="source",
            help="say which source",
        )
    return found[-1]  # the newest, should an id have come again long after


async def cancel(node: Node, id: str, source: str | None, by: str) -> None:
    """Withdraw an event: who waits for it does not get it, who has it is told.

    Raises:
        CancelError: it may be cancelled by its publisher only.
        UnknownEventError: there is no such event.
    """
    async with node.changing:
        await _cancel(node, id, source, by)


async def _cancel(node: Node, id: str, source: str | None, by: str) -> None:
    event = await locate(node, id, source)
    offset = event.offset or 0
    publisher = node.journal.publisher(offset)
    if event.cancel == "originator" and publisher != by:
        raise CancelError(
            f"event {id!r} may be cancelled by its publisher only, not by {by!r}",
            field="cancel",
            help="connect under the publisher's name, or publish with cancel='any'",
        )
    if offset in node.cancelled:
        return
    now = node.now()
    end = expires(event)
    if end is not None and end <= now:
        return
    about = {"offset": offset, "source": event.source, "by": by}
    state: dict[str, bytes | None] = {f"{MARK}{offset}": b""}
    before = status_of(event, node.mailboxes.values(), node.journal.notes(offset), node.head)
    notes = [Note(offset, now, "cancelled", by)]
    if not is_tracked(event):  # from now on the trail alone tells who had it
        notes += [Note(offset, now, "delivered", who) for who in before.delivered]
        notes += [Note(offset, now, "acked", who) for who in before.acked]
    notice = Notice(CANCELLED, id, now, about)
    told = [mailbox for mailbox in node.mailboxes.values() if mailbox.has_seen(event, node.head)]
    for mailbox in told:
        mailbox.notices.tell(notice)
        if mailbox.options.durable:
            state[PLACE + mailbox.name] = dump_place(mailbox, node.head)

    async def carry_out() -> None:
        record = Event(CANCELLED, "tocsin", correlation_id=id, data=about, classification=event.classification)
        try:
            await node.store(events=[record], state=state, notes=notes, by=by)
        except TocsinError:  # nothing was stored, so nothing was cancelled
            for mailbox in told:
                mailbox.notices.unsay(notice)
            raise
        node.cancelled.add(offset)
        for mailbox in node.mailboxes.values():
            mailbox.withdraw(offset)
            if mailbox.recalled:
                node.lanes.wake_all(mailbox)
        for mailbox in told:
            node.lanes.wake_all(mailbox)

    await seen_through(carry_out())  # if it is stored, it must be known here too


async def status(node: Node, id: str, source: str | None) -> Status:
    """What became of an event."""
    event = await locate(node, id, source)
    offset, now = event.offset or 0, node.now()
    return status_of(
        event,
        node.mailboxes.values(),
        node.journal.notes(offset),
        node.head,
        ended=node.post.refuses(event, now),
    )


async def audit(node: Node, id: str, source: str | None) -> list[Step]:
    """The steps an event went through. Its expiry follows from the event, so it is there also if nobody ran then."""
    event = await locate(node, id, source)
    offset, now = event.offset or 0, node.now()
    assert event.arrived is not None
    found = [Step("published", event.arrived, node.journal.publisher(offset)), *steps(node.journal.notes(offset))]
    if node.post.refuses(event, now) == "expired":
        found.append(Step("expired", as_datetime(expires(event) or 0), ""))
    return sorted(found, key=lambda step: step.at)


class Live(NamedTuple):
    """Live alerts."""

    alerts: list[Alert]
    total: int
    """How many there are, also if fewer were asked for."""


async def alerts(node: Node, limit: int | None = None, knows: Callable[[Event], bool] | None = None) -> Live:
    """Live events with ttl or ack, oldest first, and who has acknowledged them. However many, the loop goes on.

    Args:
        node: the node.
        limit: the most urgent ones only: those of the highest priority, the newest first.
        knows: which of them may be told of; None: all.
    """
    found = await asyncio.to_thread(_tracked, node.journal, node.now())
    now = node.now()
    living: list[Event] = []
    for place in range(0, len(found), _SLICE):
        some = found[place : place + _SLICE]
        living += [each for each in some if node.post.refuses(each, now) is None and (knows is None or knows(each))]
        await asyncio.sleep(0)
    shown = living if limit is None else sorted(living, key=lambda each: (-each.priority, -(each.offset or 0)))[:limit]
    made: list[Alert] = []
    for place in range(0, len(shown), _SLICE):
        some = shown[place : place + _SLICE]
        notes = await asyncio.to_thread(partial(_notes, node.journal, some))
        made += [_alert(node, event, mine) for event, mine in zip(some, notes, strict=True)]
    return Live(made, len(living))


def _tracked(journal: contract.Journal, now: int) -> list[Event]:
    """Events with ttl or ack that have not expired. Runs in a worker thread, so it looks at the journal only."""
    sieve, report, gathering = Sieve(_TRACKED), Report(), Gathering()
    found: list[Event] = []

    def take(batches: Iterable[pa.RecordBatch]) -> None:
        for batch in batches:
            for piece in sieve.rows(batch, report, only=history.not_expired(batch, now)):
                found.extend(rows.from_arrow(batch.take(pa.array(piece, pa.int64()))))

    for block in history.kept_blocks(journal, journal.kept, journal.head):
        known = block.statistics
        is_over = known is not None and known.expires is not None and known.expires <= now
        if not is_over and sieve.may_match(known):
            with contextlib.suppress(TrimmedError):  # it has gone since it was found
                take(gathering.add(block))
    take(gathering.rest())
    return found


def _notes(journal: contract.Journal, events: list[Event]) -> list[list[Note]]:
    return [journal.notes(event.offset or 0) for event in events]


def _alert(node: Node, event: Event, notes: list[Note]) -> Alert:
    known = status_of(event, node.mailboxes.values(), notes, node.head)
    return Alert(event, known.acked, known.pending)
