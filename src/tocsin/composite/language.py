"""The language of composite events: text → `Definition`. Normative description: docs/COMPOSITE.md.

    SEQ([type = 'door.open'] AS o, [type = 'motion'] AS m) WITHIN 2 MINUTES BY door WHERE m.zone = o.zone

A small recursive parser; filters in brackets and the condition behind `WHERE` are handed to the filter language whole.
Errors carry the position in the whole text, also those of a filter.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection
from typing import NamedTuple, NoReturn

import msgspec

from tocsin.composite.expression import (
    CONTEXTS,
    OPERATORS,
    SEMANTICS,
    Definition,
    Expression,
    Leaf,
    Operation,
    Operator,
    leaves,
)
from tocsin.composite.printer import UNITS, print_definition
from tocsin.composite.schedule import parse_schedule
from tocsin.errors import DefinitionError, FilterError
from tocsin.filters.filter import Filter
from tocsin.model import ENVELOPE

__all__ = ["parse"]

_LONGEST = 36_525 * UNITS["DAY"]
_DEEPEST = 64
_MOST = 128  # constituents: an expression is at most so deep, and a program has only so much stack
_SHORTEST = 1_000  # microseconds between two ticks
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:[.-][A-Za-z0-9_]+)*")
_TOKEN = re.compile(
    r"\s*(?:(?P<name>[A-Za-z_][A-Za-z0-9_]*(?:[.-][A-Za-z0-9_]+)*)|(?P<number>-?\d+(?:\.\d+)?)|(?P<mark>[(),*\[]))"
)
_QUOTED = re.compile(r"\s*'([^']*)'")
_WORDS = frozenset({"AS", "WITHIN", "BY", "WHERE"})
_ARITY = {"OR": (2, None), "AND": (2, None), "SEQ": (2, None), "NOT": (3, 3), "A": (3, 3), "A*": (3, 3)}
_SHAPE = {
    "OR": "OR(a, b, …)",
    "AND": "AND(a, b, …)",
    "SEQ": "SEQ(first, then, …)",
    "NOT": "NOT(opener, forbidden, closer)",
    "A": "A(opener, each, closer)",
    "A*": "A*(opener, all, closer)",
    "P": "P(opener, 10 SECONDS, closer)",
    "P*": "P*(opener, 10 SECONDS, closer)",
    "PLUS": "PLUS(opener, 10 SECONDS)",
    "ANY": "ANY(2, a, b, c)",
}


class _Token(NamedTuple):
    kind: str
    """`name`, `number`, `mark` or `end`."""
    text: str
    at: int


def parse(
    name: str,
    text: str,
    context: str = "recent",
    semantics: str = "detection",
    known: Collection[str] | None = None,
) -> Definition:
    """Read a definition.

    Args:
        name: what it is called; the type of the events it makes.
        text: the expression, with what holds for all of it.
        context: which occurrences are used: recent, chronicle, continuous or cumulative.
        semantics: whether order is that of detection, or of whole intervals.
        known: the definitions it may name; None: any.

    Raises:
        DefinitionError: something of it is not in the language; `position` says where.
    """
    for field, given in (("name", name), ("text", text)):
        if not isinstance(given, str):
            raise DefinitionError(f"a {field} is text, not {type(given).__name__}", field=field)
    if (
        _NAME.fullmatch(name) is None
        or name.startswith("tocsin.")
        or name.upper() in OPERATORS
        or name.upper() in _WORDS
    ):
        raise DefinitionError(
            f"{name!r} cannot be the name of a definition",
            field="name",
            help="use letters, digits, _ . and -, beginning with a letter; not tocsin.…, nor a word of the language",
        )
    if context not in CONTEXTS:
        raise _unknown("context", context, CONTEXTS)
    if semantics not in SEMANTICS:
        raise _unknown("semantics", semantics, SEMANTICS)
    parser = _Parser(text, known)
    expression, by, where = parser.whole()
    aliases = [leaf.alias for leaf in leaves(expression) if leaf.alias is not None]
    for alias in aliases:
        if aliases.count(alias) > 1:
            raise DefinitionError(
                f"two constituents are called {alias}", text=text, position=text.find(alias), help="call one otherwise"
            )
    found = Definition(name, expression, by, where, context, semantics)
    return msgspec.structs.replace(found, text=print_definition(found))


def _unknown(field: str, given: str, known: tuple[str, ...]) -> DefinitionError:
    return DefinitionError(f"there is no {field} {given!r}", field=field, help=f"there are {', '.join(known)}")


class _Parser:
    def __init__(self, text: str, known: Collection[str] | None) -> None:
        self._text, self._known = text, known
        self._at = self._leaves = 0
        self._next = self._read()

    def whole(self) -> tuple[Expression, tuple[str, ...], str | None]:
        """The whole of a definition."""
        expression = self._expression(0)
        by: tuple[str, ...] = ()
        where = None
        if self._takes_word("BY"):
            by = self._fields()
        if self._is_word("WHERE"):
            where = self._condition(self._next.at + len("WHERE"))
        elif self._next.kind != "end":
            self._fail(f"{self._next.text!r} is not expected here", help="behind an expression: WITHIN, BY, WHERE")
        return expression, by, where

    # -- words

    def _read(self) -> _Token:
        text = self._text
        found = _TOKEN.match(text, self._at)
        if found is None:
            at = len(text) - len(text[self._at :].lstrip())
            if at >= len(text):
                return _Token("end", "the end", len(text))
            self._next = _Token("mark", text[at], at)
            self._fail(f"{text[at]!r} is not in the language", help="a filter stands in brackets: [type = 'a']")
        self._at = found.end()
        kind = str(found.lastgroup)
        return _Token(kind, found[kind], found.start(kind))

    def _take(self) -> _Token:
        taken = self._next
        self._next = self._read()
        return taken

    def _is_word(self, word: str) -> bool:
        return self._next.kind == "name" and self._next.text.upper() == word

    def _takes_word(self, word: str) -> bool:
        if self._is_word(word):
            self._take()
            return True
        return False

    def _takes(self, mark: str) -> bool:
        if self._next.kind == "mark" and self._next.text == mark:
            self._take()
            return True
        return False

    def _expect(self, mark: str, help: str) -> None:
        if not self._takes(mark):
            self._fail(f"{mark!r} is expected, not {self._next.text!r}", help=help)

    def _fail(self, message: str, *, at: int | None = None, help: str | None = None) -> NoReturn:
        position = self._next.at if at is None else at
        raise DefinitionError(message, text=self._text, position=position, help=help)

    # -- expressions

    def _expression(self, depth: int) -> Expression:
        if depth > _DEEPEST:
            self._fail(f"more than {_DEEPEST} operators inside each other", help="name parts of it by definitions")
        if self._next.kind == "mark" and self._next.text == "[":
            return self._named(Leaf(filter=self._filter()))
        if self._next.kind != "name":
            self._fail(
                f"an expression is expected, not {self._next.text!r}",
                help=f"write a filter in brackets, or one of {', '.join(OPERATORS)}",
            )
        if self._is_word("AT") and (quoted := _QUOTED.match(self._text, self._at)) is not None:
            return self._named(Leaf(at=self._absolute(quoted)))
        word = self._take()
        starred = self._next.kind == "mark" and self._next.text == "*" and word.text.upper() in ("A", "P")
        if starred:
            self._take()
        if self._next.kind == "mark" and self._next.text == "(":
            return self._operation(word, word.text.upper() + ("*" if starred else ""), depth)
        if word.text.upper() in _WORDS:
            self._fail(f"{word.text} stands where an expression is expected", at=word.at)
        if self._known is not None and word.text not in self._known:
            near = difflib.get_close_matches(word.text, self._known, 1)
            hint = f"did you mean {near[0]}?" if near else f"define it first, or write a filter: [type = '{word.text}']"
            self._fail(f"there is no definition {word.text}", at=word.at, help=hint)
        return self._named(Leaf(definition=word.text))

    def _absolute(self, quoted: re.Match[str]) -> str:
        """The time behind `AT`, which is the next token."""
        try:
            schedule = parse_schedule(quoted[1])
        except DefinitionError as error:
            self._fail(error.message, at=quoted.start(1), help=error.help)
        self._at = quoted.end()
        self._next = self._read()
        return schedule.text

    def _named(self, leaf: Leaf) -> Leaf:
        self._leaves += 1
        if self._leaves > _MOST:
            self._fail(f"more than {_MOST} constituents", help="name parts of it by definitions")
        if not self._takes_word("AS"):
            return leaf
        name = self._next
        plain = name.kind == "name" and "." not in name.text and "-" not in name.text
        taken = name.text.upper() in _WORDS or name.text in (*ENVELOPE, "data", "attributes")
        if not plain or taken:
            self._fail(
                f"{name.text!r} cannot name a constituent",
                help="use letters, digits and _; not a field of events, nor a word of the language",
            )
        self._take()
        return msgspec.structs.replace(leaf, alias=name.text)

    def _operation(self, word: _Token, operator: str, depth: int) -> Operation:
        if operator not in OPERATORS:
            near = difflib.get_close_matches(operator, OPERATORS, 1, 0.5)
            self._fail(
                f"there is no operator {word.text}",
                at=word.at,
                help=f"did you mean {near[0]}?" if near else f"there are {', '.join(OPERATORS)}",
            )
        self._take()
        period = count = None
        if operator == "ANY":
            count = self._count()
        of = [self._expression(depth + 1)]
        while self._takes(","):
            if operator in ("P", "P*", "PLUS") and period is None:
                period = self._duration()
            else:
                of.append(self._expression(depth + 1))
        self._expect(")", help=_SHAPE[operator])
        self._check(operator, word, of, period, count)
        within = self._duration() if self._takes_word("WITHIN") else None
        kind: Operator = operator
        if operator in ("OR", "AND", "SEQ"):
            made = Operation(kind, (of[0], of[1]))
            for part in of[2:]:
                made = Operation(kind, (made, part))
            return Operation(kind, made.of, within=within)
        return Operation(kind, tuple(of), period, count, within)

    def _check(self, operator: str, word: _Token, of: list[Expression], period: int | None, count: int | None) -> None:
        least, most = _ARITY.get(operator, (1, None))
        if operator in ("P", "P*", "PLUS"):
            least, most = (2, 2) if operator == "P*" else (1, 2 if operator == "P" else 1)
            if period is not None and period < _SHORTEST and operator != "PLUS":
                self._fail(f"{operator} ticks at most once a millisecond", at=word.at, help=_SHAPE[operator])
            if period is None:
                self._fail(f"{operator} needs a duration behind its opener", at=word.at, help=_SHAPE[operator])
        if len(of) < least or (most is not None and len(of) > most):
            self._fail(f"{operator} has {len(of)} constituents", at=word.at, help=_SHAPE[operator])
        if count is not None and count > len(of):
            self._fail(f"ANY wants {count} of {len(of)}", at=word.at, help="it cannot want more than there are")

    def _count(self) -> int:
        if self._next.kind != "number" or not self._next.text.isdigit() or int(self._next.text) < 1:
            self._fail(f"ANY begins with a number, not {self._next.text!r}", help=_SHAPE["ANY"])
        count = int(self._take().text)
        self._expect(",", help=_SHAPE["ANY"])
        return count

    def _duration(self) -> int:
        at = self._next.at
        micros = 0.0
        while self._next.kind == "number":
            number = float(self._take().text)
            unit = self._next.text.upper().removesuffix("S")
            if self._next.kind != "name" or unit not in UNITS:
                self._fail(f"{self._next.text!r} is no unit of time", help=f"there are {', '.join(UNITS)}")
            self._take()
            micros += number * UNITS[unit]
        if not 1 <= micros <= _LONGEST:
            self._fail(
                "a duration is expected, above 0 and up to 100 years",
                at=at,
                help="write 30 SECONDS, or 1 HOUR 30 MINUTES",
            )
        return round(micros)

    # -- what the filter language reads

    def _filter(self) -> str:
        """The filter behind an opening bracket that is the next token."""
        first = self._at
        end = self._closing(first)
        if end < 0:
            self._fail("the bracket is not closed", help="a filter ends with ]")
        found = self._within_text(self._text[first:end], first)
        self._at = end + 1
        self._next = self._read()
        return found

    def _closing(self, at: int) -> int:
        """Where the bracket closes; brackets within quotes do not count."""
        text, quote = self._text, ""
        while at < len(text):
            mark = text[at]
            if quote:
                if mark == "\\" and quote != "`":
                    at += 1
                elif mark == quote:
                    quote = ""
            elif mark in "'\"`":
                quote = mark
            elif mark == "]":
                return at
            at += 1
        return -1

    def _condition(self, first: int) -> str:
        return self._within_text(self._text[first:], first)

    def _within_text(self, text: str, first: int) -> str:
        try:
            return str(Filter(text))
        except FilterError as error:
            raise DefinitionError(
                error.message, text=self._text, position=first + (error.position or 0), help=error.help
            ) from None

    def _fields(self) -> tuple[str, ...]:
        found = [self._field()]
        while self._takes(","):
            found.append(self._field())
        return tuple(found)

    def _field(self) -> str:
        if self._next.kind != "name" or self._next.text.upper() in _WORDS or "-" in self._next.text:
            self._fail(
                f"BY wants the name of a field, not {self._next.text!r}", help="write BY machine, or BY site, line"
            )
        return self._take().text
