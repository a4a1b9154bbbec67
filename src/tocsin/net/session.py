"""One connection: frames in, frames out, and one face of the node between them.

A session reads one frame after the other. Commands are carried out side by side, each answered when it is done; what
they ask of the bus begins in the order they came. Whoever sends what is no frame, or breaks a limit, is told and shown
out; nobody else notices. When a connection is lost everything it had goes back at once, as after a crash.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from msgspec import Raw

from tocsin.errors import (
    ForbiddenError,
    NetworkError,
    OverloadError,
    ProtocolError,
    TocsinError,
    UnauthorizedError,
)
from tocsin.journal.contract import CLIENT
from tocsin.journal.rows import to_row
from tocsin.model import Event
from tocsin.net import frames
from tocsin.net.access import Caller
from tocsin.net.commands import Begun, Commands
from tocsin.net.faults import to_wire
from tocsin.net.outgoing import Outgoing, Outlet
from tocsin.net.peers import PeerStreams
from tocsin.net.protocol import BAD_HELLO, BROKEN, REFUSED, REPLACED, SLOW, VERSION, Codec, Limits
from tocsin.net.streams import Streams
from tocsin.net.verbs import call
from tocsin.node.pipeline import Batch, Node

__all__ = ["Session", "Socket"]

_LONGEST_WRITER = 64
_TURN = 64  # messages of one connection that are read in one turn of the loop
_log = logging.getLogger("tocsin.net")


class Socket(Outlet, Protocol):
    """What a session asks of a WebSocket."""

    def listen(self, take: Callable[[bytes | str | None], None], drained: Callable[[], None]) -> None:
        """Have every message handed to `take` (None: there is no other), and `drained` called when there is room."""

    def pause(self) -> None:
        """Read no more for now."""

    def resume(self) -> None:
        """Read on."""

    async def close(self, code: int, reason: str) -> None:
        """End the connection."""


class _Leave(Exception):
    """The session ends, for this reason."""

    def __init__(self, code: int, error: TocsinError | None = None, reason: str = "") -> None:
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
        self._streams: Any = None  # from hello on
        self._peers: Any = None
        self._work_of: dict[type, Callable[[Any], Begun]] = {}
        self._commands: Commands
        self._inbox: deque[bytes | str | None] = deque()
        self._turn = 0  # messages that were read in this turn of the loop
        self._is_paused = False
        self._greeting: asyncio.Task[None] | None = None
        self._size = 0  # bytes of the last frame
        self._heard = self._loop.time()
        self._leaving: asyncio.Future[_Leave] = self._loop.create_future()
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._clean = False

    async def run(self, limits: Limits) -> None:
        """Serve the connection to its end."""
        self.limits = limits
        self._outgoing = Outgoing(self._socket, self._codec, limits, self._has_room_again, self._is_stuck)
        self._commands = Commands(self._outgoing, limits, self._has_answered)
        late = self._loop.call_later(limits.hello, self._is_late)
        self._beat_later()
        leave = _Leave(1000)
        try:
            self._socket.listen(self._take, self._outgoing.flush)
            leave = await self._leaving
        finally:
            late.cancel()
            self._beating.cancel()
            if self._greeting is not None:
                self._greeting.cancel()
                await asyncio.gather(self._greeting, return_exceptions=True)
            await self._finish(leave)

    def leave(self, reason: str, code: int = 1001, error: NetworkError | None = None) -> None:
        """End the session from outside; the client is told why."""
        self._end(_Leave(code, error, reason))

    def _end(self, leave: _Leave) -> None:
        if not self._leaving.done():
            self._leaving.set_result(leave)

    def replace(self) -> None:
        """A newer session has the name."""
        self.leave("replaced", REPLACED)

    async def ended(self) -> None:
        """Wait until all it had is given back."""
        await asyncio.wait([self._ended])

    async def _finish(self, leave: _Leave) -> None:
        """Finish what was begun (a drain) or drop it (a loss), give everything back, say goodbye."""
        if draining := leave.reason == "draining":
            self._outgoing.put(frames.Bye(leave.reason))
        if draining:
            await self._commands.finished(self.limits.stuck)
        await self._commands.drop_all()
        try:
            if self._streams is not None:
                self._streams.stop()  # nothing of what follows is told: the connection has ended, not what it had open
                try:
                    await self._bus._session.end(crashed=not self._clean and not draining)
                finally:
                    await self._streams.close_all()
        except TocsinError as error:  # the disk is full, say
            _log.error("the end of a session is not stored: %s", error)
        finally:
            self._ended.set_result(None)  # a newer session of the name waits for it
        if leave.error is not None:
            self._outgoing.put(frames.Failed(to_wire(leave.error)))
        if not draining:
            self._outgoing.put(frames.Bye(leave.reason or "closed"))
        try:
            async with asyncio.timeout(5):  # who does not read need not be told
                await self._outgoing.flushed()
        except TimeoutError:
            pass
        self._outgoing.close()
        await self._socket.close(leave.code, leave.reason[:100])

    # -- coming in

    def _take(self, message: bytes | str | None) -> None:
        self._inbox.append(message)
        self._work()

    def _next_turn(self) -> None:
        self._turn = 0
        self._work()

    def _work(self) -> None:
        """Read what has come: so much in one turn of the loop, so that others have theirs."""
        while self._inbox and not self._must_wait:
            self._turn += 1
            if self._turn == 1:
                self._loop.call_soon(self._next_turn)
            self._read(self._inbox.popleft())
        if bool(self._inbox) != self._is_paused:
            self._is_paused = not self._is_paused
            (self._socket.pause if self._is_paused else self._socket.resume)()

    @property
    def _must_wait(self) -> bool:
        """Is nothing more to be read now? It is not read faster than it can be stored."""
        is_greeting = self._greeting is not None and self._streams is None
        is_behind = self._commands.held > self.limits.max_held or self._outgoing.is_full
        return is_greeting or is_behind or self._turn >= _TURN or self._leaving.done()

    def _read(self, message: bytes | str | None) -> None:
        self._heard = self._loop.time()
        try:
            if message is None:
                self._end(_Leave(1000))
            elif self._streams is None:
                self._greeting = self._loop.create_task(self._greet(self._decoded(message)))
                self._greeting.add_done_callback(self._has_greeted)
            elif isinstance(frame := self._decoded(message), frames.Bye):
                self._clean = True
                self._end(_Leave(1000))
            else:
                self._handle(frame)
        except _Leave as leave:
            self._end(leave)
        except ProtocolError as error:
            self._end(_Leave(BROKEN if self._streams is not None else BAD_HELLO, error))
        except Exception as error:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        _log.error("a session has failed", exc_info=error)
        self._end(_Leave(1011, reason="a defect of the server"))

    def _decoded(self, message: bytes | str) -> frames.ClientFrame:
        self._size = len(message)
        if len(message) > self.limits.max_frame:
            raise ProtocolError(f"a frame has {len(message):,} bytes", help=f"send up to {self.limits.max_frame:,}")
        return self._codec.from_client(message)

    def _is_late(self) -> None:
        if self._greeting is None:
            self._end(_Leave(BAD_HELLO, ProtocolError("no hello came in time", help="say hello first")))

    def _has_greeted(self, task: asyncio.Task[None]) -> None:
        error = task.exception() if not task.cancelled() else None
        if isinstance(error, _Leave):
            self._end(error)
        elif error is not None:
            self._fail(error)
        self._work()

    async def _greet(self, frame: frames.ClientFrame) -> None:
        if not isinstance(frame, frames.Hello):
            raise _Leave(BAD_HELLO, ProtocolError("the first frame is no hello", help="say hello first"))
        if frame.version != VERSION:
            raise _Leave(
                BAD_HELLO, ProtocolError(f"version {frame.version} is not spoken here", help=f"speak {VERSION}")
            )
        try:
            self.caller = self._admit(frame.token, frame.name)
        except (UnauthorizedError, ForbiddenError, OverloadError) as error:
            raise _Leave(REFUSED, error) from None
        except ProtocolError as error:
            raise _Leave(BAD_HELLO, error) from None
        name = self.name = self.caller.name
        await self._arrive(self)
        self._bus = self.caller.bus
        if frame.options.get("strict_advertise") is True:
            self._bus._session.strict = True
        self._welcomed()
        limits = {each: getattr(self.limits, each) for each in self.limits.__struct_fields__}
        self._outgoing.put(frames.Welcome(VERSION, name, self.id, limits, self._node.now()))

    def _welcomed(self) -> None:
        """From here on, commands are carried out."""
        streams = self._streams = Streams(self._node, self._bus, self._outgoing, self._codec, self.limits)
        peers = self._peers = PeerStreams(streams, self.caller)
        self._work_of = {
            frames.Publish: self._publish,
            frames.Settle: streams.settle,
            frames.Call: self._call,
            frames.Request: peers.request,
            frames.Subscribe: streams.subscribe,
            frames.Watch: self._watch,
            frames.Serve: peers.serve,
            frames.Join: peers.join,
            frames.Cast: peers.cast,
            frames.Reclaim: streams.reclaim,
            frames.Withdraw: peers.withdraw,
            frames.Leave: streams.close,
            frames.Close: streams.close,
        }

    def _handle(self, frame: frames.ClientFrame) -> None:
        work = self._work_of.get(type(frame))
        if work is not None:
            task = self._commands.begin(frame, work, self._size)
            if task is not None and isinstance(frame, frames.Opening):
                self._streams.begin(frame.sub, frame.n, task)
            return
        match frame:
            case frames.Taken():
                self._streams.taken(frame)
            case frames.Credit():
                try:
                    self._streams.credit(frame)
                except ProtocolError as error:
                    raise _Leave(BROKEN, error) from None
            case frames.Return():
                self._streams.returned(frame)
            case frames.Want():
                self._streams.want(frame)
            case frames.Answer() | frames.Fail():
                self._peers.answer(frame)
            case frames.Drop():
                self._commands.drop(frame.n)
            case frames.Ping():
                self._streams.push()
                self._outgoing.put(frames.Pong(frame.n, self._node.now()))
            case frames.Hello():
                raise _Leave(BROKEN, ProtocolError("hello was said before", help="say it once"))

    # -- commands

    def _publish(self, frame: frames.Publish) -> Begun:
        self.caller.spend(len(frame.events), sum(map(len, frame.events)))
        events = self._codec.read_events(frame.events)
        largest = self.limits.max_event
        if any(len(part) > largest for part in frame.events):  # else no payload can be
            for event in events:
                to_row(event, largest)
        batch = None
        if frame.writer is not None:
            if frame.position is None or not 0 < len(frame.writer) <= _LONGEST_WRITER:
                raise ProtocolError("a writer and a position go together", field="writer", help="give both, or neither")
            batch = Batch(CLIENT + frame.writer, frame.position)  # never the name of a writer of the node's own
        stored = self._bus._submit(events, batch)
        if stored is None:
            return self._publish_later(events, batch)
        return stored, partial(self._published, events)

    def _published(self, events: list[Event], offsets: list[int]) -> Raw:
        return self._codec.value([(event.id, offset) for event, offset in zip(events, offsets, strict=True)])

    async def _publish_later(self, events: list[Event], batch: Batch | None) -> Raw:
        """There is no room at this moment."""
        return self._codec.value(await self._bus._publish_batch(events, batch))

    async def _call(self, frame: frames.Call) -> Raw:
        return await call(self._bus, frame.verb, frame.args, self._codec)

    async def _watch(self, frame: frames.Watch) -> Raw:
        self._streams.check_number(frame.sub, frame.credit)
        shown = {"receipts": self._streams.receipts, **self._peers.watches}
        if frame.what not in shown:
            raise ProtocolError(
                f"there is no {frame.what[:64]!r} to watch", field="what", help=f"watch {', '.join(shown)}"
            )
        opened: Raw = await shown[frame.what](frame)
        return opened

    # -- life and death

    def _has_answered(self) -> None:
        if self._inbox:
            self._heard = self._loop.time()
            self._work()

    def _has_room_again(self) -> None:
        if self._streams is not None:
            self._streams.push_soon()
        self._has_answered()

    def _is_stuck(self) -> None:
        self.leave("nothing can be sent", SLOW)

    def _beat_later(self) -> None:
        # No task: there may be a thousand sessions, and most do nothing else.
        self._beating = self._loop.call_later(self.limits.beat / 3, self._beat)

    def _beat(self) -> None:
        """Say ping when nothing was said for a while, and leave when nothing is heard."""
        now = self._loop.time()
        if now - self._heard > self.limits.silence:
            self.leave("nothing was heard", SLOW)
        elif now - self._outgoing.last > self.limits.beat:
            self._outgoing.put(frames.Ping())
        self._beat_later()
