"""Refilling a lane from the journal: what its queues had no room for, what came while it slept, and its past.

A scan looks at a bounded stretch of the journal in a worker thread and answers with events; the node puts them in the
lane on its own thread. Blocks whose statistics exclude the filter are skipped unread.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from tocsin.delivery.lane import CAPACITY, Lane
from tocsin.delivery.mailbox import Mailbox
from tocsin.filters.index import Matcher
from tocsin.journal.contract import Journal
from tocsin.journal.statistics import may_match
from tocsin.model import Event

__all__ = ["Found", "apply", "look", "sift"]

STRETCH = 16_384
"""Events looked at before a scan answers."""
_FEW = 32  # events of a block below which asking the filter in turn is quicker than an index


class Found(NamedTuple):
    """Matches of a scan, and the last offset it has seen."""

    matches: list[Event]
    last: int


def look(journal: Journal, lane: Lane, first: int, head: int) -> Found:
    """Look for the lane's events from `first` on, up to `head` at most. Runs in any thread."""
    first = max(first, journal.first)
    matcher = Matcher([(0, lane.filter)])
    matches: list[Event] = []
    seen, last = 0, first - 1
    for block in journal.blocks(first, head):
        last = min(block.last, head)
        if block.statistics is not None and not may_match(lane.filter, block.statistics):
            continue
        events = [event for event in block.events() if first <= (event.offset or 0) <= head]
        matches += [event for event in _matching(matcher, lane, events) if lane.may_see(event)]
        seen += len(events)
        if seen >= STRETCH or len(matches) > CAPACITY:
            return Found(matches, last)
    return Found(matches, max(last, head))


def sift(lane: Lane, events: list[Event]) -> Found:
    """Look for the lane's events among consecutive ones that are in memory already."""
    matches = [event for event in _matching(Matcher([(0, lane.filter)]), lane, events) if lane.may_see(event)]
    return Found(matches, events[-1].offset or 0)


def _matching(matcher: Matcher, lane: Lane, events: list[Event]) -> Iterable[Event]:
    if len(events) <= _FEW:
        return [event for event in events if lane.filter.matches(event)]
    return [event for event, keys in zip(events, matcher.match_batch(events), strict=True) if keys]


def apply(mailbox: Mailbox, lane: Lane, found: Found, head: int) -> None:
    """Put what a scan has found into the lane, as far as it is this lane's to deliver."""
    for event in found.matches:
        if mailbox.is_for(lane, event):
            lane.found(event.offset or 0, mailbox.level_of(event))
    lane.looked_through(found.last, head)
