"""One request: whom it goes to, what came back, when it is over. A small machine that is told what happens.

    policy   asks                    over when                            gives
    one      one server              it has answered                      its reply
    first    all servers             one has replied, or all have failed  the first reply
    all      all servers             all have answered or are gone        the list of replies, in order of servers

Promised: it is over in one of these ways: the result, `NoServer` (at once, nobody was asked), `RequestFailed` (the
handler raised), `ServerLost`, `RequestTimeout`. With `one` and `first`, a request whose servers are all gone goes to
another one, at most `MAX_ATTEMPTS` times in all: a request that kills servers must not kill all of them.
Not promised: that a handler runs once. One that was lost may have done its work; `Request.id` is the same each time.
"""

from __future__ import annotations

from typing import Any, Final, Literal, get_args

import msgspec

from tocsin.errors import (
    EventError,
    NoServer,
    OverloadError,
    PeerError,
    RequestError,
    RequestFailed,
    RequestTimeout,
    ServerLost,
)
from tocsin.model import new_id
from tocsin.payload import settle
from tocsin.peers.servers import Server, Servers

__all__ = ["MAX_ATTEMPTS", "MAX_BYTES", "Call", "Policy", "Request", "check_name", "pack", "unpack"]

Policy = Literal["one", "first", "all"]
MAX_ATTEMPTS: Final = 3
"""Servers that a request of policy `one` or `first` may lose before it is given up."""
MAX_BYTES: Final = 1024 * 1024
"""Largest request or reply, packed."""
_LONGEST: Final = 2_000  # characters of a handler's message that the requester gets to see
_LONGEST_NAME: Final = 256


class Request(msgspec.Struct, frozen=True):
    """What a handler gets."""

    id: str
    """The same each time the request is handed to a server."""
    resource: str
    data: Any
    sender: str
    """The name of who asks."""
    attempt: int = 1
    """More than 1: a server before you was lost, maybe when it had done the work."""


def check_name(resource: Any, what: str = "resource") -> str:
    """Return the name of what is served, or of a group.

    Raises:
        PeerError: it is none.
    """
    if type(resource) is not str or not 0 < len(resource) <= _LONGEST_NAME or not resource.isprintable():
        raise PeerError(
            f"{resource!r:.80} is no name for a {what}",
            field=what,
            help=f"give up to {_LONGEST_NAME} printable characters",
        )
    return resource


def pack(data: Any) -> bytes:
    """Data as bytes: what is handed over shares nothing with the sender's own, as if it had travelled.

    Raises:
        EventError: it is no JSON value and no bytes, or larger than `MAX_BYTES`.
    """
    plain, _ = settle(data, None)
    try:
        body = msgspec.msgpack.encode(plain)
    except OverflowError:
        raise EventError("data holds a whole number beyond 64 bits", field="data", help="send it as text") from None
    if len(body) > MAX_BYTES:
        raise EventError(
            f"data has {len(body):,} bytes, more than {MAX_BYTES:,}", field="data", help="send a reference to it"
        )
    return body


def unpack(body: bytes) -> Any:
    """Undo `pack`."""
    return msgspec.msgpack.decode(body)


class Call:
    """A request on its way."""

    def __init__(self, resource: str, body: bytes, sender: str, policy: Any) -> None:
        """Make one; nobody is asked yet.

        Raises:
            PeerError: there is no such policy.
        """
        if policy not in get_args(Policy):
            raise PeerError(f"policy is {policy!r:.80}", field="policy", help="give one, first or all")
        self.id = new_id()
        self.resource, self.body, self.sender = resource, body, sender
        self._policy: Policy = policy
        self._asked: dict[Server, bytes | None] = {}  # each with its reply
        self._waiting: set[Server] = set()
        self._attempts = 0
        self._error: RequestError | None = None
        self._first: bytes | None = None

    @property
    def is_over(self) -> bool:
        """Is there a result, or an error?"""
        return not self._waiting or self._first is not None

    def request(self) -> Request:
        """What the next server gets: a copy of its own."""
        return Request(self.id, self.resource, unpack(self.body), self.sender, max(1, self._attempts))

    # -- what happens

    def start(self, servers: Servers) -> list[Server]:
        """Begin; returns who is to be asked.

        Raises:
            NoServer: nobody serves this.
            OverloadError: those who do have all they can take.
        """
        known = servers.of(self.resource)
        if not known:
            raise NoServer(
                f"nobody serves {self.resource!r}",
                field="resource",
                help="see resources() for what is served",
            )
        chosen = [server for server in known if server.has_room]
        if not chosen or (self._policy == "all" and len(chosen) < len(known)):
            raise OverloadError(f"who serves {self.resource!r} has no room for more requests", help="ask again later")
        if self._policy == "one":
            best = servers.choose(self.resource)
            chosen = [best] if best is not None else []
        return self._ask(chosen, servers)

    def replied(self, server: Server, body: bytes) -> None:
        """A server has answered; too late is no harm."""
        if server in self._waiting:
            self._waiting.remove(server)
            self._asked[server] = body
            if self._policy != "all" and self._first is None:
                self._first = body

    def failed(self, server: Server, message: str) -> None:
        """A server's handler has raised."""
        if server in self._waiting:
            self._waiting.remove(server)
            message = message if len(message) <= _LONGEST else message[: _LONGEST - 1] + "…"
            self._error = RequestFailed(
                f"{server.name!r} failed to answer for {self.resource!r}: {message}", help="see what the server logs"
            )

    def lost(self, server: Server, servers: Servers) -> list[Server]:
        """A server is gone, or could not be reached; returns who is to be asked instead."""
        if server not in self._waiting:
            return []
        self._waiting.remove(server)
        if self._policy != "all" and not self._waiting and self._first is None and self._attempts < MAX_ATTEMPTS:
            other = servers.choose(self.resource, self._asked)
            if other is not None:
                return self._ask([other], servers)
        if self._error is None:
            self._error = ServerLost(
                f"{server.name!r} was lost before it answered for {self.resource!r}",
                help="ask again, if it does no harm to do it twice",
            )
        return []

    def _ask(self, chosen: list[Server], servers: Servers) -> list[Server]:
        self._attempts += 1
        for server in chosen:
            self._asked[server] = None
            self._waiting.add(server)
            servers.take(server, self.id)
        return chosen

    # -- how it ended

    def replies(self) -> list[Any]:
        """The replies that have come, in order of servers."""
        return [unpack(body) for body in self._asked.values() if body is not None]

    def result(self) -> Any:
        """The reply or replies.

        Raises:
            RequestError: what it ended with; with policy `all`, also if only some did. `.replies` has what came.
        """
        if self._first is not None:
            return unpack(self._first)
        if self._error is not None:
            self._error.replies = self.replies()
            raise self._error
        return self.replies()

    def timed_out(self, seconds: float) -> RequestTimeout:
        """The error for a request that took too long."""
        names = ", ".join(sorted(repr(server.name) for server in self._waiting)[:5])
        error = RequestTimeout(
            f"{names} did not answer for {self.resource!r} within {seconds:g} s",
            help="wait longer, or ask with policy='first'",
        )
        error.replies = self.replies()
        return error
