"""Syntax tree → a function from event to true, false or NULL (None): what a filter means, one event at a time.

This is the meaning the index, the reference structures and Spark must reproduce. Pure: no clock, no I/O, no state but
parsed XML that is kept for the next question (`documents`).
Names are found as docs/FILTERS.md says: envelope field, else attribute, else top-level field of a JSON payload.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from tocsin.filters import documents, patterns, syntax, values
from tocsin.filters.syntax import Condition, Field, Literal, Value
from tocsin.model import ENVELOPE, Event

__all__ = ["Getter", "Test", "compile_condition", "compile_value", "getter"]

Getter = Callable[[Event], Any]
Test = Callable[[Event], bool | None]

_ENVELOPE = frozenset(ENVELOPE)
_ABSENT: Any = object()

# How a three-way comparison answers each operator.
_ANSWERS: dict[str, dict[int | None, bool | None]] = {
    "=": {None: None, -1: False, 0: True, 1: False},
    "<>": {None: None, -1: True, 0: False, 1: True},
    "<": {None: None, -1: True, 0: False, 1: False},
    "<=": {None: None, -1: True, 0: True, 1: False},
    ">": {None: None, -1: False, 0: False, 1: True},
    ">=": {None: None, -1: False, 0: True, 1: True},
}


def getter(path: tuple[str, ...]) -> Getter:
    """Return the function that finds a name in an event; None where it is missing."""
    head, rest = path[0], path[1:]
    if head in _ENVELOPE:
        return operator.attrgetter(head) if not rest else lambda event: None
    if head == "data":
        return lambda event: _walk(event.data, rest)
    if head == "attributes":
        if len(rest) != 1:
            return (lambda event: event.attributes or None) if not rest else (lambda event: None)
        return lambda event: event.attributes.get(rest[0])

    def find(event: Event) -> Any:
        value = event.attributes.get(head, _ABSENT)
        if value is _ABSENT:
            data = event.data
            value = data.get(head) if isinstance(data, dict) else None
        return _walk(value, rest) if rest else value

    return find


def _walk(value: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        if not isinstance(value, dict):
            return None
        value = value.get(name)
    return value


def compile_value(node: Value) -> Getter:
    """Compile a value."""
    if isinstance(node, Field):
        return getter(node.path)
    if isinstance(node, Literal):
        constant = node.value
        return lambda event: constant
    if node.name in syntax.XPATH_FUNCTIONS:
        return _xpath(node)
    args = [compile_value(argument) for argument in node.args]
    if node.name in values.ARITHMETIC:
        binary, (left, right) = values.ARITHMETIC[node.name], args
        return lambda event: binary(left(event), right(event))
    if node.name in values.UNARY:
        unary, argument = values.UNARY[node.name], args[0]
        return lambda event: unary(argument(event))
    if node.name == "distance_km":
        return lambda event: values.distance_km(*(argument(event) for argument in args))
    raise AssertionError(f"no such value function: {node.name}")


def _xpath(node: syntax.Call) -> Getter:
    text, path = node.args
    assert isinstance(path, Literal) and isinstance(path.value, str)  # `language` lets nothing else through
    document, ask = compile_value(text), documents.asker(node.name, path.value)
    return lambda event: ask(document(event))


def compile_condition(node: Condition) -> Test:
    """Compile a condition."""
    return _COMPILERS[type(node)](node)


def _compare(node: syntax.Compare) -> Test:
    left, right, answers, compare = (
        compile_value(node.left),
        compile_value(node.right),
        _ANSWERS[node.op],
        values.compare,
    )
    return lambda event: answers[compare(left(event), right(event))]


def _between(node: syntax.Between) -> Test:
    inside = _and(
        syntax.And((syntax.Compare(">=", node.value, node.low), syntax.Compare("<=", node.value, node.high))),
    )
    return _negate(inside) if node.negated else inside


def _in(node: syntax.In) -> Test:
    value, items, compare = compile_value(node.value), [compile_value(item) for item in node.items], values.compare
    plain_texts: frozenset[str] | None = None
    if all(isinstance(item, Literal) and isinstance(item.value, str) for item in node.items):
        plain_texts = frozenset(
            item.value for item in node.items if isinstance(item, Literal) and isinstance(item.value, str)
        )

    def inside(event: Event) -> bool | None:
        found = value(event)
        if plain_texts is not None and isinstance(found, str):
            return found in plain_texts
        doubt = False
        for item in items:
            order = compare(found, item(event))
            if order == 0:
                return True
            doubt = doubt or order is None
        return None if doubt else False

    return _negate(inside) if node.negated else inside


def _text_test(value: Getter, fits: Callable[[str], bool], negated: bool) -> Test:
    def test(event: Event) -> bool | None:
        text = value(event)
        return fits(text) is not negated if isinstance(text, str) else None

    return test


def _like(node: syntax.Like) -> Test:
    return _text_test(compile_value(node.value), patterns.compile_like(node.pattern, node.escape), node.negated)


def _rlike(node: syntax.RLike) -> Test:
    return _text_test(compile_value(node.value), patterns.compile_regex(node.pattern), node.negated)


def _is_null(node: syntax.IsNull) -> Test:
    value, negated = compile_value(node.value), node.negated
    return lambda event: (value(event) is None) is not negated


def _is_truth(node: syntax.IsTruth) -> Test:
    condition, truth, negated = compile_condition(node.condition), node.truth, node.negated
    return lambda event: (condition(event) is truth) is not negated


def _truth(node: syntax.Truth) -> Test:
    value, truth = compile_value(node.value), values.truth
    return lambda event: truth(value(event))


def _negate(test: Test) -> Test:
    answers = {True: False, False: True, None: None}
    return lambda event: answers[test(event)]


def _not(node: syntax.Not) -> Test:
    return _negate(compile_condition(node.condition))


def _and(node: syntax.And) -> Test:
    tests = [compile_condition(part) for part in node.parts]

    def test(event: Event) -> bool | None:
        result: bool | None = True
        for part in tests:
            answer = part(event)
            if answer is False:
                return False
            if answer is None:
                result = None
        return result

    return test


def _or(node: syntax.Or) -> Test:
    tests = [compile_condition(part) for part in node.parts]

    def test(event: Event) -> bool | None:
        result: bool | None = False
        for part in tests:
            answer = part(event)
            if answer is True:
                return True
            if answer is None:
                result = None
        return result

    return test


def _call(node: syntax.Call) -> Test:
    if node.name in syntax.XPATH_FUNCTIONS:
        return _xpath(node)
    first, second = compile_value(node.args[0]), compile_value(node.args[1])
    if node.name == "array_contains":
        return lambda event: values.array_contains(first(event), second(event))
    fits = values.TEXT_TESTS[node.name]

    def test(event: Event) -> bool | None:
        text, part = first(event), second(event)
        return fits(text, part) if isinstance(text, str) and isinstance(part, str) else None

    return test


_COMPILERS: dict[type, Callable[[Any], Test]] = {
    syntax.Compare: _compare,
    syntax.Between: _between,
    syntax.In: _in,
    syntax.Like: _like,
    syntax.RLike: _rlike,
    syntax.IsNull: _is_null,
    syntax.IsTruth: _is_truth,
    syntax.Truth: _truth,
    syntax.Not: _not,
    syntax.And: _and,
    syntax.Or: _or,
    syntax.Call: _call,
}
