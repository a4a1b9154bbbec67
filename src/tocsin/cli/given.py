"""What people give on the command line as data and attributes, read with care: errors show the place.

DATA is JSON text, `@file` for the content of a file, or `-` for stdin. The content type decides: what is not JSON is
taken as it is. An attribute is `name=value`; a value that reads as a JSON number, `true`, `false` or quoted text is
that, everything else is text.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Never

import typer

from tocsin.errors import TextError
from tocsin.payload import content_kind

__all__ = ["attributes", "data", "json_value"]

_WORD = re.compile(r"[A-Za-z_.]")


def data(text: str | None, content_type: str | None) -> Any:
    """The payload that is meant.

    Raises:
        TextError: it should be JSON, and is not; the place is known.
    """
    if text is None:
        return None
    is_json = content_type is None or content_kind(content_type) == "json"
    raw = _content(text)
    if not is_json:
        return raw
    try:
        return json_value(raw.decode() if isinstance(raw, bytes) else raw)
    except UnicodeDecodeError as error:
        help = "give UTF-8, or say what it is: --content-type application/octet-stream"
        raise TextError("the data is not UTF-8", field="data", position=error.start, help=help) from None


def _content(text: str) -> bytes | str:
    if text == "-":
        return sys.stdin.buffer.read()
    if text.startswith("@"):
        return Path(text[1:]).read_bytes()
    return text


def json_value(text: str) -> Any:
    """A JSON value.

    Raises:
        TextError: it is none; says where, and what to write.
    """
    try:
        return json.loads(text, parse_constant=_no_number)
    except json.JSONDecodeError as error:
        raise TextError(
            f"the data is not JSON: {error.msg[0].lower()}{error.msg[1:]}",
            text=text,
            position=error.pos,
            field="data",
            help=_advice(text, error.pos),
        ) from None
    except RecursionError:
        raise TextError("the data is too deep", field="data", help="nest less") from None


def _no_number(name: str) -> Never:
    raise TextError(f"{name} is no JSON number", field="data", help="leave it out, or give null")


def _advice(text: str, position: int) -> str:
    """What was probably meant."""
    rest = text[position:].lstrip()
    if not text.strip():
        return """give a value, such as '{"value": 9.2}', or no DATA at all"""
    if rest.startswith("'"):
        return "JSON has double quotes"
    if rest.startswith(("True", "False", "None")):
        return "JSON has true, false and null"
    if rest.startswith(("}", "]")):
        return "is there a comma too many, or a value missing?"
    if not rest:
        return "the end is missing"
    if _WORD.match(rest):
        return """put texts in double quotes, and the whole in single ones: '{"machine": "m7"}'"""
    return """give a value such as '{"machine": "m7", "value": 9.2}'"""


def attributes(given: Iterable[str]) -> dict[str, Any]:
    """Attributes by name; the event itself says which are good."""
    found: dict[str, Any] = {}
    for each in given:
        name, equals, text = each.partition("=")
        if not equals or not name:
            raise typer.BadParameter(f"{each!r} is not name=value", param_hint="--attribute")
        found[name] = _scalar(text)
    return found


def _scalar(text: str) -> Any:
    try:
        value = json.loads(text, parse_constant=_no_number)
    except (ValueError, TextError, RecursionError):
        return text
    return value if isinstance(value, str | int | float) else text
