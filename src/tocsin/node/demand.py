"""Demand: does anybody want events like these? So that nobody need send what nobody wants.

Wanted is what a subscription asks for that is open, or that a durable consumer will find when it is back, or that a
definition is made of. Filters that cannot be compared count as wanting: better sent in vain than not at all.
Not known here: who reads the journal on Spark, or will ask for the past one day.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tocsin.composite.expression import leaves
from tocsin.filters.filter import Filter

if TYPE_CHECKING:
    from tocsin.node.pipeline import Node
    from tocsin.node.sessions import Session

__all__ = ["Demand", "demand"]

_PUBLISHED = Filter("NOT type LIKE 'tocsin.%'")  # all that anybody may publish


class Demand:
    """Who wants events like these, at one moment. True if anybody does."""

    def __init__(self, session: Session, filter: Filter) -> None:
        """Look who does."""
        self._session, self._filter = session, filter
        self._seen = session.node.peers.demand
        self.consumers = _consumers(session.node, filter)
        """Names of consumers, sorted."""
        self.definitions = _definitions(session.node, filter)
        """Names of composite events, sorted. Those that are made of others are not named."""

    def __bool__(self) -> bool:
        """Does anybody want them?"""
        return bool(self.consumers or self.definitions)

    def __repr__(self) -> str:
        """Show who does."""
        return f"Demand(consumers={self.consumers}, definitions={self.definitions})"

    async def changed(self, timeout: float | None = None) -> Demand:
        """Wait until others want them than did; returns who.

        Raises:
            TimeoutError: nothing changed in time.
            JournalError: the bus was closed.
        """
        found = self
        async with asyncio.timeout(timeout):
            while (found.consumers, found.definitions) == (self.consumers, self.definitions):
                await found._seen.wait()
                self._session.check()
                found = Demand(self._session, self._filter)
        return found


def demand(session: Session, text: str | Filter) -> Demand:
    """Look who wants events like these; see `Bus.demand`."""
    session.check()
    filter = text if isinstance(text, Filter) else Filter(text)
    return Demand(session, filter)


def _consumers(node: Node, filter: Filter) -> tuple[str, ...]:
    names: set[str] = set()
    for mailbox in node.mailboxes.values():
        lanes = [lane.filter for lane in mailbox.lanes.values() if not lane.record.ended]
        if any(not lane.disjoint(filter) and not lane.disjoint(_PUBLISHED) for lane in lanes):
            names |= mailbox.members or {mailbox.title}
    return tuple(sorted(names))


def _definitions(node: Node, filter: Filter) -> tuple[str, ...]:
    found = [
        each.name
        for each in node.watcher.placements.whole.definitions()
        if any(leaf.filter and not Filter(leaf.filter).disjoint(filter) for leaf in leaves(each.expression))
    ]
    return tuple(sorted(found))
