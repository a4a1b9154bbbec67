"""The payload: what Python value `data` is, for every content type.

The content type alone decides (no payload is None):

    datacontenttype                              data
    None, application/json, text/json, */*+json  a JSON value. str is a JSON string; bytes are decoded as JSON
                                                 (without a content type they are application/octet-stream)
    text/*, application/xml, */*+xml             str. bytes are decoded as UTF-8
    any other                                    bytes. str is encoded as UTF-8

Promised: JSON comes out as plain dict, list, str, int, float, bool and None; text can be written as UTF-8; else
`EventError`. The event's other fields word their errors alike, with `bad`, `show` and `well_formed` from here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final, Literal

import msgspec

from tocsin.errors import EventError

__all__ = ["MAX_DEPTH", "bad", "content_kind", "decode_json", "is_plain", "settle", "show", "well_formed"]

MAX_DEPTH: Final = 128
"""Deepest nesting of `data`: far beyond real payloads, far below where recursive readers fail."""

_SCALARS: Final = frozenset({bool, int, float, type(None)})  # str is apart: it may hold lone surrogates
_TOKEN: Final = r"([!#$&^_.+\-A-Za-z0-9]{1,127})"
_MEDIA_TYPE: Final = re.compile(_TOKEN + "/" + _TOKEN + r"[ \t]*(;[\x20-\x7e]{0,255})?")
_CHARSET: Final = re.compile(r';\s*charset\s*=\s*"?([^";\s]*)', re.IGNORECASE)


@lru_cache(maxsize=1024)
def content_kind(media_type: str) -> Literal["json", "text", "binary"]:
    """Tell which row of the table in the module's docstring a media type belongs to.

    Raises:
        EventError: it is not a media type, or declares text that is not UTF-8.
    """
    found = _MEDIA_TYPE.fullmatch(media_type)
    if found is None:
        mend = "use type/subtype, such as text/plain; leave it out for JSON"
        raise bad("datacontenttype", f"datacontenttype is {show(media_type)}, not a media type", mend)
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
        raise bad("datacontenttype", f"datacontenttype declares the charset {show(charset[1])}", mend)
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


def bad(field: str, message: str, mend: str) -> EventError:
    """Make the error for a field: what is wrong, and how to mend it."""
    return EventError(message, field=field, help=mend)


def show(value: object) -> str:
    """Show a bad value in an error: short, since it may be a hostile giant or hold a whole payload."""
    if isinstance(value, str | bytes):
        return repr(value[:40]) + ("…" if len(value) > 40 else "")
    if value is None or isinstance(value, bool | float) or (isinstance(value, int) and abs(value) < 2**70):
        return repr(value)
    return f"of type {type(value).__name__}"


def well_formed(text: str, field: str) -> str:
    """Return `text` as a plain str (an enum's member becomes its text), or refuse it if UTF-8 cannot hold it."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        mend = "decode it with the right encoding, or send the bytes as data"
        raise bad(field, f"{field} holds a lone surrogate at {error.start}", mend) from None
    return str.__str__(text)


def settle(data: Any, media_type: Any) -> tuple[Any, str | None]:
    """Return data and content type in the one form that the module's docstring states."""
    if isinstance(data, bytearray | memoryview):
        data = bytes(data)
    if media_type is None:
        return (data, "application/octet-stream") if isinstance(data, bytes) else (_json_value(data), None)
    if not isinstance(media_type, str):
        raise bad("datacontenttype", f"datacontenttype is {show(media_type)}", "give text, such as text/plain")
    media_type = str.__str__(media_type)
    kind = content_kind(media_type)
    if kind == "json":
        is_text = isinstance(data, bytes)
        return _json_value(decode_json(msgspec.json.decode, data, "data") if is_text else data), media_type
    if not isinstance(data, str | bytes):
        mend = "give str or bytes; leave datacontenttype out if data is JSON or absent"
        raise bad("data", f"data is {show(data)}, but datacontenttype is {show(media_type)}", mend)
    if isinstance(data, str):
        data = well_formed(data, "data")
        return (data if kind == "text" else data.encode()), media_type
    if kind == "binary":
        return data, media_type
    try:
        return data.decode(), media_type
    except UnicodeDecodeError as error:
        mend = "send text as UTF-8, or the bytes as application/octet-stream"
        raise bad("data", f"data is not UTF-8 at byte {error.start}", mend) from None


def _json_value(data: Any) -> Any:
    return data if is_plain((data,), 0) else _plain(data, "data", 1)


def is_plain(node: Any, depth: int = 1) -> bool:
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
                depth == MAX_DEPTH or (kind is not dict and kind is not list) or not is_plain(value, depth + 1)
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
        return well_formed(value, place)
    if isinstance(value, int | float):
        return int(value) if isinstance(value, int) else float(value)
    if not isinstance(value, Mapping | list | tuple):
        mend = "use dict, list, str, int, float, bool or None; times as ISO text; bytes only as the whole of data"
        raise bad(place, f"{place} is {show(value)}, not a JSON value", mend)
    if depth > MAX_DEPTH:
        raise bad("data", f"data is nested deeper than {MAX_DEPTH}", "flatten it, or send it as text")
    if not isinstance(value, Mapping):
        return [_plain(member, f"{place}[{index}]", depth + 1) for index, member in enumerate(value)]
    plain = {}
    for name, member in value.items():
        if not isinstance(name, str):
            raise bad(place, f"{place} has the name {show(name)}", "use text for names")
        plain[well_formed(name, place)] = _plain(member, f"{place}.{name}", depth + 1)
    return plain
