"""A filter under a schema: names known, types right, constants on the grid, and something left to match.

    syntax tree ─ names, types ─▶ constants rounded ─▶ new tree ─▶ normal form ∧ declared values ─▶ can it match?

A test is checked against the event types it can be about: those that stand beside it (`type = 'a' AND …`), or the one
the caller names, or all. A name that several types declare differently may be tested as any of them; only if their
grids differ must the filter say which type it means.

Promised: a refusal is a `FilterTypeError` with the place of the name in the filter's text; an admitted filter differs
from the one given in rounded constants only. Not promised: to find every filter that can match nothing (see `facts`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from tocsin.errors import FilterLimitError, FilterTypeError
from tocsin.filters import facts, syntax, values
from tocsin.filters import limits as limits_module
from tocsin.filters.intervals import Cuts, contains, text_key
from tocsin.filters.normal import NULLNESS, Conjunction, Dimension, NormalForm, meet, normalise
from tocsin.filters.printer import print_condition, print_name, print_scalar, print_value
from tocsin.filters.refusals import (
    KIND_NAMES,
    conjunction_words,
    envelope_words,
    likely_name,
    mend,
    outside,
    suggestion,
)
from tocsin.filters.syntax import Condition, Field, Literal, Value
from tocsin.model import ENVELOPE

if TYPE_CHECKING:
    from tocsin.filters.filter import Filter
    from tocsin.filters.schema import Attribute, Schema

__all__ = ["admit", "declared_name"]

_TYPE = Dimension("type", values.TEXT)
_TEXT_FUNCTIONS = frozenset({"lower", "upper", "length", "startswith", "endswith", "contains"}) | syntax.XPATH_FUNCTIONS
_MAX_EXPLAINED = 64  # tests tried one by one to say which of them leave nothing


def admit(schema: Schema, wanted: Filter, type: str | None) -> Filter:
    """Check a filter; see `Schema.check_filter`."""
    work = _Admission(schema, wanted)
    types = schema.types if type is None else (type,)
    condition = work.condition(wanted.condition, types, given=type is not None)
    work.check_possible(condition, types, given=type is not None)
    text = print_condition(condition)
    return wanted if text == str(wanted) else wanted.__class__(text)


def declared_name(path: tuple[str, ...]) -> str | None:
    """The name under which a schema would declare this path; None for fields of the envelope and for whole objects."""
    head, *rest = path
    if head in ENVELOPE or path in (("data",), ("attributes",)):
        return None
    return ".".join(rest if head in ("data", "attributes") else path)


class _Admission:
    """The checks of one filter, in the order a reader would make them."""

    def __init__(self, schema: Schema, wanted: Filter) -> None:
        self._schema = schema
        self._text = wanted.text

    # -- names, types, rounding

    def condition(self, node: Condition, types: tuple[str, ...], given: bool) -> Condition:
        """Return the condition with its constants rounded; `given`: the types are said, not just all there are."""
        if isinstance(node, syntax.And):
            for part in node.parts:
                if (named := _named_types(part)) is not None:
                    types, given = named, True
            return syntax.And(tuple(self.condition(part, types, given) for part in node.parts))
        if isinstance(node, syntax.Or):
            return syntax.Or(tuple(self.condition(part, types, given) for part in node.parts))
        if isinstance(node, syntax.Not):
            return syntax.Not(self.condition(node.condition, types, given))
        if isinstance(node, syntax.IsTruth):
            return syntax.IsTruth(self.condition(node.condition, types, given), node.truth, node.negated)
        test = _Test(self, node, self._declared(node, types, given))
        return test.checked()

    def _declared(self, node: Condition, types: tuple[str, ...], given: bool) -> dict[tuple[str, ...], list[Attribute]]:
        """What the names of a test are declared as, in any of the types."""
        found: dict[tuple[str, ...], list[Attribute]] = {}
        tables = [self._schema.attributes(type) for type in types] or [self._schema.attributes()]
        for field in facts.fields(node):
            name = declared_name(field.path)
            if name is None:
                continue
            found[field.path] = [table[name] for table in tables if name in table]
            if found[field.path] or not self._schema.strict:
                continue
            if any(other.startswith(name + ".") for table in tables for other in table):
                continue
            known = {name for table in tables for name in table}
            elsewhere = sorted(t for t in self._schema.types if name in self._schema.attributes(t))
            where = f" for events of type {', '.join(types[:3])}" if given else ""
            likely = likely_name(name, known) or likely_name(name, ENVELOPE)
            help = f"did you mean {likely}?" if likely else suggestion(name, known)
            if elsewhere:
                help = f"it is for {', '.join(elsewhere)}"
            raise self.error(f"{print_name(field.path)} is not declared{where}", field, help)
        return found

    def error(self, message: str, field: Field | None, help: str | None) -> FilterTypeError:
        """Build the refusal; a name that did not come from the text (a destination) has no place in it."""
        at = field.at if field is not None and 0 <= field.at < len(self._text) else None
        name = None if field is None else print_name(field.path)
        return FilterTypeError(message, text=self._text, position=at, field=name, help=help)

    # -- can it match?

    def check_possible(self, condition: Condition, types: tuple[str, ...], given: bool) -> None:
        """Refuse a filter that no admitted event can match, and say which test is to blame."""
        if self._possible(condition, types, given):
            return
        whole = _pushed(condition, True)
        for test in list(_tests(whole))[:_MAX_EXPLAINED]:
            if not self._possible(test, types, given):
                field = next(facts.fields(test), None)
                raise self.error(f"{print_condition(test)} can never be true", field, self._why(test, field, types))
        parts = self._blamed(whole, types, given)
        if not parts:
            raise self.error("no event can match this filter", None, "its tests exclude each other")
        field = next(facts.fields(parts[-1]), None)
        help = self._apart(parts, types) or self._why(parts[-1], field, types)
        if isinstance(whole, syntax.Or):
            help = f"{help}; nor can the other alternatives match" if help else "nor can the other alternatives match"
        raise self.error(f"{conjunction_words(parts)} exclude each other", field, help)

    def _blamed(self, whole: Condition, types: tuple[str, ...], given: bool) -> list[Condition]:
        """Parts that leave nothing, of which none can be spared; none if there are too many to try."""
        while isinstance(whole, syntax.Or):
            whole = whole.parts[0]
        parts: list[Condition] = list(whole.parts) if isinstance(whole, syntax.And) else [whole]
        if len(parts) > _MAX_EXPLAINED:
            return []
        for part in list(parts):
            rest = [other for other in parts if other is not part]
            with contextlib.suppress(FilterLimitError):  # what is left may grow larger than the whole did
                if rest and not self._possible(syntax.And(tuple(rest)), types, given):
                    parts = rest
        return parts

    def _apart(self, parts: list[Condition], types: tuple[str, ...]) -> str | None:
        """Say so if the names in `parts` never meet in one event."""
        names = {name for part in parts for field in facts.fields(part) if (name := declared_name(field.path))}
        if not self._schema.strict or any(names <= self._schema.attributes(type).keys() for type in types or ("",)):
            return None
        return f"no event type declares both {' and '.join(sorted(names))}" if len(names) == 2 else None

    def _why(self, test: Condition, field: Field | None, types: tuple[str, ...]) -> str | None:
        if field is None:
            return "it names nothing that an event could hold"
        if words := envelope_words(field.path[0]):
            return f"{field.path[0]} is {words}"
        name = declared_name(field.path) or ""
        for type in types or ("",):
            attribute = self._schema.attributes(type).get(name)
            if attribute is not None:
                return f"{name} is declared as {attribute.describe()}{outside(test, attribute)}"
        return None

    def _possible(self, condition: Condition, types: tuple[str, ...], given: bool) -> bool:
        form = normalise(condition, limits_module.DEFAULT)
        return any(self._alternative(alternative, form, types, given) for alternative in form.alternatives)

    def _alternative(self, alternative: Conjunction, form: NormalForm, types: tuple[str, ...], given: bool) -> bool:
        """Is there a type of event whose declared values leave something?"""
        terms = dict(form.terms)
        known = facts.enrich(alternative, terms)
        if known is None:
            return False
        allowed = known.sets.get(_TYPE)
        possible = [type for type in types if allowed is None or contains(allowed, text_key(type))]
        tables = [self._schema.attributes(type) for type in possible]
        named = facts.point_values(known, "type")
        if not given and (named is None or not set(named) <= set(types)):  # some type that the schema does not mention
            tables.append(self._schema.attributes())
        return any(self._leaves(known, terms, table) for table in tables)

    def _leaves(self, known: Conjunction, terms: dict[str, Value], table: dict[str, Attribute]) -> bool:
        """Is something left if every name that must be there has a declared value?"""
        sets: dict[Dimension, Cuts] = {}
        for (term, kind), cuts in known.sets.items():
            value = terms[term]
            name = declared_name(value.path) if isinstance(value, Field) else None
            if name is None or kind != NULLNESS or cuts != facts.NOT_NULL:
                continue
            attribute = table.get(name)
            if attribute is None:
                if self._schema.strict and not any(other.startswith(name + ".") for other in table):
                    return False
            elif attribute.kind is not None and (declared := attribute.allowed()) is not None:
                sets[Dimension(term, attribute.kind)] = declared
        both = meet(known, Conjunction(sets, {}))
        return both is not None and facts.enrich(both, terms) is not None


def _named_types(test: Condition) -> tuple[str, ...] | None:
    """The event types a test names: `type = 'a'` or `type IN ('a', 'b')`."""
    constants: tuple[Value, ...] = ()
    if isinstance(test, syntax.Compare) and test.op == "=":
        sides = (test.left, test.right)
        constants = tuple(side for side in sides if not (isinstance(side, Field) and side.path == ("type",)))
        if len(constants) != 1:
            return None
    elif (
        isinstance(test, syntax.In)
        and not test.negated
        and isinstance(test.value, Field)
        and test.value.path == ("type",)
    ):
        constants = test.items
    found = [c.value for c in constants if isinstance(c, Literal) and isinstance(c.value, str)]
    return tuple(found) if found and len(found) == len(constants) else None


def _pushed(node: Condition, want: bool) -> Condition:
    """The condition that is true when `node` is `want`, with NOT before single tests only."""
    if isinstance(node, syntax.Not):
        return _pushed(node.condition, not want)
    if isinstance(node, syntax.And | syntax.Or):
        kind = syntax.And if isinstance(node, syntax.And) is want else syntax.Or
        parts: list[Condition] = []
        for part in (_pushed(part, want) for part in node.parts):
            parts.extend(part.parts if isinstance(part, kind) else (part,))
        return kind(tuple(parts))
    return node if want else syntax.Not(node)


def _tests(node: Condition) -> Iterator[Condition]:
    """The single tests of a condition that `_pushed` made."""
    if isinstance(node, syntax.And | syntax.Or):
        for part in node.parts:
            yield from _tests(part)
    else:
        yield node


class _Test:
    """One test: are its types right, and what are its constants after rounding?"""

    def __init__(
        self, admission: _Admission, node: Condition, declared: dict[tuple[str, ...], list[Attribute]]
    ) -> None:
        self._admission = admission
        self._node = node
        self._declared = declared

    def checked(self) -> Condition:
        node = self._node
        if isinstance(node, syntax.Compare):
            return syntax.Compare(node.op, *self._pair(node.left, node.right))
        if isinstance(node, syntax.Between):
            value, low = self._pair(node.value, node.low)
            return syntax.Between(value, low, self._pair(node.value, node.high)[1], node.negated)
        if isinstance(node, syntax.In):
            items = tuple(self._pair(node.value, item)[1] for item in node.items)
            return syntax.In(node.value, items, node.negated)
        if isinstance(node, syntax.Like | syntax.RLike):
            self._must_be(node.value, values.TEXT, "LIKE" if isinstance(node, syntax.Like) else "RLIKE")
        elif isinstance(node, syntax.Truth):
            self._must_be(node.value, values.BOOLEAN, "a condition by itself")
        elif isinstance(node, syntax.IsNull):
            self._kinds(node.value)
        elif isinstance(node, syntax.Call):
            if node.name == "array_contains":
                self._must_be(node.args[0], values.OTHER, node.name)
                self._kinds(node.args[1])
            else:
                for argument in node.args:
                    self._must_be(argument, values.TEXT, node.name)
        return node

    def _pair(self, left: Value, right: Value) -> tuple[Value, Value]:
        """Two values that are compared: of one kind, and a constant rounded as the other side is."""
        mine, others = self._kinds(left), self._kinds(right)
        if mine is not None and others is not None and not mine & others:
            field = next((f for side in (left, right) for f in facts.fields(side)), None)
            named, other, kinds, found = left, right, mine, others
            if isinstance(left, Literal):
                named, other, kinds, found = right, left, others, mine
            raise self._admission.error(
                f"{print_value(named)} is {_words(kinds)}, and {print_value(other)} is {_words(found)}",
                field,
                "; ".join(filter(None, (self._declaration(field), mend(other, named, kinds)))),
            )
        return self._rounded(left, right), self._rounded(right, left)

    def _rounded(self, constant: Value, other: Value) -> Value:
        if not (isinstance(constant, Literal) and isinstance(other, Field)):
            return constant
        number = constant.value
        if isinstance(number, bool) or not isinstance(number, int | float):
            return constant
        grids = {
            attribute.snap(number)
            for attribute in self._declared.get(other.path, ())
            if attribute.kind == values.NUMBER
        }
        if len(grids) > 1:
            raise self._admission.error(
                f"{print_name(other.path)} has different steps in different event types, so {print_scalar(number)} "
                "is rounded differently",
                other,
                "say which type is meant: type = '…' AND …",
            )
        return Literal(grids.pop()) if grids else constant

    def _kinds(self, value: Value) -> frozenset[str] | None:
        """The kinds a value can have; None if that is not known."""
        if isinstance(value, Literal):
            kind = values.kind_of(value.value)
            return None if kind is None else frozenset({kind} | ({values.TEXT} if kind == values.TIME else set()))
        if isinstance(value, Field):
            found = self._declared.get(value.path)
            if not found or any(attribute.kind is None for attribute in found):
                return None
            kinds = {attribute.kind for attribute in found if attribute.kind is not None}
            return frozenset(kinds | ({values.TEXT} if values.TIME in kinds else set()))
        for argument in value.args:
            kind = values.TEXT if value.name in _TEXT_FUNCTIONS else values.NUMBER
            self._must_be(argument, kind, value.name.replace("negate", "-"))
        return frozenset({values.TEXT if value.name in ("lower", "upper", "xpath_string") else values.NUMBER})

    def _must_be(self, value: Value, kind: str, taker: str) -> None:
        kinds = self._kinds(value)
        if kinds is not None and kind not in kinds:
            field = next(facts.fields(value), None)
            raise self._admission.error(
                f"{print_value(value)} is {_words(kinds)}, and {taker} takes {KIND_NAMES[kind]}",
                field,
                self._declaration(field),
            )

    def _declaration(self, field: Field | None) -> str | None:
        found = self._declared.get(field.path) if field is not None else None
        return f"{found[0].name} is declared as {found[0].describe()}" if found else None


def _words(kinds: frozenset[str]) -> str:
    shown = kinds - {values.TEXT} if values.TIME in kinds else kinds
    return " or ".join(sorted(KIND_NAMES[kind] for kind in shown))
