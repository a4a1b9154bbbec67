"""The event: one frozen value that is checked once, when it is made.

Promises:
    - An `Event` that exists is valid. A bad value raises `EventError`, whose `.field` names the field and whose
      `.help` says how to mend it; no half-built event is left behind.
    - Times are timezone-aware, in UTC, with microseconds. Attributes are a private, flat `dict` of bool, int, float
      and str. Both have the same types before and after any wire or journal.
    - The content type alone decides the Python type of `data`; `tocsin.payload` has the table.

Does not promise:
    - `data` is held as given, not copied, so do not change it afterwards. It is rebuilt only if it held something close
      to JSON, such as a tuple or a subclass of dict or str.
    - `time` is not filled in: the node stamps it. Sizes are limited where an event enters a node, not here.
    - NaN and infinities are kept in memory; JSON cannot write them, so `cloudevents` refuses them on the way out.
"""

from __future__ import annotations

import itertools
import os
import re
import secrets
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import msgspec
from msgspec.structs import force_setattr

from tocsin.payload import bad, is_plain, settle, show, well_formed

__all__ = [
    "ACK",
    "CANCEL",
    "CLASSIFICATION",
    "DEFAULT_PRIORITY",
    "ENVELOPE",
    "MAX_INT",
    "MAX_PRIORITY",
    "MAX_TEXT",
    "MAX_TTL",
    "MIN_PRIORITY",
    "RESERVED",
    "Event",
    "Scalar",
    "new_id",
    "parse_time",
    "time_text",
]

Scalar: TypeAlias = bool | int | float | str
"""What an attribute can hold."""

ENVELOPE: Final = (
    "offset", "arrived", "time", "id", "source", "type", "subject", "priority", "ttl", "persistent", "ack", "cancel",
    "correlation_id", "classification", "datacontenttype",
)  # fmt: skip
"""The scalar fields a filter can name, beside `attributes` and `data`."""

MIN_PRIORITY: Final = 1
MAX_PRIORITY: Final = 10
DEFAULT_PRIORITY: Final = 5
ACK: Final = ("none", "client", "receipt")
CANCEL: Final = ("originator", "any")
CLASSIFICATION: Final = ("unclassified", "confidential", "secret", "top-secret")
"""From the lowest to the highest."""

MAX_TEXT: Final = 2048
"""Longest type, source, id, subject or correlation id, in characters: holds a long URI, and fits an HTTP header."""
MAX_TTL: Final = 10**12
"""Longest time to live, in seconds: arrival + ttl still fits 64 bits of microseconds."""
MAX_INT: Final = 2**63 - 1
"""Largest attribute and offset: what a 64-bit column holds."""

_NUMBERS: Final = (int, float)
_ACK, _CANCEL, _CLASSIFICATION = ACK[0], CANCEL[0], CLASSIFICATION[0]  # the defaults
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_UNFIT: Final = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_TOPICS: Final = {"TAG": "tag", "USER": "user", "PROFILE": "profile"}

_known_names: dict[str, str] = {}  # good attribute names seen: they repeat from event to event; a look-up is cheap
_id_prefix = ""
_id_next: Callable[[], int]


def _seed_ids() -> None:
    """Draw a fresh random prefix; also after a fork, or parent and child would give out the same ids."""
    global _id_prefix, _id_next
    _id_prefix = secrets.token_hex(10) + "-"
    _id_next = itertools.count(1).__next__  # one C call: no two threads get the same number


_seed_ids()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_seed_ids)


def new_id() -> str:
    """Return a fresh id: 80 random bits of this process and a counter. Unique, not secret."""
    return f"{_id_prefix}{_id_next():x}"


class Event(msgspec.Struct, frozen=True, repr_omit_defaults=True):
    """Something that happened: CloudEvents fields, alert fields, flat attributes and a payload.

    Equality compares every field; the hash is that of `(source, id)`.
    """

    type: str
    """What happened, such as `machine.value`."""
    source: str
    """Who says so, such as `line/7`."""
    id: str = msgspec.field(default_factory=new_id)
    """Unique per source; fresh if left out."""
    subject: str | None = None
    """What it is about, within the source."""
    time: datetime | None = None
    """The producer's time; None until a node stamps it."""
    data: Any = None
    """The payload; see `tocsin.payload` for its Python type."""
    datacontenttype: str | None = None
    """Media type of the payload; None means JSON."""
    attributes: dict[str, Scalar] = {}
    """Flat values beside the payload, for filters. Datetimes given here are kept as RFC 3339 text in UTC."""
    priority: int = DEFAULT_PRIORITY
    """1 to 10; 10 is delivered first."""
    ttl: float | None = None
    """Seconds to live from arrival; None lives until cancelled."""
    persistent: bool = True
    """Whether it survives a restart."""
    ack: Literal["none", "client", "receipt"] = "none"
    """Which acknowledgement the publisher asks for."""
    cancel: Literal["originator", "any"] = "originator"
    """Who may cancel it."""
    correlation_id: str | None = None
    """The event or request this one answers; `correlationid` on the wire."""
    classification: Literal["unclassified", "confidential", "secret", "top-secret"] = "unclassified"
    """Clearance that a consumer needs."""
    destination: str | None = None
    """`TAG:x`, `USER:x` or `PROFILE:x` (several with `;`): sets attribute tag, user or profile, then reads None."""
    offset: int | None = None
    """Place in the journal, from 1."""
    arrived: datetime | None = None
    """Journal time."""

    if TYPE_CHECKING:
        # For type checkers alone, since the constructor accepts more than the fields hold; msgspec makes the real one.
        def __init__(  # noqa: D107
            self,
            type: str,
            source: str,
            id: str = ...,
            subject: str | None = None,
            time: datetime | str | None = None,
            data: Any = None,
            datacontenttype: str | None = None,
            attributes: Mapping[str, Scalar | datetime] = ...,
            priority: int = DEFAULT_PRIORITY,
            ttl: float | None = None,
            persistent: bool = True,
            ack: str = "none",
            cancel: str = "originator",
            correlation_id: str | None = None,
            classification: str = "unclassified",
            destination: str | None = None,
            offset: int | None = None,
            arrived: datetime | str | None = None,
        ) -> None: ...

    def __post_init__(self) -> None:
        """Check every field and bring it to its one form.

        Unrolled for speed: the usual values pass a few C-level tests, all others go to the functions below.
        """
        text: Any = self.type  # Any, here and below: msgspec lets everything in
        if type(text) is not str or not text or len(text) > MAX_TEXT or not text.isprintable():
            force_setattr(self, "type", _text(text, "type"))
        text = self.source
        if type(text) is not str or not text or len(text) > MAX_TEXT or not text.isprintable():
            force_setattr(self, "source", _text(text, "source"))
        text = self.id
        if type(text) is not str or not text or len(text) > MAX_TEXT or not text.isprintable():
            force_setattr(self, "id", _text(text, "id"))
        if self.subject is not None:
            force_setattr(self, "subject", _text(self.subject, "subject"))
        if self.correlation_id is not None:
            force_setattr(self, "correlation_id", _text(self.correlation_id, "correlation_id"))
        moment: Any = self.time
        if moment is not None and (type(moment) is not datetime or moment.tzinfo is not UTC):
            force_setattr(self, "time", parse_time(moment, "time"))
        moment = self.arrived
        if moment is not None and (type(moment) is not datetime or moment.tzinfo is not UTC):
            force_setattr(self, "arrived", parse_time(moment, "arrived"))
        number: Any = self.priority
        if type(number) is not int or not MIN_PRIORITY <= number <= MAX_PRIORITY:
            force_setattr(self, "priority", _integer(number, "priority", MIN_PRIORITY, MAX_PRIORITY))
        if self.offset is not None:
            force_setattr(self, "offset", _integer(self.offset, "offset", 1, MAX_INT))
        number = self.ttl
        if number is not None and (type(number) not in _NUMBERS or not 0 < number <= MAX_TTL):
            force_setattr(self, "ttl", _ttl(number))
        flag: Any = self.persistent
        if flag is not True and flag is not False:
            raise bad("persistent", f"persistent is {show(flag)}", "give True or False, without quotes")
        if self.ack is not _ACK:
            force_setattr(self, "ack", _choice(self.ack, "ack", ACK))
        if self.cancel is not _CANCEL:
            force_setattr(self, "cancel", _choice(self.cancel, "cancel", CANCEL))
        if self.classification is not _CLASSIFICATION:
            force_setattr(self, "classification", _choice(self.classification, "classification", CLASSIFICATION))
        # Always a copy, also of an empty one: the caller may fill its own later.
        attributes = _attributes(self.attributes)
        if self.destination is not None:
            _direct(attributes, self.destination)
            force_setattr(self, "destination", None)
        force_setattr(self, "attributes", attributes)
        data = self.data
        if self.datacontenttype is not None or (data is not None and not (type(data) is dict and is_plain(data))):
            data, media_type = settle(data, self.datacontenttype)
            force_setattr(self, "data", data)
            force_setattr(self, "datacontenttype", media_type)

    def __hash__(self) -> int:
        """Return the hash of what identifies the event; data and attributes cannot be hashed."""
        return hash((self.source, self.id))

    def replace(self, **changes: Any) -> Event:
        """Return a copy with these fields changed, checked like a new event.

        Raises:
            EventError: a changed value is bad.
            TypeError: there is no such field.
        """
        return msgspec.structs.replace(self, **changes)


RESERVED: Final = frozenset(Event.__struct_fields__) | {"data_base64", "specversion", "correlationid"}
"""Names an attribute cannot have: fields of the event, here or on the wire."""


def parse_time(value: object, field: str) -> datetime:
    """Return `value`, an aware datetime or ISO 8601 text with an offset, as a plain datetime in UTC.

    Digits beyond microseconds are cut off.

    Raises:
        EventError: naming `field`: no such time, no offset, or another type.
    """
    mend = "give a datetime with a timezone, or ISO text such as 2026-01-31T12:00:00Z"
    try:
        moment = datetime.fromisoformat(value.upper()) if isinstance(value, str) else value
        if not isinstance(moment, datetime):
            raise bad(field, f"{field} is {show(value)}, not a time", mend)
        if moment.utcoffset() is None:
            raise bad(field, f"{field} has no timezone, so its instant is not known", mend)
        utc = moment.astimezone(UTC)
        # Rebuilt, because a subclass (pandas has one) stays itself in astimezone.
        return datetime(utc.year, utc.month, utc.day, utc.hour, utc.minute, utc.second, utc.microsecond, UTC)
    except (ValueError, TypeError, OverflowError) as error:
        raise bad(field, f"{field} is {show(value)}, not a time: {str(error)[:60]}", mend) from None


def time_text(moment: datetime) -> str:
    """Return an aware datetime as RFC 3339 text in UTC; `parse_time` gives the same instant back."""
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


def _text(value: object, field: str) -> str:
    if not isinstance(value, str) or not value:
        raise bad(field, f"{field} is {show(value)}", "give text that is not empty")
    if len(value) > MAX_TEXT:
        raise bad(field, f"{field} has {len(value)} characters", f"use at most {MAX_TEXT}; put long text in data")
    if unfit := _UNFIT.search(value):
        mend = "use neither control characters nor lone surrogates; put free text in data"
        raise bad(field, f"{field} holds {unfit[0]!r} at {unfit.start()}", mend)
    return str.__str__(value)


def _integer(value: object, field: str, low: int, high: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise bad(field, f"{field} is {show(value)}", f"give an integer from {low} to {high}")
    return int(value)


def _ttl(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= MAX_TTL:  # NaN fails too
        mend = f"give seconds, more than 0 and at most {MAX_TTL:.0e}, or None to live until cancelled"
        raise bad("ttl", f"ttl is {show(value)}", mend)
    return int(value) if isinstance(value, int) else float(value)


def _choice(value: object, field: str, allowed: tuple[str, ...]) -> str:
    if not isinstance(value, str) or value not in allowed:
        raise bad(field, f"{field} is {show(value)}", f"give one of {', '.join(allowed)}")
    return str.__str__(value)


def _attributes(given: Any) -> dict[str, Scalar]:
    """Copy and check attributes."""
    if type(given) is not dict and not isinstance(given, Mapping):
        raise bad("attributes", f"attributes is {show(given)}", "give a mapping from names to values")
    kept: dict[str, Scalar] = {}
    for name, value in given.items():
        name = _known_names.get(name) or _name(name)
        kind = type(value)
        if (kind is str and value.isascii()) or kind is float or kind is bool:
            kept[name] = value
        else:
            kept[name] = _attribute(value, f"attributes.{name}")
    return kept


def _name(name: object) -> str:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        mend = "begin with a letter or _, then use at most 63 letters, digits or _"
        place = f"attributes.{name[:64]}" if isinstance(name, str) else "attributes"
        raise bad(place, f"the attribute name {show(name)} is not a name", mend)
    if name in RESERVED:
        raise bad(
            f"attributes.{name}",
            f"{name} is a field of the event, not an attribute",
            "set the field, or choose another name",
        )
    name = str.__str__(name)
    if len(_known_names) < 4096:  # bounded, since names come from strangers
        _known_names[name] = name
    return name


def _attribute(value: object, field: str) -> Scalar:
    """Check a value that is not the simplest, and bring it to its plain form."""
    if isinstance(value, int):  # bool does not come here
        if not -MAX_INT - 1 <= value <= MAX_INT:
            raise bad(field, f"{field} does not fit in 64 bits", "put it in data, or send it as text")
        return int(value)
    if isinstance(value, str):
        return well_formed(value, field)
    if isinstance(value, float):
        return float(value)
    if isinstance(value, datetime):
        return time_text(parse_time(value, field))
    mend = "leave it out" if value is None else "give bool, int, float, str or datetime; put the rest in data"
    raise bad(field, f"{field} is {show(value)}", mend)


def _direct(attributes: dict[str, Scalar], destination: object) -> None:
    """Turn an Alert Server destination into attributes."""
    mend = "give TAG:x, USER:x or PROFILE:x, one value each, separated by ;"
    if not isinstance(destination, str):
        raise bad("destination", f"destination is {show(destination)}", mend)
    for part in destination.split(";"):
        kind, _, value = part.partition(":")
        name, value = _TOPICS.get(kind.strip().upper()), well_formed(value.strip(), "destination")
        # A comma separates values in a subscription; an event carries one value of a kind.
        if name is None or not value or "," in value:
            raise bad("destination", f"destination has the part {show(part.strip())}", mend)
        if attributes.setdefault(name, value) != value:
            message = f"destination sets {name} to {show(value)}, but it is {show(attributes[name])} already"
            raise bad("destination", message, "give each of tag, user and profile once; publish an event for each")
