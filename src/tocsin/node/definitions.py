"""Definitions of a node: define, undefine, and what is known of them.

A definition is stored together with a snapshot of the detector that has it, so after a crash both are there or neither.
It sees what is published after it was asked for; with `past`, it begins as if it had been there before, and tells
nothing of that time. What others have half detected stays as it is.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from tocsin.clock import as_micros
from tocsin.composite.builder import Pattern, text_of
from tocsin.composite.detector import SOURCE, Detector
from tocsin.composite.explain import Explanation
from tocsin.composite.expression import Definition
from tocsin.composite.language import parse
from tocsin.composite.printer import warnings
from tocsin.errors import DefinitionError, JournalDamagedError, TocsinError, UnknownEventError
from tocsin.filters.filter import Filter
from tocsin.journal import bounds, history
from tocsin.journal.contract import Journal
from tocsin.journal.window import HotWindow
from tocsin.model import Event
from tocsin.node.pipeline import Node, seen_through
from tocsin.node.watcher import RECORD, Stored, stored_detector

__all__ = ["DefinitionInfo", "define", "definitions", "explain", "explain_stored", "stored", "undefine"]

_PLACEMENTS: Final = ("auto", "node", "spark")
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


class _Record(msgspec.Struct, array_like=True):
    placement: str
    since: int


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
    if _has_same(node, wanted, replace=replace):
        return next(each for each in definitions(node) if each.name == name)
    said, watcher, rehearsed = (name, text, context, semantics), node.watcher, None
    if bound is not None:  # most of the past is looked through while detection goes on
        rehearsed = watcher.draft().rehearsal(*said, max_open=max_open)
        await asyncio.to_thread(_rehearse, node.journal, rehearsed, bound, node.now(), node.head)
    await node.store()  # what was published without waiting for the disk comes before it
    async with watcher.turn:
        await watcher.to_head()
        if _has_same(node, wanted, replace=replace):  # somebody was quicker
            return next(each for each in definitions(node) if each.name == name)
        await watcher.end_instant()
        detector = watcher.draft()
        detector.skip(node.head)
        over = node.now() - 1  # of this instant there may be more to come
        if rehearsed is not None:
            rest = bounds.since(rehearsed.position + 1)
            await asyncio.to_thread(_rehearse, node.journal, rehearsed, rest, 0, node.head)
            rehearsed.advance(over)
        detector.define(*said, max_open=max_open, rehearsed=rehearsed, replace=replace, now=over)
        record = _Record("node", node.head)
        await seen_through(watcher.change(detector, name, msgspec.msgpack.encode(record)))
        return _info(wanted, record)  # nothing is counted yet: adding many must not look at all each time


def _has_same(node: Node, wanted: Definition, *, replace: bool) -> bool:
    """Is there this very definition?

    Raises:
        DefinitionError: there is another one of its name, which it must not replace.
    """
    known = node.watcher.detector.definitions() if node.watcher.detector is not None else []
    before = next((each for each in known if each.name == wanted.name), None)
    if before is None:
        return False
    if msgspec.structs.replace(before, generation=0) == wanted:
        return True
    if not replace:
        raise DefinitionError(
            f"{wanted.name} is defined already, in context {before.context}: {before.text}",
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
        detector = watcher.draft()
        detector.undefine(name)
        await seen_through(watcher.change(detector if detector.definitions() else None, name, None))


def definitions(node: Node) -> list[DefinitionInfo]:
    """All definitions, in the order they were made."""
    watcher = node.watcher
    return _infos(watcher.records, watcher.detector, str(watcher.failure) if watcher.failure is not None else None)


def stored(journal: Stored) -> list[DefinitionInfo]:
    """The definitions in a journal that others may be writing to; figures are those of the last snapshot."""
    return _infos(journal.state(RECORD), stored_detector(journal))


async def explain(node: Node, id: str) -> Explanation:
    """Why a derived event is there; see `Bus.explain`."""
    return await asyncio.to_thread(explain_stored, node.journal, node.watcher.detector, id)


def explain_stored(journal: Journal, detector: Detector | None, id: str) -> Explanation:
    """The same from a journal that may only be read.

    Raises:
        UnknownEventError: there is no composite event of this id.
        EventError: none of the definitions, as they are now, made it.
    """
    events = history.of_id(journal, id, SOURCE)
    if not events or detector is None:
        raise UnknownEventError(
            f"there is no composite event {id!r}", field="id", help="give the id of an event that a definition made"
        )
    window, constituents = HotWindow(journal=journal), dict[int, Event]()
    for offset in sorted({part["offset"] for part in events[-1].data["parts"] if "offset" in part}):
        with contextlib.suppress(JournalDamagedError):  # it does without, as without what is trimmed
            if (event := window.get(offset)) is not None:
                constituents[offset] = event
    return detector.explain(events[-1], constituents)


def _infos(records: Mapping[str, bytes], detector: Detector | None, halted: str | None = None) -> list[DefinitionInfo]:
    if detector is None:
        return []
    figures = detector.stats()["definitions"]
    return [
        _info(each, msgspec.msgpack.decode(records[RECORD + each.name], type=_Record), halted, **figures[each.name])
        for each in detector.definitions()
    ]


def _info(definition: Definition, record: _Record, halted: str | None = None, **figures: int) -> DefinitionInfo:
    return DefinitionInfo(
        name=definition.name,
        text=definition.text,
        context=definition.context,
        semantics=definition.semantics,
        placement=record.placement,
        since=record.since,
        warnings=tuple(warnings(definition)),
        halted=halted,
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
    if placement == "spark":
        raise TocsinError("placement 'spark' is not there yet", field="placement", help="leave it out")
