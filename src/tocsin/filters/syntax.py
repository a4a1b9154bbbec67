"""The filter language as data: small frozen nodes, nothing else.

Two kinds of node. *Values* (`Field`, `Literal`, `Call` of a value function) have a scalar, an array or NULL as their
value. *Conditions* (everything else) are true, false or NULL. A filter is one condition.

Do not compare nodes with `==`: Python holds `1 == True == 1.0`, SQL does not. The canonical text
(`tocsin.filters.printer`) is the identity of a node.
"""

from __future__ import annotations

from datetime import datetime

import msgspec

__all__ = [
    "CONDITION_FUNCTIONS",
    "FUNCTIONS",
    "VALUE_FUNCTIONS",
    "And",
    "Between",
    "Call",
    "Compare",
    "Condition",
    "Field",
    "In",
    "IsNull",
    "IsTruth",
    "Like",
    "Literal",
    "Not",
    "Or",
    "RLike",
    "Scalar",
    "Truth",
    "Value",
    "XPATH_FUNCTIONS",
]

# Functions by name, with their number of arguments.
_XPATH_NUMBERS = ["xpath_number", "xpath_double", "xpath_float", "xpath_int", "xpath_long", "xpath_short"]
_XPATH_VALUES = dict.fromkeys(["xpath_string", *_XPATH_NUMBERS], 2)
VALUE_FUNCTIONS = {"lower": 1, "upper": 1, "length": 1, "abs": 1, "distance_km": 4} | _XPATH_VALUES
CONDITION_FUNCTIONS = {"startswith": 2, "endswith": 2, "contains": 2, "array_contains": 2, "xpath_boolean": 2}
FUNCTIONS = VALUE_FUNCTIONS | CONDITION_FUNCTIONS
XPATH_FUNCTIONS = frozenset({"xpath_boolean", *_XPATH_VALUES})  # the second argument is an XPath in quotes

Scalar = bool | int | float | str | datetime | None


class Field(msgspec.Struct, frozen=True):
    """A name: `('temp',)`, or a way into the payload: `('data', 'a', 'b')`.

    `at` is its place in the text, for messages.
    """

    path: tuple[str, ...]
    at: int = -1


class Literal(msgspec.Struct, frozen=True):
    """A constant. Whole numbers outside 64 bits have become doubles by now."""

    value: Scalar


class Call(msgspec.Struct, frozen=True):
    """A function or an arithmetic operator (`+ - * / %` and `negate`); startswith and its kin are conditions."""

    name: str
    args: tuple[Value, ...]
    at: int = -1


class Compare(msgspec.Struct, frozen=True):
    """`left op right`, op one of `= <> < <= > >=`."""

    op: str
    left: Value
    right: Value


class Between(msgspec.Struct, frozen=True):
    """`value [NOT] BETWEEN low AND high`, both ends included."""

    value: Value
    low: Value
    high: Value
    negated: bool = False


class In(msgspec.Struct, frozen=True):
    """`value [NOT] IN (items)`."""

    value: Value
    items: tuple[Value, ...]
    negated: bool = False


class Like(msgspec.Struct, frozen=True):
    """`value [NOT] LIKE 'pattern'`; `%` any text, `_` one character, `escape` takes their meaning away."""

    value: Value
    pattern: str
    escape: str = "\\"
    negated: bool = False


class RLike(msgspec.Struct, frozen=True):
    """`value [NOT] RLIKE 'pattern'`: the pattern is found somewhere in the text."""

    value: Value
    pattern: str
    negated: bool = False


class IsNull(msgspec.Struct, frozen=True):
    """`value IS [NOT] NULL`: the only conditions besides IS TRUE/FALSE that are never NULL."""

    value: Value
    negated: bool = False


class IsTruth(msgspec.Struct, frozen=True):
    """`condition IS [NOT] TRUE|FALSE`."""

    condition: Condition
    truth: bool
    negated: bool = False


class Truth(msgspec.Struct, frozen=True):
    """A value used as a condition: TRUE, FALSE, NULL, or a boolean field (anything not boolean is NULL)."""

    value: Value


class Not(msgspec.Struct, frozen=True):
    """`NOT condition`."""

    condition: Condition


class And(msgspec.Struct, frozen=True):
    """All of two or more."""

    parts: tuple[Condition, ...]


class Or(msgspec.Struct, frozen=True):
    """Any of two or more."""

    parts: tuple[Condition, ...]


Value = Field | Literal | Call
Condition = Compare | Between | In | Like | RLike | IsNull | IsTruth | Truth | Not | And | Or | Call
