"""Filter text → syntax tree: the allow-list that *is* the language.

`parse(text)` gives a condition of `tocsin.filters.syntax` or raises a `FilterError` that says what was expected and
where. sqlglot supplies precedence over the vetted tokens of `tocsin.filters.tokens`; each node it returns is translated
here by an entry of `_CONDITIONS` or `_VALUES`, and a node without an entry is refused. docs/FILTERS.md is the normative
text.

Promised: no input raises anything but `FilterError`. Not here: meaning (`evaluate`), schemas (`schema`).
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import TypeVar

from sqlglot import exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import ParseError

from tocsin.errors import FilterError, FilterLimitError
from tocsin.filters import advice, paths, patterns, syntax, values
from tocsin.filters import limits as limits_module
from tocsin.filters.limits import Limits
from tocsin.filters.syntax import Condition, Field, Literal, Value
from tocsin.filters.tokens import Item, Tokens, place_in_string, read_tokens, timestamp_literal

__all__ = ["TIME_FIELDS", "parse"]

TIME_FIELDS = frozenset({("time",), ("arrived",)})

_COMPARISONS: dict[type[exp.Expr], str] = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
}
_ARITHMETIC: dict[type[exp.Expr], str] = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/", exp.Mod: "%"}
_PLAIN_PARTS = frozenset({"this", "expression"})
_PARTS: dict[type[exp.Expr], frozenset[str]] = {
    exp.In: frozenset({"this", "expressions"}),
    exp.Between: frozenset({"this", "low", "high"}),
    exp.Like: _PLAIN_PARTS | {"negate"},
    exp.Is: _PLAIN_PARTS | {"negate"},
    exp.Anonymous: frozenset({"this", "expressions"}),
    exp.Literal: frozenset({"this", "is_string"}),
    exp.Column: frozenset({"this", "table", "db", "catalog"}),
    exp.Div: _PLAIN_PARTS | {"typed", "safe"},
}
_NO_CONDITION = "join conditions with AND or OR, ask for their truth with (…) IS TRUE"
_NO_VALUE = "compare it with something: x = 1; a name stands without quotes"
_PARSER_DIALECT = Dialect()
_R = TypeVar("_R")


def parse(text: str, limits: Limits = limits_module.DEFAULT) -> Condition:
    """Read `text` as one condition.

    Raises:
        FilterError: with `.position`, what is wrong, and what was expected.
        FilterLimitError: over one of `limits`.
    """
    if not isinstance(text, str):
        raise FilterError(f"a filter is text, not {type(text).__name__}")
    tokens = read_tokens(text, limits)
    try:
        tree = _PARSER_DIALECT.parser().parse_into(exp.Condition, tokens.stream, text)[0]
        if tree is None:
            raise FilterError("the filter is empty", text=text, position=0, help="write TRUE to match every event")
        return _Translator(text, tokens, limits).condition(tree)
    except ParseError as error:
        raise _as_filter_error(text, error) from None
    except RecursionError:
        raise FilterLimitError(
            "the filter is nested too deep", limit="depth", text=text, position=0, help="take brackets away"
        ) from None


class _Translator:
    """One walk over sqlglot's tree; `depth` guards against long left-leaning chains of arithmetic."""

    def __init__(self, text: str, tokens: Tokens, limits: Limits) -> None:
        self._text = text
        self._items = tokens.items
        self._limits = limits
        self._depth = 0

    # -- conditions

    def condition(self, node: exp.Expr) -> Condition:
        self._check_parts(node)
        if isinstance(node, exp.And | exp.Or):
            return self._chain(node)
        handler = _CONDITIONS.get(type(node))
        if handler is not None:
            return self._nested(handler, node)
        if type(node) in _COMPARISONS:
            return self._compare(node)
        return self._truth(node)

    def _nested(self, handler: Callable[[_Translator, exp.Expr], _R], node: exp.Expr) -> _R:
        self._depth += 1
        if self._depth > 2 * self._limits.depth:
            raise FilterLimitError(
                f"the filter is nested more than {2 * self._limits.depth} deep",
                limit="depth",
                text=self._text,
                position=self._place(node),
                help="split it into several subscriptions",
            )
        result = handler(self, node)
        self._depth -= 1
        return result

    def _chain(self, node: exp.Expr) -> Condition:
        """Flatten a AND b AND c … without recursion: such chains lean left and may be thousands long."""
        kind = exp.And if isinstance(node, exp.And) else exp.Or
        leaves: list[exp.Expr] = []
        while isinstance(node, kind):
            leaves.append(node.expression)
            node = node.this
        leaves.append(node)
        parts: list[Condition] = []
        node_type = syntax.And if kind is exp.And else syntax.Or
        for leaf in reversed(leaves):
            part = self._nested(_Translator.condition, leaf)
            parts.extend(part.parts if isinstance(part, node_type) else (part,))
        return node_type(tuple(parts))

    def _compare(self, node: exp.Expr) -> Condition:
        left, right = self.value(node.this), self.value(node.expression)
        left, right = self._as_time(left, right, node.this), self._as_time(right, left, node.expression)
        return syntax.Compare(_COMPARISONS[type(node)], left, right)

    def _truth(self, node: exp.Expr) -> Condition:
        value = self.value(node)
        if isinstance(value, Literal) and not (value.value is None or isinstance(value.value, bool)):
            raise self._error(node, "a condition is expected here, not a value", _NO_VALUE)
        if isinstance(value, syntax.Call):
            raise self._error(
                node, f"{value.name.replace('negate', '-')} gives a value, not a condition", "compare it with something"
            )
        return syntax.Truth(value)

    def _not(self, node: exp.Expr) -> Condition:
        inner = self.condition(node.this)
        if isinstance(inner, syntax.Between):
            return syntax.Between(inner.value, inner.low, inner.high, not inner.negated)
        if isinstance(inner, syntax.In):
            return syntax.In(inner.value, inner.items, not inner.negated)
        if isinstance(inner, syntax.Like):
            return syntax.Like(inner.value, inner.pattern, inner.escape, not inner.negated)
        if isinstance(inner, syntax.RLike):
            return syntax.RLike(inner.value, inner.pattern, not inner.negated)
        if isinstance(inner, syntax.IsNull):
            return syntax.IsNull(inner.value, not inner.negated)
        if isinstance(inner, syntax.IsTruth):
            return syntax.IsTruth(inner.condition, inner.truth, not inner.negated)
        return syntax.Not(inner)

    def _paren(self, node: exp.Expr) -> Condition:
        return self.condition(node.this)

    def _between(self, node: exp.Expr) -> Condition:
        value, low, high = (self.value(node.args[part]) for part in ("this", "low", "high"))
        low, high = self._as_time(low, value, node.args["low"]), self._as_time(high, value, node.args["high"])
        return syntax.Between(value, low, high)

    def _in(self, node: exp.Expr) -> Condition:
        items = node.expressions
        if not items:
            raise self._error(node, "IN has an empty list", "write at least one value: x IN (1)")
        value = self.value(node.this)
        return syntax.In(value, tuple(self._as_time(self.value(item), value, item) for item in items))

    def _like(self, node: exp.Expr, escape: str = "\\") -> Condition:
        pattern = self._pattern(node, "LIKE")
        try:
            patterns.like_parts(pattern, escape)
        except patterns.PatternError as error:
            raise self._bad_pattern(node.expression, error, str(error)) from None
        return syntax.Like(self.value(node.this), pattern, escape, bool(node.args.get("negate")))

    def _escape(self, node: exp.Expr) -> Condition:
        item = self._literal_item(node.expression)
        if not isinstance(node.this, exp.Like) or item is None or item.kind != "string" or len(item.value) != 1:
            raise self._error(
                node.expression, "ESCAPE takes one character and follows LIKE", "write x LIKE '50!%' ESCAPE '!'"
            )
        return self._like(node.this, item.value)

    def _rlike(self, node: exp.Expr) -> Condition:
        pattern = self._pattern(node, "RLIKE")
        try:
            patterns.compile_regex(pattern)
        except patterns.PatternError as error:
            raise self._bad_pattern(node.expression, error, f"this pattern is not allowed: {error}") from None
        return syntax.RLike(self.value(node.this), pattern)

    def _bad_pattern(self, node: exp.Expr, error: patterns.PatternError, message: str) -> FilterError:
        """Point into the pattern, past quotes and escapes."""
        place = place_in_string(self._text, self._place(node), error.at)
        return FilterError(message, text=self._text, position=place, help=error.help)

    def _pattern(self, node: exp.Expr, what: str) -> str:
        item = self._literal_item(node.expression)
        if item is None or item.kind != "string":
            raise self._error(
                node.expression, f"{what} takes a pattern in quotes", f"write x {what} '…', without brackets"
            )
        if len(item.value) > self._limits.pattern:
            raise FilterLimitError(
                f"the pattern is {len(item.value):,} characters long, {self._limits.pattern:,} are allowed",
                limit="pattern",
                text=self._text,
                position=item.at,
            )
        return str(item.value)

    def _is(self, node: exp.Expr) -> Condition:
        what, negated = node.expression, bool(node.args.get("negate"))
        if isinstance(what, exp.Null):
            return syntax.IsNull(self.value(node.this), negated)
        if isinstance(what, exp.Boolean):
            return syntax.IsTruth(self.condition(node.this), bool(what.this), negated)
        raise self._error(node, "IS is followed by [NOT] NULL, TRUE or FALSE", "use = to compare with a value")

    def _condition_call(self, node: exp.Expr) -> Condition:
        name, args, at = self._call_parts(node)
        if name in syntax.CONDITION_FUNCTIONS:
            return syntax.Call(name, args, at)
        return self._truth(node)

    # -- values

    def value(self, node: exp.Expr) -> Value:
        self._check_parts(node)
        if type(node) in _ARITHMETIC:
            return self._nested(_Translator._arithmetic, node)
        handler = _VALUES.get(type(node))
        if handler is not None:
            return self._nested(handler, node)
        if type(node) in _CONDITIONS or type(node) in _COMPARISONS or isinstance(node, exp.Connector):
            raise self._error(node, "a value is expected here, not a condition", _NO_CONDITION)
        if isinstance(node, exp.Binary) and not isinstance(node, exp.Dot):
            raise self._error(node, "two operators follow each other", "one comparison takes one of = <> < <= > >=")
        raise self._error(node, f"{node.key} is not part of the filter language", "see docs/FILTERS.md for what is")

    def _arithmetic(self, node: exp.Expr) -> Value:
        return syntax.Call(
            _ARITHMETIC[type(node)], (self.value(node.this), self.value(node.expression)), self._place(node)
        )

    def _literal(self, node: exp.Expr) -> Value:
        item = self._items[int(node.this)]
        if item.kind == "number":
            return Literal(values.number(item.value))
        return Literal(item.value)

    def _negative(self, node: exp.Expr) -> Value:
        item = self._literal_item(node.this)
        if item is not None and item.kind == "number":
            return Literal(values.number(-item.value))
        return syntax.Call("negate", (self.value(node.this),), self._place(node))

    def _value_paren(self, node: exp.Expr) -> Value:
        return self.value(node.this)

    def _null(self, node: exp.Expr) -> Value:
        return Literal(None)

    def _boolean(self, node: exp.Expr) -> Value:
        return Literal(bool(node.this))

    def _field(self, node: exp.Expr) -> Value:
        names: list[Item] = []
        while isinstance(node, exp.Dot):  # a path longer than sqlglot's catalog.db.table.column
            if not isinstance(node.expression, exp.Identifier):
                raise self._error(
                    node, "only names may stand behind a dot", "reach into the payload with dots: data.a.b"
                )
            names.append(self._items[int(node.expression.this[1:])])
            node = node.this
        if not isinstance(node, exp.Column):
            raise self._error(node, "only a name has fields", "reach into the payload with dots: data.a.b")
        for part in ("this", "table", "db", "catalog"):
            if (identifier := node.args.get(part)) is not None:
                names.append(self._items[int(identifier.this[1:])])
        names.reverse()
        return Field(tuple(item.value for item in names), names[0].at)

    def _value_call(self, node: exp.Expr) -> Value:
        name, args, at = self._call_parts(node)
        if name in syntax.CONDITION_FUNCTIONS:
            raise self._error(node, f"{name} is a condition by itself", f"write {name}(…) or NOT {name}(…)")
        return syntax.Call(name, args, at)

    def _call_parts(self, node: exp.Expr) -> tuple[str, tuple[Value, ...], int]:
        item = self._items[int(str(node.this)[1:])]
        name = item.value
        arity = syntax.FUNCTIONS[name]
        if len(node.expressions) != arity:
            raise FilterError(
                f"{name} takes {arity} argument{'s' * (arity > 1)}, not {len(node.expressions)}",
                text=self._text,
                position=item.at,
            )
        if name in syntax.XPATH_FUNCTIONS:
            self._check_path(name, node.expressions[1])
        return name, tuple(self.value(argument) for argument in node.expressions), item.at

    def _check_path(self, name: str, node: exp.Expr) -> None:
        item = self._literal_item(node)
        if item is None or item.kind != "string":
            raise self._error(node, f"{name} takes an XPath in quotes", f"write {name}(data, '//a')")
        paths.check(name, item.value, self._limits, self._text, lambda at: place_in_string(self._text, item.at, at))

    # -- helpers

    def _check_parts(self, node: exp.Expr) -> None:
        """Refuse a part of a node that this translation would silently ignore (BETWEEN SYMMETRIC, a regex flag …)."""
        known = _PARTS.get(type(node), _PLAIN_PARTS)
        for name, part in node.args.items():
            if part and name not in known:
                raise self._error(
                    node, f"{node.key} with {name} is not part of the filter language", "see docs/FILTERS.md"
                )

    def _as_time(self, literal: Value, other: Value, node: exp.Expr) -> Value:
        """A text compared with `time` or `arrived` is a timestamp, as Spark casts it; one that is none is refused."""
        if isinstance(other, Field) and other.path in TIME_FIELDS and isinstance(literal, Literal):
            if isinstance(literal.value, str):
                return Literal(timestamp_literal(literal.value, self._text, self._place(node)))
            if not (literal.value is None or isinstance(literal.value, datetime)):
                raise self._error(node, f"{other.path[0]} is a timestamp", "write it as '2026-11-15T08:00:00Z'")
        return literal

    def _literal_item(self, node: exp.Expr) -> Item | None:
        return self._items[int(node.this)] if isinstance(node, exp.Literal) else None

    def _place(self, node: exp.Expr | None) -> int:
        """The leftmost item below `node`: sqlglot keeps no place for operators."""
        places = []
        for leaf in node.walk() if node is not None else ():
            if isinstance(leaf, exp.Literal):
                places.append(self._items[int(leaf.this)].at)
            elif isinstance(leaf, exp.Identifier | exp.Anonymous) and str(leaf.this)[1:].isdigit():
                places.append(self._items[int(str(leaf.this)[1:])].at)
        return min(places, default=0)

    def _error(self, node: exp.Expr | None, message: str, help: str) -> FilterError:
        return FilterError(message, text=self._text, position=self._place(node), help=help)


_CONDITIONS: dict[type[exp.Expr], Callable[[_Translator, exp.Expr], Condition]] = {
    exp.Not: _Translator._not,
    exp.Paren: _Translator._paren,
    exp.Between: _Translator._between,
    exp.In: _Translator._in,
    exp.Like: _Translator._like,
    exp.Escape: _Translator._escape,
    exp.RegexpLike: _Translator._rlike,
    exp.Is: _Translator._is,
    exp.Anonymous: _Translator._condition_call,
}
_VALUES: dict[type[exp.Expr], Callable[[_Translator, exp.Expr], Value]] = {
    exp.Literal: _Translator._literal,
    exp.Neg: _Translator._negative,
    exp.Paren: _Translator._value_paren,
    exp.Null: _Translator._null,
    exp.Boolean: _Translator._boolean,
    exp.Column: _Translator._field,
    exp.Dot: _Translator._field,
    exp.Anonymous: _Translator._value_call,
}


def _as_filter_error(text: str, error: ParseError) -> FilterError:
    """Say in our words where sqlglot stumbled; `order` leaves it little to stumble over."""
    detail = error.errors[0] if error.errors else {}
    highlight = str(detail.get("highlight", ""))
    before = str(detail.get("start_context", ""))
    position = max(0, text.find(before + highlight)) + len(before) if highlight else 0
    message = f"{advice.shown(highlight)!r} is not expected here" if highlight else "the filter cannot be read"
    return FilterError(message, text=text, position=min(position, len(text)), help="see docs/FILTERS.md")
