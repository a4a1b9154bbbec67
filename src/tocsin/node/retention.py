"""How much of the journal is kept: trimming by age and size, without taking from anybody what is still theirs.

Promised: an event that a durable consumer has not settled, or an alert that is alive, is not trimmed, unless `hard` is
set; then who loses something is told (`tocsin.gap`), with the offsets.

Not promised: exact sizes. Blocks go as a whole, and bytes are counted as the journal counts them.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta

from tocsin.clock import SECOND
from tocsin.delivery import refill
from tocsin.delivery.board import is_tracked
from tocsin.delivery.lane import Lane
from tocsin.delivery.mailbox import Mailbox, Notice
from tocsin.errors import JournalError
from tocsin.node.alerts import MARK
from tocsin.node.pipeline import Node

__all__ = ["GAP", "trim"]

GAP = "tocsin.gap"


async def trim(node: Node, age: timedelta | None, size: int | None, *, hard: bool = False) -> int:
    """Trim what is older than `age` or beyond `size` bytes; returns the lowest offset that is kept.

    Raises:
        JournalError: neither is given, or one means nothing.
    """
    wanted = _wanted(node, age, size)
    if wanted <= node.journal.first:
        return node.journal.first
    if hard:
        _tell_losers(node, wanted)
    else:
        wanted = min(wanted, await _lowest_needed(node, wanted))
    first = await asyncio.to_thread(node.journal.trim, wanted)
    node.window.drop(first)
    gone = [offset for offset in node.cancelled if offset < first]
    node.cancelled.difference_update(gone)
    node.keeper.later(None, dict.fromkeys(f"{MARK}{offset}" for offset in gone))
    await node.keeper.flush()
    return first


def _wanted(node: Node, age: timedelta | None, size: int | None) -> int:
    """Everything below this offset may go, as far as age and size are concerned."""
    if age is None and size is None:
        raise JournalError("nothing to trim by", help="give older_than=timedelta(…) or larger_than=bytes")
    journal, wanted = node.journal, 0
    if age is not None:
        if type(age) is not timedelta or age < timedelta(0):
            raise JournalError(f"older_than is {age!r}", help="give a timedelta from 0 up")
        wanted = journal.offset_at(node.now() - round(age.total_seconds() * SECOND))
    if size is not None:
        if type(size) is not int or size < 0:
            raise JournalError(f"larger_than is {size!r}", help="give a number of bytes from 0 up")
        stats = journal.stats()
        surplus = stats["bytes"] - size
        if surplus > 0 and stats["bytes"]:
            wanted = max(wanted, journal.first + stats["events"] * surplus // stats["bytes"])
    return min(wanted, node.head + 1)


async def _lowest_needed(node: Node, wanted: int) -> int:
    """The lowest offset below `wanted` that somebody still needs; `wanted` if there is none."""
    lowest = wanted
    for mailbox in list(node.mailboxes.values()):
        if not mailbox.options.durable:
            continue
        lowest = min([lowest, *mailbox.unsettled()])
        for lane in list(mailbox.lanes.values()):
            if not lane.record.ended:
                lowest = min(lowest, await _first_of_lane(node, mailbox, lane, lowest))
    return min(lowest, await asyncio.to_thread(_first_alert, node, lowest))


async def _first_of_lane(node: Node, mailbox: Mailbox, lane: Lane, below: int) -> int:
    """The lowest offset a lane has yet to hand out: queued, or found by a look at the levels that are behind."""
    lowest = min([below, *(queue[0] for queue in lane.queues if queue)])
    behind = [level for level in lane.levels if lane.scanned[level] is not None]
    while behind and (first := lane.scan_from(behind)) < lowest:
        found = await asyncio.to_thread(refill.look, node.journal, lane, behind, first, lowest - 1)
        needed = [event for event in found.matches if mailbox.is_for(lane, event) and event.offset not in lane.ceded]
        if needed:
            return min(lowest, needed[0].offset or lowest)
        lane.looked_through(found.last, node.head + 1, behind)  # a lane that sleeps need not be asked again
        if found.last >= lowest - 1:
            break
    return lowest


def _first_alert(node: Node, below: int) -> int:
    """The first live alert below an offset."""
    now = node.now()
    for block in node.journal.blocks(node.journal.first, below - 1):
        if block.statistics is not None and not block.statistics.tracked:
            continue
        for event in block.events():
            if is_tracked(event) and (event.offset or 0) < below and node.post.refuses(event, now) is None:
                return event.offset or below
    return below


def _tell_losers(node: Node, before: int) -> None:
    """A hard limit: note what consumers lose, and let them go on behind it."""
    for mailbox in node.mailboxes.values():
        lost = [offset for offset in mailbox.unsettled() if offset < before]
        for lane in mailbox.lanes.values():
            if lane.record.ended:
                continue
            lost += lane.skip(before)
        for offset in lost:
            mailbox.withdraw(offset)
        if lost:
            _note_gap(node, mailbox, min(lost), before - 1)


def _note_gap(node: Node, mailbox: Mailbox, first: int, last: int) -> None:
    mailbox.tell(Notice(GAP, f"{first}-{last}", node.now(), {"first": first, "last": last}))
    node.keeper.later(mailbox)
    node.lanes.wake_all(mailbox)
