"""Definitions as canonical text: equal ones print alike, and `language.parse` reads it back. And what to warn of."""

from __future__ import annotations

from collections.abc import Iterator

from tocsin.composite.expression import Definition, Expression, Leaf, Operation

__all__ = ["UNITS", "print_definition", "print_duration", "print_expression", "warnings"]

UNITS = {
    "DAY": 86_400_000_000,
    "HOUR": 3_600_000_000,
    "MINUTE": 60_000_000,
    "SECOND": 1_000_000,
    "MILLISECOND": 1_000,
    "MICROSECOND": 1,
}


def warnings(definition: Definition) -> list[str]:
    """What is allowed and seldom meant."""
    found = []
    for operation in _operations(definition.expression):
        if operation.operator == "P" and len(operation.of) == 1:
            found.append(f"{print_expression(operation)} has no closer: it ticks for ever")
    return found


def print_definition(definition: Definition) -> str:
    """The canonical text: equal definitions print alike, and `parse` reads it back."""
    text = print_expression(definition.expression)
    if definition.by:
        text += f" BY {', '.join(definition.by)}"
    return text if definition.where is None else f"{text} WHERE {definition.where}"


def print_expression(expression: Expression) -> str:
    """The canonical text of an expression."""
    if isinstance(expression, Leaf):
        if expression.at is not None:
            shown = f"AT '{expression.at}'"
        else:
            shown = f"[{expression.filter}]" if expression.filter is not None else str(expression.definition)
        return shown if expression.alias is None else f"{shown} AS {expression.alias}"
    items = [print_expression(part) for part in _flat(expression)]
    if expression.period is not None:
        items.insert(1, print_duration(expression.period))
    if expression.count is not None:
        items.insert(0, str(expression.count))
    text = f"{expression.operator}({', '.join(items)})"
    return text if expression.within is None else f"{text} WITHIN {print_duration(expression.within)}"


def print_duration(micros: int) -> str:
    """A duration in the largest unit of which it is a whole number."""
    for unit, size in UNITS.items():
        if micros % size == 0:
            count = micros // size
            return f"{count} {unit}{'' if count == 1 else 'S'}"
    raise AssertionError("a microsecond divides everything")


def _flat(operation: Operation) -> list[Expression]:
    """SEQ(SEQ(a, b), c) is written SEQ(a, b, c)."""
    first, *rest = operation.of
    if (
        operation.operator in ("OR", "AND", "SEQ")
        and isinstance(first, Operation)
        and first.operator == operation.operator
        and first.within is None
    ):
        return [*_flat(first), *rest]
    return list(operation.of)


def _operations(expression: Expression) -> Iterator[Operation]:
    if isinstance(expression, Operation):
        yield expression
        for part in expression.of:
            yield from _operations(part)
