"""Servers: who answers requests for what, and which of several equal ones is asked.

The one with the fewest requests in hand; among equals the one that was not asked for the longest time, so that idle
servers take turns. One with `MAX_IN_HAND` is not asked. Told by what they have in hand, not by what they could do: a
server that is slow gets less.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Final

from tocsin.errors import PeerError

__all__ = ["MAX_IN_HAND", "Server", "Servers"]

MAX_IN_HAND: Final = 1_000
"""Requests that a server may have in hand before others are asked instead."""


class Server:
    """One session's promise to answer requests for one resource."""

    __slots__ = ("deliver", "in_hand", "name", "resource", "session", "turn")

    def __init__(self, resource: str, session: str, name: str, deliver: Callable[[Any], None]) -> None:
        """Make a server.

        Args:
            resource: what it answers for.
            session: whose it is, by id.
            name: the same for people.
            deliver: hands a `Request` over. It does not wait; it raises if it cannot.
        """
        self.resource, self.session, self.name, self.deliver = resource, session, name, deliver
        self.in_hand: dict[str, None] = {}
        """Ids of the requests it has and has not answered, oldest first."""
        self.turn = 0
        """When it was asked last, counted in requests."""

    @property
    def has_room(self) -> bool:
        """May it be asked?"""
        return len(self.in_hand) < MAX_IN_HAND


class Servers:
    """All servers, by resource."""

    def __init__(self) -> None:
        """Begin with none."""
        self._by_resource: dict[str, list[Server]] = {}
        self._leaving: set[tuple[str, str]] = set()  # resource and session of those whose end is not known yet
        self._turn = 0

    def check(self, resource: str, session: str) -> None:
        """Refuse a second server of one session for one resource.

        Raises:
            PeerError: it has one, or had one whose end is not stored yet.
        """
        if (resource, session) in self._leaving or any(server.session == session for server in self.of(resource)):
            raise PeerError(
                f"this session serves {resource!r} already", field="resource", help="serve it under another name"
            )

    def add(self, server: Server) -> None:
        """From now on it is asked."""
        self._by_resource.setdefault(server.resource, []).append(server)

    def remove(self, server: Server) -> bool:
        """From now on it is not asked; tells whether it was there."""
        servers = self._by_resource.get(server.resource, [])
        if server not in servers:
            return False
        servers.remove(server)
        if not servers:
            del self._by_resource[server.resource]
        return True

    def leave(self, server: Server) -> None:
        """From now on it is not asked, but others may not know yet: until `left`, its session cannot serve it anew."""
        self.remove(server)
        self._leaving.add((server.resource, server.session))

    def left(self, server: Server) -> None:
        """Everybody may know that a server has left."""
        self._leaving.discard((server.resource, server.session))

    def of(self, resource: str) -> list[Server]:
        """All that answer for a resource, in the order in which they came."""
        return list(self._by_resource.get(resource, ()))

    def of_session(self, session: str) -> list[Server]:
        """All of a session."""
        return [server for servers in self._by_resource.values() for server in servers if server.session == session]

    def choose(self, resource: str, without: Collection[Server] = ()) -> Server | None:
        """The one to ask next; None: there is none with room."""
        able = [server for server in self._by_resource.get(resource, ()) if server.has_room and server not in without]
        if not able:
            return None
        return min(able, key=lambda server: (len(server.in_hand), server.turn))

    def take(self, server: Server, request: str) -> None:
        """A server gets a request."""
        self._turn += 1
        server.turn = self._turn
        server.in_hand[request] = None
