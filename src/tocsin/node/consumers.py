"""Consumers of a node: subscribe, unsubscribe, forget, and what is known of them.

Identity is the consumer (or the group). The same filter resumes its lane, another filter adds one; options that belong
to the consumer must be the same every time. A subscription returns when its past is found and queued.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import msgspec

from tocsin.clock import as_micros
from tocsin.delivery.board import ConsumerInfo
from tocsin.delivery.handles import Subscription
from tocsin.delivery.lane import Lane, LaneRecord
from tocsin.delivery.mailbox import Mailbox
from tocsin.delivery.owners import Options
from tocsin.errors import ConsumerError, TocsinError
from tocsin.filters.filter import Filter
from tocsin.journal import bounds, history
from tocsin.node.lanes import key_of
from tocsin.node.pipeline import Node
from tocsin.node.placement import SPARK

__all__ = ["consumers", "forget", "subscribe", "unsubscribe"]

_ORDERS = ("priority", "journal")
_RULES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "order": (lambda value: value in _ORDERS, "priority or journal"),
    "group": (
        lambda value: value is None or (isinstance(value, str) and 0 < len(value) <= 256 and value.isprintable()),
        "a name of up to 256 printable characters, or None",
    ),
    "durable": (lambda value: isinstance(value, bool), "True or False"),
    "ack_wait": (lambda value: type(value) in (int, float) and 0 < value < 1e9, "seconds, more than 0"),
    "max_in_flight": (
        lambda value: type(value) is int and 1 <= value <= 1_000_000,
        "a whole number from 1 to 1,000,000",
    ),
    "max_deliver": (
        lambda value: value is None or (type(value) is int and value >= 1),
        "a whole number from 1, or None",
    ),
    "auto_ack": (lambda value: isinstance(value, bool), "True or False"),
    "fair": (lambda value: type(value) in (int, float) and 0 <= value < 1, "a share from 0 to below 1"),
    "placement": (lambda value: value in ("node", "spark"), "node or spark"),
}
_FIXED = ("order", "max_in_flight", "durable", "placement")
"""Options a consumer keeps; others change when it subscribes again."""
_GROUP = "group/"
_ANONYMOUS = "anonymous-"  # how the names of consumers begin that gave none
_KEPT_LANES = 1000  # ended subscriptions remembered, so that what was settled does not come again


async def subscribe(
    node: Node,
    text: str | Filter,
    consumer: str | None,
    past: Any,
    options: dict[str, Any],
    *,
    replay: bool = False,
    system: bool = False,
) -> Subscription:
    """Open a subscription; see `Bus.subscribe`. `options` holds those of `Options` that were given."""
    filter = text if isinstance(text, Filter) else Filter(text)
    bound = bounds.coerce(past)
    _check(options)
    is_guest = consumer is None
    if consumer is None:
        consumer = _ANONYMOUS + secrets.token_hex(8)
        if options.get("group") is None:
            options = {**options, "durable": False}
    else:
        _check_name(consumer)
    async with node.changing:
        before = _Before(node, consumer, options.get("group"))
        mailbox = _mailbox(node, consumer, options)
        if is_guest:
            mailbox.guests.add(consumer)
        try:
            handle = await _open(node, mailbox, consumer, filter, bound, replay, system, before)
            handle.undo = partial(_undo, node, handle, before)
            return handle
        except BaseException:
            await asyncio.shield(before.restore(mailbox))
            raise
        finally:
            node.peers.demand_changed()


class _Before:
    """How things were before a subscribe, should it fail: then all of it is undone, in the journal's state too."""

    def __init__(self, node: Node, consumer: str, group: str | None) -> None:
        self._node, self._consumer = node, consumer
        known = node.mailboxes.get(_name_of(consumer, group))
        self._options = known.options if known is not None else None
        self.is_new = known is None
        self._is_member = known is not None and consumer in known.members
        self.revive: Callable[[], None] = lambda: None
        """Undoes the end of the subscription that was replaced."""
        self.made: Lane | None = None
        """The subscription that was made."""
        self.taken_over: set[int] = set()
        """What waited for other subscriptions of the consumer, and waits for this one now."""

    async def restore(self, mailbox: Mailbox) -> None:
        node = self._node
        self.revive()
        if self.made is not None:  # what it had taken over waits where it was, and what came meanwhile for others
            node.lanes.pass_on_to_any(mailbox, self.made, since=self.made.record.seam)
            del mailbox.lanes[self.made.id]
        if not self._is_member:
            mailbox.members.discard(self._consumer)
            mailbox.guests.discard(self._consumer)
        with contextlib.suppress(TocsinError):  # the disk may be what failed
            if self._options is not None:
                mailbox.options = self._options
                await asyncio.shield(node.keeper.save(mailbox, whole=True))
            else:
                node.mailboxes.pop(mailbox.name, None)
                await node.keeper.forget(mailbox.name)


async def _undo(node: Node, handle: Subscription, before: _Before) -> None:
    """Nobody wanted it after all: be it as if it had not been opened, unless others use it meanwhile."""
    mailbox, lane = handle.mailbox, handle.lane
    async with node.changing:
        others = [each for each in mailbox.lanes.values() if each is not lane and not each.record.ended]
        if handle.closed or node.lanes.handles_of(mailbox, lane) != [handle] or (before.is_new and others):
            return
        mailbox.release(handle.member)
        if lane is before.made:  # its past is nobody's
            for item in [each for each in mailbox.items() if each.lane == lane.id and each.offset <= lane.record.seam]:
                if not item.attempt and item.offset not in before.taken_over:
                    mailbox.withdraw(item.offset)
        _leave(node, handle, before)
        await asyncio.shield(before.restore(mailbox))
        node.peers.demand_changed()


async def _open(
    node: Node, mailbox: Mailbox, consumer: str, filter: Filter, bound: Any, replay: bool, system: bool, before: _Before
) -> Subscription:
    await node.store()  # what was answered without waiting for the disk lies before the seam
    lane = _resumed(mailbox, filter, system)
    if lane is None or replay:
        lane = await _new_lane(node, mailbox, filter, bound, replay, system, lane, before)
    handle = Subscription(node.post, mailbox, lane, f"{consumer}#{secrets.token_hex(4)}", consumer)
    node.lanes.add_handle(handle)
    try:
        await node.lanes.take_over(mailbox, lane)
        before.taken_over = {item.offset for item in mailbox.items() if item.lane == lane.id}
        await node.keeper.save_consumer(mailbox)
        await node.lanes.refilled(key_of(mailbox, lane.id))
    except BaseException:
        _leave(node, handle, before)
        raise
    return handle


def _leave(node: Node, handle: Subscription, before: _Before) -> None:
    mailbox, lane = handle.mailbox, handle.lane
    handle.closed = True
    node.lanes.drop_handle(handle)
    node.lanes.close_unheard(mailbox, lane, since=lane.record.seam if lane is before.made else 0)


def _check_name(consumer: Any) -> None:
    if type(consumer) is not str or not 0 < len(consumer) <= 256 or not consumer.isprintable() or "/" in consumer:
        raise ConsumerError(
            f"{consumer!r} is no name for a consumer",
            field="consumer",
            help="give up to 256 printable characters, without a slash",
        )


def _check(options: dict[str, Any]) -> None:
    """Refuse options that mean nothing, naming the one."""
    for name, value in options.items():
        is_good, wanted = _RULES[name]
        if not is_good(value):
            raise ConsumerError(f"{name} is {value!r}", field=name, help=f"give {wanted}")


def _name_of(consumer: str, group: str | None) -> str:
    """The name of the mailbox of a consumer, or of its group."""
    return consumer if group is None else f"{_GROUP}{group}"


def _mailbox(node: Node, consumer: str, options: dict[str, Any]) -> Mailbox:
    """Find or make the mailbox of a consumer or of its group. What was not said stays as it is."""
    group = options.get("group")
    known = next((each for each in node.mailboxes.values() if consumer in each.members), None)
    if known is not None and known.options.group != group:
        raise _differs(consumer, "group", known.options.group, group)
    name = _name_of(consumer, group)
    mailbox = node.mailboxes.get(name)
    if mailbox is None:
        mailbox = node.mailboxes[name] = Mailbox(name, Options(**options))
    for field in _FIXED:
        had, wants = getattr(mailbox.options, field), options.get(field, getattr(mailbox.options, field))
        if had != wants:
            raise _differs(consumer, field, had, wants)
    mailbox.options = msgspec.structs.replace(mailbox.options, **options)
    mailbox.members.add(consumer)
    return mailbox


def _differs(consumer: str, field: str, had: Any, wants: Any) -> ConsumerError:
    return ConsumerError(
        f"consumer {consumer!r} has {field}={had!r}, not {wants!r}",
        field=field,
        help="subscribe with the same value, or forget the consumer first",
    )


def _resumed(mailbox: Mailbox, filter: Filter, system: bool) -> Lane | None:
    """The lane this filter has already."""
    text = str(filter)
    for lane in mailbox.lanes.values():
        if lane.record.text == text and lane.record.system == system and not lane.record.ended:
            return lane
    return None


async def _new_lane(
    node: Node,
    mailbox: Mailbox,
    filter: Filter,
    bound: Any,
    replay: bool,
    system: bool,
    replaced: Lane | None,
    before: _Before,
) -> Lane:
    """Make a lane that begins as far back as the bound says.

    The seam is the head at this moment: the past is what lies at or below it, and no event can be on both sides.
    """
    seam = node.head
    start = max(await _start(node, filter, bound, seam, system), node.journal.first)
    record = LaneRecord(secrets.token_hex(6), str(filter), start, seam, system, replay)
    lane = Lane(record, mailbox.options.order == "priority")
    if replaced is not None:  # its handles end; what waited in it comes with the rest
        for handle in node.lanes.handles_of(mailbox, replaced):
            await node.post.close_handle(handle)
        await node.lanes.load(mailbox, replaced)
        mailbox.hand_over(replaced, [lane], node.window.get)
        record.seam = node.head  # what came meanwhile was the old one's
        before.revive = mailbox.end(replaced, node.head)
    mailbox.add(lane)
    before.made = lane
    ended = sorted((each for each in mailbox.lanes.values() if each.record.ended), key=lambda each: each.record.end)
    for old in ended[: max(0, len(ended) - _KEPT_LANES)]:
        del mailbox.lanes[old.id]
    return lane


async def _start(node: Node, filter: Filter, bound: Any, seam: int, system: bool) -> int:
    """The first offset of a past; everything from it on that matches belongs to it, so a lane need only begin there."""
    if bound is None:
        return seam + 1
    now = node.now()
    if isinstance(bound, bounds.Within):
        return min(node.journal.offset_at(now - _micros(bound.t)), seam + 1)
    if isinstance(bound, bounds.Since):
        if isinstance(bound.x, int):
            return max(1, min(bound.x, seam + 1))
        return min(node.journal.offset_at(as_micros(bound.x)), seam + 1)
    if isinstance(bound, bounds.Retained):
        return 1

    def search() -> list[int]:
        return history.search(
            node.journal,
            filter,
            bound,
            now=now,
            upto=seam,
            alive=lambda event: node.post.refuses(event, now) is None,
            system=system,
        )

    found = await asyncio.to_thread(search)
    return found[0] if found else seam + 1


def _micros(duration: timedelta) -> int:
    return duration // timedelta(microseconds=1)


async def unsubscribe(node: Node, consumer: str, subscription: str) -> None:
    """Drop one subscription of a consumer; what it has settled is remembered."""
    async with node.changing:
        await _unsubscribe(node, find(node, consumer), consumer, subscription)
        node.peers.demand_changed()


async def _unsubscribe(node: Node, mailbox: Mailbox, consumer: str, subscription: str) -> None:
    lane = mailbox.lanes.get(subscription)
    if lane is None:
        raise ConsumerError(
            f"consumer {consumer!r} has no subscription {subscription!r}", field="subscription", help="see consumers()"
        )
    if not lane.record.ended:
        for handle in node.lanes.handles_of(mailbox, lane):
            await node.post.close_handle(handle, keep=True)
        with contextlib.suppress(TocsinError):  # what cannot be read cannot be passed on
            await node.lanes.load(mailbox, lane)
        node.lanes.pass_on_to_any(mailbox, lane)
        mailbox.end(lane, node.head)
        mailbox.drop(lane, node.window.get)
    await asyncio.shield(node.keeper.save(mailbox, whole=True))  # also if it has ended: that may not be stored yet


async def forget(node: Node, consumer: str) -> None:
    """Drop a consumer, its subscriptions and its place; a member of a group leaves the group."""
    async with node.changing:
        mailbox = find(node, consumer)
        leaves = mailbox.options.group is not None and consumer in mailbox.members
        for lane in list(mailbox.lanes.values()):
            for handle in node.lanes.handles_of(mailbox, lane):
                if handle.consumer == consumer or not leaves:
                    await node.post.close_handle(handle, keep=not leaves)
        if leaves:
            mailbox.members.discard(consumer)
            await asyncio.shield(node.keeper.save(mailbox, whole=True))
        else:
            await _drop(node, mailbox)
        node.peers.demand_changed()


async def _drop(node: Node, mailbox: Mailbox) -> None:
    """Take a mailbox away. If that cannot be stored, it stays."""
    node.mailboxes.pop(mailbox.name, None)
    if mailbox.options.durable:
        try:
            await node.keeper.forget(mailbox.name)
        except TocsinError:
            node.mailboxes.setdefault(mailbox.name, mailbox)
            raise
    node.gone.update(mailbox.counters)


def find(node: Node, consumer: str) -> Mailbox:
    """The mailbox of a consumer, or of a group by its name.

    Raises:
        ConsumerError: there is none.
    """
    _check_name(consumer)
    mailbox = node.mailboxes.get(consumer) or next(
        (each for each in node.mailboxes.values() if consumer in each.members or each.options.group == consumer), None
    )
    if mailbox is None:
        raise ConsumerError(f"there is no consumer {consumer!r}", field="consumer", help="see consumers()")
    return mailbox


def consumers(node: Node) -> list[ConsumerInfo]:
    """What is known of every consumer; members of a group have a line each."""
    return [
        _info(node, mailbox, member)
        for _, mailbox in sorted(node.mailboxes.items())
        for member in sorted(mailbox.members)
    ]


def _info(node: Node, mailbox: Mailbox, member: str) -> ConsumerInfo:
    lanes = [lane for lane in mailbox.lanes.values() if not lane.record.ended]
    unseen = max((lane.unseen(node.head) for lane in lanes), default=0)
    handles = [handle for lane in lanes for handle in node.lanes.handles_of(mailbox, lane)]
    return ConsumerInfo(
        name=member,
        order=mailbox.options.order,
        group=mailbox.options.group,
        durable=mailbox.options.durable,
        open=any(handle.consumer == member for handle in handles),
        subscriptions=[(lane.id, lane.record.text) for lane in lanes],
        lag=mailbox.waiting() + len(mailbox.flying) + unseen,
        in_flight=mailbox.in_flight_of.get(member, 0) - mailbox.lent_to(member),
        delivered=mailbox.counters["delivered"],
        redelivered=mailbox.counters["redelivered"],
        settled=mailbox.counters["settled"],
        dead=mailbox.counters["dead"],
        max_in_flight=mailbox.options.max_in_flight,
        ack_wait=mailbox.options.ack_wait,
        placement=mailbox.options.placement,
        halted=node.beside.halted if mailbox.options.placement == SPARK else None,
    )
