"""CloudEvents 1.0, in and out: JSON (structured), JSON batch, and HTTP with `ce-` headers (binary).

Pure functions on text and headers; no I/O, no size limits (the node's edge has them).

Promises:
    - `from_json(to_json(event)) == event`, and the same for batches. What JSON cannot hold (NaN, infinities) is
      refused by name, never turned into null.
    - Alert and journal fields travel as extension attributes under their own names, `correlation_id` as
      `correlationid`. A field at its default is left out, save `priority`, which receivers sort by. `destination` is
      accepted on the way in.
    - Every other member (`dataschema` too) is an attribute of the event. A member that is null is absent.
    - A bad input raises `EventError` that names the field; nothing is skipped, guessed or half-read. A member given
      twice is refused, since two readers could disagree on which counts.
    - One leniency: a content type that is not JSON's, with no payload, is dropped; some senders always state one.

Does not promise:
    - Types of attributes through binary mode. A header is text and does not say whether `7` was a number, so attributes
      arrive as str there: integers as `7`, booleans as `true`, floats as `1.5`. The fields of the event keep their
      types. Names with capitals cannot travel in headers and are refused; structured mode keeps all of it.
    - The spelling of JSON's content type in binary mode: None arrives as `application/json`, which means the same.
    - CloudEvents' narrow type system in structured mode: attributes may be floats and 64-bit integers, and their names
      may have capitals, `_` and up to 64 characters.
    - Names given twice inside `data`: the last counts.
"""

from __future__ import annotations

import base64
import binascii
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, TypeVar
from urllib.parse import quote, unquote_to_bytes

import msgspec

from tocsin.errors import EventError
from tocsin.model import ACK, CANCEL, CLASSIFICATION, Event, time_text
from tocsin.payload import content_kind, decode_json

__all__ = [
    "BATCH",
    "STRUCTURED",
    "encode_json",
    "from_http",
    "from_json",
    "from_json_batch",
    "to_http",
    "to_json",
    "to_json_batch",
]

STRUCTURED: Final = "application/cloudevents+json"
BATCH: Final = "application/cloudevents-batch+json"

_In = TypeVar("_In")
_Out = TypeVar("_Out")
_SPECVERSION: Final = "1.0"
# Name on the wire -> field.
_FIELDS: Final = {name: name for name in Event.__struct_fields__ if name not in ("attributes", "correlation_id")}
_FIELDS["correlationid"] = "correlation_id"
# What the percent-encoding of the HTTP binding leaves alone: printable ASCII but space, double quote and percent.
_SAFE: Final = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) not in '"%')
_QUOTED: Final = re.compile(r'"((?:[^"\\]|\\.)*)"')
_ESCAPE: Final = re.compile(r"\\(.)")
_INTEGER: Final = re.compile(r"-?[0-9]{1,20}")
_FLOAT: Final = re.compile(r"-?[0-9]{1,20}(\.[0-9]{1,20})?([eE][+-]?[0-9]{1,3})?")


class _Name:
    """A member's name as decoded. Each is itself only, so a name given twice is two keys and can be told."""

    __slots__ = ("text",)

    def __init__(self, _: type, text: str) -> None:
        self.text = text


_decode_members = msgspec.json.Decoder(dict[_Name, Any], dec_hook=_Name).decode
_decode_array = msgspec.json.Decoder(list[msgspec.Raw]).decode


def to_json(event: Event) -> bytes:
    """Return the structured form of one event.

    Raises:
        EventError: it holds NaN or an infinity, or its data was changed into something that is not JSON.
    """
    members: dict[str, Any] = {"specversion": _SPECVERSION, **_context(event)}
    if event.datacontenttype is not None:
        members["datacontenttype"] = event.datacontenttype
    members.update(event.attributes)
    data = event.data
    if isinstance(data, bytes):
        members["data_base64"] = base64.b64encode(data).decode()
    elif data is not None:
        members["data"] = data
    raw = _encode(members, "data")  # the attributes were checked when the event was made
    if b"null" in raw:
        _refuse_not_finite(event.attributes, "attributes")
        _refuse_not_finite(data, "data")
    return raw


def to_json_batch(events: Iterable[Event]) -> bytes:
    """Return the JSON batch of these events, in order.

    Raises:
        EventError: as `to_json`; field and message name the index.
    """
    return b"[" + b",".join(_each(to_json, events)) + b"]"


def from_json(text: bytes | str | Mapping[str, Any]) -> Event:
    """Read one structured event, as text or as an object already decoded.

    Raises:
        EventError: it is not JSON (`.position` is the offset in bytes), not a CloudEvent 1.0, or a field is bad.
    """
    if isinstance(text, Mapping):
        return _from_members(text)
    members: dict[str, Any] = {}
    for name, value in decode_json(_decode_members, _utf8(text)).items():
        if name.text in members:
            raise EventError(f"{name.text[:64]} is given twice", field=name.text[:64], help="give it once")
        members[name.text] = value
    return _from_members(members)


def from_json_batch(text: bytes | str | Iterable[Mapping[str, Any]]) -> list[Event]:
    """Read a JSON batch: all of its events, or an error.

    Raises:
        EventError: as `from_json`; field and message name the index.
    """
    if not isinstance(text, bytes | str):
        return list(_each(from_json, text))
    return list(_each(lambda part: from_json(bytes(part)), decode_json(_decode_array, _utf8(text))))


def to_http(event: Event) -> tuple[dict[str, str], bytes]:
    """Return headers and body of one event in binary mode.

    Raises:
        EventError: an attribute's name has capitals or its value is not finite, or the payload is itself a CloudEvent,
            which a receiver would take for the event: use structured mode.
    """
    use = f"send it as {STRUCTURED}"
    headers = {"ce-specversion": _SPECVERSION}
    for name, value in (_context(event) | event.attributes).items():
        if name != name.lower():
            raise EventError(f"{name} has capitals, which a header loses", field=f"attributes.{name}", help=use)
        _refuse_not_finite(value, f"attributes.{name}")
        text = str(value).lower() if isinstance(value, bool) else str(value)
        headers[f"ce-{name}"] = quote(text, safe=_SAFE)
    data, media_type = event.data, event.datacontenttype
    if data is None and media_type is None:
        return headers, b""
    headers["content-type"] = media_type = media_type or "application/json"
    if media_type.lower().startswith("application/cloudevents"):
        raise EventError("the payload is a CloudEvent itself", field="datacontenttype", help=use)
    if content_kind(media_type) == "json":
        return headers, encode_json(data, "data")
    return headers, data if isinstance(data, bytes) else data.encode()


def from_http(headers: Mapping[str, str] | Iterable[tuple[str, str]], body: bytes) -> Event | list[Event]:
    """Read an HTTP message in any of the three modes, told apart by its content type.

    An empty body is no payload if the content type is JSON or absent; a body without a content type is bytes.

    Args:
        headers: names in any case; pairs, or a mapping (whose `items()` may repeat a name).
        body: the whole body.

    Returns:
        One event in binary and structured mode, a list in batch mode.

    Raises:
        EventError: it is in none of the modes, or the event is bad.
    """
    context: dict[str, Any] = {}
    media_type: str | None = None
    for key, value in headers.items() if isinstance(headers, Mapping) else headers:
        name = key.lower()
        if name == "content-type":
            if media_type is not None:
                raise EventError("content-type is given twice", field="datacontenttype", help="give it once")
            media_type = value.strip()
        elif name.startswith("ce-"):
            name = name[3:]
            if name in context:
                raise EventError(f"ce-{name[:64]} is given twice", field=name[:64], help="give it once")
            context[name] = _header(value, name)
    mode = (media_type or "").partition(";")[0].strip().lower()
    if mode == STRUCTURED:
        return from_json(body)
    if mode == BATCH:
        return from_json_batch(body)
    if mode.startswith("application/cloudevents"):
        raise EventError(
            f"the format {mode[:64]} is not known", field="datacontenttype", help=f"use {STRUCTURED} or {BATCH}"
        )
    if not context:
        raise EventError(
            "this is not a CloudEvent: no ce- headers, and the content type is another",
            field="specversion",
            help=f"send the headers ce-specversion, ce-id, ce-source and ce-type, or the content type {STRUCTURED}",
        )
    for name in ("data", "data_base64", "datacontenttype"):
        if name in context:
            raise EventError(
                f"{name} does not travel in a header", field=name, help="use the body and the header content-type"
            )
    for name, parse in _PARSE.items():
        if name in context:
            context[name] = parse(context[name])
    if media_type is not None:
        context["datacontenttype"] = media_type
        if body or content_kind(media_type) != "json":
            context["data"] = body
    elif body:
        context["data"] = body
    return _from_members(context)


def encode_json(value: Any, field: str) -> bytes:
    """Encode a JSON value and lose nothing.

    Raises:
        EventError: `value` holds NaN, an infinity or something that is not JSON; names the place, below `field`.
    """
    raw = _encode(value, field)
    if b"null" in raw:
        _refuse_not_finite(value, field)
    return raw


def _context(event: Event) -> dict[str, Any]:
    """Return the members that are neither attributes nor about the payload; times as text."""
    members: dict[str, Any] = {"id": event.id, "source": event.source, "type": event.type, "priority": event.priority}
    if event.subject is not None:
        members["subject"] = event.subject
    if event.time is not None:
        members["time"] = time_text(event.time)
    if event.ttl is not None:
        members["ttl"] = event.ttl
    if not event.persistent:
        members["persistent"] = False
    if event.ack != ACK[0]:
        members["ack"] = event.ack
    if event.cancel != CANCEL[0]:
        members["cancel"] = event.cancel
    if event.correlation_id is not None:
        members["correlationid"] = event.correlation_id
    if event.classification != CLASSIFICATION[0]:
        members["classification"] = event.classification
    if event.offset is not None:
        members["offset"] = event.offset
    if event.arrived is not None:
        members["arrived"] = time_text(event.arrived)
    return members


def _from_members(members: Mapping[str, Any]) -> Event:
    """Build the event from the members of a structured event, or from headers brought to that form."""
    fields: dict[str, Any] = {}
    attributes: dict[str, Any] = {}
    for name, value in members.items():
        if value is None:
            continue
        field = _FIELDS.get(name)
        if field is not None:
            fields[field] = value
        elif name == "specversion":
            if value != _SPECVERSION:
                raise EventError("specversion is not 1.0", field="specversion", help="send CloudEvents 1.0")
        elif name != "data_base64":
            attributes[name] = value
    for name in ("specversion", "id", "source", "type"):
        if members.get(name) is None:
            raise EventError(f"{name} is missing", field=name, help="give specversion, id, source and type")
    encoded = members.get("data_base64")
    if encoded is not None:
        if "data" in fields:
            raise EventError("data and data_base64 are both given", field="data_base64", help="give one of them")
        try:
            fields["data"] = binascii.a2b_base64(encoded, strict_mode=True)
        except (ValueError, TypeError) as error:
            raise EventError(f"data_base64 is not base64: {error}", field="data_base64", help="use RFC 4648") from None
    media_type = fields.get("datacontenttype")
    if "data" not in fields and isinstance(media_type, str) and content_kind(media_type) != "json":
        del fields["datacontenttype"]  # some senders always state one; without a payload it says nothing
    return Event(attributes=attributes, **fields)


def _each(convert: Callable[[_In], _Out], items: Iterable[_In]) -> Iterator[_Out]:
    """Convert each, and name the index in an error."""
    for index, item in enumerate(items):
        try:
            yield convert(item)
        except EventError as error:
            # The position is left out: it would be relative to the one event, whose place in the text is not known.
            field = f"[{index}].{error.field}" if error.field else f"[{index}]"
            raise EventError(f"event [{index}]: {error.message}", field=field, help=error.help) from error


def _utf8(text: object) -> bytes:
    if isinstance(text, bytes):
        return text
    if not isinstance(text, str):
        raise EventError(f"an event cannot be of type {type(text).__name__}", help="give JSON text or an object")
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        message = f"the text holds a lone surrogate at {error.start}"
        raise EventError(message, position=max(0, error.start), help="pass the bytes as received") from None


def _encode(value: Any, field: str) -> bytes:
    try:
        return msgspec.json.encode(value)
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise EventError(f"{field} cannot be written as JSON: {error}", field=field, help="use JSON values") from None


def _refuse_not_finite(value: Any, place: str) -> None:
    """Find NaN and infinities, which msgspec writes as null. A slow walk: call it only if there is a null."""
    if isinstance(value, float):
        if not math.isfinite(value):
            mend = "leave it out, or send it as text"
            raise EventError(f"{place} is {value}, which JSON cannot hold", field=place, help=mend)
    elif isinstance(value, dict):
        for name, member in value.items():
            _refuse_not_finite(member, f"{place}.{name}")
    elif isinstance(value, list):
        for index, member in enumerate(value):
            _refuse_not_finite(member, f"{place}[{index}]")


def _header(value: str, name: str) -> str:
    """Undo the percent-encoding, and the quotes of older senders."""
    text = value.strip(" \t")
    if quoted := _QUOTED.fullmatch(text):
        text = _ESCAPE.sub(r"\1", quoted[1])
    try:
        return unquote_to_bytes(text.encode("ascii")).decode()
    except UnicodeError:
        mend = "percent-encode the UTF-8 bytes of all but printable ASCII"
        raise EventError(f"ce-{name[:64]} is not percent-encoded UTF-8", field=name[:64], help=mend) from None


# Text in none of these forms stays text, and the event refuses it by its own rule.
def _integer(text: str) -> int | str:
    return int(text) if _INTEGER.fullmatch(text) else text


def _number(text: str) -> float | str:
    return int(text) if _INTEGER.fullmatch(text) else float(text) if _FLOAT.fullmatch(text) else text


def _flag(text: str) -> bool | str:
    return text == "true" if text in ("true", "false") else text


_PARSE: Final[dict[str, Callable[[str], Any]]] = {
    "priority": _integer,
    "offset": _integer,
    "ttl": _number,
    "persistent": _flag,
}
