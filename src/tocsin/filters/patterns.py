r"""LIKE and RLIKE patterns: what they mean, compiled to linear-time matchers.

An RLIKE pattern is read and translated by `regex`, so that RE2 gives it Java's meaning. `$` in Java also matches before
one final line end. RE2 cannot say that, so such a pattern is searched twice: in the text, and in the text without its
last line end. That is exact as long as nothing stands behind the `$`, which `regex` checks.

Promised: matching takes time linear in the text, whatever the pattern.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable

import re2

from tocsin.filters.regex import ANYTHING, MAX_COUNT, PatternError, Reader, quote

__all__ = ["ANY", "ONE", "PatternError", "compile_like", "compile_regex", "like_parts", "like_shape"]

TextTest = Callable[[str], bool]

ANY, ONE = "%", "_"

_LINE_ENDS = "\n\r\u0085\u2028\u2029"
_FINAL_LINE_END = re.compile(f"(?:\r\n|[{_LINE_ENDS}])\\Z")


# -- LIKE


def like_parts(pattern: str, escape: str = "\\") -> list[str | tuple[str]]:
    """Split a LIKE pattern: wildcards are `(ANY,)` and `(ONE,)`, runs of plain text are strings.

    Raises:
        PatternError: an escape character that escapes nothing (Spark refuses it too).
    """
    parts: list[str | tuple[str]] = []
    plain: list[str] = []
    index = 0
    while index < len(pattern):
        character = pattern[index]
        if character == escape:
            index += 1
            if index >= len(pattern) or pattern[index] not in (ANY, ONE, escape):
                raise PatternError(
                    f"{escape} in a LIKE pattern must stand before %, _ or itself",
                    f"write {escape * 2} to mean {escape} itself",
                    index - 1,
                )
            plain.append(pattern[index])
        elif character in (ANY, ONE):
            if plain:
                parts.append("".join(plain))
                plain = []
            if not (character == ANY and parts and parts[-1] == (ANY,)):
                parts.append((character,))
        else:
            plain.append(character)
        index += 1
    if plain:
        parts.append("".join(plain))
    return parts


def like_shape(pattern: str, escape: str = "\\") -> tuple[str, str]:
    """Name a LIKE pattern's shape and text: exact, prefix, suffix, contains, or general (text = its plain start)."""
    match like_parts(pattern, escape):
        case []:
            return "exact", ""
        case [str(text)]:
            return "exact", text
        case [("%",)]:
            return "prefix", ""
        case [str(text), ("%",)]:
            return "prefix", text
        case [("%",), str(text)]:
            return "suffix", text
        case [("%",), str(text), ("%",)]:
            return "contains", text
        case [str(text), *_]:
            return "general", text
    return "general", ""


@functools.lru_cache(maxsize=4096)
def compile_like(pattern: str, escape: str = "\\") -> TextTest:
    """Compile a LIKE pattern; the whole text must fit it."""
    shape, text = like_shape(pattern, escape)
    if shape == "exact":
        return text.__eq__
    if shape == "prefix":
        return lambda value: value.startswith(text)
    if shape == "suffix":
        return lambda value: value.endswith(text)
    if shape == "contains":
        return lambda value: text in value
    pieces = [
        {ANY: f"{ANYTHING}*", ONE: ANYTHING}[p[0]] if isinstance(p, tuple) else quote(p)
        for p in like_parts(pattern, escape)
    ]
    return _searcher("^" + "".join(pieces) + r"\z")


# -- RLIKE


@functools.lru_cache(maxsize=4096)
def compile_regex(pattern: str) -> TextTest:
    """Compile an RLIKE pattern: is it found anywhere in the text?

    Raises:
        PatternError: syntax that is wrong, or that Java and RE2 read differently.
    """
    reader = Reader(pattern)
    search = _searcher(reader.translated)
    if not reader.has_end:
        return search

    def search_with_line_end(value: str) -> bool:
        if search(value):
            return True
        end = _FINAL_LINE_END.search(value) if value and value[-1] in _LINE_ENDS else None
        return end is not None and search(value[: end.start()])

    return search_with_line_end


def _searcher(translated: str) -> TextTest:
    options = re2.Options()
    options.log_errors = False
    options.never_capture = True
    try:
        search = re2.compile(translated, options).search
    except re2.error as error:
        told = error.args[0] if error.args else error
        reason = told.decode("utf-8", "replace") if isinstance(told, bytes) else str(told)
        if "repetition size" in reason:  # each count is within bounds, so it is their product
            reason = f"counts inside each other multiply to more than {MAX_COUNT:,}"
        raise PatternError(reason, "use smaller counts, or split the pattern into two conditions") from None

    def found(value: str) -> bool:
        try:
            return search(value) is not None
        except UnicodeEncodeError:  # half of a surrogate pair: no UTF-8 for it, so it is like no other character
            return search(value.encode("utf-8", "replace").decode("utf-8")) is not None

    return found
