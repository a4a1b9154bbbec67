"""Events on the wire: packed as rows (MessagePack), or as structured CloudEvents (JSON).

Nothing that a stranger sends makes these raise anything but `EventError`. An event as it is published has no place in
the journal: an offset that it claims is passed over.
"""

from __future__ import annotations

from functools import lru_cache

import msgspec

from tocsin import cloudevents
from tocsin.clock import as_datetime
from tocsin.errors import EventError
from tocsin.journal import rowed
from tocsin.journal.rows import to_row
from tocsin.model import Event

__all__ = ["from_cloudevent", "from_packed", "to_cloudevent", "to_packed"]

_pack = msgspec.msgpack.Encoder().encode
_moment = lru_cache(64)(as_datetime)  # events of one commit have arrived at the same moment


def to_packed(event: Event, largest: int = 0) -> bytes:
    """An event as a packed row; a payload of more than `largest` bytes is refused."""
    return _pack(to_row(event, largest))


def from_packed(data: bytes, offset: int | None, arrived: int | None) -> Event:
    """Undo `to_packed`.

    Raises:
        EventError: it is no event.
    """
    return rowed.read(data, offset, _moment(arrived) if arrived is not None else None)


def to_cloudevent(event: Event) -> bytes:
    """An event as JSON."""
    return cloudevents.to_json(event)


def from_cloudevent(data: bytes, offset: int | None, arrived: int | None) -> Event:
    """Undo `to_cloudevent`.

    Raises:
        EventError: it is no event.
    """
    try:
        event = cloudevents.from_json(bytes(data))
    except RecursionError:
        raise EventError("this is nested too deeply", help="nest less") from None
    return _without_place(event, offset, arrived)


def _without_place(event: Event, offset: int | None, arrived: int | None) -> Event:
    """The event with the place that is said beside it, and no other."""
    moment = _moment(arrived) if arrived is not None else None
    msgspec.structs.force_setattr(event, "offset", offset)
    msgspec.structs.force_setattr(event, "arrived", moment)
    return event
