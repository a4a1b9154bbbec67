"""`GET /subscribe`: Server-Sent Events.

    mailbox ─ poll ─▶ a few deliveries as text ─▶ socket takes them ─▶ settled

Writing settles: what the socket has taken is settled, some deliveries at a time; what it has not goes back when the
stream ends. So a consumer whose connection is lost may miss what was on its way (on our side tens of kilobytes), and
get again what was being written just then; who wants it otherwise settles by itself, over `WS /bus`.

Without a consumer nothing is remembered here: the client says `Last-Event-ID`, and the stream goes on behind it. That
is exact in journal order, which is why it is the order of such streams unless another is asked for.

A client that does not read has a few deliveries in hand, and is shown out after `stuck` seconds.
"""

from __future__ import annotations

import asyncio
import logging
import re
from typing import Any, Final

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from tocsin.delivery.handles import Delivery, Subscription
from tocsin.errors import BoundError, ConsumerError, DeliveryError, OverloadError, TocsinError, UnauthorizedError
from tocsin.journal import bounds
from tocsin.model import MAX_INT, Event
from tocsin.net.http.answers import Refused, as_json, bare
from tocsin.net.http.contract import SSE, Ask
from tocsin.net.http.wire import Wire, left, wire_of
from tocsin.node.retention import GAP

__all__ = ["OPTIONS", "subscribe"]

OPTIONS: Final = ("order", "group", "durable", "ack_wait", "max_in_flight", "max_deliver", "fair")
"""Those of a consumer that may be given."""
_FIXED: Final = frozenset(("order", "group", "durable", "max_in_flight"))
_BATCH, _BYTES = 64, 64 * 1024  # deliveries that are written and settled together: a few milliseconds of work
_TOGETHER: Final = 8  # deliveries taken at a time; one may have a megabyte
_AGAIN: Final = 1000  # milliseconds after which a browser connects again
_OFFSET: Final = re.compile(r"[0-9]{1,19}")
_log = logging.getLogger("tocsin.net")


async def subscribe(ask: Ask) -> Response:
    """Open a subscription and give its events as they come."""
    front, query = ask.front, ask.query
    if ask.request.method == "HEAD":
        return bare({}, SSE)
    if len(front.streams) >= front.most_streams:
        raise OverloadError(f"{len(front.streams):,} streams are open", help="close some, or use WS /bus")
    consumer = query.get("consumer")
    past = bounds.parse(query["past"]) if "past" in query else None
    last = _last_seen(ask)
    options: dict[str, Any] = {name: query[name] for name in OPTIONS if name in query}
    gap = None
    if consumer is None:
        options.setdefault("order", "journal")
        if last is not None:
            past = bounds.since(last + 1)
            gap = _gap(front.server.node.journal.first, last)
    try:
        handle = await ask.bus.subscribe(
            query.get("filter", "TRUE"),
            consumer,
            past,
            auto_ack=False,
            replay=query.get("replay", False),
            system=query.get("system", False),
            **options,
        )
    except ConsumerError as error:
        if error.field in _FIXED and consumer in {each.name for each in await ask.bus.consumers()}:
            raise Refused(409, error) from None  # what it asks is good, but not what the consumer has
        raise
    # Who is cut off before the first event goes on from here, too.
    place = handle.lane.record.seam if consumer is None and past is None else None
    return _Stream(ask, handle, gap, place)


def _last_seen(ask: Ask) -> int | None:
    """The offset behind which the client wants to go on."""
    text = ask.request.headers.get("last-event-id", ask.query.get("last_event_id", ""))
    if not text:
        return None
    if not _OFFSET.fullmatch(text) or int(text) >= MAX_INT:
        raise BoundError(f"Last-Event-ID is {text[:64]!r}", field="last_event_id", help="give the id of an event")
    return int(text)


def _gap(first: int, last: int) -> Event | None:
    """Word of what was trimmed since, if anything was."""
    if last + 1 >= first:
        return None
    missing = {"first": last + 1, "last": first - 1}
    return Event(GAP, "tocsin", correlation_id=f"{last + 1}-{first - 1}", data=missing)


class _Stream(Response):
    """One stream, from its first line to its last."""

    def __init__(self, ask: Ask, handle: Subscription, gap: Event | None, place: int | None) -> None:
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        super().__init__(None, 200, headers, SSE)
        del self.headers["content-length"]
        self._ask, self._handle, self._gap = ask, handle, gap
        self._place = _id(place)
        self._limits = ask.front.limits
        self._wake = asyncio.Event()
        self._reason: str | None = None
        self._wire = Wire(None)

    def end(self, reason: str) -> None:
        """Finish, and say why."""
        if self._reason is None:
            self._reason = reason
        self._wake.set()

    def abort(self) -> None:
        """End at once."""
        self._wire.abort()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send until there is a reason to end."""
        streams, handle = self._ask.front.streams, self._handle
        streams.add(self)
        self._wire = wire_of(scope)
        self._wire.keep_short()
        leaving = asyncio.ensure_future(left(receive))
        leaving.add_done_callback(lambda _: self.end("gone"))
        handle.on_wake = self._wake.set
        self._ask.caller.watch(self._unwelcome)
        if self._ask.front.server.draining:  # it was opened meanwhile
            self.end("draining")
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            # At once, so that whatever lies between lets the head pass; a browser's own pause would be three seconds.
            await self._say(send, b": tocsin\nretry: %d\n%b\n" % (_AGAIN, self._place))
            if self._gap is not None:
                await self._say(send, _text(self._gap))
            await self._pump(send)
            if self._reason != "gone":
                await self._say(send, f": {self._reason or 'closed'}\n\n".encode())
                await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            streams.discard(self)
            leaving.cancel()
            handle.on_wake = None
            handle.waits = 0
            try:
                await handle.close()
            except TocsinError as error:  # the disk is full, say
                _log.error("the end of a stream is not stored: %s", error)

    def _unwelcome(self, error: UnauthorizedError) -> None:
        self.end(error.message)

    async def _say(self, send: Send, text: bytes) -> None:
        """Write, and wait until the socket has taken all of it."""
        for part in (text, b""):
            await send({"type": "http.response.body", "body": part, "more_body": True})

    async def _pump(self, send: Send) -> None:
        handle = self._handle
        while self._reason is None:
            self._wake.clear()
            try:
                batch, text = self._taken()
                if batch:
                    await self._say(send, text)
                    if self._wire.lost or self._reason == "gone":
                        return
                    await self._settle(batch)
                    continue
            except TocsinError as error:  # something cannot be read or stored: it stays where it is
                self.end("trouble: " + " ".join(error.message.split()))
                return
            if handle.closed:
                return
            elif not await self._waited():
                await self._say(send, b": beat\n\n")

    def _taken(self) -> tuple[list[Delivery], bytes]:
        batch: list[Delivery] = []
        parts: list[bytes] = []
        size = 0
        post = self._ask.front.server.node.post
        while len(batch) < _BATCH and size < _BYTES and not self._handle.closed:
            found = post.take_many(self._handle, _TOGETHER)
            if not found:
                break
            batch += found
            parts += [_text(each.event) for each in found]
            size += sum(map(len, parts[-len(found) :]))
        return batch, b"".join(parts)

    async def _waited(self) -> bool:
        """Wait for something; false: nothing came for a while."""
        self._handle.waits = 1  # in a group, it is this one's turn
        try:
            async with asyncio.timeout(self._limits.beat):
                await self._wake.wait()
        except TimeoutError:
            return False
        finally:
            self._handle.waits = 0
        return True

    async def _settle(self, batch: list[Delivery]) -> None:
        post = self._handle.post
        try:
            await post.settle(batch)
        except DeliveryError:  # one of them took too long, or was cancelled: the others are settled
            for delivery in batch:
                try:
                    await post.settle([delivery])
                except DeliveryError:
                    continue


def _text(event: Event) -> bytes:
    """An event as the lines of a stream. A notice has no offset, so it does not move the client's place."""
    return _id(event.offset) + b"data: " + as_json(event) + b"\n\n"


def _id(offset: int | None) -> bytes:
    """The line that tells a client where it is."""
    return b"id: %d\n" % offset if offset is not None else b""
