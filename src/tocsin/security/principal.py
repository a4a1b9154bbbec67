"""A principal: a token that was checked, and all that follows from it.

All connections of a token share one, so their spending is counted together.
"""

from __future__ import annotations

from tocsin.errors import ForbiddenError
from tocsin.filters.limits import DEFAULT, Limits
from tocsin.security.limits import Meter
from tocsin.security.rights import Rights
from tocsin.security.scope import Scope
from tocsin.security.tokens import Token

__all__ = ["Principal"]


class Principal:
    """Somebody who has shown a token."""

    def __init__(self, token: Token, now: int) -> None:
        """Read what the token says, at a time in microseconds."""
        self.token = token
        self.name = token.name
        self.rights = Rights(token.rights)
        self.scope = Scope(self.rights, token.clearance)
        self.meter = Meter(token.limits, now)
        atoms = min(token.limits.predicates, DEFAULT.atoms)
        self.filter_limits = Limits(atoms=atoms, conjunctions=min(atoms, DEFAULT.conjunctions))
        """What its filters may cost."""
        self.opening = 0
        """Subscriptions that are being opened."""

    def may_be(self, name: str) -> bool:
        """Is this a name of its own: that of the token, or one behind it and a slash?"""
        return name == self.name or name.startswith(f"{self.name}/")

    def check_name(self, name: str) -> str:
        """A name that it says it has.

        Raises:
            ForbiddenError: it is another's.
        """
        if not self.may_be(name):
            raise ForbiddenError(
                f"your token is not that of {name!r}",
                field="name",
                help=f"say {self.name!r}, or {self.name + '/…'!r}, or no name",
            )
        return name
