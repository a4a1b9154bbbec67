"""Filter text → a vetted token stream that the parser library may see.

sqlglot accepts far more than our language (shifts, aliases, several statements, CASE, casts, thousands of brackets), so
nothing reaches its parser that is not on the lists below: a word that is not one of our keywords becomes a plain name,
a symbol that is not ours is refused with its position, and depth is counted here, before anything recurses. Whether the
tokens stand in an order that makes sense is `order`'s to say.

Every word and literal handed on is replaced by its number in `Tokens.items`. The tree that comes back therefore refers
to *our* items: exact source position, exact spelling, our own reading of string escapes.

Not here: precedence (sqlglot's), which functions exist and what may stand where (`language`).
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any

import msgspec
from sqlglot.dialects.spark import Spark
from sqlglot.errors import TokenError
from sqlglot.tokenizer_core import Token, TokenType

from tocsin.errors import EventError, FilterError, FilterLimitError
from tocsin.filters import advice
from tocsin.filters.limits import Limits
from tocsin.filters.order import OPERANDS, check_order
from tocsin.filters.syntax import FUNCTIONS
from tocsin.model import parse_time

__all__ = ["KEYWORDS", "NAME", "Item", "Tokens", "place_in_string", "read_tokens", "timestamp_literal"]

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")

_SPARK = Spark()

# The keywords of the language. Whatever else looks like a word is a name.
KEYWORDS = frozenset(
    ["AND", "OR", "NOT", "IN", "BETWEEN", "LIKE", "RLIKE", "REGEXP", "IS", "NULL", "TRUE", "FALSE", "ESCAPE"]
)

_SYMBOLS = frozenset(
    {
        TokenType.EQ,
        TokenType.NEQ,
        TokenType.LT,
        TokenType.LTE,
        TokenType.GT,
        TokenType.GTE,
        TokenType.PLUS,
        TokenType.DASH,
        TokenType.STAR,
        TokenType.SLASH,
        TokenType.MOD,
        TokenType.L_PAREN,
        TokenType.R_PAREN,
        TokenType.COMMA,
        TokenType.DOT,
        TokenType.NOT,  # also spelled "!"
    }
)

# Escapes Spark reads inside quotes. `\%` and `\_` keep their backslash (LIKE needs it), as in Spark; an escape Spark
# does not know keeps its backslash too, where Spark drops it: '\d' in a pattern should mean what its author thinks.
_ESCAPES = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a", "\\": "\\", "'": "'", '"': '"'}
_ENCLOSED = re.compile(
    r"""r'[^']*'|r"[^"]*"|'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`[^`]*`|--[^\n]*|/\*.*?\*/|(?P<open>/\*|['"`])""",
    re.DOTALL | re.IGNORECASE,
)
_SURROGATE = re.compile("[\ud800-\udfff]")
_ESCAPE = re.compile(r"\\(u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8}|.)", re.DOTALL)


class Item(msgspec.Struct, frozen=True):
    """A word or a literal of the text: what it is, its value, and where it stands."""

    kind: str  # "name", "function", "string", "number", "timestamp"
    value: Any
    at: int


class Tokens(msgspec.Struct, frozen=True):
    """What `read_tokens` gives: tokens for the parser, and the items their texts refer to by number."""

    stream: list[Token]
    items: list[Item]


def read_tokens(text: str, limits: Limits) -> Tokens:
    """Split `text` into allowed tokens.

    Raises:
        FilterError: a symbol, number or string that is not of the language.
        FilterLimitError: too long, too many tokens, or nested too deep.
    """
    if len(text) > limits.length:
        raise FilterLimitError(
            f"the filter is {len(text):,} characters long, {limits.length:,} are allowed",
            limit="length",
            text=text,
            position=limits.length,
            help="split it into several subscriptions",
        )
    if (lone := _SURROGATE.search(text)) is not None:
        raise FilterError(
            "half of a surrogate pair is no character",
            text=text.encode("utf-8", "replace").decode(),
            position=lone.start(),
            help="decode the text with the right encoding",
        )
    try:
        raw = _SPARK.tokenize(text)
    except TokenError as error:
        raise _unclosed(text, error) from None
    if not raw:
        raise FilterError("the filter is empty", text=text, position=0, help="write TRUE to match every event")
    return _vet(text, raw, limits)


def _vet(text: str, raw: list[Token], limits: Limits) -> Tokens:
    stream: list[Token] = []
    items: list[Item] = []

    def put(token: Token, kind: str, value: Any, token_type: TokenType, at: int) -> None:
        # The parser sees only the item's number, as a name it cannot know or as a digit string.
        label = str(len(items)) if token_type in (TokenType.STRING, TokenType.NUMBER) else f"i{len(items)}"
        items.append(Item(kind, value, at))
        stream.append(Token(token_type, label, token.line, token.col, at, token.end))

    depth = 0
    prefixes = 0
    index = 0
    while index < len(raw):
        token = raw[index]
        following = raw[index + 1] if index + 1 < len(raw) else None
        kind = token.token_type
        spelled = text[token.start : token.end + 1]
        word = spelled.upper()
        index += 1
        if kind in (TokenType.STRING, TokenType.RAW_STRING):
            value, start = _string_value(text, token), token.start
            # 'it''s' arrives as two strings that touch: one literal with a quote in it.
            while (
                following is not None
                and following.token_type is TokenType.STRING
                and following.start == token.end + 1
                and text[token.end] == text[following.start]
            ):
                value += text[token.end] + _string_value(text, following)
                token, index = following, index + 1
                following = raw[index] if index < len(raw) else None
            put(token, "string", value, TokenType.STRING, start)
            prefixes = 0
        elif kind is TokenType.NUMBER:
            if following is not None and following.token_type is TokenType.DCOLON and following.start == token.start:
                raise FilterError(
                    f"{spelled!r} has a type suffix",
                    text=text,
                    position=token.start,
                    help="write the number plainly: whole numbers are exact to 64 bits, the others are doubles",
                )
            put(token, "number", _number_value(text, token.text, token.start), TokenType.NUMBER, token.start)
            prefixes = 0
        elif (
            kind is TokenType.DOT
            and following is not None
            and following.token_type is TokenType.NUMBER
            and following.start == token.end + 1
            and (not stream or stream[-1].token_type not in OPERANDS)
        ):  # .5
            number = _number_value(text, "." + following.text, token.start)
            put(following, "number", number, TokenType.NUMBER, token.start)
            index += 1
            prefixes = 0
        elif kind is TokenType.IDENTIFIER and spelled[0] == "`":
            put(token, "name", token.text, TokenType.VAR, token.start)
            prefixes = 0
        elif stream and stream[-1].token_type is TokenType.DOT and NAME.match(spelled):  # also a keyword: data.in
            put(token, "name", spelled, TokenType.VAR, token.start)
            prefixes = 0
        elif word in KEYWORDS:
            prefixes = prefixes + 1 if kind is TokenType.NOT else 0
            stream.append(token)
        elif NAME.match(spelled):
            if word == "TIMESTAMP" and following is not None and following.token_type is TokenType.STRING:
                moment = timestamp_literal(_string_value(text, following), text, following.start)
                put(following, "timestamp", moment, TokenType.STRING, token.start)
                index += 1
            elif following is not None and following.token_type is TokenType.L_PAREN:
                put(token, "function", _function(text, token, spelled), TokenType.VAR, token.start)
            else:
                put(token, "name", spelled, TokenType.VAR, token.start)
            prefixes = 0
        elif kind in _SYMBOLS and word not in ("DIV", "MOD"):
            if kind is TokenType.L_PAREN:
                depth += 1
            elif kind is TokenType.R_PAREN:
                depth -= 1
            prefixes = prefixes + 1 if kind in (TokenType.NOT, TokenType.DASH, TokenType.PLUS) else 0
            stream.append(token)
        else:
            raise _refused(text, token, raw[index - 2] if index > 1 else None, following)
        token.comments.clear()
        if depth + prefixes > limits.depth:
            raise FilterLimitError(
                f"the filter is nested more than {limits.depth} deep",
                limit="depth",
                text=text,
                position=token.start,
                help="take brackets away, or split it into several subscriptions",
            )
    functions = {place for place, token in enumerate(stream) if _is_function(token, items)}
    check_order(text, stream, functions)
    return Tokens(stream, items)


def _is_function(token: Token, items: list[Item]) -> bool:
    return token.token_type is TokenType.VAR and items[int(token.text[1:])].kind == "function"


def _function(text: str, token: Token, spelled: str) -> str:
    name = spelled.lower()
    if name in FUNCTIONS:
        return name
    shown = advice.shown(spelled)
    opening = advice.leading(name.upper(), shown, "x")  # WHERE (x = 1)
    message, help = opening or (f"there is no function {shown}", advice.function(name))
    raise FilterError(message, text=text, position=token.start, help=help)


def _refused(text: str, token: Token, before: Token | None, behind: Token | None) -> FilterError:
    spelled = text[token.start : token.end + 1]
    position = token.start
    word = " ".join(spelled.upper().split())
    shown = advice.shown(spelled)
    if odd := advice.odd_character(spelled):
        place, message, help = odd
        position += place
    elif spelled[0].isdigit():
        message, help = advice.number(spelled)
    elif spelled[-1] in ("'", '"'):
        message, help = f"{spelled[0]!r} before a quote has no meaning here", "only r'…' may have a letter before it"
    elif found := advice.infix(word, "x", "'…'"):
        message, help = f"{shown!r} is not part of the filter language", found
    elif spelled[0].isalpha():
        message, help = f"{shown!r} is not a plain name", f"quote a name with other letters with back-ticks: `{shown}`"
    else:
        message = f"{shown!r} is not part of the filter language"
        beside = [text[other.start : other.end + 1] if other is not None else "" for other in (before, behind)]
        help = advice.symbol(spelled, *beside)
    return FilterError(message, text=text, position=position, help=help)


def _unclosed(text: str, error: TokenError) -> FilterError:
    """Find what was opened and never closed: sqlglot does not say where."""
    doubled = "a quote inside a text is doubled: 'it''s'"
    early = None  # where a text seems to have ended too soon: the second quote of 'it's'
    for match in _ENCLOSED.finditer(text):
        if opener := match.group("open"):
            if opener in "'\"" and early is not None:
                return FilterError("a text ends here, too early", text=text, position=early, help=doubled)
            name = {"/*": "comment", "`": "quoted name"}.get(opener, "string")
            help = f"close it: {opener[::-1]}" + (f"; {doubled}" if name == "string" else "")
            if opener == "/*" and not text[: match.start()].strip():
                help += "; an XPath that begins so is written xpath_boolean(data, '/*…')"
            return FilterError(f"a {name} is not closed", text=text, position=match.start(), help=help)
        if early is None and match.group()[-1] in "'\"" and text[match.end() : match.end() + 1].isalnum():
            early = match.end() - 1
    return FilterError(f"the filter cannot be read ({error})", text=text, position=0)


def _string_value(text: str, token: Token) -> str:
    spelled = text[token.start : token.end + 1]
    if token.token_type is TokenType.RAW_STRING:
        return spelled[2:-1]  # r'…'
    body = spelled[1:-1]
    return _ESCAPE.sub(_unescape, body) if "\\" in body else body


def place_in_string(text: str, at: int, index: int) -> int:
    """Return where in `text` character `index` of the string literal at `at` is spelled (its end, if there is none)."""
    raw = text[at] in "rR"
    quote, place = text[at + raw], at + raw + 1
    while index > 0 and place < len(text):
        width = length = 1  # characters spelled, and characters meant
        if text[place] == quote:
            if not text.startswith(quote, place + 1):
                break
            raw, width = False, 2
        elif not raw and (escape := _ESCAPE.match(text, place)):
            width, length = len(escape.group()), len(_unescape(escape))
        if length > index:  # inside an escape that keeps its backslash
            return place + index
        place, index = place + width, index - length
    return place


def _unescape(match: re.Match[str]) -> str:
    code = match.group(1)
    if len(code) > 1:
        number = int(code[1:], 16)
        return chr(number) if number < 0x110000 and not 0xD800 <= number < 0xE000 else match.group()
    return _ESCAPES.get(code, match.group())


def _number_value(text: str, spelled: str, at: int) -> int | float:
    try:
        return int(spelled) if spelled.isdigit() else float(spelled)
    except ValueError:
        message, help = f"{advice.shown(spelled)!r} is not a number", "write it as 5, 2.5 or 1e9; a text goes in quotes"
        raise FilterError(message, text=text, position=at, help=help) from None


def timestamp_literal(value: str, text: str, at: int) -> datetime:
    """Read a timestamp written in a filter; it must say its zone.

    Raises:
        FilterError: not a full ISO 8601 timestamp with a zone.
    """
    try:
        return parse_time(value, "timestamp")
    except EventError:
        raise FilterError(
            f"{advice.shown(value)!r} is not a timestamp with a zone",
            text=text,
            position=at,
            help="write it as '2026-11-15T08:00:00Z' or '2026-11-15T09:00:00+01:00'",
        ) from None
