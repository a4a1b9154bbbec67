r"""LIKE and RLIKE patterns: what they mean, compiled to linear-time matchers.

RLIKE has Java's meaning (Spark runs on Java) and RE2's speed. The two engines differ in small ways, so a pattern is
read here once, translated into RE2 text with exactly Java's meaning (`.` and the line ends it excludes, `\s` with the
vertical tab, `(?i)` for ASCII letters only), and anything the two would read differently is refused: look-around,
back-references, `\b`, possessive and lazy-with-meaning forms, Unicode classes, class intersections.

`$` in Java also matches before one final line end. RE2 cannot say that, so such a pattern is searched twice: in the
text, and in the text without its last line end. That is exact as long as nothing stands behind the `$`, which is
checked.

Promised: matching takes time linear in the text, whatever the pattern.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable

import re2

__all__ = ["ANY", "ONE", "PatternError", "compile_like", "compile_regex", "like_parts", "like_shape"]

TextTest = Callable[[str], bool]

ANY, ONE = "%", "_"

_LINE_ENDS = "\n\r\u0085\u2028\u2029"
_DOT = r"[^\n\r\x{85}\x{2028}\x{2029}]"
_ANYTHING = r"[\x{0}-\x{10FFFF}]"
_SPACE = r"\t\n\x{B}\f\r "
_FINAL_LINE_END = re.compile(f"(?:\r\n|[{_LINE_ENDS}])\\Z")
_QUANTIFIER = re.compile(r"(?:[*+?]|\{(\d{1,4})(?:,(\d{0,4}))?\})(\??)")
_FLAGS = re.compile(r"\(\?([is]{1,2})\)")
_MAX_GROUPS_DEEP = 40


class PatternError(ValueError):
    """A pattern that Java and RE2 do not read the same way, or not at all."""

    def __init__(self, message: str, help: str | None = None) -> None:
        """Keep `help` for the filter error that will be made of it."""
        super().__init__(message)
        self.help = help


# -- LIKE


def like_parts(pattern: str, escape: str = "\\") -> list[str | tuple[str]]:
    """Split a LIKE pattern: wildcards are `(ANY,)` and `(ONE,)`, runs of plain text are strings.

    Raises:
        ValueError: an escape character that escapes nothing (Spark refuses it too).
    """
    parts: list[str | tuple[str]] = []
    plain: list[str] = []
    index = 0
    while index < len(pattern):
        character = pattern[index]
        if character == escape:
            index += 1
            if index >= len(pattern) or pattern[index] not in (ANY, ONE, escape):
                raise ValueError(f"{escape!r} in a LIKE pattern must stand before %, _ or itself")
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
        {ANY: f"{_ANYTHING}*", ONE: _ANYTHING}[p[0]] if isinstance(p, tuple) else _quote(p)
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
    reader = _Reader(pattern)
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
        raise PatternError(reason, "see docs/FILTERS.md, Patterns") from None

    def found(value: str) -> bool:
        try:
            return search(value) is not None
        except UnicodeEncodeError:  # half of a surrogate pair: no UTF-8 for it, so it is like no other character
            return search(value.encode("utf-8", "replace").decode("utf-8")) is not None

    return found


def _quote(text: str) -> str:
    return "".join(c if c.isalnum() or c == "_" else f"\\x{{{ord(c):X}}}" for c in text)


class _Group(list["str | _Group | None"]):
    """One alternative inside another: a flat list of RE2 pieces, `None` for `$`; `after` is its closing text."""

    after = ""


class _Reader:
    """Reads a pattern left to right; `translated` is its RE2 text."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._at = 0
        self._fold = self._dot_all = False
        self.has_end = False
        if "\b" in pattern:  # '\b' in quotes is a backspace, as in Spark; nobody means that in a pattern
            raise PatternError(
                "it holds a backspace (\\b in quotes is one)", "write (^|[^0-9A-Za-z_]) for a word border"
            )
        if flags := _FLAGS.match(pattern):
            self._fold, self._dot_all = "i" in flags.group(1), "s" in flags.group(1)
            self._at = flags.end()
        self._has_very_end = False
        alternatives = self._alternatives(0)
        if self._at < len(pattern):
            raise PatternError(f"unmatched ) at {self._at + 1}", "escape it as \\)")
        if self.has_end and self._has_very_end:  # the second search, without the line end, would take \\z for $
            raise PatternError("$ and \\z cannot stand in one pattern", "use one of them")
        self.translated = self._emit(alternatives, tail=True)

    def _alternatives(self, depth: int) -> list[_Group]:
        if depth > _MAX_GROUPS_DEEP:
            raise PatternError(f"groups nested more than {_MAX_GROUPS_DEEP} deep")
        pattern = self._pattern
        found = [_Group()]
        while self._at < len(pattern) and pattern[self._at] != ")":
            if pattern[self._at] == "|":
                self._at += 1
                found.append(_Group())
            else:
                self._piece(found[-1], depth)
        return found

    def _piece(self, into: _Group, depth: int) -> None:
        character = self._pattern[self._at]
        self._at += 1
        if character == "^":
            into.append("^")
            return self._no_quantifier("^")
        if character == "$":
            self.has_end = True
            into.append(None)
            return self._no_quantifier("$")
        if character == "(":
            group = self._group(depth)
            group.after = ")" + self._quantifier()
            into.append(group)
            return None
        if character == "[":
            piece = self._class()
        elif character == ".":
            piece = _ANYTHING if self._dot_all else _DOT
        elif character == "\\":
            piece = self._escape()
            if piece in ("^", r"\z"):
                into.append(piece)
                return self._no_quantifier("an anchor")
        elif character in "*+?{":
            raise PatternError(f"nothing to repeat before {character!r}", f"escape it as \\{character}")
        else:
            piece = self._letter(character)
        into.append(piece + self._quantifier())
        return None

    def _group(self, depth: int) -> _Group:
        pattern = self._pattern
        if pattern.startswith("?", self._at):
            if not pattern.startswith("?:", self._at):
                raise PatternError(
                    f"(?{pattern[self._at + 1 : self._at + 2]} is not read alike by Java and RE2",
                    "plain groups (…) and (?:…) are; the flags (?i) and (?s) may stand at the very start",
                )
            self._at += 2
        group = _Group()
        inner = self._alternatives(depth + 1)
        if self._at >= len(pattern):
            raise PatternError("a group is not closed", "a ) is missing")
        self._at += 1
        group.extend(inner)
        return group

    def _quantifier(self) -> str:
        match = _QUANTIFIER.match(self._pattern, self._at)
        if match is None:
            if self._pattern.startswith("{", self._at):
                raise PatternError("a { must begin a count like {2} or {2,5}", "escape it as \\{")
            return ""
        low, high = match.group(1), match.group(2)
        if low and high and int(high) < int(low):
            raise PatternError(f"the count {match.group()} runs backwards")
        self._at = match.end()
        if self._pattern[self._at : self._at + 1] in ("*", "+", "?", "{"):
            raise PatternError("two counts follow each other (or a possessive one)", "put a group between: (?:a+)?")
        return match.group()[:-1] if match.group(3) else match.group()  # lazy or not, the same texts fit

    def _no_quantifier(self, what: str) -> None:
        if self._pattern[self._at : self._at + 1] in ("*", "+", "?", "{"):
            raise PatternError(f"{what} cannot be repeated")

    def _letter(self, character: str) -> str:
        if self._fold and character.isascii() and character.isalpha():
            return f"[{character.lower()}{character.upper()}]"
        return _quote(character)

    def _escape(self) -> str:
        kind, value = self._escaped()
        if kind == "character":
            return self._letter(value)
        if kind == "anchor":
            return value
        return f"[{value}]" if kind == "in" else f"[^{value}]"

    def _escaped(self) -> tuple[str, str]:
        """Read past a backslash: ("character", c), ("in", class body), ("out", class body) or ("anchor", RE2 text)."""
        pattern = self._pattern
        if self._at >= len(pattern):
            raise PatternError("the pattern ends with a backslash", "write \\\\ for a backslash")
        code = pattern[self._at]
        self._at += 1
        classes = {"d": "0-9", "w": "0-9A-Za-z_", "s": _SPACE}
        if code.lower() in classes:
            return ("in" if code.islower() else "out"), classes[code.lower()]
        if code in "Az":
            self._has_very_end |= code == "z"
            return "anchor", "^" if code == "A" else r"\z"
        plain = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
        if code in plain:
            return "character", plain[code]
        if code in "xu":
            hexadecimal = re.compile(
                r"\{([0-9A-Fa-f]{1,6})\}|([0-9A-Fa-f]{2})" if code == "x" else r"()([0-9A-Fa-f]{4})"
            )
            match = hexadecimal.match(pattern, self._at)
            number = int(match.group(1) or match.group(2), 16) if match else 0x110000
            if match is None or number > 0x10FFFF or 0xD800 <= number < 0xE000:
                raise PatternError(f"\\{code} needs the number of a character", "write \\x41, \\x{1F600} or \\u0041")
            self._at = match.end()
            return "character", chr(number)
        if code.isalnum() or not code.isascii():
            help = "write (^|[^0-9A-Za-z_]) for a word border" if code in "bB" else "see docs/FILTERS.md, Patterns"
            raise PatternError(f"\\{code} is not read alike by Java and RE2", help)
        return "character", code

    def _class(self) -> str:
        pattern = self._pattern
        negated = pattern.startswith("^", self._at)
        self._at += negated
        body: list[str] = []
        first = True
        while True:
            if self._at >= len(pattern):
                raise PatternError("a [ is not closed", "a ] is missing, or escape it as \\[")
            character = pattern[self._at]
            if character == "]" and not first:
                self._at += 1
                return f"[{'^' if negated else ''}{''.join(body)}]"
            if character in "[]" or pattern.startswith("&&", self._at):
                raise PatternError(
                    f"{character!r} inside [ ] is not read alike by Java and RE2", f"escape it as \\{character}"
                )
            low = self._class_member(body)
            first = False
            if low is None or not pattern.startswith("-", self._at) or pattern.startswith("-]", self._at):
                if low is not None:
                    self._span(body, low, low)
                continue
            self._at += 1
            if self._at >= len(pattern) or pattern[self._at] in "[]-":
                raise PatternError("a range inside [ ] is not finished", "escape the - as \\-")
            high = self._class_member(body)
            if high is None or high < low:
                raise PatternError("a range inside [ ] runs backwards or ends in a class", "escape the - as \\-")
            self._span(body, low, high)

    def _class_member(self, body: list[str]) -> str | None:
        r"""Read one member: a character is returned, a class like `\d` goes to `body`."""
        character = self._pattern[self._at]
        self._at += 1
        if character != "\\":
            if character == "-" and body and not self._pattern.startswith("]", self._at):
                raise PatternError("a - in the middle of [ ] is ambiguous", "escape it as \\-")
            return character
        kind, value = self._escaped()
        if kind == "character":
            return value
        if kind != "in":
            raise PatternError("a negated class or an anchor cannot stand inside [ ]")
        body.append(value)
        return None

    def _span(self, body: list[str], low: str, high: str) -> None:
        def add(first: int, last: int) -> None:
            body.append(f"\\x{{{first:X}}}-\\x{{{last:X}}}")

        add(ord(low), ord(high))
        if self._fold:
            for start, end, shift in ((65, 90, 32), (97, 122, -32)):
                first, last = max(ord(low), start), min(ord(high), end)
                if first <= last:
                    add(first + shift, last + shift)

    def _emit(self, alternatives: list[_Group], tail: bool) -> str:
        texts = []
        for pieces in alternatives:
            out = []
            for index, piece in enumerate(pieces):
                at_tail = tail and index == len(pieces) - 1
                if piece is None:
                    if not at_tail:
                        raise PatternError("$ may only stand at the end", "escape it as \\$ to mean the character")
                    out.append(r"\z")
                elif isinstance(piece, _Group):
                    inner = self._emit(list(piece), at_tail and piece.after == ")")  # type: ignore[arg-type]
                    out.append(f"(?:{inner}{piece.after}")
                else:
                    out.append(piece)
            texts.append("".join(out))
        return "|".join(texts)
