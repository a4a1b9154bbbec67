"""Syntax tree → canonical text: one spelling for each tree, and `parse(print(tree))` gives the tree back.

Canonical means: keywords in capitals, functions in small letters, one blank around operators, only the brackets that
are needed, `<>` and `=`, `NOT` inside LIKE, IN, BETWEEN and IS, timestamps in UTC. The order of the parts is the
author's.
"""

from __future__ import annotations

from datetime import UTC, datetime

from tocsin.filters import syntax
from tocsin.filters.syntax import Condition, Literal, Value
from tocsin.filters.tokens import KEYWORDS, NAME

__all__ = ["print_condition", "print_name", "print_scalar", "print_value"]

_OR, _AND, _NOT, _TEST = range(4)
_ADD, _MULTIPLY, _UNARY, _ATOM = range(4)
_LEVEL = {"+": _ADD, "-": _ADD, "*": _MULTIPLY, "/": _MULTIPLY, "%": _MULTIPLY}
_ESCAPED = {"\\": "\\\\", "'": "''", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\0": "\\0", "\b": "\\b", "\x1a": "\\Z"}
_ESCAPES = str.maketrans(_ESCAPED)


def print_condition(node: Condition) -> str:
    """Return the canonical text of a condition."""
    return _condition(node, _OR)


def print_value(node: Value) -> str:
    """Return the canonical text of a value."""
    return _value(node, _ADD)


def print_scalar(value: syntax.Scalar) -> str:
    """Return a constant as the language writes it."""
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, str):
        return "'" + value.translate(_ESCAPES) + "'"
    if isinstance(value, datetime):
        return f"TIMESTAMP '{value.astimezone(UTC).isoformat().replace('+00:00', 'Z')}'"
    if value in (float("inf"), float("-inf")):
        return "1e999" if value > 0 else "-1e999"
    return repr(value)


def print_name(path: tuple[str, ...]) -> str:
    """Return a name or path, quoted where it must be."""
    return ".".join(
        name if NAME.match(name) and name.upper() not in KEYWORDS else "`" + name.replace("`", "``") + "`"
        for name in path
    )


def _condition(node: Condition, outer: int) -> str:
    match node:
        case syntax.Or():
            text, level = " OR ".join(_condition(part, _AND) for part in node.parts), _OR
        case syntax.And():
            text, level = " AND ".join(_condition(part, _NOT) for part in node.parts), _AND
        case syntax.Not():
            text, level = (
                "NOT " + _condition(node.condition, _TEST if not isinstance(node.condition, syntax.Not) else _NOT),
                _NOT,
            )
        case _:
            text, level = _test(node), _TEST
    return f"({text})" if level < outer else text


def _test(node: Condition) -> str:
    match node:
        case syntax.Compare():
            return f"{print_value(node.left)} {node.op} {print_value(node.right)}"
        case syntax.Between():
            return f"{print_value(node.value)} {_not(node)}BETWEEN {print_value(node.low)} AND {print_value(node.high)}"
        case syntax.In():
            return f"{print_value(node.value)} {_not(node)}IN ({', '.join(map(print_value, node.items))})"
        case syntax.Like():
            escape = "" if node.escape == "\\" else f" ESCAPE {print_scalar(node.escape)}"
            return f"{print_value(node.value)} {_not(node)}LIKE {print_scalar(node.pattern)}{escape}"
        case syntax.RLike():
            return f"{print_value(node.value)} {_not(node)}RLIKE {print_scalar(node.pattern)}"
        case syntax.IsNull():
            return f"{print_value(node.value)} IS {_not(node)}NULL"
        case syntax.IsTruth():
            inner = _condition(node.condition, _OR)
            if not isinstance(node.condition, syntax.Truth | syntax.Call):
                inner = f"({inner})"
            return f"{inner} IS {_not(node)}{'TRUE' if node.truth else 'FALSE'}"
        case syntax.Truth():
            return print_value(node.value)
        case syntax.Call():
            return print_value(node)
        case _:
            raise AssertionError(f"not a test: {node!r}")


def _not(node: syntax.Between | syntax.In | syntax.Like | syntax.RLike | syntax.IsNull | syntax.IsTruth) -> str:
    return "NOT " if node.negated else ""


def _value(node: Value, outer: int) -> str:
    match node:
        case syntax.Field():
            return print_name(node.path)
        case Literal():
            text = print_scalar(node.value)
            return f"({text})" if outer > _ADD and text.startswith("-") else text
        case syntax.Call(name="negate"):
            inner = _value(node.args[0], _ATOM)
            text, level = f"-{inner}", _UNARY
        case syntax.Call() if node.name in _LEVEL:
            level = _LEVEL[node.name]
            text = f"{_value(node.args[0], level)} {node.name} {_value(node.args[1], level + 1)}"
        case _:
            return f"{node.name}({', '.join(map(print_value, node.args))})"
    return f"({text})" if level < outer else text
