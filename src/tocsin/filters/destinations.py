"""The Alert Server's destinations as filters: `TAG:a, b;USER:x` says whom an alert is for.

In a subscription a comma separates values, a semicolon separates kinds, and any of them will do. A TAG value is a
pattern found anywhere in the event's tag; USER and PROFILE are compared whole. (In an *event* a destination sets the
attributes `tag`, `user`, `profile`; see `tocsin.model`.)
"""

from __future__ import annotations

import re

from tocsin.errors import FilterError
from tocsin.filters import patterns
from tocsin.filters.printer import print_scalar

__all__ = ["filter_text", "is_destination"]

_LOOKS_LIKE = re.compile(r"\s*(?:TAG|USER|PROFILE)\s*:", re.IGNORECASE)
_KINDS = {"TAG": "tag RLIKE ", "USER": "user = ", "PROFILE": "profile = "}


def is_destination(text: str) -> bool:
    """Does this text name destinations rather than a condition? No condition contains a colon outside quotes."""
    return _LOOKS_LIKE.match(text) is not None


def filter_text(text: str) -> str:
    """Translate destinations into a filter.

    Raises:
        FilterError: an unknown kind, an empty value, or a tag that is no pattern.
    """
    conditions: list[str] = []
    position = 0
    for part in text.split(";"):
        kind, colon, listed = part.partition(":")
        name = kind.strip().upper()
        if not colon or name not in _KINDS:
            raise FilterError(
                f"{kind.strip() or part!r} is not a kind of destination",
                text=text,
                position=position + len(part) - len(part.lstrip()),
                help="write TAG:…, USER:… or PROFILE:…, separated by semicolons",
            )
        position += len(kind) + 1
        for value in listed.split(","):
            plain, at = value.strip(), position + len(value) - len(value.lstrip())
            if not plain:
                raise FilterError(
                    f"{name} names nothing",
                    text=text,
                    position=position,
                    help="write a value behind the colon: TAG:fire",
                )
            if name == "TAG":
                try:
                    patterns.compile_regex(plain)
                except patterns.PatternError as error:
                    message = f"this pattern is not allowed: {error}"
                    raise FilterError(message, text=text, position=at + error.at, help=error.help) from None
            conditions.append(_KINDS[name] + print_scalar(plain))
            position += len(value) + 1
    return " OR ".join(conditions)
