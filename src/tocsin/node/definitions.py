"""Definitions of a node: define, undefine, and what is known of them.

A definition is stored together with a snapshot of the detector that has it, so after a crash both are there or neither.
It sees what is published after it was asked for; with `past`, it begins as if it had been there before, and tells
nothing of that time. What others have half detected stays as it is. Where it runs is settled when it is made, and
stays so whether the Spark pipeline is up or not (`placement`, `beside`). Every change has one offset: what comes up to
there sees definitions as they were, what comes after it as they are, on the node and on Spark.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import Final, NamedTuple

import msgspec

from tocsin.clock import as_micros
from tocsin.composite.builder import Pattern, text_of
from tocsin.composite.detector import SOURCE, Detector
from tocsin.composite.explain import Explanation
from tocsin.composite.expression import Definition, same
from tocsin.composite.language import parse
from tocsin.composite.printer import warnings
from tocsin.errors import DefinitionError, JournalDamagedError, TocsinError, UnknownEventError
from tocsin.filters.filter import Filter
from tocsin.journal import bounds, history
from tocsin.journal.contract import Journal
from tocsin.journal.window import HotWindow
from tocsin.model import Event
from tocsin.node.beside import stored_counts
from tocsin.node.pipeline import Node, seen_through
from tocsin.node.placement import NODE, SPARK, Moment, Placements, Record, conform
from tocsin.node.watcher import Stored, stored_definitions

__all__ = ["PLACES", "DefinitionInfo", "define", "definitions", "explain", "explain_stored", "stored", "undefine"]

PLACES: Final = {NODE: "the node", SPARK: "Spark"}
"""What people call them."""
_PLACEMENTS: Final = ("auto", *PLACES)
_PIECE: Final = 10_000  # events of the past that are fed together


class DefinitionInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A definition, and what has become of it."""

    name: str
    text: str
    """In its canonical form."""
    context: str
    semantics: str
    placement: str
    """Where it runs."""
    since: int
    """It sees events above this offset; with `past`, it knows of earlier ones."""
    detected: int = 0
    open: int = 0
    """Openers that wait to be completed, and what they have gathered, over all keys."""
    expired: int = 0
    """Openers that were not completed in time."""
    dropped: int = 0
    """Openers given up because too many were open."""
    warnings: tuple[str, ...] = ()
    """What is allowed and seldom meant."""
    halted: str | None = None
    """Why detection has halted; None: it has not. What comes meanwhile is looked at later."""
    last: datetime | None = None
    """When it was detected last; None: not since the node was opened."""


async def define(
    node: Node,
    name: str,
    pattern: str | Pattern,
    context: str,
    semantics: str,
    placement: str,
    past: bounds.Past,
    *,
    replace: bool,
    max_open: int | None,
) -> DefinitionInfo:
    """Add a definition; see `Bus.define`."""
    _check_placement(placement)
    node.watcher.check()
    bound = bounds.coerce(past)
    text = text_of(pattern)
    wanted = msgspec.structs.replace(parse(name, text, context, semantics), max_open=max_open)
    if _has_same(node, wanted, placement, replace=replace):
        return next(each for each in definitions(node) if each.name == name)
    place = await _place(node, placement, bound)
    watcher, rehearsed = node.watcher, None
    said = (name, text, context, semantics)
    if bound is not None:  # most of the past is looked through while detection goes on
        draft = _draft(node, wanted, text, place, node.now() - 1, Moment(node.head, 0), replace=replace)
        rehearsed = draft.detector.rehearsal(*said, max_open=max_open)
        await asyncio.to_thread(_rehearse, node.journal, rehearsed, bound, node.now(), node.head)
    await node.store()  # what was published without waiting for the disk comes before it
    async with watcher.turn:
        await watcher.to_head()
        if _has_same(node, wanted, placement, replace=replace):  # somebody was quicker
            return next(each for each in definitions(node) if each.name == name)
        await watcher.end_instant()
        moment = await _moment(node)
        over = node.now() - 1  # of this instant there may be more to come
        placements, detector = _draft(node, wanted, text, place, over, moment, replace=replace)
        detector.skip(node.head)
        if place == NODE:
            if rehearsed is not None:
                rest = bounds.since(rehearsed.position + 1)
                await asyncio.to_thread(_rehearse, node.journal, rehearsed, rest, 0, node.head)
                rehearsed.advance(over)
            is_there = any(each.name == name for each in detector.definitions())
            detector.define(*said, max_open=max_open, rehearsed=rehearsed, replace=replace or is_there, now=over)
        conform(detector, placements.on_node, over, anew=name if place != NODE else None)
        await seen_through(watcher.change(detector, placements, name, moment))
        return _info(wanted, placements.records[name])  # nothing is counted yet: adding many must not look at all


class _Draft(NamedTuple):
    placements: Placements
    detector: Detector


async def _moment(node: Node) -> Moment:
    """Now, as definitions have it. The caller holds `turn`, and the node's detector has seen everything."""
    if node.beside.since(node.head) > node.head:  # Spark has told of what was not matched here yet
        await node.store()
        await node.watcher.to_head()
    offset = node.beside.since(node.head)
    found: Sequence[Event | None] | None = node.window.recent(offset, offset)
    if found is None:
        with contextlib.suppress(JournalDamagedError):  # then nobody will see it
            found = await asyncio.to_thread(node.window.get_many, [offset])
    times = [as_micros(each.arrived) for each in found or () if each is not None and each.arrived is not None]
    return Moment(offset, *(times or [0]))


def _draft(
    node: Node, wanted: Definition, text: str, place: str, over: int, moment: Moment, *, replace: bool
) -> _Draft:
    """All definitions with one more, and the node's detector with what that one is made of, but without it.

    Raises:
        DefinitionError: it does not fit the others.
    """
    watcher, name = node.watcher, wanted.name
    whole, detector = watcher.placements.whole.blank(), watcher.draft()
    whole.define(name, text, wanted.context, wanted.semantics, max_open=wanted.max_open, replace=replace)
    said = (wanted.text, wanted.context, wanted.semantics, wanted.max_open)
    record = Record(place, moment.offset, instant=over, said=said, time=moment.time)
    placements = watcher.placements.added(name, record, whole)
    if place == NODE:
        conform(detector, placements.on_node, over, apart=name)
    return _Draft(placements, detector)


async def _place(node: Node, placement: str, bound: bounds.Bound | None) -> str:
    """Where a definition is going to run.

    Raises:
        TocsinError: it cannot run there.
    """
    if placement == SPARK and bound is not None:
        raise TocsinError(
            "a definition that runs on Spark begins with now, and knows no past",
            field="past",
            help="leave past out, or have it run on the node (placement='node')",
        )
    if placement == "auto":
        return SPARK if bound is None and await node.beside.is_attached() else NODE
    return placement


def _has_same(node: Node, wanted: Definition, placement: str, *, replace: bool) -> bool:
    """Is there this very definition, in this place?

    Raises:
        DefinitionError: there is another one of its name, which it must not replace.
    """
    placements = node.watcher.placements
    before = next((each for each in placements.whole.definitions() if each.name == wanted.name), None)
    if before is None:
        return False
    place = placements.records[wanted.name].placement
    if same(before, wanted) and placement in ("auto", place):
        return True
    if not replace:
        raise DefinitionError(
            f"{wanted.name} is defined already, on {PLACES[place]}, in context {before.context}: {before.text}",
            field="name",
            help="undefine it first, or replace it (replace=True, --replace)",
        )
    return False


async def undefine(node: Node, name: str) -> None:
    """Remove a definition; see `Bus.undefine`."""
    watcher = node.watcher
    watcher.check()
    async with watcher.turn:
        await watcher.to_head()
        moment = await _moment(node)
        placements, detector = watcher.placements.without(name, moment), watcher.draft()
        if placements.on_node is not None:
            conform(detector, placements.on_node, node.now() - 1)
        elif any(each.name == name for each in detector.definitions()):
            detector.undefine(name)
        await seen_through(watcher.change(detector, placements, name, moment))


def definitions(node: Node) -> list[DefinitionInfo]:
    """All definitions, in the order they were made."""
    watcher = node.watcher
    halted = {NODE: str(watcher.failure) if watcher.failure is not None else None, SPARK: node.beside.halted}
    return _infos(watcher.placements, watcher.detector, halted, node.beside.counts, watcher.last)


def stored(journal: Stored) -> list[DefinitionInfo]:
    """The definitions in a journal that others may be writing to; figures are those of the last snapshot."""
    return _infos(*stored_definitions(journal), {}, stored_counts(journal))


async def explain(node: Node, id: str) -> Explanation:
    """Why a derived event is there; see `Bus.explain`."""
    return await asyncio.to_thread(explain_stored, node.journal, node.watcher.placements.whole, id)


def explain_stored(journal: Journal, detector: Detector, id: str) -> Explanation:
    """The same from a journal that may only be read, with a detector that has all definitions.

    Raises:
        UnknownEventError: there is no composite event of this id.
        EventError: none of the definitions, as they are now, made it.
    """
    events = history.of_id(journal, id, SOURCE)
    if not events or not detector.definitions():
        raise UnknownEventError(
            f"there is no composite event {id!r}", field="id", help="give the id of an event that a definition made"
        )
    window, constituents = HotWindow(journal=journal), dict[int, Event]()
    for offset in sorted({part["offset"] for part in events[-1].data["parts"] if "offset" in part}):
        with contextlib.suppress(JournalDamagedError):  # it does without, as without what is trimmed
            if (event := window.get(offset)) is not None:
                constituents[offset] = event
    return detector.explain(events[-1], constituents)


def _infos(
    placements: Placements,
    detector: Detector | None,
    halted: Mapping[str, str | None],
    counts: Mapping[str, int],
    last: Mapping[str, datetime] = MappingProxyType({}),
) -> list[DefinitionInfo]:
    figures: dict[str, dict[str, int]] = detector.stats()["definitions"] if detector is not None else {}
    found = []
    for each in placements.whole.definitions():
        record = placements.records[each.name]
        here = record.placement == NODE
        mine = figures.get(each.name, {}) if here else {"detected": counts.get(each.name, 0)}
        found.append(_info(each, record, halted.get(record.placement), last.get(each.name), **mine))
    return found


def _info(
    definition: Definition, record: Record, halted: str | None = None, last: datetime | None = None, **figures: int
) -> DefinitionInfo:
    return DefinitionInfo(
        name=definition.name,
        text=definition.text,
        context=definition.context,
        semantics=definition.semantics,
        placement=record.placement,
        since=record.since,
        warnings=tuple(warnings(definition)),
        halted=halted,
        last=last,
        **figures,
    )


def _rehearse(journal: Journal, detector: Detector, bound: bounds.Bound, now: int, upto: int) -> None:
    """Feed a detector what a bound selects; what it detects is of the past, and told to nobody."""
    filters = {number: Filter(text) for number, text in enumerate(detector.filters())}
    first = history.first_of(journal, bound, now)
    if isinstance(bound, bounds.Last):
        found = history.search(journal, _any_of(filters.values()), bound, now=now, upto=upto) if filters else []
        first = found[0] if found else upto + 1
    if detector.is_timed and not detector.time and (since := _instant(journal, bound, now, first)) is not None:
        detector.begin(since)
    piece = []
    for _, event, _ in history.scan(journal, filters, first, upto) if filters else ():
        piece.append(event)
        if len(piece) == _PIECE:
            detector.feed_batch(piece)
            piece = []
    detector.feed_batch(piece)
    detector.skip(upto)


def _any_of(filters: Iterable[Filter]) -> Filter:
    return Filter(" OR ".join(f"({filter})" for filter in filters))


def _instant(journal: Journal, bound: bounds.Bound, now: int, first: int) -> int | None:
    """When the past begins; None: there is none."""
    if not isinstance(bound, bounds.Last) and (moment := history.moment_of(bound, now)) is not None:
        return moment
    first = max(first, journal.first)
    if first > journal.head:
        return None
    events = next(iter(journal.blocks(first, first))).events()
    moments = [event.arrived for event in events if event.arrived is not None and (event.offset or 0) >= first]
    return as_micros(moments[0]) if moments else None


def _check_placement(placement: str) -> None:
    if placement not in _PLACEMENTS:
        raise TocsinError(f"placement is {placement!r}", field="placement", help=f"give {', '.join(_PLACEMENTS)}")
