"""Advertisements: which session says that it will publish what, or answer what; and what others hear of it.

    first advertiser of a resource   ─▶ found          last one withdraws or is gone  ─▶ depleted
    each later one                   ─▶ advertised     one of several does            ─▶ unadvertised

Promised: of each pair exactly one is told. A session that is gone withdraws all it had, by the same rule. Advertising
again changes nothing but is told as `advertised`; withdrawing what was never advertised does nothing and is not told.
Resources are compared by their text, for filters the canonical one.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

import msgspec

from tocsin.errors import PeerError

__all__ = ["MAX_ADVERTISED", "Advertisements", "Change", "Resource"]

MAX_ADVERTISED: Final = 1_000
"""Resources that one session may advertise or serve at a time."""


class Resource(NamedTuple):
    """What is advertised."""

    text: str
    """The canonical text of a filter, or the name of what is served."""
    served: bool = False
    """Does it answer requests, rather than promise events?"""


class Change(msgspec.Struct, frozen=True):
    """Something that `resources()` tells."""

    kind: Literal["found", "advertised", "unadvertised", "depleted"]
    resource: str
    """The canonical text of the filter, or the name of what is served."""
    by: str
    """The name of who advertises, or did."""
    served: bool = False
    """Does it answer requests, rather than promise events?"""
    session: str = ""
    """The id of the session that does: several may have one name."""


class Advertisements:
    """Who advertises what. A session is known by its id; its name is for people."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self._by_resource: dict[Resource, dict[str, str]] = {}  # resource → session → name, in order of coming
        self._by_session: dict[str, dict[Resource, None]] = {}

    def check_room(self, session: str, resource: Resource) -> None:
        """Refuse one more than a session may have.

        Raises:
            PeerError: it has `MAX_ADVERTISED` already.
        """
        own = self._by_session.get(session, {})
        if resource not in own and len(own) >= MAX_ADVERTISED:
            raise PeerError(
                f"a session advertises at most {MAX_ADVERTISED:,} resources", help="join some of them with OR"
            )

    def advertise(self, session: str, name: str, resource: Resource) -> Change:
        """A session advertises."""
        known = self._by_resource.setdefault(resource, {})
        kind: Literal["found", "advertised"] = "advertised" if known else "found"
        known[session] = name
        self._by_session.setdefault(session, {})[resource] = None
        return Change(kind, resource.text, name, resource.served, session)

    def unadvertise(self, session: str, resource: Resource) -> Change | None:
        """A session withdraws; None: it had not advertised that."""
        own = self._by_session.get(session, {})
        if resource not in own:
            return None
        del own[resource]
        if not own:
            del self._by_session[session]
        known = self._by_resource[resource]
        name = known.pop(session)
        if known:
            return Change("unadvertised", resource.text, name, resource.served, session)
        del self._by_resource[resource]
        return Change("depleted", resource.text, name, resource.served, session)

    def leave(self, session: str) -> list[Change]:
        """A session is gone: it withdraws everything, in the order in which it came."""
        changes = [self.unadvertise(session, resource) for resource in self.of(session)]
        return [change for change in changes if change is not None]

    def of(self, session: str) -> list[Resource]:
        """What a session advertises."""
        return list(self._by_session.get(session, ()))

    def now(self) -> list[Change]:
        """What is there, as somebody new hears it: `found` for each resource, `advertised` for each further one."""
        return [
            Change("advertised" if place else "found", resource.text, name, resource.served, session)
            for resource, known in self._by_resource.items()
            for place, (session, name) in enumerate(known.items())
        ]
