"""Refusals, written down: who was refused what, and why; in the log, in figures, and in the journal.

Each refusal counts, and is a line of the logger `tocsin.audit`. In the journal it is a system record:

    tocsin.refused    data: why, what, name, token, where, suppressed

Of one token and one reason at most `MOST` a minute are logged and stored, and of strangers, who could give a thousand
names, of one reason: the next says how many were not. So nobody fills a disk by being refused. No secret is written
down: of a token its id alone, and of a wrong one nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from typing import Final

from tocsin.clock import SECOND
from tocsin.errors import TocsinError
from tocsin.model import Event
from tocsin.node.pipeline import Node
from tocsin.security.tokens import Token

__all__ = ["MOST", "REFUSED", "Refusals"]

REFUSED: Final = "tocsin.refused"
MOST: Final = 10
"""Records of one kind in a minute."""
_MINUTE: Final = 60 * SECOND
_SHOWN: Final = 200  # characters of what a stranger says
_audit = logging.getLogger("tocsin.audit")
_log = logging.getLogger("tocsin.net")


class _Kind:
    """Refusals of one token for one reason."""

    __slots__ = ("since", "suppressed", "told")

    def __init__(self, now: int) -> None:
        self.since, self.told, self.suppressed = now, 0, 0


class Refusals:
    """The book of refusals of one node."""

    def __init__(self, node: Node) -> None:
        """Begin with none."""
        self._node = node
        self.counts: Counter[str] = Counter()
        """By reason, since the node was opened."""
        self._kinds: dict[tuple[str, str], _Kind] = {}

    def note(self, why: str, what: str, *, name: str = "", token: Token | None = None, where: str = "") -> None:
        """Write one down.

        Args:
            why: a word: `missing`, `wrong`, `right`, `rate`, …
            what: what was wanted, or what was said to it.
            name: who it says it is.
            token: what it has shown, if that was right.
            where: the address it comes from.
        """
        self.counts[why] += 1
        now = self._node.clock.now()
        whose = token.id if token is not None else ""
        kind = self._kinds.get((whose, why))
        if kind is None or now - kind.since >= _MINUTE:
            fresh = _Kind(now)
            fresh.suppressed = kind.suppressed if kind is not None else 0
            kind = self._kinds[whose, why] = fresh
        if kind.told >= MOST:
            kind.suppressed += 1
            return
        kind.told += 1
        about = {
            "why": why,
            "what": _plain(what),
            "name": _plain(name or (token.name if token is not None else "")),
            "token": whose,
            "where": _plain(where),
            "suppressed": kind.suppressed,
        }
        kind.suppressed = 0
        _audit.warning("refused: %s", " ".join(f"{key}={value!r}" for key, value in about.items()))
        if not self._node.closed:
            try:
                self._node.store(events=[Event(REFUSED, "tocsin", data=about)]).add_done_callback(_report)
            except TocsinError as error:
                _log.error("a refusal is not stored: %s", error)


def _plain(text: str) -> str:
    """What a stranger says, short and on one line."""
    return "".join(each if each.isprintable() else "?" for each in text[:_SHOWN])


def _report(answer: asyncio.Future[list[int]]) -> None:
    if not answer.cancelled() and (error := answer.exception()) is not None:
        _log.error("a refusal is not stored: %s", error)
