"""One connection: frames in, frames out, and one face of the node between them.

A session reads one frame after the other. Commands are carried out side by side, each answered when it is done; what
they ask of the bus begins in the order they came. Whoever sends what is no frame, or breaks a limit, is told and shown
out; nobody else notices. When a connection is lost everything it had goes back at once, as after a crash.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from msgspec import Raw

from tocsin.errors import (
    ConsumerError,
    DeliveryError,
    ForbiddenError,
    NetworkError,
    OverloadError,
    ProtocolError,
    TocsinError,
    UnauthorizedError,
)
from tocsin.journal import bounds
from tocsin.net import frames
from tocsin.net.access import Caller
from tocsin.net.faults import to_wire
from tocsin.net.outgoing import Outgoing
from tocsin.net.protocol import BAD_HELLO, BROKEN, REFUSED, REPLACED, SLOW, VERSION, Codec, Limits
from tocsin.net.pumps import Pump, ReceiptsPump, SubscriptionPump
from tocsin.net.verbs import call
from tocsin.node.pipeline import Node

__all__ = ["Session", "Socket"]

_OPTIONS = ("order", "group", "durable", "ack_wait", "max_in_flight", "max_deliver", "auto_ack", "fair", "placement")
_KEPT_CLOSED = 64  # closed subscriptions whose deliveries may still be settled
_log = logging.getLogger("tocsin.net")


class Socket(Protocol):
    """What a session asks of a WebSocket."""

    async def receive(self) -> bytes | str | None:
        """The next message; None: there is no other."""

    async def send(self, message: bytes) -> None:
        """Send one, as soon as there is room."""

    async def close(self, code: int, reason: str) -> None:
        """End the connection."""


class _Leave(Exception):
    """The session ends, for this reason."""

    def __init__(self, code: int, error: NetworkError | None = None, reason: str = "") -> None:
        super().__init__(reason)
        self.code, self.error = code, error
        self.reason = reason or (error.message if error is not None else "")


class Session:
    """One connection of a client."""

    def __init__(
        self,
        node: Node,
        admit: Callable[[str | None, str | None], Caller],
        arrive: Callable[[Session], Any],
        socket: Socket,
        codec: Codec,
    ) -> None:
        """Begin on a socket that was accepted.

        Args:
            node: the node.
            admit: lets in who shows a token and gives a name.
            arrive: told when it is known who it is; awaited before anything else is done.
            socket: the connection.
            codec: how frames are written on it.
        """
        self._node, self._admit, self._arrive, self._socket, self._codec = node, admit, arrive, socket, codec
        self.limits = Limits()
        self.id = secrets.token_hex(8)
        self.name = ""
        self.caller: Caller
        self._bus: Any = None
        self._loop = asyncio.get_running_loop()
        self._pumps: dict[int, Pump] = {}
        self._open: set[asyncio.Task[None]] = set()
        self._opening: dict[int, asyncio.Task[None] | None] = {}  # by number of the subscription
        self._is_pushing = False
        self._heard = self._loop.time()
        self._leaving: asyncio.Future[_Leave] = self._loop.create_future()
        self._ended = asyncio.Event()
        self._clean = False

    async def run(self, limits: Limits) -> None:
        """Serve the connection to its end."""
        self.limits = limits
        self._outgoing = Outgoing(self._socket.send, self._codec, limits, self._push_soon, self._is_stuck)
        reading = self._loop.create_task(self._read())
        beating = self._loop.create_task(self._beat())
        leave = _Leave(1000)
        try:
            ends: list[asyncio.Future[Any]] = [reading, self._leaving]
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if self._leaving.done():
                leave = self._leaving.result()
            elif (error := reading.exception()) is not None:
                leave = error if isinstance(error, _Leave) else _Leave(1011, reason="a defect of the server")
                if not isinstance(error, _Leave):
                    _log.error("a session has failed", exc_info=error)
        finally:
            for task in (reading, beating):
                task.cancel()
            await asyncio.gather(reading, beating, return_exceptions=True)
            await self._finish(leave)

    def leave(self, reason: str, code: int = 1001) -> None:
        """End the session from outside; the client is told why."""
        if not self._leaving.done():
            self._leaving.set_result(_Leave(code, reason=reason))

    def replace(self) -> None:
        """A newer session has the name."""
        self.leave("replaced", REPLACED)

    async def ended(self) -> None:
        """Wait until all it had is given back."""
        await self._ended.wait()

    async def _finish(self, leave: _Leave) -> None:
        """Finish what was begun (a drain) or drop it (a loss), give everything back, say goodbye."""
        if draining := leave.reason == "draining":
            self._outgoing.put(frames.Bye(leave.reason))
        if self._open and draining:
            await asyncio.wait(list(self._open), timeout=self.limits.stuck)
        for task in list(self._open):
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)
        try:
            for pump in list(self._pumps.values()):
                await pump.close()
            if self._bus is not None:
                await self._bus._session.end(crashed=not self._clean)
        except TocsinError as error:  # the disk is full, say
            _log.error("the end of a session is not stored: %s", error)
        self._ended.set()
        if leave.error is not None:
            self._outgoing.put(frames.Failed(to_wire(leave.error)))
        if not draining:
            self._outgoing.put(frames.Bye(leave.reason or "closed"))
        try:
            async with asyncio.timeout(5):  # who does not read need not be told
                await self._outgoing.flushed()
        except TimeoutError:
            pass
        await self._outgoing.close()
        await self._socket.close(leave.code, leave.reason[:100])

    # -- coming in

    async def _read(self) -> None:
        try:
            async with asyncio.timeout(self.limits.hello):
                first = await self._receive()
        except ProtocolError as error:
            raise _Leave(BAD_HELLO, error) from None
        except TimeoutError:
            raise _Leave(BAD_HELLO, ProtocolError("no hello came in time", help="say hello first")) from None
        if first is None:
            return
        await self._greet(first)
        while (frame := await self._next()) is not None:
            if isinstance(frame, frames.Bye):
                self._clean = True
                return
            self._handle(frame)

    async def _next(self) -> frames.ClientFrame | None:
        try:
            return await self._receive()
        except ProtocolError as error:
            raise _Leave(BROKEN, error) from None

    async def _receive(self) -> frames.ClientFrame | None:
        message = await self._socket.receive()
        self._heard = self._loop.time()
        if message is None:
            return None
        if len(message) > self.limits.max_frame:
            raise ProtocolError(f"a frame has {len(message):,} bytes", help=f"send up to {self.limits.max_frame:,}")
        return self._codec.from_client(message)

    async def _greet(self, frame: frames.ClientFrame) -> None:
        if not isinstance(frame, frames.Hello):
            raise _Leave(BAD_HELLO, ProtocolError("the first frame is no hello", help="say hello first"))
        if frame.version != VERSION:
            raise _Leave(
                BAD_HELLO, ProtocolError(f"version {frame.version} is not spoken here", help=f"speak {VERSION}")
            )
        try:
            self.caller = self._admit(frame.token, frame.name)
        except (UnauthorizedError, ForbiddenError) as error:
            raise _Leave(REFUSED, error) from None
        except ProtocolError as error:
            raise _Leave(BAD_HELLO, error) from None
        name = self.name = self.caller.name
        await self._arrive(self)
        self._bus = self.caller.bus
        if frame.options.get("strict_advertise") is True:
            self._bus._session.strict = True
        limits = {each: getattr(self.limits, each) for each in self.limits.__struct_fields__}
        self._outgoing.put(frames.Welcome(VERSION, name, self.id, limits, self._node.now()))

    def _handle(self, frame: frames.ClientFrame) -> None:
        match frame:
            case frames.Settle():
                self._command(frame.n, self._settle(frame))
            case frames.Taken():
                if (pump := self._pumps.get(frame.sub)) is not None:
                    pump.taken(frame.items)
            case frames.Return():
                pump = self._pumps.get(frame.sub)
                if isinstance(pump, SubscriptionPump):
                    pump.returned(frame.items)
            case frames.Credit():
                self._credit(frame)
            case frames.Publish():
                self._command(frame.n, self._publish(frame))
            case frames.Call():
                self._command(frame.n, call(self._bus, frame.verb, frame.args, self._codec))
            case frames.Subscribe():
                self._opening[frame.sub] = self._command(frame.n, self._subscribe(frame))
            case frames.Watch():
                self._command(frame.n, self._watch(frame))
            case frames.Reclaim():
                self._command(frame.n, self._reclaim(frame))
            case frames.Close():
                self._command(frame.n, self._close(frame))
            case frames.Ping():
                self._push()
                self._outgoing.put(frames.Pong(frame.n, self._node.now()))
            case frames.Pong():
                pass
            case frames.Hello():
                raise _Leave(BROKEN, ProtocolError("hello was said before", help="say it once"))

    # -- commands

    def _command(self, n: int | None, work: Coroutine[Any, Any, Raw]) -> asyncio.Task[None] | None:
        """Carry out a command beside others, and answer it."""
        if len(self._open) >= self.limits.max_open:
            work.close()
            error = OverloadError(f"{len(self._open):,} commands are open", help="wait for answers first")
            self._outgoing.put(frames.Failed(to_wire(error), n))
            return None
        task = self._loop.create_task(self._answered(n, work))
        self._open.add(task)
        task.add_done_callback(self._open.discard)
        return task

    async def _answered(self, n: int | None, work: Coroutine[Any, Any, Raw]) -> None:
        try:
            value = await work
        except TocsinError as error:
            self._outgoing.put(frames.Failed(to_wire(error), n))
        except Exception as error:
            _log.exception("a command has failed")
            self._outgoing.put(frames.Failed(to_wire(error), n))
        else:
            if n is not None:
                self._outgoing.put(frames.Done(n, value))

    async def _publish(self, frame: frames.Publish) -> Raw:
        events = self._codec.read_events(frame.events)
        return self._codec.value(await self._bus.publish_many(events))

    async def _subscribe(self, frame: frames.Subscribe) -> Raw:
        self._check_number(frame.sub, frame.credit)
        unknown = frame.options.keys() - set(_OPTIONS)
        if unknown:
            raise ConsumerError(
                f"there is no option {min(unknown)[:64]!r}", field="options", help=f"use {', '.join(_OPTIONS)}"
            )
        past = bounds.parse(frame.past) if frame.past is not None else None
        handle = await self._bus.subscribe(
            frame.filter, frame.consumer, past, replay=frame.replay, system=frame.system, **frame.options
        )
        self._pumps[frame.sub] = SubscriptionPump(
            self._node,
            handle,
            frame.sub,
            self._outgoing,
            self._codec,
            credit=frame.credit,
            ahead=frame.ahead,
            wake=self._push_soon,
        )
        self._push()  # what is there comes before the answer
        options = handle.mailbox.options
        record = handle.lane.record
        about = {"id": handle.id, "consumer": handle.consumer, "start": record.start, "seam": record.seam}
        return self._codec.value({**about, "options": options})

    async def _watch(self, frame: frames.Watch) -> Raw:
        self._check_number(frame.sub, frame.credit)
        if frame.what != "receipts":
            raise ProtocolError(f"there is no {frame.what[:64]!r} to watch", field="what", help="watch receipts")
        self._pumps[frame.sub] = ReceiptsPump(
            self._node, self.name, frame.sub, self._outgoing, self._codec, frame.credit, self._push_soon
        )
        self._push()
        return self._codec.value(None)

    def _check_number(self, sub: int, credit: int) -> None:
        if sub in self._pumps and not self._pumps[sub].closed:
            raise ProtocolError(f"subscription {sub} is open", field="sub", help="choose another number")
        if sum(not pump.closed for pump in self._pumps.values()) >= self.limits.max_subscriptions:
            raise OverloadError(f"{self.limits.max_subscriptions:,} subscriptions are open", help="close some first")
        if credit > self.limits.max_credit:
            raise ProtocolError(f"credit is {credit:,}", field="credit", help=f"give up to {self.limits.max_credit:,}")
        self._opening = {number: task for number, task in self._opening.items() if task is not None and not task.done()}
        closed = [number for number, pump in self._pumps.items() if pump.closed]
        for number in closed[: max(0, len(closed) - _KEPT_CLOSED)]:
            del self._pumps[number]

    def _credit(self, frame: frames.Credit) -> None:
        pump = self._pumps.get(frame.sub)
        if pump is None:
            return  # it was closed, or is being opened, with a credit of its own
        if pump.credit + frame.n > self.limits.max_credit:
            raise _Leave(
                BROKEN,
                ProtocolError(f"credit is {pump.credit + frame.n:,}", help=f"at most {self.limits.max_credit:,}"),
            )
        pump.credit += frame.n
        self._push_soon()

    def _pump(self, sub: int) -> SubscriptionPump:
        pump = self._pumps.get(sub)
        if not isinstance(pump, SubscriptionPump):
            raise DeliveryError(f"there is no subscription {sub}", field="sub", help="subscribe first")
        return pump

    async def _settle(self, frame: frames.Settle) -> Raw:
        pump, post = self._pump(frame.sub), self._node.post
        for number in frame.extend:
            await post.extend(pump.delivery(number))
        if numbers := pump.unsettled(frame.ack):
            await post.settle([pump.delivery(number) for number in numbers])
            pump.forget(numbers)
        for number, delay in frame.nak:
            await post.give_back(pump.delivery(number), delay)
        for number, reason in frame.term:
            await post.terminate(pump.delivery(number), reason)
            pump.forget([number])
        return self._codec.value(None)

    async def _reclaim(self, frame: frames.Reclaim) -> Raw:
        pump = self._pump(frame.sub)
        return self._codec.value([pump.reclaim(offset, attempt) for offset, attempt in frame.items])

    async def _close(self, frame: frames.Close) -> Raw:
        opening = self._opening.pop(frame.sub, None)
        if opening is not None and not opening.done():  # it is not wanted any more
            opening.cancel()
            await asyncio.gather(opening, return_exceptions=True)
        pump = self._pumps.get(frame.sub)
        if pump is not None:
            await pump.close()
        return self._codec.value(None)

    # -- going out

    def _push_soon(self) -> None:
        """Something may be there for a subscription: look once, for all that comes in this turn of the loop."""
        if not self._is_pushing:
            self._is_pushing = True
            self._loop.call_soon(self._push)

    def _push(self) -> None:
        self._is_pushing = False
        more = [pump.push() for pump in list(self._pumps.values())]
        if any(more):
            self._push_soon()

    def _is_stuck(self) -> None:
        self.leave("nothing can be sent", SLOW)

    async def _beat(self) -> None:
        """Say ping when nothing was said for a while, and leave when nothing is heard."""
        while True:
            await asyncio.sleep(self.limits.beat / 3)
            now = self._loop.time()
            if now - self._heard > self.limits.silence:
                self.leave("nothing was heard", SLOW)
            elif now - self._outgoing.last > self.limits.beat:
                self._outgoing.put(frames.Ping())
