"""Serving from afar: requests come as frames, a handler here answers them.

On a new connection it serves again. What was in hand when the old one was lost went to other servers, or whoever asked
was told; so it is told to stop here.
"""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING, Any

from msgspec import Raw

from tocsin.errors import ConnectionLostError, JournalError, PeerError, TocsinError
from tocsin.net import frames
from tocsin.net.protocol import MSGPACK
from tocsin.node.serving import Handler, Handlers
from tocsin.node.through import seen_through
from tocsin.peers.requests import Request
from tocsin.remote.link import Lost
from tocsin.remote.peers import RemotePeers

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["RemoteServing"]

_log = logging.getLogger("tocsin.remote")


class RemoteServing:
    """A resource that is served while this is entered."""

    def __init__(self, peers: RemotePeers, resource: str, handler: Handler) -> None:
        """Say what; nothing is served yet.

        Raises:
            PeerError: the resource is no name, or the handler cannot be called.
        """
        self._peers = peers
        self._handlers = Handlers(resource, handler, self._reply, self._fail)
        self.resource = resource
        self.sub, self.is_open = peers.number(), False
        self._has_begun = False

    async def __aenter__(self) -> RemoteServing:
        """Serve; everybody may know when this returns."""
        if self._has_begun:
            raise PeerError(f"{self.resource!r} is served with this already", help="call serve() again")
        self._has_begun = True
        self._handlers.start()
        self._peers.add(self)
        try:
            await self._peers.link.ask(self._serve)
        except BaseException:
            self._peers.remove(self)
            self._peers.link.tell(frames.Close(0, self.sub))
            self._handlers.stop()
            self._has_begun = False
            raise
        self.is_open = True
        return self

    def _serve(self, n: int) -> frames.Serve:
        return frames.Serve(n, self.sub, self.resource)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop serving."""
        self.is_open = False  # on a new connection it is not served again
        await seen_through(self._end(drains=kind is None))

    async def _end(self, drains: bool) -> None:
        try:
            with contextlib.suppress(Lost, JournalError, ConnectionLostError):  # then it is served no more already
                if self._peers.link.is_up:
                    await self._peers.link.ask_now(lambda n: frames.Withdraw(n, self.sub, drains))
        except TocsinError as error:
            _log.error("it is not known that %r is not served any more: %s", self.resource, error)
        finally:
            self._peers.remove(self)
            self._handlers.stop()

    # -- peers.Stream

    def hear(self, frame: Any) -> None:
        """See `peers.Stream`: requests have come."""
        if isinstance(frame, frames.Asked):
            for id, sender, attempt, data in frame.items:
                self._handlers.take(Request(id, self.resource, MSGPACK.read(data, Any), sender, attempt))

    async def resume(self) -> None:
        """See `peers.Stream`."""
        await self._peers.link.ask_now(self._serve)

    def lose(self) -> None:
        """See `peers.Stream`: nobody waits for what is at work."""
        self._handlers.drop()

    def end(self, error: TocsinError) -> None:
        """See `peers.Stream`."""
        self.is_open = False
        self._handlers.stop()

    # -- answers

    def _reply(self, id: str, body: bytes) -> None:
        self._peers.link.tell(frames.Answer(self.sub, id, Raw(body)))

    def _fail(self, id: str, message: str) -> None:
        self._peers.link.tell(frames.Fail(self.sub, id, message))
