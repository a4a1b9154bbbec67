"""A set of definitions, checked and compiled. It never changes: with one more or one fewer there is another set.

Definitions share nodes of the graph where they are equal. Yet one that is new must not know what an older one has half
detected, nor lend it what it brings along from the past. So every definition belongs to a *generation*, and only those
of one generation share. A new definition joins the first generation in which nothing it would share is open: then
sharing makes no difference.

That holds for what it is made of, too: of that it sees what begins after itself. If something of it is open, a new
definition has all that it is made of *apart*: once more, in a generation that nobody joins. When one of these is
replaced, the new one begins for all at once, and nobody has it apart any more.

A definition is checked with those it is made of, so adding one costs what it is itself; the graph of all is compiled
when it is first asked for.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain, count

import msgspec

from tocsin.composite.expression import Definition, is_timed, leaves
from tocsin.composite.graph import Graph, compile_graph, nodes_of, undefined
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
        return self._with(definition, self._taken(is_open, apart))

    def changed(
        self, fresh: Sequence[Definition], gone: Container[str], is_open: Container[str], *, apart: bool = False
    ) -> Catalog:
        """The same with others, of new names or in place of those there are, and without some.

        Args:
            fresh: those that begin now, each behind those it is made of.
            gone: names of those that are no longer wanted.
            is_open: as in `added`.
            apart: as in `added`.

        Raises:
            DefinitionError: they do not fit each other.
        """
        begun = {each.name for each in fresh}
        kept = {
            name: msgspec.structs.replace(each, apart=each.apart - begun) if each.apart & begun else each
            for name, each in self.definitions.items()
            if name not in gone and name not in begun
        }
        catalog, taken = Catalog(kept), self._taken(is_open, apart)
        for each in fresh:
            catalog = catalog._with(each, taken)
        found = catalog.definitions
        order = [name for name in self.definitions if name in found]
        catalog = Catalog({name: found[name] for name in [*order, *found]})
        catalog.graph  # noqa: B018  compiled at once: it may lead back to itself, or others may miss its key
        return catalog

    def without(self, name: str) -> Catalog:
        """The same with one fewer.

        Raises:
            DefinitionError: there is no such definition, or others are made of it.
        """
        if name not in self.definitions:
            raise undefined(name)
        users = [
            other.name
            for other in self.definitions.values()
            if any(leaf.definition == name for leaf in leaves(other.expression))
        ]
        if users:
            raise DefinitionError(f"{', '.join(users)} is made of {name}", field="name", help="undefine that first")
        return Catalog({other: each for other, each in self.definitions.items() if other != name})

    def nodes_of(self, definition: Definition) -> dict[str, list[str]]:
        """Identities of the operations below a definition: see `graph.nodes_of`."""
        return nodes_of(self.family(definition), definition.name)

    def family(self, definition: Definition) -> list[Definition]:
        """Those a definition is made of, in the end, and then itself."""
        found: dict[str, Definition] = {}
        begun = {definition.name}  # if it leads back to itself, somebody else says so
        rest = [definition]
        while rest:
            each = rest[-1]
            names = [leaf.definition for leaf in leaves(each.expression) if leaf.definition is not None]
            missing = [name for name in names if name in self.definitions and name not in begun]
            if missing:
                begun.add(missing[0])
                rest.append(self.definitions[missing[0]])
            else:
                found[each.name] = rest.pop()
        return list(found.values())

    def _taken(self, is_open: Container[str], apart: bool) -> Container[str]:
        return {node.identity for node in self.graph.nodes} if apart else is_open

    def _with(self, definition: Definition, taken: Container[str]) -> Catalog:
        used = {each.generation for each in self.definitions.values()}
        alone = {each.generation for each in self.definitions.values() if each.apart}
        others = frozenset[str]()
        new = count(max(used, default=0) + 1)  # also of these something may be open: of one that goes at this moment
        generations: Iterator[int] = chain(sorted({0, *used} - alone), new)
        while True:
            fresh = msgspec.structs.replace(definition, generation=next(generations), apart=others)
            below = self.nodes_of(fresh)
            own = below.pop(fresh.name)
            if any(identity in taken for nodes in below.values() for identity in nodes):
                others, generations = frozenset(each.name for each in self.family(fresh)[:-1]), new
            elif not any(identity in taken for identity in own):
                break
        catalog = Catalog({**self.definitions, definition.name: fresh})
        others_timed = self.timed - {definition.name}  # known already: adding many must not look at all each time
        catalog.timed = others_timed | {definition.name} if is_timed(definition.expression) else others_timed
        return catalog
