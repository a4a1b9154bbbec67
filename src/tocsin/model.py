"""The event: one frozen value that is checked once, when it is made.

Promises:
    - An `Event` that exists is valid. A bad value raises `EventError`, whose `.field` names the field and whose
      `.help` says how to mend it; no half-built event is left behind.
    - Times are timezone-aware, in UTC, with microseconds. Attributes are a private, flat `dict` of bool, int, float
      and str. Both have the same types before and after any wire or journal.
    - The content type alone decides the Python type of `data` (no payload is None):

        datacontenttype                              data
        None, application/json, text/json, */*+json  a JSON value. str is a JSON string; bytes are decoded as JSON
                                                     (without a content type they are application/octet-stream)
        text/*, application/xml, */*+xml             str. bytes are decoded as UTF-8
        any other                                    bytes. str is encoded as UTF-8

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
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import msgspec
from msgspec.structs import force_setattr

from tocsin.errors import EventError

__all__ = [
    "ACK",
    "CANCEL",
    "CLASSIFICATION",
    "DEFAULT_PRIORITY",
    "ENVELOPE",
    "MAX_DEPTH",
    "MAX_INT",
    "MAX_PRIORITY",
    "MAX_TEXT",
    "MAX_TTL",
    "MIN_PRIORITY",
    "RESERVED",
    "Event",
    "Scalar",
    "content_kind",
    "decode_json",
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
MAX_DEPTH: Final = 128
"""Deepest nesting of `data`: far beyond real payloads, far below where recursive readers fail."""
MAX_TTL: Final = 10**12
"""Longest time to live, in seconds: arrival + ttl still fits 64 bits of microseconds."""
MAX_INT: Final = 2**63 - 1
"""Largest attribute and offset: what a 64-bit column holds."""

_SCALARS: Final = frozenset({bool, int, float, type(None)})  # str is apart: it may hold lone surrogates
_NUMBERS: Final = (int, float)
_ACK, _CANCEL, _CLASSIFICATION = ACK[0], CANCEL[0], CLASSIFICATION[0]  # the defaults
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_UNFIT: Final = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_TOKEN: Final = r"([!#$&^_.+\-A-Za-z0-9]{1,127})"
_MEDIA_TYPE: Final = re.compile(_TOKEN + "/" + _TOKEN + r"[ \t]*(;[\x20-\x7e]{0,255})?")
_CHARSET: Final = re.compile(r';\s*charset\s*=\s*"?([^";\s]*)', re.IGNORECASE)
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
    """The payload; see the module's docstring for its Python type."""
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
            raise _bad("persistent", f"persistent is {_show(flag)}", "give True or False, without quotes")
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
        if self.datacontenttype is not None or (data is not None and not (type(data) is dict and _is_plain(data))):
            data, media_type = _payload(data, self.datacontenttype)
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
            raise _bad(field, f"{field} is {_show(value)}, not a time", mend)
        if moment.utcoffset() is None:
            raise _bad(field, f"{field} has no timezone, so its instant is not known", mend)
        utc = moment.astimezone(UTC)
        # Rebuilt, because a subclass (pandas has one) stays itself in astimezone.
        return datetime(utc.year, utc.month, utc.day, utc.hour, utc.minute, utc.second, utc.microsecond, UTC)
    except (ValueError, TypeError, OverflowError) as error:
        raise _bad(field, f"{field} is {_show(value)}, not a time: {str(error)[:60]}", mend) from None


def time_text(moment: datetime) -> str:
    """Return an aware datetime as RFC 3339 text in UTC; `parse_time` gives the same instant back."""
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


@lru_cache(maxsize=1024)
def content_kind(media_type: str) -> Literal["json", "text", "binary"]:
    """Tell which row of the table in the module's docstring a media type belongs to.

    Raises:
        EventError: it is not a media type, or declares text that is not UTF-8.
    """
    found = _MEDIA_TYPE.fullmatch(media_type)
    if found is None:
        mend = "use type/subtype, such as text/plain; leave it out for JSON"
        raise _bad("datacontenttype", f"datacontenttype is {_show(media_type)}, not a media type", mend)
    main, sub = found[1].lower(), found[2].lower()
    kind: Literal["json", "text", "binary"] = "binary"
    if sub.endswith("+json") or (sub == "json" and main in ("application", "text")):
        kind = "json"
    elif main == "text" or sub.endswith("+xml") or (main == "application" and sub == "xml"):
        kind = "text"
    charset = _CHARSET.search(found[3] or "")
    if kind != "binary" and charset and charset[1].lower() not in ("utf-8", "utf8", "us-ascii"):
        # Text is kept as str and sent as UTF-8; under another label it would be read wrongly.
        mend = "send text as UTF-8, or the bytes as application/octet-stream"
        raise _bad("datacontenttype", f"datacontenttype declares the charset {_show(charset[1])}", mend)
    return kind


def decode_json(decode: Callable[[bytes], Any], raw: bytes, field: str | None = None) -> Any:
    """Decode JSON with a decoder of msgspec's.

    Raises:
        EventError: naming `field`; `.position` is the offset in bytes where known.
    """
    position = None
    try:
        return decode(raw)
    except RecursionError:
        reason = "nested too deeply"
    except ValueError as error:  # msgspec's errors and UnicodeDecodeError
        reason = str(error)
        if place := re.search(r"\(byte (\d+)\)", reason):
            position = int(place[1]) - 1  # msgspec counts from 1
    message = f"{field or 'the text'} is not the JSON expected: {reason}"
    raise EventError(message, field=field, position=position, help="check its form, and that it is UTF-8")


def _bad(field: str, message: str, mend: str) -> EventError:
    return EventError(message, field=field, help=mend)


def _show(value: object) -> str:
    """Show a bad value in an error: short, since it may be a hostile giant or hold a whole payload."""
    if isinstance(value, str | bytes):
        return repr(value[:40]) + ("…" if len(value) > 40 else "")
    if value is None or isinstance(value, bool | float) or (isinstance(value, int) and abs(value) < 2**70):
        return repr(value)
    return f"of type {type(value).__name__}"


def _well_formed(text: str, field: str) -> str:
    """Return `text` as a plain str (an enum's member becomes its text), or refuse it if UTF-8 cannot hold it."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        mend = "decode it with the right encoding, or send the bytes as data"
        raise _bad(field, f"{field} holds a lone surrogate at {error.start}", mend) from None
    return str.__str__(text)


def _text(value: object, field: str) -> str:
    if not isinstance(value, str) or not value:
        raise _bad(field, f"{field} is {_show(value)}", "give text that is not empty")
    if len(value) > MAX_TEXT:
        raise _bad(field, f"{field} has {len(value)} characters", f"use at most {MAX_TEXT}; put long text in data")
    if unfit := _UNFIT.search(value):
        mend = "use neither control characters nor lone surrogates; put free text in data"
        raise _bad(field, f"{field} holds {unfit[0]!r} at {unfit.start()}", mend)
    return str.__str__(value)


def _integer(value: object, field: str, low: int, high: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise _bad(field, f"{field} is {_show(value)}", f"give an integer from {low} to {high}")
    return int(value)


def _ttl(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= MAX_TTL:  # NaN fails too
        mend = f"give seconds, more than 0 and at most {MAX_TTL:.0e}, or None to live until cancelled"
        raise _bad("ttl", f"ttl is {_show(value)}", mend)
    return int(value) if isinstance(value, int) else float(value)


def _choice(value: object, field: str, allowed: tuple[str, ...]) -> str:
    if not isinstance(value, str) or value not in allowed:
        raise _bad(field, f"{field} is {_show(value)}", f"give one of {', '.join(allowed)}")
    return str.__str__(value)


def _attributes(given: Any) -> dict[str, Scalar]:
    """Copy and check attributes."""
    if type(given) is not dict and not isinstance(given, Mapping):
        raise _bad("attributes", f"attributes is {_show(given)}", "give a mapping from names to values")
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
        raise _bad(place, f"the attribute name {_show(name)} is not a name", mend)
    if name in RESERVED:
        raise _bad(
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
            raise _bad(field, f"{field} does not fit in 64 bits", "put it in data, or send it as text")
        return int(value)
    if isinstance(value, str):
        return _well_formed(value, field)
    if isinstance(value, float):
        return float(value)
    if isinstance(value, datetime):
        return time_text(parse_time(value, field))
    mend = "leave it out" if value is None else "give bool, int, float, str or datetime; put the rest in data"
    raise _bad(field, f"{field} is {_show(value)}", mend)


def _direct(attributes: dict[str, Scalar], destination: object) -> None:
    """Turn an Alert Server destination into attributes."""
    mend = "give TAG:x, USER:x or PROFILE:x, one value each, separated by ;"
    if not isinstance(destination, str):
        raise _bad("destination", f"destination is {_show(destination)}", mend)
    for part in destination.split(";"):
        kind, _, value = part.partition(":")
        name, value = _TOPICS.get(kind.strip().upper()), _well_formed(value.strip(), "destination")
        # A comma separates values in a subscription; an event carries one value of a kind.
        if name is None or not value or "," in value:
            raise _bad("destination", f"destination has the part {_show(part.strip())}", mend)
        if attributes.setdefault(name, value) != value:
            message = f"destination sets {name} to {_show(value)}, but it is {_show(attributes[name])} already"
            raise _bad("destination", message, "give each of tag, user and profile once; publish an event for each")


def _payload(data: Any, media_type: Any) -> tuple[Any, str | None]:
    """Return data and content type in the one form that the module's docstring states."""
    if isinstance(data, bytearray | memoryview):
        data = bytes(data)
    if media_type is None:
        return (data, "application/octet-stream") if isinstance(data, bytes) else (_json_value(data), None)
    if not isinstance(media_type, str):
        raise _bad("datacontenttype", f"datacontenttype is {_show(media_type)}", "give text, such as text/plain")
    media_type = str.__str__(media_type)
    kind = content_kind(media_type)
    if kind == "json":
        is_text = isinstance(data, bytes)
        return _json_value(decode_json(msgspec.json.decode, data, "data") if is_text else data), media_type
    if not isinstance(data, str | bytes):
        mend = "give str or bytes; leave datacontenttype out if data is JSON or absent"
        raise _bad("data", f"data is {_show(data)}, but datacontenttype is {_show(media_type)}", mend)
    if isinstance(data, str):
        data = _well_formed(data, "data")
        return (data if kind == "text" else data.encode()), media_type
    if kind == "binary":
        return data, media_type
    try:
        return data.decode(), media_type
    except UnicodeDecodeError as error:
        mend = "send text as UTF-8, or the bytes as application/octet-stream"
        raise _bad("data", f"data is not UTF-8 at byte {error.start}", mend) from None


def _json_value(data: Any) -> Any:
    return data if _is_plain((data,), 0) else _plain(data, "data", 1)


def _is_plain(node: Any, depth: int = 1) -> bool:
    """Tell whether a dict or list holds plain JSON values alone; a cycle meets the limit of depth."""
    try:
        if type(node) is dict:
            for name in node:
                # encode() raises for a lone surrogate; isascii() is there to make it rare, as it takes no time.
                if type(name) is not str or not (name.isascii() or name.encode()):
                    return False
            node = node.values()
        for value in node:
            kind = type(value)
            if kind is str:
                value.isascii() or value.encode()
            elif kind not in _SCALARS and (
                depth == MAX_DEPTH or (kind is not dict and kind is not list) or not _is_plain(value, depth + 1)
            ):
                return False
    except UnicodeEncodeError:
        return False
    return True


def _plain(value: Any, place: str, depth: int) -> Any:
    """Rebuild what is close to JSON as plain JSON values, or name the place that is not JSON."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _well_formed(value, place)
    if isinstance(value, int | float):
        return int(value) if isinstance(value, int) else float(value)
    if not isinstance(value, Mapping | list | tuple):
        mend = "use dict, list, str, int, float, bool or None; times as ISO text; bytes only as the whole of data"
        raise _bad(place, f"{place} is {_show(value)}, not a JSON value", mend)
    if depth > MAX_DEPTH:
        raise _bad("data", f"data is nested deeper than {MAX_DEPTH}", "flatten it, or send it as text")
    if not isinstance(value, Mapping):
        return [_plain(member, f"{place}[{index}]", depth + 1) for index, member in enumerate(value)]
    plain = {}
    for name, member in value.items():
        if not isinstance(name, str):
            raise _bad(place, f"{place} has the name {_show(name)}", "use text for names")
        plain[_well_formed(name, place)] = _plain(member, f"{place}.{name}", depth + 1)
    return plain
