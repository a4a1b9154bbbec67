"""A mailbox as bytes, and back. Two records: who the consumer is (rarely written) and its place (with every settling).

A place is small whatever the backlog: for each lane the frontier of every level, and the few offsets below them that
were handed out and are not settled. After a crash those come again as undelivered.
"""

from __future__ import annotations

import msgspec

from tocsin.delivery.lane import Lane, LaneRecord
from tocsin.delivery.mailbox import Item, Mailbox
from tocsin.delivery.notices import Notice, Notices
from tocsin.delivery.owners import Epoch, Options

__all__ = ["CONSUMER", "PLACE", "dump_consumer", "dump_place", "restore"]

CONSUMER, PLACE = "consumer/", "place/"
"""Prefixes of names in the journal's state."""


class _Consumer(msgspec.Struct, array_like=True):
    version: int
    options: Options
    lanes: list[LaneRecord]
    members: list[str]


class _Place(msgspec.Struct, array_like=True):
    version: int
    frontiers: dict[str, dict[int, int]]
    unsettled: list[tuple[int, int, str]]
    """Offset, level, lane."""
    notices: list[Notice]
    ceded: dict[str, list[int]] = {}
    epochs: list[Epoch] = []


_encode = msgspec.msgpack.Encoder().encode
_consumer, _place = msgspec.msgpack.Decoder(_Consumer).decode, msgspec.msgpack.Decoder(_Place).decode


def dump_consumer(mailbox: Mailbox) -> bytes:
    """Who the consumer is: options and subscriptions."""
    lanes = [lane.record for lane in mailbox.lanes.values()]
    return _encode(_Consumer(1, mailbox.options, lanes, sorted(mailbox.members - mailbox.guests)))


def dump_place(mailbox: Mailbox, head: int) -> bytes:
    """Where it stands, given that the node has looked at everything up to `head`."""
    frontiers = {lane.id: lane.frontiers(head) for lane in mailbox.lanes.values()}
    ceded = {}
    for lane in mailbox.lanes.values():
        if lane.ceded:
            lane.ceded = {offset for offset in lane.ceded if offset > min(frontiers[lane.id].values())}
            ceded[lane.id] = sorted(lane.ceded)
    return _encode(
        _Place(
            1,
            frontiers,
            [(item.offset, item.level, item.lane) for item in mailbox.items()],
            mailbox.notices.every(),
            ceded,
            mailbox.epochs,
        )
    )


def restore(name: str, consumer: bytes, place: bytes | None) -> Mailbox:
    """Make the mailbox again; none of its lanes is live."""
    who = _consumer(consumer)
    where = _place(place) if place is not None else _Place(1, {}, [], [])
    mailbox = Mailbox(name, who.options)
    mailbox.members, mailbox.epochs, mailbox.notices = set(who.members), where.epochs, Notices(where.notices)
    for number, record in enumerate(who.lanes, 1):
        record.number = record.number or number  # files of old have none
        lane = Lane(record, who.options.order == "priority", where.frontiers.get(record.id))
        lane.ceded = set(where.ceded.get(record.id, ()))
        mailbox.lanes[record.id] = lane
    for offset, level, lane_id in where.unsettled:
        if lane_id in mailbox.lanes:
            mailbox.come_again(Item(offset, level, lane_id))
    return mailbox
