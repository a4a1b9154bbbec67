"""What a subscriber holds: `Subscription`, `Delivery`, `Batch`.

A handle pulls: an event is handed out at the moment somebody takes it, never before. So a wait that is cancelled loses
nothing, and what nobody takes stays in the mailbox.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Protocol

from tocsin.delivery.lane import Lane
from tocsin.delivery.mailbox import Item, Mailbox
from tocsin.errors import DeliveryError
from tocsin.model import Event

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["Batch", "ClosedError", "Delivery", "Post", "Subscription"]


class ClosedError(DeliveryError):
    """The subscription was closed: there is no next delivery."""

    def __init__(self) -> None:
        """Build the error."""
        super().__init__("the subscription is closed", help="subscribe again: a durable consumer goes on where it was")


class Post(Protocol):
    """What handles ask of the node."""

    def take(self, handle: Subscription) -> Delivery | None:
        """Hand out the next event, if there is one."""

    async def settle(self, deliveries: list[Delivery]) -> None:
        """Be done with deliveries, durably."""

    async def give_back(self, delivery: Delivery, delay: float) -> None:
        """Let a delivery come again after `delay` seconds."""

    async def terminate(self, delivery: Delivery, reason: str) -> None:
        """Be done with a delivery that will never succeed."""

    def extend(self, delivery: Delivery) -> None:
        """Give a delivery its whole time again."""

    async def close_handle(self, handle: Subscription) -> None:
        """Stop handing out."""

    def step_back(self, handle: Subscription) -> None:
        """A handle does not wait any more: what it would have got may be another's."""


class Delivery:
    """An event in your hands, until you settle it."""

    __slots__ = ("_handle", "_item", "attempt", "event", "notice", "offset", "replayed", "settled")

    def __init__(self, handle: Subscription, event: Event, item: Item | None) -> None:
        """Wrap an item; None for a notice, which needs no settling."""
        self._handle, self._item = handle, item
        self.event = event
        self.offset = event.offset or 0
        """Its place in the journal."""
        self.attempt = item.attempt if item is not None else 1
        """1 the first time; more when it comes again."""
        self.replayed = self.offset <= handle.lane.record.seam
        """Was it there before you subscribed?"""
        self.settled: asyncio.Future[None] | None = None
        """Once it is settled: done when that is stored."""
        self.notice = item is None
        """Is this a word from the node (a cancellation, a gap) rather than an event you asked for?"""

    @property
    def handle(self) -> Subscription:
        """The subscription it came by."""
        return self._handle

    @property
    def item(self) -> Item | None:
        """The mailbox's side of it."""
        return self._item

    async def ack(self) -> None:
        """Settle it: you will not get it again. Stored when this returns; repeating it changes nothing.

        A notice needs no settling, and does not mind it.

        Raises:
            DeliveryError: it went to somebody else meanwhile, because it was not settled in time.
        """
        await self._handle.post.settle([self])

    async def nak(self, delay: float = 0) -> None:
        """Give it back: it comes again, after `delay` seconds."""
        await self._handle.post.give_back(self, delay)

    async def term(self, reason: str = "") -> None:
        """Give it up: nobody in this consumer gets it again, and a dead letter says why."""
        await self._handle.post.terminate(self, reason)

    async def in_progress(self) -> None:
        """Ask for more time: `ack_wait` begins anew."""
        self._handle.post.extend(self)

    def __repr__(self) -> str:
        """Show what it is."""
        return f"Delivery(offset={self.offset}, attempt={self.attempt}, type={self.event.type!r})"


class Batch(list[Delivery]):
    """Deliveries that are settled together."""

    async def ack(self) -> None:
        """Settle all with one commit."""
        if self:
            await self[0].handle.post.settle(list(self))


class Subscription:
    """An open subscription: its own async iterator."""

    def __init__(self, post: Post, mailbox: Mailbox, lane: Lane, member: str, consumer: str) -> None:
        """Open a handle on a lane."""
        self.post, self.mailbox, self.lane, self.member, self.consumer = post, mailbox, lane, member, consumer
        self.id = lane.id
        """To be named in `unsubscribe`."""
        self.waits = 0
        """How many are waiting for the next delivery."""
        self.closed = False
        self._wake = asyncio.Event()

    def wake(self) -> None:
        """Something may be there."""
        self._wake.set()

    def poll(self) -> Delivery | None:
        """The next delivery if there is one at this moment."""
        if self.closed:
            return None
        return self.post.take(self)

    async def next(self, timeout: float | None = None) -> Delivery:
        """Wait for the next delivery.

        Raises:
            TimeoutError: none came in time; none is lost.
            DeliveryError: the subscription is closed.
        """
        async with asyncio.timeout(timeout):
            while True:
                self._wake.clear()
                if (found := self.poll()) is not None:
                    return found
                if self.closed:
                    raise ClosedError
                self.waits += 1
                try:
                    await self._wake.wait()
                except BaseException:
                    self.post.step_back(self)
                    raise
                finally:
                    self.waits -= 1

    def __aiter__(self) -> Subscription:
        """Iterate over deliveries."""
        return self

    async def __anext__(self) -> Delivery:
        """Wait for the next delivery."""
        try:
            return await self.next()
        except ClosedError:
            raise StopAsyncIteration from None

    async def batches(self, size: int) -> AsyncIterator[Batch]:
        """Deliveries in batches: what is there, up to `size`, as soon as there is anything.

        Raises:
            DeliveryError: `size` is not a positive number.
        """
        if type(size) is not int or size < 1:
            raise DeliveryError(f"a batch of {size!r} deliveries means nothing", help="give a number from 1 up")
        while True:
            try:
                batch = Batch([await self.next()])
            except ClosedError:
                return
            while len(batch) < size and (found := self.poll()) is not None:
                batch.append(found)
            yield batch

    async def close(self) -> None:
        """Stop receiving. A durable consumer keeps its place; what is in your hands goes back."""
        await self.post.close_handle(self)

    async def __aenter__(self) -> Subscription:
        """Use it in `async with`: it is closed at the end."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        await self.close()
