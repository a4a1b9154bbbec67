"""Rights: what a token may do, as text that people write and programs check.

    publish:machine.    publish events whose type begins with `machine.`, cancel such, advertise them
    subscribe:*         hear of events of any type, but for the node's own records (`subscribe:tocsin.`)
    define:plant.       define composite events whose name begins with `plant.`
    serve:params/       answer requests for resources whose name begins so
    request:*           ask for any resource
    join:line-          be a member of groups whose name begins so
    metrics             read the node's figures
    admin               all of these, and what changes the node itself

A prefix is text, compared letter by letter: `publish:machine` is also a right to publish `machinery.stop`, so end it
with a dot. Clearance is no right: it binds administrators too.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from tocsin.composite.leaves import SYSTEM
from tocsin.errors import ForbiddenError, TokenError

__all__ = ["ALL", "PLAIN", "PREFIXED", "Right", "Rights", "parse"]

PREFIXED: Final = ("publish", "subscribe", "define", "serve", "request", "join")
"""Verbs that say with what."""
PLAIN: Final = ("metrics", "admin")
ALL: Final = "*"
_LONGEST: Final = 256
_REMEMBERED: Final = 4096  # answers kept: types repeat from event to event


class Right(NamedTuple):
    """One verb, and what its subjects begin with."""

    verb: str
    prefix: str = ""

    def __str__(self) -> str:
        """Return the text it was read from."""
        return self.verb if self.verb in PLAIN else f"{self.verb}:{self.prefix or ALL}"


def parse(text: str) -> Right:
    """Read one right.

    Raises:
        TokenError: it is none.
    """
    verb, colon, prefix = text.partition(":")
    if verb in PLAIN and not colon:
        return Right(verb)
    if verb not in PREFIXED or not colon or not prefix:
        raise TokenError(
            f"{text[:80]!r} is no right",
            field="rights",
            help=f"write {', '.join(PLAIN)}, or one of {', '.join(PREFIXED)} with a prefix, as in publish:machine. "
            "or subscribe:*",
        )
    if prefix == ALL:
        return Right(verb)
    if ALL in prefix or len(prefix) > _LONGEST or not prefix.isprintable():
        raise TokenError(
            f"{prefix[:80]!r} is no prefix",
            field="rights",
            help=f"write what names begin with, without a star: publish:machine. (up to {_LONGEST} characters)",
        )
    return Right(verb, prefix)


class Rights:
    """All rights of somebody."""

    def __init__(self, texts: Iterable[str]) -> None:
        """Read them.

        Raises:
            TokenError: one is none.
        """
        self.all = tuple(dict.fromkeys(parse(text) for text in texts))
        self.is_admin = Right("admin") in self.all
        self._answers: dict[tuple[str, str], bool] = {}

    def prefixes(self, verb: str) -> tuple[str, ...]:
        """What subjects of a verb may begin with; an empty text: with anything."""
        if self.is_admin:
            return ("", SYSTEM)
        return tuple(right.prefix for right in self.all if right.verb == verb)

    def allow(self, verb: str, subject: str = "") -> bool:
        """Do they allow this? The node's own types must be named: a star is no right to them."""
        known = self._answers.get((verb, subject))
        if known is None:
            own = subject.startswith(SYSTEM)
            known = any(
                subject.startswith(prefix) and (not own or prefix.startswith(SYSTEM)) for prefix in self.prefixes(verb)
            )
            if len(self._answers) >= _REMEMBERED:  # bounded, since subjects come from strangers
                self._answers.clear()
            self._answers[verb, subject] = known
        return known

    def check(self, verb: str, subject: str = "") -> None:
        """As `allow`, or else.

        Raises:
            ForbiddenError: they do not.
        """
        if not self.allow(verb, subject):
            wanted = verb if verb in PLAIN else f"{verb}:{subject}"
            raise ForbiddenError(
                f"your token has no right to {wanted[:200]}",
                field="token",
                help=f"it has {', '.join(map(str, self.all)) or 'none'}; ask who runs the node for another",
            )
