"""What is open on one connection, each under a number of the client's choice: subscriptions, watches, servers, groups.

Each is a pump, which sends what it has as far as credit goes. When the connection ends, nothing is sent any more; what
was open goes back with the session.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any, TypeVar

from msgspec import Raw

from tocsin.delivery.owners import Options
from tocsin.errors import ConsumerError, DeliveryError, OverloadError, ProtocolError
from tocsin.journal import bounds
from tocsin.net import frames
from tocsin.net.faults import to_wire
from tocsin.net.outgoing import Outgoing
from tocsin.net.protocol import Codec, Limits
from tocsin.net.pumps import Pump, ReceiptsPump, SubscriptionPump
from tocsin.node.pipeline import Node

__all__ = ["Streams"]

P = TypeVar("P", bound=Pump)
_OPTIONS = Options.__struct_fields__
# What was settled in a window that was shut makes room for more. Who has settled then waits for the answer, and mostly
# has something else to do: it is sent before what is next, if it is stored at once. Turns of the loop until then: the
# keeper writes, the node commits, the keeper hears of it, the answer is made, and written. Only speed depends on it.
_ANSWER_FIRST = 5
_KEPT_CLOSED = 64  # closed subscriptions whose deliveries may still be settled


class Streams:
    """All that is open on a connection."""

    def __init__(self, node: Node, bus: Any, outgoing: Outgoing, codec: Codec, limits: Limits) -> None:
        """Begin with nothing.

        Args:
            node: the node.
            bus: the session's face of it.
            outgoing: the way out of the connection.
            codec: how frames are written on it.
            limits: what it may cost.
        """
        self._node, self.bus, self.outgoing, self.codec, self._limits = node, bus, outgoing, codec, limits
        self._pumps: dict[int, Pump] = {}
        self._opening: dict[int, asyncio.Task[None]] = {}  # what is not open yet
        self._asked: dict[asyncio.Task[None], int] = {}  # the numbers of those commands
        self._is_pushing = self._is_held = self._stopped = False
        self._turns = 0  # of the loop, until it is pushed
        self._loop = asyncio.get_running_loop()

    # -- opening and closing

    def begin(self, sub: int, n: int, task: asyncio.Task[None]) -> None:
        """Something is being opened by a task, at the command `n`."""
        if sub not in self._opening or self._opening[sub].done():
            self._opening[sub] = task
            self._asked[task] = n
            task.add_done_callback(self._asked.pop)

    def check_number(self, sub: int, credit: int = 0) -> None:
        """Refuse a number that is in use, or more than may be open.

        Raises:
            ProtocolError: it is in use, or the credit is too large.
            OverloadError: too much is open.
        """
        self._opening = {number: task for number, task in self._opening.items() if not task.done()}
        if (sub in self._pumps and not self._pumps[sub].closed) or self._opening.get(sub) is not asyncio.current_task():
            raise ProtocolError(f"subscription {sub} is open", field="sub", help="choose another number")
        is_open = sum(not pump.closed for pump in self._pumps.values())
        if is_open + len(self._opening) > self._limits.max_subscriptions:  # this one is being opened, too
            raise OverloadError(f"{self._limits.max_subscriptions:,} subscriptions are open", help="close some first")
        if credit > self._limits.max_credit:
            raise ProtocolError(f"credit is {credit:,}", field="credit", help=f"give up to {self._limits.max_credit:,}")
        closed = [number for number, pump in self._pumps.items() if pump.closed]
        for number in closed[: max(0, len(closed) - _KEPT_CLOSED)]:
            del self._pumps[number]

    def add(self, sub: int, pump: Pump) -> None:
        """Something is open; what is there is sent, before the answer that says so."""
        self._pumps[sub] = pump
        self.push()

    def find(self, sub: int, kind: type[P]) -> P | None:
        """What is open under a number, if it is of this kind."""
        pump = self._pumps.get(sub)
        return pump if isinstance(pump, kind) else None

    async def close(self, frame: frames.Close | frames.Leave | frames.Withdraw) -> Raw:
        """Close whatever has a number; what is not open is closed."""
        opening = self._opening.pop(frame.sub, None)
        if opening is not None and not opening.done():  # it is not wanted any more
            n = self._asked[opening]
            opening.cancel()
            await asyncio.gather(opening, return_exceptions=True)
            if opening.cancelled():  # every command is answered: who has said both may wait for both
                error = ProtocolError("it was closed before it was open", field="sub")
                self.outgoing.put(frames.Failed(to_wire(error), n))
        pump = self._pumps.get(frame.sub)
        if isinstance(pump, SubscriptionPump):
            await pump.close(undo=isinstance(frame, frames.Close) and frame.undo)
        elif pump is not None:
            await pump.close()
        return self.codec.value(None)

    def stop(self) -> None:
        """Send nothing more."""
        self._stopped = True

    async def close_all(self) -> None:
        """Close everything, also if some of it cannot be stored; raises the first reason."""
        ends = [await asyncio.gather(pump.close(), return_exceptions=True) for pump in list(self._pumps.values())]
        for [error] in ends:
            if error is not None:
                raise error

    # -- subscriptions and watches

    async def subscribe(self, frame: frames.Subscribe) -> Raw:
        """Open a subscription."""
        self.check_number(frame.sub, frame.credit)
        unknown = frame.options.keys() - set(_OPTIONS)
        if unknown:
            raise ConsumerError(
                f"there is no option {min(unknown)[:64]!r}", field="options", help=f"use {', '.join(_OPTIONS)}"
            )
        past = bounds.parse(frame.past) if frame.past is not None else None
        handle = await self.bus.subscribe(
            frame.filter, frame.consumer, past, replay=frame.replay, system=frame.system, **frame.options
        )
        pump = SubscriptionPump(
            self._node,
            handle,
            frame.sub,
            self.outgoing,
            self.codec,
            credit=frame.credit,
            ahead=frame.ahead,
            wake=self.push_soon,
        )
        self.add(frame.sub, pump)
        options = handle.mailbox.options
        record = handle.lane.record
        about = {"id": handle.id, "consumer": handle.consumer, "start": record.start, "seam": record.seam}
        return self.codec.value({**about, "options": options})

    async def receipts(self, frame: frames.Watch) -> Raw:
        """Watch the receipts of a session's name."""
        pump = ReceiptsPump(
            self._node, self.bus.name, frame.sub, self.outgoing, self.codec, frame.credit, self.push_soon
        )
        self.add(frame.sub, pump)
        return self.codec.value(None)

    def settle(self, frame: frames.Settle) -> Any:
        """Settle deliveries: what is left to do, or what it waits for and what makes the answer."""
        if frame.extend or frame.nak or frame.term:
            return self._settle(frame)
        pump = self._subscription(frame.sub)
        numbers = pump.unsettled(frame.ack)
        stored = self._settle_now(pump, numbers)
        if len(stored) != 1:  # none, or some had been settled before, and that is not stored yet
            return self._settled(pump, numbers, stored)
        return stored.pop(), partial(self._are_settled, pump, numbers)

    def _settle_now(self, pump: SubscriptionPump, numbers: list[int]) -> set[asyncio.Future[None]]:
        """Settle in memory, all or none; returns what says that it is stored."""
        deliveries = pump.to_settle(numbers)
        if not self._is_held and not pump.has_window:  # once: else who settles all the time would get nothing new
            self._is_held, self._turns = True, _ANSWER_FIRST
        try:
            stored = self._node.post.settle_now(deliveries)
        except DeliveryError:  # of one of them; all are in somebody's hands, and their time runs
            pump.taken(numbers)
            raise
        pump.were_settled(deliveries)
        return set(stored)

    def _are_settled(self, pump: SubscriptionPump, numbers: list[int], _: object = None) -> Raw:
        pump.forget(numbers)
        pump.tell_recalled()  # before the answer: what was settled may have shut the window
        return self.codec.value(None)

    async def _settled(self, pump: SubscriptionPump, numbers: list[int], stored: set[asyncio.Future[None]]) -> Raw:
        for done in stored:
            await asyncio.shield(done)
        return self._are_settled(pump, numbers)

    async def _settle(self, frame: frames.Settle) -> Raw:
        pump, post = self._subscription(frame.sub), self._node.post
        for number in frame.extend:
            await post.extend(pump.delivery(number))
        if numbers := pump.unsettled(frame.ack):
            await self._settled(pump, numbers, self._settle_now(pump, numbers))
        for number, delay in frame.nak:
            await post.give_back(pump.delivery(number), delay)
        for number, reason in frame.term:
            await post.terminate(pump.delivery(number), reason)
            pump.forget([number])
        return self._are_settled(pump, [])

    async def reclaim(self, frame: frames.Reclaim) -> Raw:
        """Deliveries of an earlier connection are still in hand."""
        pump = self._subscription(frame.sub)
        return self.codec.value([pump.reclaim(offset, attempt) for offset, attempt in frame.items])

    def _subscription(self, sub: int) -> SubscriptionPump:
        pump = self.find(sub, SubscriptionPump)
        if pump is None:
            raise DeliveryError(f"there is no subscription {sub}", field="sub", help="subscribe first")
        return pump

    # -- what is only told

    def taken(self, frame: frames.Taken) -> None:
        """Some of what was sent is in somebody's hands."""
        if (pump := self._pumps.get(frame.sub)) is not None:
            pump.taken(frame.items)

    def returned(self, frame: frames.Return) -> None:
        """Some of what was sent ahead is not wanted."""
        if (pump := self.find(frame.sub, SubscriptionPump)) is not None:
            pump.returned(frame.items)

    def want(self, frame: frames.Want) -> None:
        """Somebody waits there, and has nothing."""
        if (pump := self.find(frame.sub, SubscriptionPump)) is not None:
            pump.want()
            self.push_soon()

    def credit(self, frame: frames.Credit) -> None:
        """More may be sent.

        Raises:
            ProtocolError: more than is allowed.
        """
        pump = self._pumps.get(frame.sub)
        if pump is None:
            return  # it was closed, or is being opened, with a credit of its own
        if pump.credit + frame.n > self._limits.max_credit:
            raise ProtocolError(f"credit is {pump.credit + frame.n:,}", help=f"at most {self._limits.max_credit:,}")
        pump.credit += frame.n
        self.push_soon()

    # -- going out

    def push_soon(self) -> None:
        """Something may be there to send: look once, for all that comes in this turn of the loop."""
        if not self._is_pushing:
            self._is_pushing = True
            self._loop.call_soon(self._push_in_turn)

    def _push_in_turn(self) -> None:
        if self._turns:
            self._turns -= 1
            self._loop.call_soon(self._push_in_turn)
        else:
            self.push()

    def push(self) -> None:
        """Send what there is, as far as credit and room go."""
        self._is_pushing = self._is_held = False
        if self._stopped:
            return
        more = [pump.push() for pump in list(self._pumps.values())]
        self.outgoing.flush()  # now: what else is done in this turn is not what somebody waits for
        if any(more):
            self.push_soon()
