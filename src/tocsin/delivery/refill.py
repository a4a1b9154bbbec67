"""Refilling a lane from the journal: what its queues had no room for, what came while it slept, and its past.

A scan runs in a worker thread and answers with events; the node puts them in the lane on its own thread. It asks only
for the levels that have room, and block statistics skip what cannot match: an urgent event far behind a long backlog is
found without reading the backlog.
"""

from __future__ import annotations

from collections.abc import Iterable
from time import perf_counter
from typing import Final, NamedTuple

from tocsin.delivery.lane import ANY_LEVEL, CAPACITY, Lane
from tocsin.delivery.mailbox import Mailbox
from tocsin.journal import history
from tocsin.journal.contract import Journal
from tocsin.model import Event

__all__ = ["Found", "apply", "look", "sift"]

_TURN: Final = 0.005  # seconds that one look among events in memory may keep the node from everything else


class Found(NamedTuple):
    """Matches of a scan, the last offset it has seen, and the levels it was for."""

    matches: list[Event]
    last: int
    levels: list[int]


def look(journal: Journal, lane: Lane, levels: list[int], first: int, head: int) -> Found:
    """Look for the lane's events from `first` on, up to `head` at most. Runs in any thread."""
    matches: list[Event] = []
    priorities = None if ANY_LEVEL in levels else levels
    system = lane.record.system
    for offset, event, _ in history.scan(journal, {0: lane.filter}, first, head, priorities, system=system):
        matches.append(event)
        if len(matches) > CAPACITY:
            return Found(matches, offset, levels)
    return Found(matches, head, levels)


def sift(lane: Lane, levels: list[int], events: Iterable[Event]) -> Found:
    """Look for the lane's events among consecutive ones that are in memory already: as many as there is time for.

    It runs on the node's own thread, and a filter may be dear, or an event have to be made of its row; at least one
    event is looked at, if there is any.
    """
    every = ANY_LEVEL in levels
    matches: list[Event] = []
    last, until = 0, perf_counter() + _TURN
    for event in events:
        if (every or event.priority in levels) and lane.matches(event):
            matches.append(event)
        last = event.offset or 0
        if perf_counter() > until:
            break
    return Found(matches, last, levels)


def apply(mailbox: Mailbox, lane: Lane, found: Found, head: int) -> None:
    """Put what a scan has found into the lane, as far as it is this lane's to deliver."""
    among = mailbox.lanes_about(found.matches[0].offset or 0, found.matches[-1].offset or 0) if found.matches else []
    for event in found.matches:
        level = mailbox.level_of(event)
        if level in found.levels and mailbox.is_for(lane, event, among):  # a level that was not asked for has gaps
            lane.found(event.offset or 0, level)
    lane.looked_through(found.last, head, found.levels)
