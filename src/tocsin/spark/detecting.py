"""The plan of `ts.detect`: definitions, checked here and divided so that tasks can look for them apart from each other.

    definitions ─▶ one Detector, which refuses what is wrong
                ─▶ divisions: those that go BY the same fields, each with all that it is made of
    division × bucket of keys = one engine

A *division* sees the events that its leaves see, and no engine needs to know of another's: a definition only puts
together what agrees in its BY fields, and those it is made of go BY these fields, too. A definition without BY has one
engine for everything.

Promised: a plan is plain data that can be pickled. Divisions are numbered by their fields, so a plan with other
definitions has the same numbers for what has stayed. Definitions may name others that stand behind them.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Mapping
from typing import Any

import msgspec

from tocsin.composite.builder import Pattern, text_of
from tocsin.composite.catalog import Catalog
from tocsin.composite.detector import Detector
from tocsin.composite.expression import Definition, leaves
from tocsin.composite.graph import LeafNode
from tocsin.composite.language import parse
from tocsin.composite.leaves import LeafFinder
from tocsin.errors import DefinitionError
from tocsin.filters.filter import Filter
from tocsin.filters.normal import fields
from tocsin.spark.begins import Begin

__all__ = ["Begin", "Division", "Given", "Plan", "checked", "plan"]

Given = str | Pattern | Definition | tuple[str, str] | tuple[str, str, str]
"""A definition as users give it: its text, or a Definition, or (text, context[, semantics])."""


class Division(msgspec.Struct, frozen=True):
    """Definitions that are looked for together."""

    number: int
    """Follows from `by` alone; 0: without BY."""
    by: tuple[str, ...]
    """The fields whose values say to which bucket an event goes, sorted."""
    definitions: bytes
    """A snapshot of a detector that has all of them and has seen nothing."""
    emits: frozenset[str]
    """Those that were asked for; others only serve them."""
    filters: tuple[str, ...]
    """Of their leaves: an event that matches none of these changes nothing."""
    types: frozenset[str] | None
    """What the filters demand; None: there are leaves for events of any type."""
    is_sure: bool
    """The filters demand a type and nothing else."""
    fields: frozenset[tuple[str, ...]]
    """What is looked at in events: by filters, as keys, and by WHERE."""
    is_timed: bool
    """Does any of them wait for time to pass?"""
    begins: dict[str, Begin] | None = None
    """Where each definition begins; then engines also say how far they are. None: all of them at once."""

    def detector(self) -> Detector:
        """A detector that has seen nothing."""
        return Detector.restore(self.definitions)


class Plan(msgspec.Struct, frozen=True):
    """What is to be detected, and by how many engines."""

    divisions: tuple[Division, ...]
    buckets: int
    """Into so many the keys of a division are divided; without BY there is one."""

    def division(self, number: int) -> Division:
        """The division of a number."""
        return next(each for each in self.divisions if each.number == number)

    def buckets_of(self, division: Division) -> int:
        """How many buckets a division has."""
        return self.buckets if division.by else 1

    @property
    def types(self) -> frozenset[str] | None:
        """The types of events that matter; None: all do."""
        found: frozenset[str] = frozenset()
        for division in self.divisions:
            if division.types is None:
                return None
            found |= division.types
        return found

    @property
    def fields(self) -> frozenset[tuple[str, ...]]:
        """What any division looks at."""
        return frozenset(path for division in self.divisions for path in division.fields)

    @property
    def is_timed(self) -> bool:
        """Must engines know how late it is, also where nothing has come for them?"""
        return any(division.is_timed or division.begins is not None for division in self.divisions)


def checked(definitions: Mapping[str, Given], context: str = "recent") -> list[Definition]:
    """Definitions as a detector has them, those that are named before those that name them.

    Raises:
        DefinitionError: one cannot be read, or does not fit the others; or there is none.
    """
    if not definitions:
        raise DefinitionError(
            "there are no definitions",
            field="definitions",
            help="give a mapping from names to texts: {'stop': 'SEQ(…)'}",
        )
    whole = Detector()
    for each in _sorted({name: _asked(name, given, context, definitions) for name, given in definitions.items()}):
        whole.define(each.name, each.text, each.context, each.semantics, max_open=each.max_open)
    return whole.definitions()


def plan(
    definitions: Mapping[str, Given],
    context: str = "recent",
    *,
    buckets: int = 1,
    silent: Collection[str] = (),
    begins: Mapping[str, Begin] | None = None,
) -> Plan:
    """Check definitions and divide them.

    Args:
        definitions: by name.
        context: of those that do not say it themselves.
        buckets: how many engines a division with BY has.
        silent: names of those that are only there because others are made of them: they tell nothing.
        begins: for the pipeline: where each begins.

    Raises:
        DefinitionError: one cannot be read, or does not fit the others; or there is none.
    """
    catalog = Catalog({each.name: each for each in checked(definitions, context)})
    families = {name: [each.name for each in catalog.family(each)] for name, each in catalog.definitions.items()}
    emitted: set[str] = set(silent)
    grouped: dict[tuple[str, ...], tuple[set[str], set[str]]] = {}  # by → those it runs, those it emits
    for name in reversed(families):  # what is made of others comes behind them, and emits them on its way
        if name not in emitted:
            runs, emits = grouped.setdefault(tuple(sorted(catalog.definitions[name].by)), (set(), set()))
            runs |= set(families[name])
            # Where definitions come and go, each is told by the division of its own BY, whoever else needs it.
            told = {name} if begins is not None else set(families[name])
            emits |= told - emitted
            emitted |= told
    if not grouped:
        raise DefinitionError("all definitions are silent", field="silent", help="leave out those that should be told")
    made = tuple(_division(by, catalog, *grouped[by], begins) for by in sorted(grouped))
    return Plan(made, max(1, buckets))


def _asked(name: str, given: Any, context: str, known: Mapping[str, Any]) -> Definition:
    if isinstance(given, Definition):
        said, max_open = (given.text, given.context, given.semantics), given.max_open
    else:
        text, *rest = given if isinstance(given, tuple) and given else (given,)
        said, max_open = (text_of(text), *(rest or (context,))), None
    return msgspec.structs.replace(parse(name, *said, known=known), max_open=max_open)


def _sorted(asked: dict[str, Definition]) -> list[Definition]:
    """Those a definition names before itself."""
    found: dict[str, Definition] = {}

    def visit(name: str, path: tuple[str, ...]) -> None:
        if name in path:
            raise DefinitionError(
                f"{name} is made of itself: {' → '.join((*path[path.index(name) :], name))}",
                help="a definition may not lead back to itself",
            )
        if name not in found and name in asked:
            for leaf in leaves(asked[name].expression):
                if leaf.definition is not None:
                    visit(leaf.definition, (*path, name))
            found[name] = asked[name]

    for name in asked:
        visit(name, ())
    return list(found.values())


def _division(
    by: tuple[str, ...], catalog: Catalog, runs: set[str], emits: set[str], begins: Mapping[str, Begin] | None
) -> Division:
    detector = Detector()
    for each in catalog.definitions.values():
        if each.name in runs:
            detector.define(each.name, each.text, each.context, each.semantics, max_open=each.max_open)
    filters = tuple(detector.filters())
    finder = LeafFinder(filters)
    looked: set[tuple[str, ...]] = set()
    for node in detector.graph.nodes:
        if isinstance(node, LeafNode):
            looked |= {field.path for field in fields(Filter(node.filter).condition)}
            looked |= {tuple(field.split(".")) for field in node.by} | set(node.needs)
    return Division(
        zlib.crc32("\x1f".join(by).encode()) >> 1 if by else 0,
        by,
        detector.snapshot(),
        frozenset(emits),
        filters,
        frozenset(finder.plans) if finder.rest is None else None,
        finder.rest is None and not any(plan.asked for plan in finder.plans.values()),
        frozenset(looked),
        detector.is_timed,
        None if begins is None else {name: begins[name] for name in sorted(runs)},
    )
