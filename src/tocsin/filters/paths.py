"""XPaths in the text of a filter: checked where they stand, and alone as a whole filter.

A text that begins with a slash is an XPath asked of the payload, as DS3's subscriptions are: `//machine[@id='7']` is
`xpath_boolean(data, '//machine[@id=''7'']')`. No condition begins with a slash; `/*` begins a comment.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from tocsin.errors import FilterError, FilterLimitError
from tocsin.filters import documents, xpath
from tocsin.filters.limits import Limits
from tocsin.filters.printer import print_scalar
from tocsin.filters.xpathcost import NUMBER

__all__ = ["check", "filter_text", "is_path"]

_LOOKS_LIKE = re.compile(r"\s*/(?!\*)")


def check(function: str, path: str, limits: Limits, text: str, place: Callable[[int], int]) -> None:
    """Refuse an XPath that `function` cannot take; `place` says where in `text` a character of the path stands.

    Raises:
        FilterError: it is no XPath, or not one of ours; or lxml is not installed.
        FilterLimitError: too long, or too much work.
    """
    if len(path) > limits.pattern:
        message = f"the XPath is {len(path):,} characters long, {limits.pattern:,} are allowed"
        raise FilterLimitError(message, limit="pattern", text=text, position=place(0))
    try:
        if xpath.read(path).kind == NUMBER and function == "xpath_string":
            raise xpath.PathError("it gives a number, and numbers are not turned into texts", "use xpath_number")
        documents.asker(function, path)
    except xpath.PathError as error:
        message, at = f"this XPath is not allowed: {error}", place(error.at)
        if error.limit:
            raise FilterLimitError(message, limit="xpath", text=text, position=at, help=error.help) from None
        raise FilterError(message, text=text, position=at, help=error.help) from None
    except documents.MissingLibraryError as error:
        message = f"XPath needs lxml, which is not installed ({error})"
        raise FilterError(message, text=text, position=place(0), help="pip install 'tocsin[xml]'") from None


def is_path(text: str) -> bool:
    """Is this text an XPath rather than a condition?"""
    return _LOOKS_LIKE.match(text) is not None


def filter_text(text: str, limits: Limits) -> str:
    """Translate an XPath that stands alone into a filter.

    Raises:
        FilterError: as `check` says.
    """
    path = text.strip()
    begin = text.index(path)
    try:
        check("xpath_boolean", path, limits, text, lambda at: begin + at)
    except FilterError as error:
        alone = "to join an XPath with other conditions write xpath_boolean(data, '…') AND …"
        error.help = f"{error.help}; {alone}" if " AND " in text.upper() and error.help else error.help
        raise
    return f"xpath_boolean(data, {print_scalar(path)})"
