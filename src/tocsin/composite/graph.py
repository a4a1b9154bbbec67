"""Definitions as one graph: every sub-expression is a node, and those that are the same are one node.

    leaf ─▶ operation ─▶ operation ─▶ definition
               └──────▶ operation ─▶ definition

A node is known by its *identity*: a hash of its canonical text, context, semantics, key fields, the span it lies
within, what `WHERE` asks of its leaves, and the identities of its constituents. Of a definition that it names only the
name counts, so it keeps its state when that one is replaced. Two definitions that share an identity share the node and
its state. Nodes are numbered so that constituents come before what is made of them. A graph never changes; with another
set of definitions there is another graph, and state is carried over by identity.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tocsin.composite.expression import Definition, Expression, Leaf, Operation, leaves
from tocsin.composite.printer import print_expression
from tocsin.composite.where import Needs, accepting, needs_of
from tocsin.composite.windows import POOLS, Rules
from tocsin.errors import DefinitionError

__all__ = ["Graph", "LeafNode", "Link", "Node", "OperationNode", "TimeNode", "compile_graph"]


class Link(NamedTuple):
    """Where the occurrences of a node go."""

    to: int
    role: int
    """Its place among the constituents."""
    key: tuple[int, ...] | None = None
    """Which elements of the key go on, from one definition to one that names it; None: all, and none is named."""
    span: int | None = None
    """How long an occurrence of a named definition may be to take part; None: as long as it likes."""
    every: bool = False
    """From an absolute time, which has no key: does it go to every key that has something open?"""


class LeafNode(NamedTuple):
    """Events that match a filter."""

    identity: str
    filter: str
    name: str | None
    by: tuple[str, ...]
    needs: Needs
    links: tuple[Link, ...]
    outputs: tuple[int, ...]
    """Definitions that are nothing but this, by number."""


class TimeNode(NamedTuple):
    """An absolute time."""

    identity: str
    at: str
    """See `schedule`."""
    name: str | None
    links: tuple[Link, ...]
    outputs: tuple[int, ...]


class OperationNode(NamedTuple):
    """An operator, with everything it goes by."""

    identity: str
    text: str
    rules: Rules
    max_open: int | None
    """The most openers it keeps; None: as the detector says."""
    links: tuple[Link, ...]
    outputs: tuple[int, ...]

    @property
    def is_pool(self) -> bool:
        """Is it OR, AND or ANY?"""
        return self.rules.operator in POOLS


Node = LeafNode | TimeNode | OperationNode


class Graph(NamedTuple):
    """All nodes, constituents first; and the definitions in the order they were made."""

    nodes: tuple[Node, ...]
    definitions: tuple[Definition, ...]
    own: tuple[tuple[int, ...], ...]
    """For each definition the operations it consists of, without those of definitions it names. One may be there twice;
    equal expressions have them in the same order."""


def compile_graph(definitions: Sequence[Definition]) -> Graph:
    """Make the graph.

    Raises:
        DefinitionError: a definition names one that there is not, or itself in the end; `WHERE` or `BY` do not fit.
    """
    builder = _Builder({definition.name: definition for definition in definitions})
    for number, definition in enumerate(definitions):
        builder.outputs[builder.root(definition.name)].append(number)
    own = tuple(tuple(builder.own[definition.name]) for definition in definitions)
    return Graph(builder.finished(), tuple(definitions), own)


class _Builder:
    def __init__(self, definitions: Mapping[str, Definition]) -> None:
        self._definitions = definitions
        self._numbers: dict[str, int] = {}
        self._made: list[dict[str, Any]] = []
        self._links: list[list[Link]] = []
        self.outputs: list[list[int]] = []
        self._roots: dict[str, int | None] = {}
        self.own: dict[str, list[int]] = {name: [] for name in definitions}

    def root(self, name: str, path: tuple[str, ...] = ()) -> int:
        """The node of a definition."""
        if name in path:
            raise DefinitionError(
                f"{name} is made of itself: {' → '.join((*path, name))}",
                help="a definition may not lead back to itself",
            )
        known = self._roots.get(name)
        if known is not None:
            return known
        definition = self._definitions.get(name)
        if definition is None:
            raise DefinitionError(
                f"{path[-1]} names {name}, which is not defined",
                help=f"define {name} first, or write a filter in brackets: [type = '{name}']",
            )
        names = {leaf.alias for leaf in leaves(definition.expression) if leaf.alias is not None and leaf.filter}
        needs = needs_of(definition.where, names) if definition.where is not None else {}
        found = self._node(definition, definition.expression, None, needs, (*path, name), top=True)
        self._roots[name] = found
        return found

    def _node(
        self,
        definition: Definition,
        expression: Expression,
        within: int | None,
        needs: Mapping[str, Needs],
        path: tuple[str, ...],
        *,
        top: bool = False,
    ) -> int:
        where = definition.where if top else None
        if isinstance(expression, Leaf):
            if expression.definition is not None:
                named = self.root(expression.definition, path)
                if where is None and not (top and self._definitions[expression.definition].by != definition.by):
                    return named
            elif expression.at is not None and top and definition.by:
                raise _keyless(definition, expression)
            elif where is None:
                return (
                    self._time(expression) if expression.at is not None else self._leaf(definition, expression, needs)
                )
            expression = Operation("OR", (expression,))  # somebody must ask the condition, or change the key
        spans = [span for span in (within, expression.within) if span is not None]
        span = min(spans) if spans else None
        constituents = [self._node(definition, part, span, needs, path) for part in expression.of]
        text = print_expression(expression)
        common = [definition.context, definition.semantics, ",".join(definition.by), str(span), where or ""]
        common += [str(definition.generation), str(definition.max_open)]
        parts = zip(expression.of, constituents, strict=True)
        identity = _identity(text, *common, *(self._known_as(part, number) for part, number in parts))
        number = self._numbers.get(identity)
        if number is not None:
            self.own[definition.name].append(number)
            return number
        operator = "OR" if expression.operator == "ANY" and expression.count == 1 else expression.operator
        pool = operator in POOLS
        rules = Rules(
            operator,
            definition.context,
            definition.semantics == "interval",
            span,
            expression.period or 0,
            expression.count or len(expression.of),
            accepting(where) if where is not None else None,
            all(self._made[each]["make"] is not OperationNode for each in (constituents if pool else constituents[:1])),
        )
        number = self._add(identity, make=OperationNode, text=text, rules=rules, max_open=definition.max_open)
        self.own[definition.name].append(number)
        for role, (part, constituent) in enumerate(zip(expression.of, constituents, strict=True)):
            key, longest, every = None, None, False
            if isinstance(part, Leaf) and part.definition is not None:
                key = self._key(definition, self._definitions[part.definition])
                longest = span
            elif isinstance(part, Leaf) and part.at is not None and definition.by:
                if pool or role == 0:
                    raise _keyless(definition, part)
                every = True
            self._links[constituent].append(Link(number, role, key, longest, every))
        return number

    def _known_as(self, part: Expression, number: int) -> str:
        if isinstance(part, Leaf) and part.definition is not None:
            return f"definition {part.definition}"
        return str(self._made[number]["identity"])

    def _time(self, leaf: Leaf) -> int:
        assert leaf.at is not None
        identity = _identity("AT", leaf.at, leaf.alias or "")
        number = self._numbers.get(identity)
        return number if number is not None else self._add(identity, make=TimeNode, at=leaf.at, name=leaf.alias)

    def _leaf(self, definition: Definition, leaf: Leaf, needs: Mapping[str, Needs]) -> int:
        wanted = needs.get(leaf.alias, ()) if leaf.alias is not None else ()
        asked = ";".join(".".join(field) for field in wanted)
        identity = _identity(str(leaf.filter), leaf.alias or "", ",".join(definition.by), asked)
        number = self._numbers.get(identity)
        if number is not None:
            return number
        assert leaf.filter is not None
        return self._add(identity, make=LeafNode, filter=leaf.filter, name=leaf.alias, by=definition.by, needs=wanted)

    def _key(self, definition: Definition, named: Definition) -> tuple[int, ...]:
        lacking = [field for field in definition.by if field not in named.by]
        if lacking:
            raise DefinitionError(
                f"{definition.name} goes BY {lacking[0]}, but {named.name}, which it is made of, does not",
                help=f"define {named.name} BY {lacking[0]} too, or leave BY out of {definition.name}",
            )
        return tuple(named.by.index(field) for field in definition.by)

    def _add(self, identity: str, **made: Any) -> int:
        number = self._numbers[identity] = len(self._made)
        self._made.append({"identity": identity, **made})
        self._links.append([])
        self.outputs.append([])
        return number

    def finished(self) -> tuple[Node, ...]:
        nodes = []
        for made, links, outputs in zip(self._made, self._links, self.outputs, strict=True):
            make = made.pop("make")
            nodes.append(make(**made, links=tuple(links), outputs=tuple(outputs)))
        return tuple(nodes)


def _identity(*facts: str) -> str:
    return hashlib.blake2b("\x1f".join(facts).encode(), digest_size=16).hexdigest()


def _keyless(definition: Definition, leaf: Leaf) -> DefinitionError:
    return DefinitionError(
        f"{print_expression(leaf)} has no {definition.by[0]}, and {definition.name} goes BY {definition.by[0]}",
        help="with BY, a time can only be what is between, or closes: A*(opener, all, AT '18:00')",
    )
