"""Who is there, for a remote bus: what is advertised, served, joined and watched over one link; and asking.

All of it is opened again on a new connection: advertisements, servers and memberships first, then watches, so that
these find what is ours.

A request that was sent is not sent again by itself: the handler may have run. It ends with `ConnectionLostError` if the
connection is lost, and in its time even if the node says nothing.
"""

from __future__ import annotations

import asyncio
import logging
import weakref
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final, Protocol

from msgspec import Raw

from tocsin.errors import (
    ConnectionLostError,
    JournalError,
    NetworkError,
    PeerError,
    RequestError,
    RequestTimeout,
    TextError,
    TocsinError,
)
from tocsin.net import frames
from tocsin.net.faults import from_wire
from tocsin.net.protocol import MSGPACK
from tocsin.node.requests import check_timeout
from tocsin.peers.requests import pack
from tocsin.remote.link import Link, Lost
from tocsin.remote.watches import RemoteChanges, RemoteDemand, Wanted

__all__ = ["RemotePeers", "Stream"]

GRACE: Final = 0.5
"""Seconds more than its own that a request waits for the node to say that its time is up."""
_log = logging.getLogger("tocsin.remote")


class Stream(Protocol):
    """Something that is open under a number."""

    sub: int
    is_open: bool
    """Has the node said that it is?"""

    def hear(self, frame: Any) -> None:
        """A frame for it has come."""

    async def resume(self) -> None:
        """Open it on a new connection."""

    def lose(self) -> None:
        """The connection is lost."""

    def end(self, error: TocsinError) -> None:
        """There will be nothing more from it."""


class RemotePeers:
    """All of this of one link."""

    def __init__(self, number: Callable[[], int]) -> None:
        """Begin with nothing; `number` gives numbers for what is opened."""
        self.link: Link
        self.number = number
        self.advertised: dict[str, None] = {}
        self._streams: dict[int, Stream] = {}
        self._watches: weakref.WeakValueDictionary[int, RemoteChanges] = weakref.WeakValueDictionary()
        self._watched: set[int] = set()  # their numbers, until it is known that they are closed
        self._opening: set[asyncio.Task[None]] = set()

    def add(self, stream: Stream) -> None:
        """Hear for it from now on."""
        self._streams[stream.sub] = stream

    def remove(self, stream: Stream) -> None:
        """It is closed."""
        self._streams.pop(stream.sub, None)
        self._watches.pop(stream.sub, None)
        self._watched.discard(stream.sub)

    # -- the connection

    def hear(self, frame: Any) -> bool:
        """Take a frame that is for one of these; is it?"""
        sub: int = getattr(frame, "sub", -1)
        stream: Stream | None = self._streams.get(sub) or self._watches.get(sub)
        if stream is None:
            if sub in self._watched or isinstance(frame, frames.Asked):  # nobody here holds it any more
                self._watched.discard(sub)
                self.link.tell(frames.Close(0, sub))
                return True
            return isinstance(frame, frames.Grouped)
        if isinstance(frame, frames.Ended):
            self.remove(stream)
            stream.end(from_wire(frame.error) if frame.error is not None else _closed())
        else:
            stream.hear(frame)
        return True

    async def resume(self) -> None:
        """On a new connection: be what was lost with the old one."""
        for text in list(self.advertised):
            args = MSGPACK.value({"filter": text})
            if (
                error := await self._again(self.link.ask_now(partial(frames.Call, verb="advertise", args=args)))
            ) is not None:
                self.advertised.pop(text, None)
                _log.error("%r could not be advertised again at %s: %s", text, self.link.url, error)
        for stream in [*self._streams.values(), *self._watches.values()]:
            if stream.is_open and (error := await self._again(stream.resume())) is not None:  # else who opens it asks
                self.remove(stream)
                if stream.is_open:  # else it was left meanwhile
                    _log.error("what was open at %s could not be opened again: %s", self.link.url, error)
                stream.end(error)

    async def _again(self, work: Awaitable[Any]) -> TocsinError | None:
        """Do something on a new connection; returns why it was refused, if it would be again."""
        try:
            await work
        except (PeerError, NetworkError, TextError) as error:
            if self.link.error is not None:
                raise
            return error
        return None

    def lose(self) -> None:
        """The connection is lost."""
        for stream in [*self._streams.values(), *self._watches.values()]:
            stream.lose()

    def end(self, error: TocsinError) -> None:
        """There will be no other."""
        for task in self._opening:
            task.cancel()
        for stream in [*self._streams.values(), *self._watches.values()]:
            stream.end(error)
        self._streams.clear()
        self._watches.clear()

    async def opened(self) -> None:
        """Wait until everything that was asked for is open."""
        await asyncio.gather(*self._opening, return_exceptions=True)

    # -- verbs

    def resources(self, text: str | None) -> RemoteChanges:
        """Watch what is advertised and served."""
        if self.link.error is not None:
            raise self.link.error
        changes = RemoteChanges(self, text)
        self._watches[changes.sub] = changes
        self._watched.add(changes.sub)
        task = asyncio.get_running_loop().create_task(changes.open())
        self._opening.add(task)
        task.add_done_callback(self._opening.discard)
        return changes

    async def demand(self, text: str) -> RemoteDemand:
        """Look who wants events like these."""
        args = MSGPACK.value({"filter": text})
        raw = await self.link.ask(lambda n: frames.Call(n, "demand", args))
        return RemoteDemand(self, text, MSGPACK.read(raw, Wanted))

    async def request(self, resource: str, data: Any, seconds: float, policy: str) -> Any:
        """Ask who serves a resource."""
        check_timeout(seconds)
        body, link = Raw(pack(data)), self.link
        until = asyncio.get_running_loop().time() + seconds
        while True:
            had_to_wait = not link.is_up
            try:
                async with asyncio.timeout_at(until):
                    await link.ready()
            except TimeoutError:
                raise RequestTimeout(
                    f"there was no connection to {link.url} within {seconds:g} s", help="is the node up? then ask again"
                ) from None
            sent: list[int] = []

            left = max(0.001, until - asyncio.get_running_loop().time()) if had_to_wait else seconds

            def build(n: int, sent: list[int] = sent, left: float = left) -> frames.Request:
                sent.append(n)
                return frames.Request(n, resource, body, left, policy)

            try:
                async with asyncio.timeout_at(until + GRACE):
                    return MSGPACK.read(await link.ask_now(build), Any)
            except RequestError:  # some of them are TimeoutErrors, too
                raise
            except TimeoutError:
                self._drop(sent)
                raise RequestTimeout(
                    f"{link.url} did not answer for {resource!r} within {seconds:g} s", help="is the node well?"
                ) from None
            except asyncio.CancelledError:
                self._drop(sent)
                raise
            except Lost:
                if sent:
                    raise ConnectionLostError(
                        f"the connection was lost before {resource!r} was answered",
                        help="ask again, if it does no harm to do it twice",
                    ) from None
            except JournalError:
                raise JournalError("the bus was closed before the answer came", help="connect again") from None

    def _drop(self, sent: list[int]) -> None:
        if sent:
            self.link.tell(frames.Drop(sent[0]))


def _closed() -> JournalError:
    return JournalError("the bus is closed", help="connect again")
