"""A set of definitions, checked and compiled. It never changes: with one more or one fewer there is another set.

Definitions share nodes of the graph where they are equal. Yet one that is new must not know what an older one has half
detected, nor lend it what it brings along from the past. So every definition belongs to a *generation*, and only those
of one generation share. A new definition joins the first generation in which nothing it would share is open: then
sharing makes no difference.

A definition is checked with those it is made of, so adding one costs what it is itself; the graph of all is compiled
when it is first asked for.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from functools import cached_property

import msgspec

from tocsin.composite.expression import Definition, is_timed, leaves
from tocsin.composite.graph import Graph, compile_graph
from tocsin.errors import DefinitionError

__all__ = ["REHEARSAL", "Catalog"]

REHEARSAL = -1
"""The generation of a definition that is tried on the past: it shares with nobody."""


class Catalog:
    """Definitions by name, in the order they were made."""

    def __init__(self, definitions: Mapping[str, Definition] | None = None) -> None:
        """Take definitions that fit each other: those of another catalog, or of a snapshot."""
        self.definitions: dict[str, Definition] = dict(definitions or {})

    @cached_property
    def timed(self) -> frozenset[str]:
        """Names of definitions that wait for time to pass."""
        return frozenset(name for name, each in self.definitions.items() if is_timed(each.expression))

    @cached_property
    def graph(self) -> Graph:
        """All of them as one graph."""
        return compile_graph(list(self.definitions.values()))

    def added(self, definition: Definition, is_open: Container[str], *, apart: bool = False) -> Catalog:
        """The same with one more.

        Args:
            definition: the new one.
            is_open: identities of nodes that hold something half detected.
            apart: it shares nodes with nobody, not even with what is not open.

        Raises:
            DefinitionError: there is one of this name, or it does not fit the others.
        """
        if definition.name in self.definitions:
            raise DefinitionError(f"{definition.name} is defined already", field="name", help="undefine it first")
        return self._with(definition, is_open, apart)

    def replaced(self, definition: Definition, is_open: Container[str], *, apart: bool = False) -> Catalog:
        """The same with another definition under a name that there is; those made of it are made of the new one.

        Raises:
            DefinitionError: the others do not fit any more, or it does not fit them.
        """
        catalog = self._with(definition, is_open, apart)
        catalog.graph  # noqa: B018  compiled at once: it may lead back to itself, or others may miss its key
        return catalog

    def without(self, name: str) -> Catalog:
        """The same with one fewer.

        Raises:
            DefinitionError: there is no such definition, or others are made of it.
        """
        if name not in self.definitions:
            raise DefinitionError(f"there is no definition {name}", field="name", help="see definitions()")
        users = [
            other.name
            for other in self.definitions.values()
            if any(leaf.definition == name for leaf in leaves(other.expression))
        ]
        if users:
            raise DefinitionError(f"{', '.join(users)} is made of {name}", field="name", help="undefine that first")
        return Catalog({other: each for other, each in self.definitions.items() if other != name})

    def own_nodes(self, definition: Definition) -> list[str]:
        """Identities of the operations that a definition consists of, as `Graph.own` has them."""
        graph = compile_graph(self.family(definition))
        return [graph.nodes[number].identity for number in graph.own[-1]]

    def family(self, definition: Definition) -> list[Definition]:
        """Those a definition is made of, in the end, and then itself."""
        found: dict[str, Definition] = {}
        rest = [definition]
        while rest:
            each = rest.pop()
            found.pop(each.name, None)  # again, and so further down than was thought
            found[each.name] = each
            if len(found) == 1 or each.name != definition.name:
                names = [leaf.definition for leaf in leaves(each.expression) if leaf.definition is not None]
                rest += [self.definitions[name] for name in names if name in self.definitions and name not in found]
        found.pop(definition.name)
        return [*reversed(found.values()), definition]

    def _with(self, definition: Definition, is_open: Container[str], apart: bool) -> Catalog:
        used = {each.generation for each in self.definitions.values()}
        taken: Container[str] = {node.identity for node in self.graph.nodes} if apart else is_open
        for generation in sorted({0, *used, max(used, default=0) + 1}):
            fresh = msgspec.structs.replace(definition, generation=generation)
            if not any(identity in taken for identity in self.own_nodes(fresh)):
                break
        catalog = Catalog({**self.definitions, definition.name: fresh})
        others = self.timed - {definition.name}  # known already: adding many must not look at all each time
        catalog.timed = others | {definition.name} if is_timed(definition.expression) else others
        return catalog
