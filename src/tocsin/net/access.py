"""Who is let in, and what they may: the one door of WebSocket sessions and HTTP requests.

A `Gate` turns what a stranger says of itself into a `Caller`. A caller has a face of the bus on which every verb is
limited to its rights already; what has no verb there is asked of the caller by name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tocsin.errors import ProtocolError
from tocsin.model import Event

__all__ = ["Caller", "Gate"]

LONGEST_NAME = 256


class Caller:
    """Somebody who was let in. This one may do everything."""

    def __init__(self, name: str, bus: Any) -> None:
        """Let in under a name, with a face of the bus."""
        self.name, self.bus = name, bus

    def check(self, right: str, subject: str = "") -> None:
        """May it do this?

        Args:
            right: `publish`, `subscribe`, `define`, `serve`, `request`, `join`, `metrics` or `admin`.
            subject: with what: a type of events, a resource, a group.

        Raises:
            ForbiddenError: no.
        """

    def sees(self, event: Event) -> bool:
        """May it know of an event?"""
        return True

    def spend(self, events: int, size: int) -> None:
        """Count what it sends: so many events, so many bytes.

        Raises:
            OverloadError: that is more than it may in a time.
        """


class Gate:
    """Who is let in. This one lets in everybody, under the name they give: for a node on loopback without tokens."""

    def __init__(self, face: Callable[[str], Any]) -> None:
        """Guard a node.

        Args:
            face: gives the bus of a name.
        """
        self._face = face

    def admit(self, token: str | None, name: str | None, where: str, default: str) -> Caller:
        """Let somebody in.

        Args:
            token: what it shows.
            name: who it says it is.
            where: the address it comes from.
            default: its name if neither it nor its token says one.

        Raises:
            UnauthorizedError: the token is missing, wrong, expired or revoked.
            ForbiddenError: it may not use this name.
            ProtocolError: the name is none.
        """
        known = check_name(name) if name is not None else default
        return Caller(known, self._face(known))


def check_name(name: str) -> str:
    """A name that somebody gives.

    Raises:
        ProtocolError: it is none.
    """
    if not 0 < len(name) <= LONGEST_NAME or not name.isprintable():
        raise ProtocolError("the name is none", field="name", help=f"use 1 to {LONGEST_NAME} printable characters")
    return name
