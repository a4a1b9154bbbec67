"""Subscriptions of a remote bus: what was sent ahead waits here; settling goes to the node.

A subscription keeps a window of credit with the node and hands out of its buffer: the most urgent first, and nothing
that has expired, so that it is as if the node itself were asked. What is in the buffer is only lent: the node is told
when somebody takes it (`taken`), and may recall it until then.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import msgspec

from tocsin.delivery.handles import Delivery, Stream, check_delay, check_reason
from tocsin.delivery.owners import Options
from tocsin.errors import DeliveryError, FilterError, TocsinError
from tocsin.journal.rows import expires
from tocsin.net import frames
from tocsin.net.faults import from_wire
from tocsin.net.protocol import MSGPACK
from tocsin.net.pumps import NOTICE, REPLAYED
from tocsin.remote.link import Link, Lost

__all__ = ["AHEAD", "Desk", "RemoteSubscription"]

AHEAD = 256
"""Deliveries that a client asks for ahead, at most. In a group one: what it does not take is another's."""
_REMEMBERED = 4096


class _Item(NamedTuple):
    """What the node knows a delivery by: its number, on the connection of a generation."""

    number: int
    generation: int


class _Sent(NamedTuple):
    """A delivery in the buffer, in the order it is to be handed out."""

    rank: tuple[int, int]
    number: int
    delivery: Delivery


class _Opened(msgspec.Struct):
    id: str
    consumer: str
    seam: int
    start: int
    options: Options


class RemoteSubscription(Stream):
    """An open subscription to a node elsewhere."""

    def __init__(self, desk: Desk, sub: int, asked: frames.Subscribe) -> None:
        """Prepare; `Desk.subscribe` opens it."""
        super().__init__(desk, "", "")
        self._desk, self.sub, self.asked = desk, sub, asked
        self.options = Options()
        self.error: TocsinError | None = None
        """Why it has ended, if that was not asked for."""
        self.idle = False
        """In a group: it took nothing of what it was sent, so that went to others; it gets more when it asks."""
        self.notices: deque[Delivery] = deque()
        self.troubles: deque[TocsinError] = deque()
        self._buffer: list[_Sent] = []
        self._held: dict[int, Delivery] = {}  # by number: what of the buffer is not recalled
        self._granted = asked.credit
        self._early: list[tuple[frames.Deliver, int]] = []  # what came before the answer that says how to treat it
        self._newest = 0  # handed out, of the offsets
        self._handed: deque[int] = deque(maxlen=_REMEMBERED)
        self._skipped: set[int] = set()  # handed out before a connection was lost: they need not be again

    @property
    def ahead(self) -> int:
        """How many deliveries may wait here."""
        return 1 if self.options.group is not None else min(AHEAD, self.options.max_in_flight)

    def opened(self, about: _Opened) -> None:
        """The node has opened it."""
        self.id, self.consumer, self.options = about.id, about.consumer, about.options
        self._newest = max(self._newest, about.start - 1)
        early, self._early = self._early, []
        for frame, generation in early:
            self.receive(frame, generation)

    def again(self, n: int) -> frames.Subscribe:
        """The frame that opens it on a new connection: where it was, or after what was handed out last."""
        past = None
        if not self.options.durable:
            waiting = [each.offset for each in self._held.values()]
            past = f"since:{min([self._newest + 1, *waiting])}"
            self._skipped = set(self._handed)
        self.lose()
        self._granted = self.ahead
        return msgspec.structs.replace(self.asked, n=n, past=past, replay=False, credit=self.ahead)

    def lose(self) -> None:
        """What is in the buffer is the node's again."""
        self._buffer.clear()
        self._held.clear()
        self._granted = 0

    def grant(self) -> int:
        """Credit to give now; few large grants rather than many small ones."""
        wanted = self.ahead - len(self._held) - self._granted
        if self.closed or self.idle or wanted < max(1, self.ahead // 4):
            return 0
        self._granted += wanted
        return wanted

    def receive(self, frame: frames.Deliver, generation: int) -> None:
        """Deliveries have come."""
        if not self.id:
            self._early.append((frame, generation))
            return
        for number, attempt, flags, offset, arrived, part in frame.items:
            self._granted -= 1
            is_notice = bool(flags & NOTICE)
            event = MSGPACK.read_event(part, offset or None, arrived)
            item = None if is_notice else _Item(number, generation)
            delivery = Delivery(self, event, item, attempt, bool(flags & REPLAYED))
            if is_notice:
                self.notices.append(delivery)
            elif offset in self._skipped and attempt == 1:
                self._desk.pass_over(self, number)
            else:
                rank = (-event.priority, offset) if self.options.order == "priority" else (0, offset)
                if self.options.fair:
                    rank = (0, number)
                self._held[number] = delivery
                heapq.heappush(self._buffer, _Sent(rank, number, delivery))
        self.wake()

    def recall(self, numbers: list[int]) -> int:
        """The node wants some of the buffer back; returns the credit to give at once: something else may wait."""
        credit = sum(self._held.pop(number, None) is not None for number in numbers)
        if credit and self.options.group is not None and not self.waits:
            self.idle = True
            return 0
        self._granted += credit
        return credit

    def pop(self) -> Delivery | None:
        """The next of the buffer, if there is one."""
        while self._buffer:
            sent = heapq.heappop(self._buffer)
            if self._held.pop(sent.number, None) is not None:
                return sent.delivery
        return None

    def handed_out(self, delivery: Delivery) -> None:
        """Remember how far it is."""
        self._newest = max(self._newest, delivery.offset)
        if not self.options.durable:
            self._handed.append(delivery.offset)

    def end(self, error: TocsinError | None) -> None:
        """There is nothing more from it."""
        self.closed, self.error = True, error
        self.lose()
        self.wake()

    def poll(self) -> Delivery | None:
        """The next delivery if there is one here at this moment."""
        if self.closed and self.error is not None:
            raise self.error
        return super().poll()


class Desk:
    """All subscriptions of one link; what their handles ask (`handles.Post`)."""

    def __init__(self) -> None:
        """Begin with none."""
        self.link: Link
        self._subs: dict[int, RemoteSubscription] = {}
        self._numbers = itertools.count(1)
        self._taken: dict[int, list[int]] = {}
        self._returned: dict[int, list[int]] = {}
        self._touched: dict[int, RemoteSubscription] = {}
        self._is_flushing = False

    def number(self) -> int:
        """A number for a subscription or a watch."""
        return next(self._numbers)

    async def subscribe(self, asked: frames.Subscribe, text: str) -> RemoteSubscription:
        """Open a subscription."""
        sub = RemoteSubscription(self, asked.sub, asked)
        self._subs[asked.sub] = sub
        try:
            raw = await self.link.ask(lambda n: msgspec.structs.replace(asked, n=n))
        except BaseException as error:
            del self._subs[asked.sub]
            self.link.tell(frames.Close(0, asked.sub))
            if isinstance(error, FilterError) and error.position is not None:
                error.text = text
            raise
        sub.opened(MSGPACK.read(raw, _Opened))
        self._touch(sub)
        return sub

    async def resume(self) -> None:
        """Open on a new connection what was open on the old one."""
        for sub in list(self._subs.values()):
            if not sub.id:
                continue  # it is being opened
            try:
                sub.opened(MSGPACK.read(await self.link.ask_now(sub.again), _Opened))
            except TocsinError as error:
                self._subs.pop(sub.sub, None)
                sub.end(error)

    def hear(self, frame: frames.ServerFrame) -> bool:
        """Take a frame that is for a subscription; is it?"""
        if not isinstance(frame, frames.Deliver | frames.Recall | frames.Ended | frames.Trouble):
            return False
        sub = self._subs.get(frame.sub)
        if sub is None:
            return True
        match frame:
            case frames.Deliver():
                sub.receive(frame, self.link.generation)
            case frames.Recall():
                if credit := sub.recall(frame.items):
                    self.link.tell(frames.Credit(sub.sub, credit))
            case frames.Trouble():
                sub.troubles.append(from_wire(frame.error))
                sub.wake()
            case frames.Ended():
                del self._subs[frame.sub]
                sub.end(from_wire(frame.error) if frame.error is not None else None)
        self._touch(sub)
        return True

    def lose(self) -> None:
        """The connection is lost."""
        self._taken.clear()
        self._returned.clear()
        for sub in self._subs.values():
            if sub.options.durable:
                sub.lose()

    def end(self, error: TocsinError | None) -> None:
        """The link is over."""
        for sub in list(self._subs.values()):
            sub.end(error)
        self._subs.clear()

    # -- what was taken, told once for each turn of the loop

    def _touch(self, sub: RemoteSubscription) -> None:
        self._touched[sub.sub] = sub
        if not self._is_flushing:
            self._is_flushing = True
            asyncio.get_running_loop().call_soon(self.flush)

    def flush(self) -> None:
        """Tell the node what was taken, and give credit."""
        self._is_flushing = False
        for sub, numbers in self._taken.items():
            self.link.tell(frames.Taken(sub, numbers))
        for sub, numbers in self._returned.items():
            self.link.tell(frames.Return(sub, numbers))
        self._taken.clear()
        self._returned.clear()
        touched, self._touched = self._touched, {}
        for each in touched.values():
            if each.id and (credit := each.grant()):
                self.link.tell(frames.Credit(each.sub, credit))

    def pass_over(self, sub: RemoteSubscription, number: int) -> None:
        """What was handed out before the connection was lost need not be again."""
        self._taken.setdefault(sub.sub, []).append(number)
        self.link.tell(frames.Settle(sub.sub, ack=[number]))

    # -- handles.Post

    def take(self, handle: RemoteSubscription) -> Delivery | None:
        """See `handles.Post`."""
        if handle.idle:
            handle.idle = False
            self._touch(handle)
        if handle.troubles:
            raise handle.troubles.popleft()
        if handle.notices:
            self._touch(handle)
            return handle.notices.popleft()
        while (delivery := handle.pop()) is not None:
            self._touch(handle)
            end = expires(delivery.event)
            if end is not None and end <= self.link.now():
                self._returned.setdefault(handle.sub, []).append(delivery.item.number)
                continue
            self._taken.setdefault(handle.sub, []).append(delivery.item.number)
            handle.handed_out(delivery)
            if handle.options.auto_ack:
                delivery.settled = _done()
            return delivery
        return None

    async def settle(self, deliveries: list[Delivery]) -> None:
        """See `handles.Post`."""
        fresh: dict[RemoteSubscription, list[Delivery]] = {}
        for delivery in dict.fromkeys(deliveries):
            if delivery.item is not None and (delivery.settled is None or _has_failed(delivery.settled)):
                fresh.setdefault(delivery.handle, []).append(delivery)
        for handle, mine in fresh.items():
            task = asyncio.ensure_future(self._settle(handle, mine, lambda s, ns, n: frames.Settle(s, n, ack=ns)))
            for delivery in mine:
                delivery.settled = task
        for done in dict.fromkeys(each.settled for each in deliveries if each.settled is not None):
            await asyncio.shield(done)

    async def give_back(self, delivery: Delivery, delay: float) -> None:
        """See `handles.Post`."""
        check_delay(delay)
        self._check(delivery)
        await self._settle(delivery.handle, [delivery], lambda s, ns, n: frames.Settle(s, n, nak=[(ns[0], delay)]))

    async def terminate(self, delivery: Delivery, reason: str) -> None:
        """See `handles.Post`."""
        check_reason(reason)
        self._check(delivery)
        delivery.settled = asyncio.ensure_future(
            self._settle(delivery.handle, [delivery], lambda s, ns, n: frames.Settle(s, n, term=[(ns[0], reason)]))
        )
        await asyncio.shield(delivery.settled)

    async def extend(self, delivery: Delivery) -> None:
        """See `handles.Post`."""
        self._check(delivery)
        await self._settle(delivery.handle, [delivery], lambda s, ns, n: frames.Settle(s, n, extend=ns))

    async def close_handle(self, handle: RemoteSubscription) -> None:
        """See `handles.Post`."""
        if not handle.closed:
            self._subs.pop(handle.sub, None)
            handle.end(None)
            self.flush()
            await self.link.ask(lambda n: frames.Close(n, handle.sub))

    def step_back(self, handle: RemoteSubscription) -> None:
        """See `handles.Post`. What came meanwhile waits in the buffer."""

    def _check(self, delivery: Delivery) -> None:
        if delivery.item is None or delivery.settled is not None:
            raise DeliveryError(f"offset {delivery.offset} is settled", help="what is settled cannot be taken back")

    async def _settle(
        self,
        handle: RemoteSubscription,
        deliveries: list[Delivery],
        build: Callable[[int, list[int], int], frames.Settle],
    ) -> None:
        """Settle, on a new connection if need be. What is refused may be settled again."""
        try:
            while True:
                await self.link.ready()
                try:
                    numbers = await self._numbers_of(handle, deliveries)
                    taken = self._taken.get(handle.sub)
                    if taken is not None:  # settling says that it was taken
                        self._taken[handle.sub] = [each for each in taken if each not in set(numbers)]
                    if numbers:
                        await self.link.ask_now(partial(build, handle.sub, numbers))
                    return
                except Lost:
                    continue
        except BaseException:
            for delivery in deliveries:
                delivery.settled = None
            raise

    async def _numbers_of(self, handle: RemoteSubscription, deliveries: list[Delivery]) -> list[int]:
        """Their numbers on this connection; those in hand since an earlier one are claimed again."""
        old = [each for each in deliveries if each.item.generation != self.link.generation]
        if old and not handle.options.durable:  # nobody remembers them: they are settled by being gone
            return [each.item.number for each in deliveries if each not in old]
        if old:
            pairs = [(each.offset, each.attempt) for each in old]
            raw = await self.link.ask_now(lambda n: frames.Reclaim(n, handle.sub, pairs))
            numbers: list[int | None] = MSGPACK.read(raw, list[int | None])
            for delivery, number in zip(old, numbers, strict=True):
                delivery.item = _Item(number or 0, self.link.generation)
        return [each.item.number for each in deliveries if each.item.number]


def _done() -> asyncio.Future[None]:
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    done.set_result(None)
    return done


def _has_failed(done: asyncio.Future[None]) -> bool:
    return done.done() and (done.cancelled() or done.exception() is not None)
