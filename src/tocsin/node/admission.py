"""What a publisher may publish, as far as an event alone tells: types and sources of the node's own are refused.

One rule for every way in: in-process, over a WebSocket, over HTTP, staged by Spark. Rights, sizes and promises are
looked at elsewhere, by who knows the publisher.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tocsin.composite.leaves import SOURCE, SYSTEM
from tocsin.errors import EventError
from tocsin.model import Event

__all__ = ["check_publishable", "is_reserved", "refused"]


def is_reserved(type_: str, source: str) -> bool:
    """Is it a type or a source that only the node itself writes?"""
    return type_.startswith(SYSTEM) or source == SOURCE


def check_publishable(events: Sequence[Event]) -> None:
    """Let events pass, or none of them.

    Raises:
        EventError: one is no event, or the node's own.
    """
    if _is_worth_a_look(events):
        for event in events:
            if event.__class__ is not Event or is_reserved(event.type, event.source):
                raise refused(event)


def _is_worth_a_look(events: Iterable[Event]) -> bool:
    """Is one of them to be refused, as far as is seen at a glance? Types and sources repeat."""
    if not {Event}.issuperset(map(type, events)):
        return True
    return any(is_reserved(*kind) for kind in {(event.type, event.source) for event in events})


def refused(event: object) -> EventError:
    """The error for what cannot be published."""
    if not isinstance(event, Event):
        return EventError(f"an event is expected, not {type(event).__name__}", help="make one: Event(type, source)")
    if event.source == SOURCE:
        return EventError(
            f"the source {SOURCE!r} is the node's own", field="source", help="it is that of composite events; say yours"
        )
    return EventError(
        f"the type {event.type!r} is the node's own", field="type", help="choose one that does not begin with tocsin."
    )
