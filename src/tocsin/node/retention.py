"""How much of the journal is kept: trimming by age and size, without taking from anybody what is still theirs.

Promised: an event that a durable consumer has not settled, or an alert that is alive, is not trimmed, unless `hard` is
set; then who loses something is told (`tocsin.gap`), with the offsets. If the journal has a lake, nothing goes that is
not archived, and consumers hold back nothing that is: they get it from there. Alerts stay: their trail, their
publishers and with them receipts are in the journal alone.

Not promised: exact sizes. Blocks go as a whole, and bytes are counted as the journal counts them.
"""

from __future__ import annotations

import asyncio
import contextlib
from datetime import timedelta

from tocsin.clock import SECOND
from tocsin.delivery import refill
from tocsin.delivery.board import is_tracked
from tocsin.delivery.lane import Lane
from tocsin.delivery.mailbox import Mailbox, Notice
from tocsin.errors import JournalError, LakeError
from tocsin.journal.archived import ArchivedJournal, check_same
from tocsin.node.alerts import MARK
from tocsin.node.pipeline import Node

__all__ = ["GAP", "trim"]

GAP = "tocsin.gap"


async def trim(
    node: Node, age: timedelta | None, size: int | None, *, archived: bool = False, hard: bool = False
) -> int:
    """Trim what is older than `age`, beyond `size` bytes or archived; returns the lowest offset that is kept.

    Raises:
        JournalError: none of these is given, or one means nothing.
        LakeError: `archived`, and there is no lake, or not this journal's.
        JournalDamagedError: the lake has lost files of what would be trimmed.
    """
    archive = node.join_lake()
    if archived and archive is None:
        help = "archive it first (tocsin.spark.archive), or say where: connect(…, lake=…)"
        raise LakeError("this journal has no lake", help=help)
    wanted = _wanted(node, age, size, archived)
    end = wanted if archive is None else archive.archived + 1
    if archived or not hard:
        wanted = min(wanted, end)
    if wanted <= node.journal.kept:
        return node.journal.kept
    lost = wanted  # what consumers have not settled below this would be lost to them
    if archive is not None and wanted <= end:
        await asyncio.to_thread(_check_archive, archive, wanted - 1)
        lost = min(wanted, archive.lake.first)  # from there on the lake has it; before, retention has dropped it
    with contextlib.suppress(Exception):  # then it is kept from the last one on
        await node.watcher.checkpoint()  # recovery of composite events begins there
    async with node.changing:  # a subscription made meanwhile would ask for what goes
        if not hard:
            wanted = await _lowest_needed(node, wanted, lost)
        elif lost > node.journal.kept:
            _tell_losers(node, lost)
        kept = await asyncio.to_thread(node.journal.trim, wanted)
    node.window.drop(kept)
    first = node.journal.first  # what is archived can still be asked for, and must not come though it was cancelled
    gone = [offset for offset in node.cancelled if offset < first]
    node.cancelled.difference_update(gone)
    node.keeper.later(None, dict.fromkeys(f"{MARK}{offset}" for offset in gone))
    await node.keeper.flush()
    return kept


def _check_archive(archive: ArchivedJournal, last: int) -> None:
    """Before something goes for good: is the lake the journal's, and are its files there?"""
    check_same(archive.journal, archive.lake)
    archive.lake.check_files(max(archive.kept, archive.lake.first), last)


def _wanted(node: Node, age: timedelta | None, size: int | None, archived: bool) -> int:
    """Everything below this offset may go, as far as age and size are concerned."""
    if age is None and size is None:
        if not archived:
            help = "give older_than=timedelta(…), larger_than=bytes or archived=True"
            raise JournalError("nothing to trim by", help=help)
        return node.head + 1
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
            wanted = max(wanted, journal.kept + stats["events"] * surplus // stats["bytes"])
    return min(wanted, node.head + 1)


async def _lowest_needed(node: Node, wanted: int, lost: int) -> int:
    """The lowest offset that a consumer needs below `lost`, or an alert below `wanted`; `wanted` if there is none."""
    lowest = lost
    for mailbox in list(node.mailboxes.values()):
        if not mailbox.options.durable:
            continue
        for lane in list(mailbox.lanes.values()):
            if not lane.record.ended:
                lowest = min(lowest, await _first_of_lane(node, mailbox, lane, lowest))
    lowest = lowest if lowest < lost else wanted
    lowest = min(lowest, await asyncio.to_thread(_first_alert, node, lowest))
    # Last of all, since it may have been taken out of a queue while others were looked at.
    for needed in (node.watcher.needed, node.beside.needed):
        if needed is not None:
            lowest = min(lowest, needed)
    in_hand = (mailbox.unsettled() for mailbox in node.mailboxes.values() if mailbox.options.durable)
    return min([lowest, *(offsets[0] for offsets in in_hand if offsets and offsets[0] < lost)])


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
    for block in node.journal.blocks(node.journal.kept, below - 1):
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
    mailbox.notices.tell(Notice(GAP, f"{first}-{last}", node.now(), {"first": first, "last": last}))
    node.keeper.later(mailbox)
    node.lanes.wake_all(mailbox)
