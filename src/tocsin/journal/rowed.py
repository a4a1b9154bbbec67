"""Events that come as rows, from the network or a block: read quickly, and stored without being written anew.

An event is checked in full when it is made. Most rows hold the plain case (JSON or nothing as payload, no attributes,
no ttl), which is checked here by a few quick tests that say the same; everything else is left to `Event` itself.

Promised: `read` gives what `rows.from_row` gives, or raises what it raises. What is stored of a `Rowed` is what would
be stored of its events: a payload is written anew, so that a stranger's way to write JSON (a name twice) ends here.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec
from msgspec.structs import force_setattr

from tocsin.clock import as_datetime
from tocsin.errors import EventError
from tocsin.journal.rows import FLAGS, from_row, to_row
from tocsin.model import DEFAULT_PRIORITY, MAX_PRIORITY, MAX_TEXT, MIN_PRIORITY, Event
from tocsin.payload import MAX_DEPTH

__all__ = ["Rowed", "WireRow", "read", "rowed"]


class WireRow(msgspec.Struct, array_like=True, gc=False):
    """A row as `rows.Row` has it, checked for types, which `Event` does not do for all of them."""

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


_unpack = msgspec.msgpack.Decoder(WireRow).decode
_from_json = msgspec.json.Decoder().decode
_flat = msgspec.json.Decoder(dict[str, bool | int | float | str | None]).decode
_fields = msgspec.structs.astuple
_fit: set[str] = set()  # types, sources and subjects that were seen and found good
_kinds: dict[tuple[str, str, int], Event] = {}  # by type, source and flags
_MOST_FIT, _SHORT = 4096, 128
_to_json = msgspec.json.Encoder().encode
_copy = Event.__copy__  # type: ignore[attr-defined]
# An event of each setting of flags, to be copied: that checks nothing, and is a third of the work.
_PATTERNS = {
    flags: Event("-", "-", "-", persistent=persistent, ack=ack, cancel=cancel, classification=classification)
    for (persistent, ack, cancel, classification), flags in FLAGS.items()
}
_FAILURES = (ValueError, TypeError, IndexError, OverflowError, RecursionError)


class Rowed(list[Event]):
    """Events to be stored that nobody else has, each with its row."""

    __slots__ = ("rows",)

    def __init__(self, events: list[Event], rows: list[WireRow]) -> None:
        """Take both, in the same order."""
        super().__init__(events)
        self.rows = rows


def read(packed: Any, offset: int | None = None, arrived: datetime | None = None) -> Event:
    """The event in a packed row, with the place that is said beside it.

    Raises:
        EventError: it is no event.
    """
    return _read(packed, offset, arrived)[0]


def rowed(packed: Any) -> tuple[Event, WireRow]:
    """An event to be stored, and its row.

    Raises:
        EventError: it is no event.
    """
    event, row = _read(packed, None, None)
    if row.data is not None and row.datacontenttype is None:
        row.data = _to_json(event.data) if event.data is not None else None
    return event, row


def _read(packed: Any, offset: int | None, arrived: datetime | None) -> tuple[Event, WireRow]:
    try:
        row = _unpack(packed)
        event = _plain(row)
        if event is None:
            event = from_row(_fields(row), 1, 0)
            row = WireRow(*to_row(event))
    except EventError:
        raise
    except _FAILURES as error:
        raise EventError(f"this is no event: {str(error)[:200]}", help="send a row of 12; see PROTOCOL.md") from None
    if offset is not None or arrived is not None or event.offset is not None:
        force_setattr(event, "offset", offset)
        force_setattr(event, "arrived", arrived)
    return event, row


def _plain(row: WireRow) -> Event | None:
    """The event of a row in the plain case; None: look closer. Unrolled for speed, as the checks of `Event` are."""
    type_, source, id_, subject, time, media_type, data, attributes, priority, ttl, flags, correlation_id = _fields(row)
    if attributes or media_type is not None or ttl is not None or not MIN_PRIORITY <= priority <= MAX_PRIORITY:
        return None
    pattern = _kinds.get((type_, source, flags)) or _kind(type_, source, flags)
    if pattern is None or not id_ or len(id_) > MAX_TEXT or not id_.isprintable():
        return None
    event: Event = _copy(pattern)
    if data is not None:
        try:
            value = _flat(data)
        except msgspec.ValidationError:  # it is no object, or one with others inside
            if data.count(b"{") + data.count(b"[") > MAX_DEPTH:
                return None
            value = _from_json(data)
        force_setattr(event, "data", value)
    force_setattr(event, "id", id_)
    force_setattr(event, "attributes", {})
    if priority != DEFAULT_PRIORITY:
        force_setattr(event, "priority", priority)
    if time is not None:
        force_setattr(event, "time", as_datetime(time))
    if subject is not None:
        if subject not in _fit and not _is_fit(subject):
            return None
        force_setattr(event, "subject", subject)
    if correlation_id is not None:
        if not 0 < len(correlation_id) <= MAX_TEXT or not correlation_id.isprintable():
            return None
        force_setattr(event, "correlation_id", correlation_id)
    return event


def _kind(type_: str, source: str, flags: int) -> Event | None:
    """An event of a type, a source and flags, to be copied; None: look closer. They repeat, and are remembered."""
    pattern = _PATTERNS.get(flags)
    if pattern is None or not _is_fit(type_) or not _is_fit(source):
        return None
    event: Event = _copy(pattern)
    force_setattr(event, "type", type_)
    force_setattr(event, "source", source)
    if len(type_) <= _SHORT and len(source) <= _SHORT:
        if len(_kinds) >= _MOST_FIT:  # bounded, since texts come from strangers
            _kinds.clear()
        _kinds[type_, source, flags] = event
    return event


def _is_fit(text: str) -> bool:
    """Is it such a text as `Event` takes without looking twice? Those that are get remembered: they repeat."""
    if not 0 < len(text) <= MAX_TEXT or not text.isprintable():
        return False
    if len(text) <= _SHORT:
        if len(_fit) >= _MOST_FIT:  # bounded, since texts come from strangers
            _fit.clear()
        _fit.add(text)
    return True
