"""What a definition is, as values: leaves, operators, and what holds for the whole of it.

`language` reads and prints them, `builder` makes them in Python, `graph` compiles them. Nothing here knows how they are
detected.
"""

from __future__ import annotations

from typing import Literal

import msgspec

__all__ = [
    "CONTEXTS",
    "OPERATORS",
    "SEMANTICS",
    "Context",
    "Definition",
    "Expression",
    "Leaf",
    "Operation",
    "Operator",
    "Semantics",
    "is_timed",
    "leaves",
    "same",
]

Context = Literal["recent", "chronicle", "continuous", "cumulative"]
Semantics = Literal["detection", "interval"]
Operator = Literal["OR", "AND", "SEQ", "NOT", "A", "A*", "P", "P*", "PLUS", "ANY"]

CONTEXTS: tuple[Context, ...] = ("recent", "chronicle", "continuous", "cumulative")
SEMANTICS: tuple[Semantics, ...] = ("detection", "interval")
OPERATORS: tuple[Operator, ...] = ("OR", "AND", "SEQ", "NOT", "A", "A*", "P", "P*", "PLUS", "ANY")


class Leaf(msgspec.Struct, frozen=True, tag="leaf"):
    """Events that match a filter, what another definition detects, or an absolute time. One of the three is given."""

    filter: str | None = None
    """The canonical text of a filter."""
    definition: str | None = None
    """The name of a definition."""
    alias: str | None = None
    """What its constituents are called, in `WHERE` and in the parts of a detection."""
    at: str | None = None
    """The canonical text of an absolute time; see `schedule`."""


class Operation(msgspec.Struct, frozen=True, tag="operation"):
    """An operator over other expressions.

    The order of `of` is that of the roles: opener, middle, closer. NOT(opener, forbidden, closer), A and A*(opener,
    middle, closer), P and P*(opener, closer; the closer may be missing), PLUS(opener). OR, AND and SEQ have two or more
    (SEQ(a, b, c) is SEQ(SEQ(a, b), c), AND and OR likewise, and are kept in that nested form); ANY one or more.
    """

    operator: Operator
    of: tuple[Expression, ...]
    period: int | None = None
    """Microseconds; of P, P* and PLUS only."""
    count: int | None = None
    """How many of ANY."""
    within: int | None = None
    """The last constituent comes at most so many microseconds after the first."""


Expression = Leaf | Operation


def leaves(expression: Expression) -> list[Leaf]:
    """The leaves of an expression, from left to right."""
    if isinstance(expression, Leaf):
        return [expression]
    return [leaf for part in expression.of for leaf in leaves(part)]


def is_timed(expression: Expression) -> bool:
    """Does it wait for time to pass?"""
    if isinstance(expression, Leaf):
        return expression.at is not None
    return expression.period is not None or any(map(is_timed, expression.of))


class Definition(msgspec.Struct, frozen=True):
    """A composite event: an expression with a name, and what holds for all of it."""

    name: str
    expression: Expression
    by: tuple[str, ...] = ()
    """Fields, as in filters: only events that agree in all of them go together."""
    where: str | None = None
    """A condition over named constituents, in canonical form: `b.value > a.value`."""
    context: Context = "recent"
    semantics: Semantics = "detection"
    text: str = ""
    """The canonical text, without name, context and semantics."""
    max_open: int | None = None
    """The most openers that each of its operations keeps; None: as many as the detector allows."""
    generation: int = 0
    """Those of one generation share what they have in common; see `catalog`."""
    apart: frozenset[str] = frozenset()
    """What it is made of and looks for itself, in its own generation: of these it must not know what is older."""


def same(one: Definition | None, other: Definition) -> bool:
    """Do two definitions say the same, wherever each belongs in a catalog?"""
    return one is not None and _said(one) == _said(other)


def _said(each: Definition) -> tuple[str, str, str, str, int | None]:
    return each.name, each.text, each.context, each.semantics, each.max_open
