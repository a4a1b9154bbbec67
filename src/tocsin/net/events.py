"""Events on the wire: packed as rows (MessagePack), or as structured CloudEvents (JSON).

Nothing that a stranger sends makes these raise anything but `EventError`. An event as it is published has no place in
the journal: an offset that it claims is passed over.
"""

from __future__ import annotations

from typing import Any

import msgspec

from tocsin import cloudevents
from tocsin.clock import as_datetime
from tocsin.errors import EventError
from tocsin.journal.rows import from_row, to_row
from tocsin.model import Event

__all__ = ["from_cloudevent", "from_packed", "to_cloudevent", "to_packed"]


class _Row(msgspec.Struct, array_like=True, frozen=True):
    """A row as `journal.rows` has it: checked for types, which Event does not do for all of them."""

    type: str
    source: str
    id: str
    subject: str | None
    time: int | None
    datacontenttype: str | None
    data: bytes | None
    attributes: dict[str, Any] | None
    priority: int
    ttl: float | int | None
    flags: int
    correlation_id: str | None


_pack, _unpack = msgspec.msgpack.Encoder().encode, msgspec.msgpack.Decoder(_Row).decode


def to_packed(event: Event, largest: int = 0) -> bytes:
    """An event as a packed row; a payload of more than `largest` bytes is refused."""
    return _pack(to_row(event, largest))


def from_packed(data: bytes, offset: int | None, arrived: int | None) -> Event:
    """Undo `to_packed`.

    Raises:
        EventError: it is no event.
    """
    try:
        row = _unpack(data)
        event = from_row(msgspec.structs.astuple(row), offset or 1, arrived or 0)
    except EventError:
        raise
    except (ValueError, TypeError, IndexError, OverflowError, RecursionError) as error:
        raise EventError(f"this is no event: {str(error)[:200]}", help="send a row of 12; see PROTOCOL.md") from None
    return event if offset is not None else _without_place(event, offset, arrived)


def to_cloudevent(event: Event) -> bytes:
    """An event as JSON."""
    return cloudevents.to_json(event)


def from_cloudevent(data: bytes, offset: int | None, arrived: int | None) -> Event:
    """Undo `to_cloudevent`.

    Raises:
        EventError: it is no event.
    """
    try:
        event = cloudevents.from_json(data)
    except RecursionError:
        raise EventError("this is nested too deeply", help="nest less") from None
    return _without_place(event, offset, arrived)


def _without_place(event: Event, offset: int | None, arrived: int | None) -> Event:
    """The event with the place that is said beside it, and no other."""
    moment = as_datetime(arrived) if arrived is not None else None
    msgspec.structs.force_setattr(event, "offset", offset)
    msgspec.structs.force_setattr(event, "arrived", moment)
    return event
