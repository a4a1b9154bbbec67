"""The desk of a remote bus: hands out what was sent ahead to its subscriptions, and settles at the node.

A subscription keeps a window of credit with the node. What is in its buffer is only lent: the node is told when
somebody takes it (`taken`), and may recall it until then, or ask for it back because somebody waits elsewhere. Nothing
is handed out that has expired.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable
from functools import partial

import msgspec

from tocsin.delivery.handles import Delivery, check_delay, check_reason
from tocsin.errors import DeliveryError, FilterError, TocsinError
from tocsin.journal.rows import expires
from tocsin.net import frames
from tocsin.net.faults import from_wire
from tocsin.net.protocol import MSGPACK
from tocsin.remote.link import Link, Lost
from tocsin.remote.subscription import Opened, RemoteSubscription, Sent

__all__ = ["Desk"]

Settling = Callable[[int, list[int], int], frames.Settle]
"""Makes the frame that settles: of a subscription, numbers of deliveries, and the number of the command."""


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
        self._settling: dict[RemoteSubscription, list[tuple[asyncio.Future[None], list[Delivery]]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def number(self) -> int:
        """A number for a subscription or a watch."""
        return next(self._numbers)

    async def subscribe(self, asked: frames.Subscribe, text: str) -> RemoteSubscription:
        """Open a subscription."""
        sub = RemoteSubscription(self, asked, self._skip)
        self._subs[asked.sub] = sub
        try:
            raw = await self.link.ask(lambda n: msgspec.structs.replace(asked, n=n))
        except BaseException as error:
            self._subs.pop(asked.sub, None)  # if the bus was closed meanwhile, it is gone already
            self.link.tell(frames.Close(0, asked.sub, undo=True))
            if isinstance(error, FilterError) and error.position is not None:
                error.text = text
            raise
        sub.opened(MSGPACK.read(raw, Opened))
        self._touch(sub)
        return sub

    async def resume(self) -> None:
        """Open on a new connection what was open on the old one."""
        for sub in list(self._subs.values()):
            if not sub.id:
                continue  # it is being opened
            try:
                sub.opened(MSGPACK.read(await self.link.ask_now(sub.again), Opened))
            except TocsinError as error:
                self._subs.pop(sub.sub, None)
                sub.end(error)

    def hear(self, frame: frames.ServerFrame) -> bool:
        """Take a frame that is for a subscription; is it?"""
        if not isinstance(frame, frames.Deliver | frames.Recall | frames.Shared | frames.Ended | frames.Trouble):
            return False
        sub = self._subs.get(frame.sub)
        if sub is None:
            return True
        match frame:
            case frames.Deliver():
                sub.receive(frame, self.link.generation)
            case frames.Recall():
                self._recalled(sub, frame)
            case frames.Shared():
                sub.is_shared = True
                if sub.hungry:
                    self.link.tell(frames.Want(sub.sub))
            case frames.Trouble():
                sub.troubles.append(from_wire(frame.error))
                sub.wake()
            case frames.Ended():
                del self._subs[frame.sub]
                sub.end(from_wire(frame.error) if frame.error is not None else None)
        self._touch(sub)
        return True

    def _recalled(self, sub: RemoteSubscription, frame: frames.Recall) -> None:
        given = sub.recall(frame)
        if frame.ask:
            self._tell_taken()  # what was asked for and is not given was taken: that is said first
            if given:
                self.link.tell(frames.Return(sub.sub, given))
        if given:
            self.link.tell(frames.Credit(sub.sub, len(given)))
        if sub.owed and not sub.waits:
            asyncio.get_running_loop().call_later(max(0.01, sub.expected()), self._touch, sub)

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
            loop = asyncio.get_running_loop()
            # Who settles at once, even by a task of its own, need not say that it was taken, too.
            loop.call_soon(loop.call_soon, loop.call_soon, self.flush)

    def flush(self) -> None:
        """Tell the node what was taken, and give credit."""
        self._is_flushing = False
        self._tell_taken()
        touched, self._touched = self._touched, {}
        for each in touched.values():
            if each.owed:
                self._recalled(each, frames.Recall(each.sub, each.owed, ask=True))
            if each.id and (credit := each.grant()):
                self.link.tell(frames.Credit(each.sub, credit))

    def _tell_taken(self) -> None:
        for sub, numbers in self._taken.items():
            self.link.tell(frames.Taken(sub, numbers))
        for sub, numbers in self._returned.items():
            self.link.tell(frames.Return(sub, numbers))
        self._taken.clear()
        self._returned.clear()

    def _keep_taken(self, sub: int, numbers: list[int]) -> None:
        if numbers:
            self._taken[sub] = numbers
        else:
            del self._taken[sub]

    def _skip(self, sub: RemoteSubscription, number: int) -> None:
        """What was handed out before the connection was lost need not be again."""
        self._taken.setdefault(sub.sub, []).append(number)
        self.link.tell(frames.Settle(sub.sub, ack=[number]))

    # -- handles.Post

    def take(self, handle: RemoteSubscription) -> Delivery | None:
        """See `handles.Post`."""
        if handle.troubles:
            raise handle.troubles.popleft()
        if handle.notices:
            number, notice = handle.notices.popleft()
            self._taken.setdefault(handle.sub, []).append(number)
            self._touch(handle)
            return notice
        while (delivery := handle.buffer.pop(handle.options)) is not None:
            self._touch(handle)
            end = expires(delivery.event)
            if end is not None and end <= self.link.now():
                self._returned.setdefault(handle.sub, []).append(delivery.item.number)
                continue
            self._taken.setdefault(handle.sub, []).append(delivery.item.number)
            handle.handed_out(delivery.offset)
            if handle.options.auto_ack:
                delivery.settled = _done()
            return delivery
        handle.looked(time.monotonic())
        if not handle.hungry:
            handle.hungry = True
            if handle.is_shared:
                self._tell_taken()
                self.link.tell(frames.Want(handle.sub))
        return None

    async def settle(self, deliveries: list[Delivery]) -> None:
        """See `handles.Post`."""
        fresh: dict[RemoteSubscription, list[Delivery]] = {}
        for delivery in dict.fromkeys(deliveries):
            if delivery.item is not None and (delivery.settled is None or _has_failed(delivery.settled)):
                fresh.setdefault(delivery.handle, []).append(delivery)
        for handle, mine in fresh.items():
            done = self._settle_soon(handle, mine)
            for delivery in mine:
                delivery.settled = done
        for done in dict.fromkeys(each.settled for each in deliveries if each.settled is not None):
            await asyncio.shield(done)

    def _settle_soon(self, handle: RemoteSubscription, deliveries: list[Delivery]) -> asyncio.Future[None]:
        """Settle with all that is settled in this turn of the loop: one frame, and one answer."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        done.add_done_callback(_has_failed)  # who waits for it may have been cancelled, and looks no more
        if handle not in self._settling:
            self._settling[handle] = []
            task = asyncio.ensure_future(self._settle_together(handle))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        self._settling[handle].append((done, deliveries))
        return done

    async def _settle_together(self, handle: RemoteSubscription) -> None:
        calls = self._settling.pop(handle)
        try:
            await self._acknowledge(handle, [each for _, mine in calls for each in mine])
        except DeliveryError as error:
            if len(calls) == 1:
                _tell(calls[0][0], error)
                return
            for done, mine in calls:  # one of them is refused, and that need not be the others' fault
                for delivery in mine:
                    delivery.settled = done
            for done, mine in calls:
                try:
                    await self._acknowledge(handle, mine)
                except Exception as refusal:
                    _tell(done, refusal)
                else:
                    _tell(done)
        except BaseException as error:
            for done, _ in calls:
                _tell(done, error)
        else:
            for done, _ in calls:
                _tell(done)

    async def _acknowledge(self, handle: RemoteSubscription, deliveries: list[Delivery]) -> None:
        await self._settle(handle, deliveries, lambda s, ns, n: frames.Settle(s, n, ack=ns))

    async def give_back(self, delivery: Delivery, delay: float) -> None:
        """See `handles.Post`."""
        check_delay(delay)
        self._check(delivery)
        delivery.handle.given_back(delivery.offset)
        await self._settle(delivery.handle, [delivery], lambda s, ns, n: frames.Settle(s, n, nak=[(ns[0], delay)]))

    async def terminate(self, delivery: Delivery, reason: str) -> None:
        """See `handles.Post`."""
        check_reason(reason)
        self._check(delivery)
        delivery.settled = asyncio.ensure_future(
            self._settle(delivery.handle, [delivery], lambda s, ns, n: frames.Settle(s, n, term=[(ns[0], reason)]))
        )
        delivery.settled.add_done_callback(_has_failed)
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
        handle.hungry = False
        self._touch(handle)

    def _check(self, delivery: Delivery) -> None:
        if delivery.item is None or delivery.settled is not None:
            raise DeliveryError(f"offset {delivery.offset} is settled", help="what is settled cannot be taken back")

    async def _settle(
        self,
        handle: RemoteSubscription,
        deliveries: list[Delivery],
        build: Settling,
    ) -> None:
        """Settle, on a new connection if need be. What is refused may be settled again."""
        try:
            while True:
                await self.link.ready()
                try:
                    numbers = await self._numbers_of(handle, deliveries)
                    taken = self._taken.get(handle.sub)
                    if taken:  # settling says that it was taken
                        settling = set(numbers)
                        self._keep_taken(handle.sub, [each for each in taken if each not in settling])
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
                delivery.item = Sent(number or 0, self.link.generation)
        return [each.item.number for each in deliveries if each.item.number]


def _done() -> asyncio.Future[None]:
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    done.set_result(None)
    return done


def _tell(done: asyncio.Future[None], error: BaseException | None = None) -> None:
    if done.done():
        return
    if error is None:
        done.set_result(None)
    elif isinstance(error, asyncio.CancelledError):
        done.cancel()
    else:
        done.set_exception(error)


def _has_failed(done: asyncio.Future[None]) -> bool:
    return done.done() and (done.cancelled() or done.exception() is not None)
