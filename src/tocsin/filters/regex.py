r"""An RLIKE pattern read: Java's syntax in, RE2 text with exactly Java's meaning out.

Spark runs on Java, we on RE2. The two differ in small ways (`.` and the line ends it excludes, `\s` and the vertical
tab, `(?i)` beyond ASCII), so a pattern is read here once and translated; anything the two would read differently, or
that no engine can do in linear time, is refused: look-around, back-references, `\b`, possessive counts, Unicode
classes, class intersections.

Promised: a refusal names the place in the pattern and, where there is one, another way to say it.
Not here: compiling and searching (`patterns`).
"""

from __future__ import annotations

import re

__all__ = ["ANYTHING", "MAX_COUNT", "PatternError", "Reader", "quote"]

ANYTHING = r"[\x{0}-\x{10FFFF}]"
"""RE2 text for any code point."""
MAX_COUNT = 1000
"""The largest `{n}`: RE2's own bound, for counts inside each other too."""

_DOT = r"[^\n\r\x{85}\x{2028}\x{2029}]"
_SPACE = r"\t\n\x{B}\f\r "
_CLASSES = {"d": "0-9", "w": "0-9A-Za-z_", "s": _SPACE}
_QUANTIFIER = re.compile(r"(?:[*+?]|\{(\d{1,4})(?:,(\d{0,4}))?\})(\??)")
_FLAGS = re.compile(r"\(\?([is]{1,2})\)")
_HEXADECIMAL = {
    "x": re.compile(r"\{([0-9A-Fa-f]{1,6})\}|([0-9A-Fa-f]{2})"),
    "u": re.compile(r"()([0-9A-Fa-f]{4})"),
}
_MAX_GROUPS_DEEP = 40

_BACK_REFERENCE = "a back-reference"
_BORDER = "write (^|[^0-9A-Za-z_]) for a word border"
_SLOW = "which RE2 cannot do in linear time"
_UNLIKE = "not read alike by Java and RE2"
_GROUPS = (  # what may stand behind "(?": its beginning, its name, why it is refused, and what to do
    ("<=", "look-behind", _SLOW, "put what stands before into the pattern itself"),
    ("<!", "look-behind", _SLOW, "refuse it in a condition of its own: AND x NOT RLIKE '…'"),
    ("=", "look-ahead", _SLOW, "ask for it in a condition of its own: AND x RLIKE '…'"),
    ("!", "look-ahead", _SLOW, "refuse it in a condition of its own: AND x NOT RLIKE '…'"),
    (">", "an atomic group", _SLOW, "write a plain group: (?:…)"),
    ("<", "a named group", _UNLIKE, "leave the name away: (…)"),
    ("P", "a named group", _UNLIKE, "leave the name away: (…)"),
    ("#", "a comment", _UNLIKE, "leave it away"),
)
_ESCAPES = {  # escapes of other engines: what they are, and what to write
    **dict.fromkeys("123456789k", (_BACK_REFERENCE, "write out what may be repeated: aa|bb")),
    **dict.fromkeys("bB", ("a word border", _BORDER)),
    **dict.fromkeys("pP", ("a Unicode class", "list the letters you mean: [A-Za-z]")),
    **dict.fromkeys("QE", ("a quotation", "escape each sign by itself: \\. \\*")),
    "0": ("an octal number", "write \\x00"),
    "Z": ("an end of text", "write $ or \\z"),
    "G": ("the end of the last match", "write ^ for the start of the text"),
    "R": ("a line end", "write (\\r\\n|[\\n\\r])"),
    "h": ("a class of blanks", "write [ \\t]"),
    "v": ("a class of line ends", "write [\\n\\r\\f]"),
    "e": ("an escape character", "write \\x1b"),
    "a": ("a bell", "write \\x07"),
    "c": ("a control character", "write its number: \\x01"),
    "X": ("a grapheme", "write . for one code point"),
    "N": ("a named character", "write its number: \\x{2014}"),
}


class PatternError(ValueError):
    """A pattern that Java and RE2 do not read the same way, or not at all."""

    def __init__(self, message: str, help: str | None = None, at: int = 0) -> None:
        """Keep `help` and `at`, the place in the pattern, for the filter error that will be made of it."""
        super().__init__(message)
        self.help = help
        self.at = at


def quote(text: str) -> str:
    """Return RE2 text that means `text` itself."""
    return "".join(c if c.isalnum() or c == "_" else f"\\x{{{ord(c):X}}}" for c in text)


class _Group(list["str | _Group | int"]):
    """One alternative inside another: a flat list of RE2 pieces, for `$` its place; `after` is its closing text."""

    after = ""


class Reader:
    """Reads a pattern left to right; `translated` is its RE2 text, `has_end` whether it holds a `$`.

    Raises:
        PatternError: syntax that is wrong, or that Java and RE2 read differently.
    """

    def __init__(self, pattern: str) -> None:
        """Read `pattern`."""
        self._pattern = pattern
        self._at = 0
        self._fold = self._dot_all = False
        self.has_end = False
        if "\b" in pattern:  # '\b' in quotes is a backspace, as in Spark; nobody means that in a pattern
            raise PatternError("it holds a backspace (\\b in quotes is one)", _BORDER, pattern.index("\b"))
        if flags := _FLAGS.match(pattern):
            self._fold, self._dot_all = "i" in flags.group(1), "s" in flags.group(1)
            self._at = flags.end()
        self._very_end: int | None = None
        alternatives = self._alternatives(0)
        if self._at < len(pattern):
            raise PatternError("an unmatched )", "escape it as \\)", self._at)
        if self.has_end and self._very_end is not None:  # the second search, without the line end, would take \\z for $
            raise PatternError("$ and \\z cannot stand in one pattern", "use one of them", self._very_end)
        self.translated = self._emit(alternatives, tail=True)

    def _alternatives(self, depth: int) -> list[_Group]:
        if depth > _MAX_GROUPS_DEEP:
            raise PatternError(f"groups nested more than {_MAX_GROUPS_DEEP} deep", "take groups away", self._at - 1)
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
            into.append(self._at - 1)
            return self._no_quantifier("$")
        if character == "(":
            group = self._group(depth)
            group.after = ")" + self._quantifier()
            into.append(group)
            return None
        if character == "[":
            piece = self._class()
        elif character == ".":
            piece = ANYTHING if self._dot_all else _DOT
        elif character == "\\":
            piece = self._escape()
            if piece in ("^", r"\z"):
                into.append(piece)
                return self._no_quantifier("an anchor")
        elif character in "*+?{":
            raise PatternError(f"nothing to repeat before {character!r}", f"escape it as \\{character}", self._at - 1)
        else:
            piece = self._letter(character)
        into.append(piece + self._quantifier())
        return None

    def _group(self, depth: int) -> _Group:
        pattern, start = self._pattern, self._at - 1
        if pattern.startswith("?", self._at):
            if not pattern.startswith("?:", self._at):
                raise self._special_group(start)
            self._at += 2
        group = _Group()
        inner = self._alternatives(depth + 1)
        if self._at >= len(pattern):
            raise PatternError("a group is not closed", "a ) is missing, or escape it as \\(", start)
        self._at += 1
        group.extend(inner)
        return group

    def _special_group(self, start: int) -> PatternError:
        """Name the group `(?…` that begins at `start`."""
        for beginning, name, reason, help in _GROUPS:
            if self._pattern.startswith(beginning, start + 2):
                return PatternError(f"(?{beginning} is {name}, {reason}", help, start)
        return PatternError(
            f"(?{self._pattern[start + 2 : start + 3]} is {_UNLIKE}",
            "plain groups (…) and (?:…) are; the flags (?i) and (?s) may stand at the very start",
            start,
        )

    def _quantifier(self) -> str:
        start = self._at
        match = _QUANTIFIER.match(self._pattern, start)
        if match is None:
            if self._pattern.startswith("{", start):
                raise PatternError("a { must begin a count like {2} or {2,5}", "escape it as \\{", start)
            return ""
        low, high = int(match.group(1) or 0), int(match.group(2) or match.group(1) or 0)
        if high < low:
            raise PatternError(f"the count {match.group()} runs backwards", "write the smaller number first", start)
        if high > MAX_COUNT:
            raise PatternError(f"the count {match.group()} is above {MAX_COUNT:,}", "use a smaller one, or *", start)
        self._at = match.end()
        if self._pattern[self._at : self._at + 1] in ("*", "+", "?", "{"):
            raise PatternError(
                "two counts follow each other (or a possessive one)", "put a group between: (?:a+)?", self._at
            )
        return match.group()[:-1] if match.group(3) else match.group()  # lazy or not, the same texts fit

    def _no_quantifier(self, what: str) -> None:
        if self._pattern[self._at : self._at + 1] in ("*", "+", "?", "{"):
            raise PatternError(f"{what} cannot be repeated", "take the count away, or escape what it counts", self._at)

    def _letter(self, character: str) -> str:
        if self._fold and character.isascii() and character.isalpha():
            return f"[{character.lower()}{character.upper()}]"
        return quote(character)

    def _escape(self) -> str:
        kind, value = self._escaped()
        if kind == "character":
            return self._letter(value)
        if kind == "anchor":
            return value
        return f"[{value}]" if kind == "in" else f"[^{value}]"

    def _escaped(self) -> tuple[str, str]:
        """Read past a backslash: ("character", c), ("in", class body), ("out", class body) or ("anchor", RE2 text)."""
        pattern, start = self._pattern, self._at - 1
        if self._at >= len(pattern):
            raise PatternError("the pattern ends with a backslash", "write \\\\ for a backslash", start)
        code = pattern[self._at]
        self._at += 1
        if code.lower() in _CLASSES:
            return ("in" if code.islower() else "out"), _CLASSES[code.lower()]
        if code in "Az":
            if code == "z":
                self._very_end = start
            return "anchor", "^" if code == "A" else r"\z"
        plain = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
        if code in plain:
            return "character", plain[code]
        if code in "xu":
            match = _HEXADECIMAL[code].match(pattern, self._at)
            number = int(match.group(1) or match.group(2), 16) if match else 0x110000
            if match is None or number > 0x10FFFF or 0xD800 <= number < 0xE000:
                raise PatternError(
                    f"\\{code} needs the number of a character", "write \\x41, \\x{1F600} or \\u0041", start
                )
            self._at = match.end()
            return "character", chr(number)
        if code.isalnum() or not code.isascii():
            name, help = _ESCAPES.get(code, ("an unknown escape", f"write {code} without the backslash"))
            reason = _SLOW if name == _BACK_REFERENCE else _UNLIKE
            raise PatternError(f"\\{code} is {name}, {reason}", help, start)
        return "character", code

    def _class(self) -> str:
        pattern, start = self._pattern, self._at - 1
        negated = pattern.startswith("^", self._at)
        self._at += negated
        body: list[str] = []
        first = True
        while True:
            if self._at >= len(pattern):
                raise PatternError("a [ is not closed", "a ] is missing, or escape it as \\[", start)
            character = pattern[self._at]
            if character == "]" and not first:
                self._at += 1
                return f"[{'^' if negated else ''}{''.join(body)}]"
            if character in "[]" or pattern.startswith("&&", self._at):
                raise PatternError(
                    f"{character!r} inside [ ] is {_UNLIKE}",
                    f"escape it as \\{character}",
                    self._at,
                )
            low_at = self._at
            low = self._class_member(body)
            first = False
            if low is None or not pattern.startswith("-", self._at) or pattern.startswith("-]", self._at):
                if low is not None:
                    self._span(body, low, low)
                continue
            self._at += 1
            if self._at >= len(pattern) or pattern[self._at] in "[]-":
                raise PatternError("a range inside [ ] is not finished", "escape the - as \\-", self._at - 1)
            high = self._class_member(body)
            if high is None or high < low:
                raise PatternError(
                    "a range inside [ ] runs backwards or ends in a class", "escape the - as \\-", low_at
                )
            self._span(body, low, high)

    def _class_member(self, body: list[str]) -> str | None:
        r"""Read one member: a character is returned, a class like `\d` goes to `body`."""
        character, start = self._pattern[self._at], self._at
        self._at += 1
        if character != "\\":
            if character == "-" and body and not self._pattern.startswith("]", self._at):
                raise PatternError("a - in the middle of [ ] is ambiguous", "escape it as \\-", start)
            return character
        kind, value = self._escaped()
        if kind == "character":
            return value
        if kind != "in":
            raise PatternError(
                "a negated class or an anchor cannot stand inside [ ]", "write alternatives: ([a]|\\D)", start
            )
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
                if isinstance(piece, int):
                    if not at_tail:
                        raise PatternError(
                            "$ may only stand at the end", "escape it as \\$ to mean the character", piece
                        )
                    out.append(r"\z")
                elif isinstance(piece, _Group):
                    inner = self._emit(list(piece), at_tail and piece.after == ")")  # type: ignore[arg-type]
                    out.append(f"(?:{inner}{piece.after}")
                else:
                    out.append(piece)
            texts.append("".join(out))
        return "|".join(texts)
