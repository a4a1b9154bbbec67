"""The life of an alert: cancel, status, the board of live alerts, the audit trail.

Cancelling is authorised here, by who published (remembered with the event), never by what the caller claims. It is one
commit: a system record that others may hear, the mark that withdraws waiting copies, and a line of the trail.
"""

from __future__ import annotations

import asyncio
import contextlib

from tocsin.clock import as_datetime
from tocsin.delivery.board import Alert, Status, Step, is_tracked, status_of, steps
from tocsin.delivery.durable import PLACE, dump_place
from tocsin.delivery.mailbox import Notice
from tocsin.errors import CancelError, TocsinError, TrimmedError, UnknownEventError
from tocsin.journal import contract, history
from tocsin.journal.contract import Note
from tocsin.journal.rows import expires
from tocsin.model import Event
from tocsin.node.pipeline import Node, seen_through

CANCELLED = "tocsin.cancelled"
MARK = contract.CANCELLED

__all__ = ["CANCELLED", "MARK", "alerts", "audit", "cancel", "locate", "status"]


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


async def alerts(node: Node) -> list[Alert]:
    """Live events with ttl or ack, oldest first, and who has acknowledged them."""
    found = await asyncio.to_thread(_tracked, node.journal)
    now = node.now()
    return [_alert(node, event) for event in found if node.post.refuses(event, now) is None]


def _tracked(journal: contract.Journal) -> list[Event]:
    """Events with ttl or ack. Runs in a worker thread, so it looks at the journal only."""
    while True:
        with contextlib.suppress(TrimmedError):  # trimmed while we look: begin anew
            return [
                event
                for block in journal.blocks(journal.kept)
                if block.statistics is None or block.statistics.tracked
                for event in block.events()
                if is_tracked(event) and not event.type.startswith("tocsin.")
            ]


def _alert(node: Node, event: Event) -> Alert:
    known = status_of(event, node.mailboxes.values(), node.journal.notes(event.offset or 0), node.head)
    return Alert(event, known.acked, known.pending)
