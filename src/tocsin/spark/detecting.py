"""The plan of `ts.detect`: definitions, checked here and divided so that tasks can look for them apart from each other.

    definitions ─▶ one Detector, which refuses what is wrong
                ─▶ divisions: those that go BY the same fields, each with all that it is made of
    division × bucket of keys = one engine

A *division* sees the events that its leaves see, and no engine needs to know of another's: a definition only puts
together what agrees in its BY fields, and those it is made of go BY these fields, too. A definition without BY has one
engine for everything. What a definition is made of runs in its division, too, but tells of itself only in that of its
own BY: so nothing moves when another definition comes or goes.

Promised: a plan is plain data that can be pickled. Divisions are numbered by their fields, so a plan with other
definitions has the same numbers for what has stayed. Definitions may name others that stand behind them. For the
pipeline a plan spans changes (`begins`): an event goes where any definition sees it that is there at any time, and
engines know which is there when.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec

from tocsin.composite.builder import Pattern, text_of
from tocsin.composite.detector import Detector
from tocsin.composite.expression import Definition, is_timed, leaves
from tocsin.composite.graph import leaves_of
from tocsin.composite.language import parse
from tocsin.composite.leaves import LeafFinder
from tocsin.composite.where import Needs
from tocsin.errors import DefinitionError
from tocsin.filters.filter import Filter
from tocsin.filters.normal import fields
from tocsin.node.placement import Wanted
from tocsin.spark.begins import parsed

__all__ = ["Division", "Given", "Plan", "checked", "number_of", "plan", "scheduled"]

Given = str | Pattern | Definition | tuple[str, str] | tuple[str, str, str]
"""A definition as users give it: its text, or a Definition, or (text, context[, semantics])."""
_Version = tuple[Wanted, Definition]


class Division(msgspec.Struct, frozen=True):
    """Definitions that are looked for together."""

    number: int
    """Follows from `by` alone; 0: without BY."""
    by: tuple[str, ...]
    """The fields whose values say to which bucket an event goes, sorted."""
    schedule: tuple[Wanted, ...]
    """What is looked for, and what that is made of; from which offset on, and up to which."""
    emits: frozenset[str]
    """Those that were asked for, at any time; others only serve them."""
    filters: tuple[str, ...]
    """Of the leaves of all of them: an event that matches none of these changes nothing."""
    types: frozenset[str] | None
    """What the filters demand; None: there are leaves for events of any type."""
    sure: dict[str, tuple[int, ...]] | None
    """Which filters are true of events of a type, by number; None: some demand more than a type."""
    keys: tuple[tuple[str, ...], ...]
    """The fields that make a key, for each BY of its leaves."""
    needs: tuple[Needs, ...]
    """What WHERE asks for, for each leaf of which it asks something."""
    fields: frozenset[tuple[str, ...]]
    """What is looked at in events: by filters, as keys, and by WHERE."""
    is_timed: bool
    """Does any of them wait for time to pass?"""
    lasting: frozenset[str]
    """Of those that were asked for: which are there in the end."""
    is_exact: bool = False
    """Is this the pipeline's? Then definitions begin and end, and engines also say how far they are."""

    def detector(self) -> Detector:
        """A detector that has seen nothing, for a division whose definitions do not change."""
        detector = Detector()
        detector.become(map(parsed, self.schedule))
        return detector


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
        return any(division.is_timed or division.is_exact for division in self.divisions)


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
) -> Plan:
    """Check definitions and divide them.

    Args:
        definitions: by name.
        context: of those that do not say it themselves.
        buckets: how many engines a division with BY has.
        silent: names of those that are only there because others are made of them: they tell nothing.

    Raises:
        DefinitionError: one cannot be read, or does not fit the others; or there is none.
    """
    given = checked(definitions, context)
    if all(each.name in silent for each in given):
        raise DefinitionError("all definitions are silent", field="silent", help="leave out those that should be told")
    versions = [(_always(each, is_told=each.name not in silent), each) for each in given]
    return Plan(_divided(versions, is_exact=False), max(1, buckets))


def scheduled(schedule: Sequence[Wanted], buckets: int) -> Plan:
    """Divide definitions that begin and end at offsets; a node has checked them.

    Args:
        schedule: what was there at any time, and is still to be looked for.
        buckets: as in `plan`.

    Raises:
        DefinitionError: their fields of BY cannot be told apart.
    """
    return Plan(_divided([(each, parsed(each)) for each in schedule], is_exact=True), buckets)


def _divided(versions: Sequence[_Version], *, is_exact: bool) -> tuple[Division, ...]:
    """Each is told by the division of its own BY, whoever else is made of it."""
    named: dict[str, list[Definition]] = {}
    for _, definition in versions:
        named.setdefault(definition.name, []).append(definition)
    told = {tuple(sorted(definition.by)) for each, definition in versions if each.is_told}
    made = []
    for by in sorted(told):
        top = [version for version in versions if version[0].is_told and tuple(sorted(version[1].by)) == by]
        below: set[str] = set()  # names of what these are made of, at any time
        rest = [definition for _, definition in top]
        while rest:
            for name in [leaf.definition for leaf in leaves(rest.pop().expression) if leaf.definition is not None]:
                if name not in below:
                    below.add(name)
                    rest += named.get(name, ())
        roots = {each: None for each, _ in top}
        mine = [version for version in versions if version[0] in roots or version[1].name in below]
        made.append(_division(by, mine, list(roots), is_exact=is_exact))
    known: dict[int, tuple[str, ...]] = {}
    for each in made:
        if known.setdefault(each.number, each.by) != each.by:
            raise DefinitionError(
                f"BY {', '.join(each.by)} and BY {', '.join(known[each.number])} have the same number in state",
                field="definitions",
                help="give a field another name, or look for them in two queries",
            )
    return tuple(made)


def _always(each: Definition, *, is_told: bool) -> Wanted:
    return Wanted(each.name, each.text, each.context, each.semantics, each.max_open, 0, 0, 0, is_told)


def number_of(by: tuple[str, ...]) -> int:
    """The number of the division that goes BY these fields, sorted: state is kept under it. 0: without BY."""
    return zlib.crc32("\x1f".join(by).encode()) >> 1 if by else 0


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
    by: tuple[str, ...], versions: Sequence[_Version], roots: Sequence[Wanted], *, is_exact: bool
) -> Division:
    sights = [node for _, definition in versions for node in leaves_of(definition)]
    filters = tuple(dict.fromkeys(node.filter for node in sights))
    finder = LeafFinder(filters)
    is_sure = finder.rest is None and not any(plan.asked for plan in finder.plans.values())
    looked: set[tuple[str, ...]] = set()
    for node in sights:
        looked |= {field.path for field in fields(Filter(node.filter).condition)}
        looked |= {tuple(field.split(".")) for field in node.by} | set(node.needs)
    return Division(
        number_of(by),
        by,
        tuple(each for each, _ in versions),
        frozenset(each.name for each in roots),
        filters,
        frozenset(finder.plans) if finder.rest is None else None,
        {kind: tuple(sorted(plan.sure)) for kind, plan in sorted(finder.plans.items())} if is_sure else None,
        tuple(sorted({node.by for node in sights if node.by})),
        tuple(sorted({node.needs for node in sights if node.needs})),
        frozenset(looked),
        any(is_timed(definition.expression) for _, definition in versions),
        frozenset(each.name for each in roots if each.until is None),
        is_exact,
    )
