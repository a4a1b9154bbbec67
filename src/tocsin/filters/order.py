"""Do the tokens of a filter stand where they may? Checked before the parser library sees them.

sqlglot forgives (a BETWEEN without its AND, a comma too many) and names the wrong place when it does not. This is one
walk from left to right that knows whether a value or an operator must come next, so that the error points at the first
token that cannot stand where it is.

Promised: brackets match, values and operators alternate, IN has a list, IS, BETWEEN and ESCAPE are complete, and no
comparison is chained to another. What to write instead is looked up in `advice`.
Not here: what is a value and what a condition (`language`).
"""

from __future__ import annotations

import msgspec
from sqlglot.tokenizer_core import Token, TokenType

from tocsin.errors import FilterError
from tocsin.filters import advice
from tocsin.filters.syntax import FUNCTIONS

__all__ = ["OPERANDS", "check_order"]

_TRUTHS = frozenset({TokenType.TRUE, TokenType.FALSE})
_CONSTANTS = _TRUTHS | {TokenType.NULL}
OPERANDS = frozenset({TokenType.VAR, TokenType.STRING, TokenType.NUMBER}) | _CONSTANTS
"""Tokens that are a value by themselves."""

_PREFIXES = frozenset({TokenType.NOT, TokenType.DASH, TokenType.PLUS})
_ARITHMETIC = frozenset({TokenType.PLUS, TokenType.DASH, TokenType.STAR, TokenType.SLASH, TokenType.MOD})
_COMPARISONS = frozenset({TokenType.EQ, TokenType.NEQ, TokenType.LT, TokenType.LTE, TokenType.GT, TokenType.GTE})
_AFTER_NOT = frozenset({TokenType.IN, TokenType.LIKE, TokenType.RLIKE, TokenType.BETWEEN})
_JOINS = frozenset({TokenType.AND, TokenType.OR})
_ENDS = _JOINS | {TokenType.COMMA, TokenType.R_PAREN}
_INFIX_WORDS = ("AND", "OR", "BETWEEN", "LIKE", "RLIKE", "IS", "NOT")  # what a misspelt word may have been
_GROUP, _CALL, _LIST = range(3)


class _Frame(msgspec.Struct):
    """An open bracket, or the whole filter: what it belongs to, and what the condition being read in it has so far."""

    kind: int
    start: int
    """The place in the stream where that condition begins."""
    opener: Token | None = None
    between: Token | None = None
    """A BETWEEN that waits for its AND."""
    operator: int | None = None
    """The place in the stream of its comparison, IN, LIKE, BETWEEN or IS."""

    def restart(self, place: int) -> None:
        """Begin another condition at `place`."""
        self.start, self.operator = place, None


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
        self._frames = [_Frame(_GROUP, 0)]
        self._at = 0

    def run(self) -> None:
        stream = self._stream
        wants_value = True
        while self._at < len(stream):
            token = stream[self._at]
            wants_value = self._value(token) if wants_value else self._operator(token)
            self._at += 1
        if wants_value and stream:
            help = "a value or a condition is expected behind it"
            if stream[-1].token_type is TokenType.MOD:
                help += "; % gives the remainder of a division, not a percentage"
            raise self._error(stream[-1], f"the filter ends too early after {self._spelled(stream[-1])!r}", help)
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
            self._frames.append(_Frame(_GROUP, self._at + 1, token))
            return True
        if kind in _PREFIXES:
            return self._prefix(token)
        if kind is TokenType.R_PAREN and self._at and self._stream[self._at - 1] is self._frames[-1].opener:
            if self._frames[-1].kind == _LIST:
                raise self._error(token, "IN has an empty list", "write at least one value: x IN (1)")
            if self._frames[-1].kind == _CALL:  # how many arguments it takes is said elsewhere
                self._frames.pop()
                return False
        raise self._no_value(token)

    def _prefix(self, token: Token) -> bool:
        """NOT, + or - before a value: NOT begins a condition, so it cannot be a side of a comparison."""
        place = self._frames[-1].operator
        if token.token_type is TokenType.NOT and place is not None:
            if error := self._glued(token):
                raise error
            operator = self._spelled(self._stream[place])
            raise self._error(
                token,
                f"a value is expected behind {operator!r}, and NOT gives a condition",
                f"put NOT before the whole comparison: NOT {self._left(place)} {operator} …",
            )
        return True

    def _no_value(self, token: Token) -> FilterError:
        """Name a token that stands where a value belongs."""
        kind, spelled, behind = token.token_type, self._spelled(token), self._next(1)
        before = self._stream[self._at - 1] if self._at else None
        if error := self._glued(token):
            return error
        help = "a value or a condition would be"
        if spelled.isalpha():
            help += "; a keyword as a name goes in back-ticks"
        if kind is TokenType.R_PAREN and self._frames[-1].opener is None:
            help += "; no bracket is open"
        elif kind is TokenType.MOD and behind is not None and behind.start == token.end + 1:
            help = "a filter has no parameters: write the value itself"
        elif kind is TokenType.SLASH and before is not None and before.token_type in (TokenType.LIKE, TokenType.RLIKE):
            help = "write the pattern in quotes: 'a.*b'"
        elif kind in (TokenType.LIKE, TokenType.RLIKE) and behind is not None:
            help = f"write x {spelled} 'pattern'; a keyword as a name goes in back-ticks"
        return self._error(token, f"{spelled!r} is not expected here", help)

    def _glued(self, token: Token) -> FilterError | None:
        """Two of our operators that touch may be one of another language: `=<`, `===`, `//`."""
        before = self._stream[self._at - 1] if self._at else None
        if before is None or before.end + 1 != token.start:
            return None
        both = self._text[before.start : token.end + 1]
        if (help := advice.GLUED.get(both)) is None:
            return None
        return self._error(before, f"{both!r} is not part of the filter language", help)

    def _operator(self, token: Token) -> bool:
        """A value is complete; return whether one is expected after this token."""
        kind, frame = token.token_type, self._frames[-1]
        if kind in _ARITHMETIC:
            if frame.operator is not None and self._stream[frame.operator].token_type in (TokenType.IS, TokenType.IN):
                raise self._error(token, "a condition cannot be reckoned with", "join conditions with AND or OR")
            return True
        if kind is TokenType.AND and frame.between is not None:
            frame.between = None
            return True
        if kind is TokenType.DOT:
            return self._dot(token)
        if kind is TokenType.L_PAREN and self._at - 1 in self._functions:
            self._frames.append(_Frame(_CALL, self._at + 1, token))
            return True
        if kind is TokenType.R_PAREN and frame.opener is not None:
            self._complete(token)
            self._frames.pop()
            return False
        if kind in _JOINS:
            self._complete(token)
            frame.restart(self._at + 1)
            return True
        if kind in _COMPARISONS or kind in _AFTER_NOT or kind in (TokenType.IS, TokenType.NOT):
            self._complete(token)
            return self._condition(token, kind)
        if kind is TokenType.COMMA and frame.kind != _GROUP:
            self._complete(token)
            frame.restart(self._at + 1)
            return True
        if kind is TokenType.ESCAPE and self._at > 1 and self._stream[self._at - 2].token_type is TokenType.LIKE:
            behind = self._next(1)
            if behind is not None and behind.token_type is not TokenType.STRING:
                raise self._error(behind, "ESCAPE takes one character in quotes", "write x LIKE '50!%' ESCAPE '!'")
            return True
        if frame.between is not None:
            raise self._no_and(frame.between, token)
        if kind is TokenType.ESCAPE:
            raise self._error(token, "ESCAPE follows LIKE and its pattern", "write x LIKE '50!%' ESCAPE '!'")
        raise self._no_operator(token)

    def _condition(self, token: Token, kind: TokenType) -> bool:
        following = self._next(1)
        if kind is TokenType.NOT:
            if following is None or following.token_type not in _AFTER_NOT:
                raise self._no_not(token, following)
            return False
        frame = self._frames[-1]
        if kind is TokenType.IS:
            behind = self._next(2) if following is not None and following.token_type is TokenType.NOT else following
            if behind is None or behind.token_type not in _CONSTANTS:
                word = self._spelled(behind).upper() if behind is not None else ""
                help = advice.MISSING.get(word, "use = to compare with a value").format(x=self._left(self._at))
                raise self._error(behind or following or token, "IS is followed by [NOT] NULL, TRUE or FALSE", help)
            self._not_chained(token, behind if behind.token_type in _TRUTHS else None)
            frame.operator = self._at
            self._at = self._at + (1 if behind is following else 2)
            return False
        self._not_chained(token)
        frame.operator = self._at
        if kind is TokenType.IN:
            if following is None or following.token_type is not TokenType.L_PAREN:
                negated = self._stream[self._at - 1].token_type is TokenType.NOT
                x, y = self._left(self._at - negated), self._right(self._at)
                help = f"write {x} IN ({y if following and following.token_type is not TokenType.VAR else '1, 2'})"
                if following is not None and following.token_type is TokenType.VAR:
                    help += f"; ask an array with array_contains({y}, {x})"
                raise self._error(following or token, "IN takes a list in brackets", help)
            self._frames.append(_Frame(_LIST, self._at + 2, following))
            self._at += 1
        elif kind is TokenType.BETWEEN:
            frame.between = token
        return True

    def _not_chained(self, token: Token, truth: Token | None = None) -> None:
        """Refuse a second comparison in one condition; IS `truth` may follow IN, LIKE, BETWEEN and IS."""
        frame = self._frames[-1]
        place = frame.operator
        if place is None:
            return
        compared = self._stream[place].token_type in _COMPARISONS
        if truth is not None and not compared:
            return
        first = advice.shown(self._text[self._stream[frame.start].start : self._stream[self._at - 1].end + 1])
        help = "join conditions with AND or OR"
        following = self._next(1)
        if truth is not None:
            help = f"put the comparison in brackets: ({first}) {self._text[token.start : truth.end + 1]}"
        elif following is not None and following.token_type in _TRUTHS:
            negation = "NOT " * (token.token_type is TokenType.NEQ)
            help = f"write ({first}) IS {negation}{self._spelled(following).upper()}"
        elif compared and token.token_type in _COMPARISONS:
            help = self._unchained(frame.start, place)
        raise self._error(token, "a comparison cannot follow another one", help)

    def _unchained(self, start: int, place: int) -> str:
        """Say a chain of two comparisons, `place` and the current one, as two conditions."""
        end = self._at + 1
        depth = 0
        while end < len(self._stream):
            kind = self._stream[end].token_type
            if depth == 0 and (kind in _ENDS or kind in _COMPARISONS):
                break
            depth += (kind is TokenType.L_PAREN) - (kind is TokenType.R_PAREN)
            end += 1
        left, middle, right = (
            self._text[self._stream[first].start : self._stream[last - 1].end + 1] if first < last else "…"
            for first, last in ((start, place), (place + 1, self._at), (self._at + 1, end))
        )
        one, two = self._spelled(self._stream[place]), self._spelled(self._stream[self._at])
        if max(map(len, (left, middle, right))) > 40:
            left, middle, right = "a", "b", "c"
        help = f"write {left} {one} {middle} AND {middle} {two} {right}"
        return f"{help}, or {middle} BETWEEN {left} AND {right}" if one == two == "<=" else help

    def _no_not(self, token: Token, following: Token | None) -> FilterError:
        """Name a NOT behind a value that does not belong to IN, LIKE, RLIKE or BETWEEN."""
        if error := self._opening("x"):
            return error
        x, y = self._left(self._at), self._right(self._at + 1)
        help = "AND NOT or OR NOT would be"
        if following is not None:
            kind, word = following.token_type, self._spelled(following).upper()
            if kind is TokenType.NULL:
                help = f"write {x} IS NOT NULL"
            elif kind is TokenType.EQ:
                help = f"write {x} <> {y}"
            elif found := advice.infix(word, x, y):
                message = f"{self._spelled(following)!r} is not part of the filter language"
                return self._error(following, message, f"{found}, with NOT before it")
        return self._error(token, f"{self._spelled(token)!r} is not expected here", help)

    def _no_operator(self, token: Token) -> FilterError:
        """Name a token that stands where an operator belongs: often a word of another language, or before it."""
        spelled, kind = self._spelled(token), token.token_type
        before = self._stream[self._at - 1]
        word, word_before = self._word(self._at), self._word(self._at - 1)
        if error := self._opening(spelled):
            return error
        if word and (help := advice.infix(word, self._left(self._at), self._right(self._at))):
            return self._error(token, f"{spelled!r} is not part of the filter language", help)
        touching = before.end + 1 == token.start
        help = "AND, OR, a comparison or the end of the filter would be"
        if kind is TokenType.L_PAREN and before.token_type is TokenType.VAR:
            help = self._method()
        elif kind is TokenType.R_PAREN:
            help = "no bracket is open: take it away, or write a ( before"
        elif kind is TokenType.COMMA:
            help = self._comma(token)
        elif before.token_type is TokenType.STRING and touching and kind is TokenType.VAR:
            help = "a quote inside a text is doubled: 'it''s'"
        elif kind is TokenType.STRING and touching and word_before:
            return self._error(
                before, f"{self._spelled(before)!r} before a quote has no meaning here", "only r may stand there: r'a'"
            )
        elif word_before.lower() in FUNCTIONS:
            help = f"write its argument in brackets: {word_before.lower()}({spelled})"
        elif word and (near := advice.near(word, _INFIX_WORDS, 0.65)):
            help = f"did you mean {near}?"
        elif word and word_before:
            help += f"; a name with a blank goes in back-ticks: `{self._spelled(before)} {spelled}`"
        return self._error(token, f"{spelled!r} is not expected here", help)

    def _opening(self, behind: str) -> FilterError | None:
        """Blame a word before this token that opens something else: SELECT, WHERE, CASE, DATE."""
        place = 0 if self._word(0) == "SELECT" else self._at - 1
        token = self._stream[place]
        found = advice.leading(self._word(place), self._spelled(token), behind)
        return None if found is None else self._error(token, *found)

    def _comma(self, token: Token) -> str:
        """Help for a comma outside lists and calls."""
        before, behind, opener = self._stream[self._at - 1], self._next(1), self._frames[-1].opener
        if opener is not None and self._stream[self._stream.index(opener) - 1].token_type is TokenType.BETWEEN:
            return "BETWEEN takes no brackets: x BETWEEN 1 AND 5"
        numbers = behind is not None and before.token_type is behind.token_type is TokenType.NUMBER
        if numbers and before.end + 1 == token.start and self._text[token.end + 1].isdigit():
            return "write a number without separators, and with a point: 1000.5"
        return "join conditions with AND or OR; only IN takes a list: x IN (1, 2)"

    def _method(self) -> str:
        """Help for a bracket behind a name that is no function: `x.lower()`."""
        name = self._spelled(self._stream[self._at - 1])
        if self._at < 3 or self._stream[self._at - 2].token_type is not TokenType.DOT:
            return "AND, OR, a comparison or the end of the filter would be"
        if name.lower() in FUNCTIONS:
            rest = ", …" * (FUNCTIONS[name.lower()] - 1)
            return f"write {name.lower()}({self._left(self._at - 2)}{rest})"
        return f"a name has no methods; there are {', '.join(sorted(FUNCTIONS))}"

    def _dot(self, token: Token) -> bool:
        before, behind = self._stream[self._at - 1], self._next(1)
        help = "reach into the payload with dots: data.a.b"
        if before.token_type is TokenType.NUMBER:
            raise self._error(token, "a number has one point at most", "a text goes in quotes: '10.0.0.1'")
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

    def _word(self, place: int) -> str:
        """The word at `place` in capitals, if it is a plain name by itself; else empty."""
        token = self._stream[place]
        behind_dot = place > 0 and self._stream[place - 1].token_type is TokenType.DOT
        spelled = self._spelled(token)
        return spelled.upper() if token.token_type is TokenType.VAR and spelled[0] != "`" and not behind_dot else ""

    def _left(self, place: int) -> str:
        """The value that ends before `place`, as written if it is short: a literal, a path, a call."""
        start = last = place - 1
        if self._stream[start].token_type is TokenType.R_PAREN:
            depth = 1
            while depth and start > 0:
                start -= 1
                kind = self._stream[start].token_type
                depth += (kind is TokenType.R_PAREN) - (kind is TokenType.L_PAREN)
            start -= start - 1 in self._functions
        while start > 1 and self._stream[start - 1].token_type is TokenType.DOT:
            start -= 2
        written = self._text[self._stream[start].start : self._stream[last].end + 1]
        return written if len(written) <= 40 else "x"

    def _right(self, place: int) -> str:
        """The literal or name behind `place`, as written if it is short."""
        token = self._stream[place + 1] if place + 1 < len(self._stream) else None
        if token is None or token.token_type not in OPERANDS or token.end - token.start >= 40:
            return "…"
        return self._spelled(token)

    def _spelled(self, token: Token) -> str:
        return advice.shown(self._text[token.start : token.end + 1])

    def _error(self, token: Token, message: str, help: str) -> FilterError:
        return FilterError(message, text=self._text, position=token.start, help=help)
