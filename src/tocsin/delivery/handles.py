"""What a subscriber holds: `Subscription`, `Delivery`, `Batch`. What is the same for a remote node is `Stream`.

A handle pulls: an event is handed out at the moment somebody takes it, never before. So a wait that is cancelled loses
nothing, and what nobody takes stays in the mailbox.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Any, Protocol, Self

from tocsin.delivery.lane import Lane
from tocsin.delivery.mailbox import Mailbox
from tocsin.errors import DeliveryError
from tocsin.model import Event

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["Batch", "ClosedError", "Delivery", "Post", "Stream", "Subscription", "check_delay", "check_reason"]


_LONGEST_REASON = 10_000
_UNFIT = re.compile("[\ud800-\udfff]")


def check_delay(delay: object) -> None:
    """Refuse a delay that means nothing.

    Raises:
        DeliveryError: it is no number of seconds from 0 up.
    """
    if not isinstance(delay, int | float) or isinstance(delay, bool) or not 0 <= delay < 1e9:
        raise DeliveryError(f"a delay of {delay!r} means nothing", field="delay", help="give seconds from 0 up")


def check_reason(reason: object) -> None:
    """Refuse a reason that cannot be written down.

    Raises:
        DeliveryError: it is no text, or a very long one.
    """
    if type(reason) is not str or len(reason) > _LONGEST_REASON or _UNFIT.search(reason):
        raise DeliveryError(
            "the reason is not plain text",
            field="reason",
            help=f"give up to {_LONGEST_REASON} characters of well-formed text",
        )


class ClosedError(DeliveryError):
    """The subscription was closed: there is no next delivery."""

    def __init__(self) -> None:
        """Build the error."""
        super().__init__("the subscription is closed", help="subscribe again: a durable consumer goes on where it was")


class Post(Protocol):
    """What handles ask of the node, or of the connection to it."""

    def take(self, handle: Any) -> Delivery | None:
        """Hand out the next event, if there is one."""

    async def settle(self, deliveries: list[Delivery]) -> None:
        """Be done with deliveries, durably."""

    async def give_back(self, delivery: Delivery, delay: float) -> None:
        """Let a delivery come again after `delay` seconds."""

    async def terminate(self, delivery: Delivery, reason: str) -> None:
        """Be done with a delivery that will never succeed."""

    async def extend(self, delivery: Delivery) -> None:
        """Give a delivery its whole time again."""

    async def close_handle(self, handle: Any) -> None:
        """Stop handing out."""

    def step_back(self, handle: Any) -> None:
        """A handle does not wait any more: what it would have got may be another's."""


class Delivery:
    """An event in your hands, until you settle it."""

    __slots__ = ("attempt", "event", "handle", "item", "notice", "offset", "replayed", "settled")

    def __init__(self, handle: Any, event: Event, item: Any, attempt: int = 1, replayed: bool = False) -> None:
        """Wrap what a post hands out.

        Args:
            handle: the subscription it comes by.
            event: the event.
            item: what the post knows it by; None: a notice, which needs no settling.
            attempt: 1 the first time.
            replayed: was it there before the subscription?
        """
        self.handle, self.item = handle, item
        self.event = event
        self.offset = event.offset or 0
        """Its place in the journal."""
        self.attempt = attempt
        """1 the first time; more when it comes again."""
        self.replayed = replayed
        """Was it there before you subscribed?"""
        self.settled: asyncio.Future[None] | None = None
        """Once it is settled: done when that is stored."""
        self.notice = item is None
        """Is this a word from the node (a cancellation, a gap) rather than an event you asked for?"""

    async def ack(self) -> None:
        """Settle it: you will not get it again. Stored when this returns; repeating it changes nothing.

        A notice needs no settling, and does not mind it.

        Raises:
            DeliveryError: it went to somebody else meanwhile, because it was not settled in time.
        """
        await self.handle.post.settle([self])

    async def nak(self, delay: float = 0) -> None:
        """Give it back: it comes again, after `delay` seconds."""
        await self.handle.post.give_back(self, delay)

    async def term(self, reason: str = "") -> None:
        """Give it up: nobody in this consumer gets it again, and a dead letter says why."""
        await self.handle.post.terminate(self, reason)

    async def in_progress(self) -> None:
        """Ask for more time: `ack_wait` begins anew."""
        await self.handle.post.extend(self)

    def __repr__(self) -> str:
        """Show what it is."""
        return f"Delivery(offset={self.offset}, attempt={self.attempt}, type={self.event.type!r})"


class Batch(list[Delivery]):
    """Deliveries that are settled together."""

    async def ack(self) -> None:
        """Settle all with one commit."""
        if self:
            await self[0].handle.post.settle(list(self))


class Stream:
    """What every open subscription can do, wherever its node is: it is its own async iterator."""

    def __init__(self, post: Post, id: str, consumer: str) -> None:
        """Open a handle."""
        self.post, self.consumer = post, consumer
        self.id = id
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

    def __aiter__(self) -> Self:
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

    async def __aenter__(self) -> Self:
        """Use it in `async with`: it is closed at the end."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        await self.close()


class Subscription(Stream):
    """An open subscription to a node in this process."""

    def __init__(self, post: Post, mailbox: Mailbox, lane: Lane, member: str, consumer: str) -> None:
        """Open a handle on a lane."""
        super().__init__(post, lane.id, consumer)
        self.mailbox, self.lane, self.member = mailbox, lane, member
        self.lends = False
        """Is what it hands out only lent, until `claim` says that somebody has it? So it is for who takes ahead."""
        self.on_wake: Callable[[], None] | None = None
        """Called when something may be there: for who does not wait in `next`."""
        self.on_turn: Callable[[], None] | None = None
        """Called when something was asked back from others for this handle, before they are woken."""
        self.hungry = False
        """Of one that is lent to: does somebody wait there who has nothing?"""
        self.undo: Callable[[], Awaitable[None]] | None = None
        """Closes it, and makes all be as if it had not been opened."""

    @property
    def is_eager(self) -> bool:
        """If it takes something now, has somebody asked for it now?"""
        return self.hungry or not self.lends

    @property
    def has_waiting(self) -> bool:
        """Does somebody wait for the next?"""
        return self.hungry or (self.waits > 0 and not self.lends)

    def take_turn(self) -> None:
        """Something came back that was asked for."""
        if self.on_turn is not None:
            self.on_turn()

    def wake(self) -> None:
        """Something may be there."""
        super().wake()
        if self.on_wake is not None:
            self.on_wake()
