"""Do the tokens of a filter stand where they may? Checked before the parser library sees them.

sqlglot forgives (a BETWEEN without its AND, a comma too many) and names the wrong place when it does not. This is one
walk from left to right that knows whether a value or an operator must come next, so that the error points at the first
token that cannot stand where it is.

Promised: brackets match, values and operators alternate, IN has a list, IS and BETWEEN are complete.
Not here: what is a value and what a condition (`language`).
"""

from __future__ import annotations

import msgspec
from sqlglot.tokenizer_core import Token, TokenType

from tocsin.errors import FilterError

__all__ = ["OPERANDS", "check_order"]

_CONSTANTS = frozenset({TokenType.NULL, TokenType.TRUE, TokenType.FALSE})
OPERANDS = frozenset({TokenType.VAR, TokenType.STRING, TokenType.NUMBER}) | _CONSTANTS
"""Tokens that are a value by themselves."""

_PREFIXES = frozenset({TokenType.NOT, TokenType.DASH, TokenType.PLUS})
_ARITHMETIC = frozenset({TokenType.PLUS, TokenType.DASH, TokenType.STAR, TokenType.SLASH, TokenType.MOD})
_COMPARISONS = frozenset({TokenType.EQ, TokenType.NEQ, TokenType.LT, TokenType.LTE, TokenType.GT, TokenType.GTE})
_AFTER_NOT = frozenset({TokenType.IN, TokenType.LIKE, TokenType.RLIKE, TokenType.BETWEEN})
_JOINS = frozenset({TokenType.AND, TokenType.OR})
_GROUP, _CALL, _LIST = range(3)


class _Frame(msgspec.Struct):
    """An open bracket, or the whole filter: what it belongs to, and whether a BETWEEN in it waits for its AND."""

    kind: int
    opener: Token | None = None
    between: Token | None = None


def check_order(text: str, stream: list[Token], functions: set[int]) -> None:
    """Refuse the first token that cannot stand where it is; `functions` holds the places in `stream` of function names.

    Raises:
        FilterError: with the place of that token.
    """
    _Walk(text, stream, functions).run()


class _Walk:
    def __init__(self, text: str, stream: list[Token], functions: set[int]) -> None:
        self._text = text
        self._stream = stream
        self._functions = functions
        self._frames = [_Frame(_GROUP)]
        self._at = 0

    def run(self) -> None:
        stream = self._stream
        wants_value = True
        while self._at < len(stream):
            token = stream[self._at]
            wants_value = self._value(token) if wants_value else self._operator(token)
            self._at += 1
        if wants_value and stream:
            raise self._error(
                stream[-1],
                f"the filter ends too early after {self._spelled(stream[-1])!r}",
                "a value or a condition is expected behind it",
            )
        self._complete(None)
        opener = self._frames[-1].opener
        if opener is not None:
            raise self._error(opener, "a bracket is not closed", "a ) is missing")

    def _value(self, token: Token) -> bool:
        """A value is expected here; return whether one is still expected after this token."""
        kind = token.token_type
        if kind in OPERANDS:
            return False
        if kind is TokenType.L_PAREN:
            self._frames.append(_Frame(_GROUP, token))
            return True
        if kind in _PREFIXES:
            return True
        if kind is TokenType.R_PAREN and self._at and self._stream[self._at - 1] is self._frames[-1].opener:
            if self._frames[-1].kind == _LIST:
                raise self._error(token, "IN has an empty list", "write at least one value: x IN (1)")
            if self._frames[-1].kind == _CALL:  # how many arguments it takes is said elsewhere
                self._frames.pop()
                return False
        spelled, help = self._spelled(token), "a value or a condition would be"
        if spelled.isalpha():
            help += "; a keyword as a name goes in back-ticks"
        raise self._error(token, f"{spelled!r} is not expected here", help)

    def _operator(self, token: Token) -> bool:
        """A value is complete; return whether one is expected after this token."""
        kind, frame = token.token_type, self._frames[-1]
        if kind in _ARITHMETIC:
            return True
        if kind is TokenType.AND and frame.between is not None:
            frame.between = None
            return True
        if kind is TokenType.DOT:
            return self._dot(token)
        if kind is TokenType.L_PAREN and self._at - 1 in self._functions:
            self._frames.append(_Frame(_CALL, token))
            return True
        if kind is TokenType.R_PAREN and frame.opener is not None:
            self._complete(token)
            self._frames.pop()
            return False
        if kind in _JOINS or kind in _COMPARISONS or kind in _AFTER_NOT or kind in (TokenType.IS, TokenType.NOT):
            self._complete(token)
            return self._condition(token, kind)
        if kind is TokenType.COMMA and frame.kind != _GROUP:
            self._complete(token)
            return True
        if kind is TokenType.ESCAPE and self._at > 1 and self._stream[self._at - 2].token_type is TokenType.LIKE:
            return True
        if frame.between is not None:
            raise self._no_and(frame.between, token)
        if kind is TokenType.ESCAPE:
            raise self._error(token, "ESCAPE follows LIKE and its pattern", "write x LIKE '50!%' ESCAPE '!'")
        raise self._error(
            token,
            f"{self._spelled(token)!r} is not expected here",
            "AND, OR, a comparison or the end of the filter would be",
        )

    def _condition(self, token: Token, kind: TokenType) -> bool:
        following = self._next(1)
        if kind is TokenType.NOT:
            if following is None or following.token_type not in _AFTER_NOT:
                raise self._error(token, f"{self._spelled(token)!r} is not expected here", "AND NOT or OR NOT would be")
            return False
        if kind is TokenType.IS:
            behind = self._next(2) if following is not None and following.token_type is TokenType.NOT else following
            if behind is None or behind.token_type not in _CONSTANTS:
                raise self._error(
                    behind or token, "IS is followed by [NOT] NULL, TRUE or FALSE", "use = to compare with a value"
                )
            self._at = self._at + (1 if behind is following else 2)
            return False
        if kind is TokenType.IN:
            if following is None or following.token_type is not TokenType.L_PAREN:
                raise self._error(following or token, "IN takes a list in brackets", "write x IN (1, 2)")
            self._frames.append(_Frame(_LIST, following))
            self._at += 1
        elif kind is TokenType.BETWEEN:
            self._frames[-1].between = token
        return True

    def _dot(self, token: Token) -> bool:
        before, behind = self._stream[self._at - 1], self._next(1)
        help = "reach into the payload with dots: data.a.b"
        if before.token_type is not TokenType.VAR or self._at - 1 in self._functions:
            raise self._error(token, "only a name has fields", help)
        if behind is None or behind.token_type is not TokenType.VAR or self._at + 1 in self._functions:
            raise self._error(behind or token, "only names may stand behind a dot", help)
        return True

    def _complete(self, token: Token | None) -> None:
        """A BETWEEN must have met its AND before this token (or the end)."""
        if (between := self._frames[-1].between) is not None:
            raise self._no_and(between, token)

    def _no_and(self, between: Token, token: Token | None) -> FilterError:
        return self._error(token or between, "BETWEEN lacks its AND", "write x BETWEEN 1 AND 5")

    def _next(self, steps: int) -> Token | None:
        place = self._at + steps
        return self._stream[place] if place < len(self._stream) else None

    def _spelled(self, token: Token) -> str:
        spelled = self._text[token.start : token.end + 1]
        return spelled if len(spelled) <= 40 else spelled[:39] + "…"

    def _error(self, token: Token, message: str, help: str) -> FilterError:
        return FilterError(message, text=self._text, position=token.start, help=help)
