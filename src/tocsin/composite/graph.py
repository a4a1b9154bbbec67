"""Definitions as one graph: every sub-expression is a node, and those that are the same are one node.

    leaf ─▶ operation ─▶ operation ─▶ definition
               └──────▶ operation ─▶ definition

A node is known by its *identity*: a hash of its canonical text, context, semantics, key fields, the span it lies
within, what `WHERE` asks of its leaves, and the identities of its constituents. Of a definition that it names only the
name counts, so it keeps its state when that one is replaced. Two definitions that share an identity share the node and
its state. A definition that is younger than one it is made of may have that one's nodes once more, in its own
generation (`catalog`). Nodes are numbered so that constituents come before what is made of them. A graph never changes;
with another set of definitions there is another graph, and state is carried over by identity.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from msgspec.structs import replace

from tocsin.composite.expression import Definition, Expression, Leaf, Operation, leaves
from tocsin.composite.printer import print_expression
from tocsin.composite.where import Needs, accepting, needs_of
from tocsin.composite.windows import POOLS, Rules
from tocsin.errors import DefinitionError

__all__ = [
    "Graph",
    "LeafNode",
    "Link",
    "Node",
    "OperationNode",
    "TimeNode",
    "compile_graph",
    "leaves_of",
    "nodes_of",
    "undefined",
]


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
    named: Mapping[int, int]
    """Nodes that stand for a whole definition, wherever it is named: its number."""


def compile_graph(definitions: Sequence[Definition]) -> Graph:
    """Make the graph.

    Raises:
        DefinitionError: a definition names one that there is not, or itself in the end; `WHERE` or `BY` do not fit.
    """
    builder = _Builder({definition.name: definition for definition in definitions})
    for number, definition in enumerate(definitions):
        builder.outputs[builder.root(definition.name)].append(number)
    own = tuple(tuple(builder.own[definition.name, ""]) for definition in definitions)
    numbers = {definition.name: number for number, definition in enumerate(definitions)}
    named = {node: numbers[name] for node, name in builder.named.items()}
    return Graph(builder.finished(), tuple(definitions), own, named)


def nodes_of(definitions: Sequence[Definition], name: str) -> dict[str, list[str]]:
    """Identities of the operations below a definition, by the definition they belong to; its own are the last.

    Equal definitions have them in the same order, whatever their generation is.

    Raises:
        DefinitionError: as `compile_graph`.
    """
    builder = _Builder({definition.name: definition for definition in definitions})
    builder.root(name)
    found: dict[str, list[str]] = {}
    for (each, _), numbers in builder.own.items():
        found.setdefault(each, []).extend(builder.identity(number) for number in numbers)
    return found


def leaves_of(definition: Definition) -> list[LeafNode]:
    """The leaves of a definition that see events, without those of definitions it names."""
    builder = _Builder({definition.name: definition})
    for leaf in leaves(definition.expression):
        if leaf.filter is not None:
            builder.leaf(definition, leaf)
    return [node for node in builder.finished() if isinstance(node, LeafNode)]


class _Builder:
    def __init__(self, definitions: Mapping[str, Definition]) -> None:
        self._definitions = definitions
        self._numbers: dict[str, int] = {}
        self._made: list[dict[str, Any]] = []
        self._links: list[list[Link]] = []
        self.outputs: list[list[int]] = []
        self._roots: dict[tuple[str, str], int] = {}
        self.own: dict[tuple[str, str], list[int]] = {}
        self.named: dict[int, str] = {}
        self._needed: dict[str, dict[str, Needs]] = {}

    def root(self, name: str, path: tuple[str, ...] = (), whose: str = "") -> int:
        """The node of a definition; `whose`: that has it once more, and is asked which others it has so."""
        if name in path:
            raise DefinitionError(
                f"{name} is made of itself: {' → '.join((*path, name))}",
                help="a definition may not lead back to itself",
            )
        known = self._roots.get((name, whose))
        if known is not None:
            return known
        definition = self._definitions.get(name)
        if definition is None:
            raise DefinitionError(
                f"{path[-1]} names {name}, which is not defined",
                help=f"define {name} first, or write a filter in brackets: [type = '{name}']",
            )
        if whose:
            definition = replace(definition, generation=self._definitions[whose].generation)
        self._needs(definition)
        self.own[name, whose] = []
        found = self._node(definition, definition.expression, None, whose, (*path, name), top=True)
        self._roots[name, whose] = found
        self.named.setdefault(found, name)
        return found

    def identity(self, number: int) -> str:
        """Of a node."""
        return str(self._made[number]["identity"])

    def _node(
        self,
        definition: Definition,
        expression: Expression,
        within: int | None,
        whose: str,
        path: tuple[str, ...],
        *,
        top: bool = False,
    ) -> int:
        where = definition.where if top else None
        if isinstance(expression, Leaf):
            if expression.definition is not None:
                holder = whose or definition.name
                is_apart = expression.definition in self._definitions[holder].apart
                named = self.root(expression.definition, path, holder if is_apart else "")
                if where is None and not (top and self._definitions[expression.definition].by != definition.by):
                    return named
            elif expression.at is not None and top and definition.by:
                raise _keyless(definition, expression)
            elif where is None:
                return self._time(expression) if expression.at is not None else self.leaf(definition, expression)
            expression = Operation("OR", (expression,))  # somebody must ask the condition, or change the key
        spans = [span for span in (within, expression.within) if span is not None]
        span = min(spans) if spans else None
        constituents = [self._node(definition, part, span, whose, path) for part in expression.of]
        text = print_expression(expression)
        common = [definition.context, definition.semantics, ",".join(definition.by), str(span), where or ""]
        common += [str(definition.generation), str(definition.max_open)]
        parts = zip(expression.of, constituents, strict=True)
        identity = _identity(text, *common, *(self._known_as(part, number) for part, number in parts))
        number = self._numbers.get(identity)
        if number is not None:
            self.own[definition.name, whose].append(number)
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
            all(map(self._is_plain, expression.of if pool else expression.of[:1])),
        )
        number = self._add(identity, make=OperationNode, text=text, rules=rules, max_open=definition.max_open)
        self.own[definition.name, whose].append(number)
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

    @staticmethod
    def _is_plain(part: Expression) -> bool:
        """Do its occurrences come in order, each a single one? What another definition is may change."""
        return isinstance(part, Leaf) and part.definition is None

    def _known_as(self, part: Expression, number: int) -> str:
        if isinstance(part, Leaf) and part.definition is not None:
            return f"definition {part.definition}"
        return self.identity(number)

    def _time(self, leaf: Leaf) -> int:
        assert leaf.at is not None
        identity = _identity("AT", leaf.at, leaf.alias or "")
        number = self._numbers.get(identity)
        return number if number is not None else self._add(identity, make=TimeNode, at=leaf.at, name=leaf.alias)

    def leaf(self, definition: Definition, leaf: Leaf) -> int:
        """The node of a leaf that sees events."""
        wanted = self._needs(definition).get(leaf.alias, ()) if leaf.alias is not None else ()
        asked = ";".join(".".join(field) for field in wanted)
        identity = _identity(str(leaf.filter), leaf.alias or "", ",".join(definition.by), asked)
        number = self._numbers.get(identity)
        if number is not None:
            return number
        assert leaf.filter is not None
        return self._add(identity, make=LeafNode, filter=leaf.filter, name=leaf.alias, by=definition.by, needs=wanted)

    def _needs(self, definition: Definition) -> dict[str, Needs]:
        """What `WHERE` asks for, by the names of leaves."""
        known = self._needed.get(definition.name)
        if known is None:
            names = {leaf.alias for leaf in leaves(definition.expression) if leaf.alias is not None and leaf.filter}
            known = needs_of(definition.where, names) if definition.where is not None else {}
            self._needed[definition.name] = known
        return known

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


def undefined(name: str, field: str = "name") -> DefinitionError:
    """The error for a name that no definition has."""
    return DefinitionError(
        f"there is no definition {name}", field=field, help="see definitions(), or: tocsin definitions"
    )


def _identity(*facts: str) -> str:
    return hashlib.blake2b("\x1f".join(facts).encode(), digest_size=16).hexdigest()


def _keyless(definition: Definition, leaf: Leaf) -> DefinitionError:
    return DefinitionError(
        f"{print_expression(leaf)} has no {definition.by[0]}, and {definition.name} goes BY {definition.by[0]}",
        help="with BY, a time can only be what is between, or closes: A*(opener, all, AT '18:00')",
    )
