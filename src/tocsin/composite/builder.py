"""Definitions written in Python: `door >> motion` instead of `SEQ(door, motion)`.

    opened = event("type = 'door.open'", as_="o")
    motion = event("type = 'motion'", as_="m")
    detector.define("entry", (opened >> motion).within(timedelta(minutes=2)).by("door"))

A `Pattern` is a value and nothing but another way to write: `str(pattern)` is the canonical text, and that text is what
is parsed, stored and sent. Mistakes are told where they are made; that a named definition exists is seen by `define`.
"""

from __future__ import annotations

from datetime import timedelta
from typing import NoReturn

import msgspec

from tocsin.composite.expression import Definition, Expression, Leaf, Operation, Operator, leaves
from tocsin.composite.language import parse
from tocsin.composite.printer import UNITS, print_definition
from tocsin.composite.schedule import parse_schedule
from tocsin.composite.where import needs_of
from tocsin.errors import DefinitionError, FilterError
from tocsin.filters.filter import Filter

__all__ = [
    "Pattern",
    "any_of",
    "aperiodic",
    "aperiodic_star",
    "at",
    "event",
    "not_",
    "periodic",
    "periodic_star",
    "plus",
    "ref",
    "text_of",
]

_LONGEST = timedelta(days=36_525)


class Pattern(msgspec.Struct, frozen=True):
    """An expression under construction. `a >> b` is SEQ, `a & b` AND, `a | b` OR.

    Python binds `>>` closest, then `&`, then `|`. A chain is one operation: `a >> b >> c` is `SEQ(a, b, c)`.
    """

    expression: Expression
    fields: tuple[str, ...] = ()
    """What it goes BY."""
    condition: str | None = None
    """What it demands by WHERE, in canonical form."""

    @property
    def text(self) -> str:
        """The canonical text."""
        return print_definition(Definition("", self.expression, self.fields, self.condition))

    def __str__(self) -> str:
        """Return the canonical text."""
        return self.text

    def __rshift__(self, then: Pattern) -> Pattern:
        """Return SEQ: this, and then that."""
        return _operation("SEQ", self, then)

    def __and__(self, other: Pattern) -> Pattern:
        """Return AND: both, in any order."""
        return _operation("AND", self, other)

    def __or__(self, other: Pattern) -> Pattern:
        """Return OR: either."""
        return _operation("OR", self, other)

    def __bool__(self) -> NoReturn:
        """Refuse `and`, `or`, `not`, `if` and `a < b < c`, which would silently drop a part."""
        raise DefinitionError("a pattern is neither true nor false", help="write a & b, a | b, not_(a, b, c)")

    def within(self, span: timedelta) -> Pattern:
        """The last constituent comes at most so long after the first."""
        if isinstance(self.expression, Leaf):
            raise DefinitionError("WITHIN stands behind an operation, not behind a leaf", help="(a >> b).within(…)")
        self._unsaid("WITHIN", self.expression.within is not None or bool(self.fields) or self.condition is not None)
        expression = msgspec.structs.replace(self.expression, within=_micros(span))
        return Pattern(expression, self.fields, self.condition)

    def by(self, *fields: str) -> Pattern:
        """Only events that agree in these fields go together; the end of a definition."""
        self._unsaid("BY", bool(self.fields))
        if not fields:
            raise DefinitionError("by() names no field", help='write by("machine")')
        for field in fields:
            if _read("[true] BY ", field, "a field").by != (field,):
                raise DefinitionError(f"{field!r} is not one field", help='several are by("site", "line")')
        return Pattern(self.expression, fields, self.condition)

    def where(self, condition: str) -> Pattern:
        """A condition over named constituents, `b.value > a.value`; the end of a definition."""
        self._unsaid("WHERE", self.condition is not None)
        canonical = _read("[true] WHERE ", condition, "a condition").where
        assert canonical is not None
        needs_of(canonical, {leaf.alias for leaf in leaves(self.expression) if leaf.alias and leaf.filter is not None})
        return Pattern(self.expression, self.fields, canonical)

    def _unsaid(self, word: str, said: bool) -> None:
        if said:
            raise DefinitionError(
                f"{word} comes too late, or twice: {self.text}", help="first within(…), then by(…) and where(…), once"
            )


def event(filter: str, as_: str | None = None) -> Pattern:
    """Events that match a filter.

    Raises:
        DefinitionError: the filter is not in the filter language (`position` says where), or the name cannot be one.
    """
    if not isinstance(filter, str):
        raise DefinitionError(f"a filter is a text, not {type(filter).__name__}", help="write event(\"type = 'a'\")")
    try:
        canonical = str(Filter(filter))
    except FilterError as error:
        raise DefinitionError(error.message, text=filter, position=error.position, help=error.help) from None
    return Pattern(Leaf(filter=canonical, alias=_alias(as_)))


def ref(name: str, as_: str | None = None) -> Pattern:
    """What another definition detects."""
    found = _read("", name, "a name").expression
    if found != Leaf(definition=name):
        raise DefinitionError(f"{name!r} is not the name of a definition", help='write ref("machine.stop")')
    return Pattern(Leaf(definition=name, alias=_alias(as_)))


def at(time: str, as_: str | None = None) -> Pattern:
    """`AT`: an absolute time, such as `08:00`, `2026-12-24T18:00:00Z`, or a line of cron.

    Raises:
        DefinitionError: it is none.
    """
    return Pattern(Leaf(at=parse_schedule(time).text, alias=_alias(as_)))


def not_(opener: Pattern, forbidden: Pattern, closer: Pattern) -> Pattern:
    """`NOT`: the closer after the opener, and the forbidden one not between."""
    return _operation("NOT", opener, forbidden, closer)


def aperiodic(opener: Pattern, each: Pattern, closer: Pattern) -> Pattern:
    """`A`: each one after the opener, until the closer."""
    return _operation("A", opener, each, closer)


def aperiodic_star(opener: Pattern, all: Pattern, closer: Pattern) -> Pattern:
    """`A*`: once, at the closer, with all since the opener."""
    return _operation("A*", opener, all, closer)


def periodic(opener: Pattern, every: timedelta, closer: Pattern | None = None) -> Pattern:
    """`P`: a tick at every interval after the opener, until the closer; without one for ever, which is warned of."""
    return _operation("P", *([opener] if closer is None else [opener, closer]), period=_micros(every))


def periodic_star(opener: Pattern, every: timedelta, closer: Pattern) -> Pattern:
    """`P*`: once, at the closer, with all ticks since the opener."""
    return _operation("P*", opener, closer, period=_micros(every))


def plus(opener: Pattern, after: timedelta) -> Pattern:
    """`PLUS`: once, so long after the opener."""
    return _operation("PLUS", opener, period=_micros(after))


def any_of(count: int, *patterns: Pattern) -> Pattern:
    """`ANY`: so many different ones of these."""
    given: object = count
    if not isinstance(given, int) or not 1 <= given <= len(patterns):
        raise DefinitionError(
            f"ANY wants {given} of {len(patterns)}", help="begin with a number from 1 up to how many there are"
        )
    return _operation("ANY", *patterns, count=count)


def text_of(given: str | Pattern) -> str:
    """The text of a definition, whichever way it was written: the one door to `parse`.

    Raises:
        DefinitionError: it is neither text nor a pattern.
    """
    if isinstance(given, str):
        return given
    _check(given)
    return given.text


def _operation(operator: Operator, *patterns: Pattern, period: int | None = None, count: int | None = None) -> Pattern:
    for pattern in patterns:
        _check(pattern)
        if pattern.fields or pattern.condition is not None:
            raise DefinitionError(
                f"BY and WHERE hold for a whole definition, not for a part: {pattern}",
                help="call by(…) and where(…) last, or define the part and write ref(name)",
            )
    made = Operation(operator, tuple(pattern.expression for pattern in patterns), period, count)
    seen: set[str] = set()
    for leaf in leaves(made):
        if leaf.alias in seen:
            raise DefinitionError(f"two constituents are called {leaf.alias}", help="call one otherwise, by as_=…")
        seen |= {leaf.alias} if leaf.alias is not None else set()
    return Pattern(made)


def _check(given: object) -> None:
    if not isinstance(given, Pattern):
        raise DefinitionError(
            f"a pattern is expected, not {type(given).__name__}", help="write event(\"type = 'a'\"), or ref(name)"
        )


def _alias(name: str | None) -> str | None:
    if name is not None and leaves(_read("[true] AS ", name, "a name").expression)[0].alias != name:
        raise DefinitionError(f"{name!r} cannot name a constituent", help="use letters, digits and _")
    return name


def _micros(span: object) -> int:
    if not isinstance(span, timedelta) or not timedelta() < span <= _LONGEST:
        raise DefinitionError(
            f"a duration is expected, above 0 and up to 100 years, not {span!r}", help="write timedelta(seconds=30)"
        )
    return span // timedelta(microseconds=UNITS["MICROSECOND"])


def _read(before: str, text: str, what: str) -> Definition:
    """Let the language itself judge a piece of text; its errors point into that piece."""
    if not isinstance(text, str):
        raise DefinitionError(f"{what} is a text, not {type(text).__name__}")
    try:
        return parse("built", before + text)
    except DefinitionError as error:
        position = None if error.position is None else max(0, error.position - len(before))
        raise DefinitionError(error.message, text=text, position=position, help=error.help) from None
