"""`Detector`: composite events in your own process, without a node.

    define ─▶ graph          feed(event), advance(time) ─▶ derived events
    snapshot ─▶ bytes ─▶ restore: as if it had never stopped

Promised: the same events in the same order give the same derived events, however they are cut into batches and wherever
a snapshot lies between; ids are made of what was detected, so the same detection has the same id everywhere.
Not promised: anything about events that come again. What has an offset at or below the last one is dropped and counted.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any

import msgspec

from tocsin.clock import as_micros
from tocsin.composite.builder import Pattern, text_of
from tocsin.composite.bykey import feed_by_key, shared_key
from tocsin.composite.catalog import REHEARSAL, Catalog
from tocsin.composite.deriving import Derived, Deriver
from tocsin.composite.drawing import Figures, draw
from tocsin.composite.engine import Detection, Engine
from tocsin.composite.explain import Explanation, explain
from tocsin.composite.expression import Definition, leaves, same
from tocsin.composite.feeding import feed_rows
from tocsin.composite.graph import Graph, LeafNode, OperationNode, undefined
from tocsin.composite.keys import Key
from tocsin.composite.language import parse
from tocsin.composite.leaves import CLOCK, SOURCE
from tocsin.composite.rows import Rows
from tocsin.composite.state import State
from tocsin.composite.waiting import Waiting, waiting
from tocsin.errors import DefinitionError, EventError
from tocsin.model import Event, parse_time

__all__ = ["CLOCK", "MAX_OPEN", "SOURCE", "Detector"]

MAX_OPEN = 1_000_000
"""The most openers that an operator keeps; then the oldest are given up, and counted."""


class _Stored(msgspec.Struct, array_like=True):
    definitions: list[tuple[str, str, str, str, int | None, int]]
    max_open: int
    state: bytes
    apart: dict[str, frozenset[str]] = {}
    """Of those definitions that have something apart."""


class Detector:
    """Detects composite events in what it is fed."""

    def __init__(self, *, max_open: int = MAX_OPEN) -> None:
        """Begin with no definitions."""
        self._catalog = Catalog()
        self._state = State()
        self._max_open = max_open
        self._engine: Engine | None = None

    # -- definitions

    def define(
        self,
        name: str,
        text: str | Pattern,
        context: str = "recent",
        semantics: str = "detection",
        *,
        max_open: int | None = None,
        rehearsed: Detector | None = None,
        replace: bool = False,
        now: int | None = None,
    ) -> Definition:
        """Add a definition; from now on it is looked for.

        Args:
            name: what is detected has this type.
            text: see docs/COMPOSITE.md.
            context: which occurrences go together: recent, chronicle, continuous or cumulative.
            semantics: `detection`, or `interval`.
            max_open: the most openers that each of its operations keeps; if left out, as many as the detector says.
            rehearsed: what `rehearsal` gave, fed with the past: it goes on from there.
            replace: if there is one of this name, drop it, and what it alone has half detected.
            now: absolute times up to this instant, in microseconds, are over; if left out, up to the last event.

        Raises:
            DefinitionError: it cannot be read, or does not fit the others; nothing has changed then.
        """
        text = text_of(text)
        catalog, is_open, apart = self._catalog, self._is_open(), rehearsed is not None
        definition = self._parsed(name, text, context, semantics, max_open)
        try:
            if replace and name in catalog.definitions:
                changed = catalog.changed([definition], (), is_open, apart=apart)
            else:
                changed = catalog.added(definition, is_open, apart=apart)
        except DefinitionError as error:
            raise DefinitionError(
                error.message, text=text, position=error.position, field=error.field, help=error.help
            ) from None
        family = changed.family(changed.definitions[name])
        if rehearsed is not None and family[:-1] != rehearsed.definitions()[:-1]:
            raise DefinitionError(f"what {name} is made of has changed since its rehearsal", help="define it again")
        self._change(changed)
        self._state.counts.detected.pop(name, None)
        if rehearsed is not None:
            there = rehearsed._catalog.nodes_of(rehearsed._catalog.definitions[name])
            for each, nodes in changed.nodes_of(changed.definitions[name]).items():
                for mine, theirs in zip(nodes, there[each], strict=True):
                    self._state.cells[mine] = rehearsed._state.cells.get(theirs, {})
        self._begin_times([definition], {name: now or 0})
        return changed.definitions[name]

    def become(
        self,
        wanted: Iterable[Definition],
        anew: Collection[str] = (),
        now: Mapping[str, int] | None = None,
    ) -> None:
        """Have these definitions and no others; what stays goes on with what it has half detected.

        Args:
            wanted: in any order; their generations do not matter.
            anew: names of those that begin now, also if they were there.
            now: for those that begin, as in `define`.

        Raises:
            DefinitionError: they do not fit each other; nothing has changed then.
        """
        asked, known = {each.name: each for each in wanted}, self._catalog.definitions
        begun = {name for name, each in asked.items() if name in anew or not same(known.get(name), each)}
        gone = known.keys() - asked.keys()
        if not begun and not gone:
            return
        whole = Catalog(asked)
        order: dict[str, Definition] = {}
        for name in asked:
            order |= {each.name: each for each in whole.family(asked[name]) if each.name not in order}
        fresh = [each for each in order.values() if each.name in begun]
        self._change(self._catalog.changed(fresh, gone, self._is_open()), is_less=True)
        for name in begun:
            self._state.counts.detected.pop(name, None)
        self._begin_times(fresh, now or {})

    def _begin_times(self, fresh: Iterable[Definition], now: Mapping[str, int]) -> None:
        """Absolute times that are new count from when their definitions begin."""
        timed = [each for each in fresh if any(leaf.at is not None for leaf in leaves(each.expression))]
        for each in sorted(timed, key=lambda each: now.get(each.name, 0)):
            known = max(self._state.time, now.get(each.name, 0))
            if known:
                self._ready().begin(known + 1, {leaf.at for leaf in leaves(each.expression) if leaf.at is not None})

    def undefine(self, name: str) -> None:
        """Remove a definition, and what it alone has half detected.

        Raises:
            DefinitionError: there is no such definition, or others are made of it.
        """
        self._change(self._catalog.without(name))

    def definitions(self) -> list[Definition]:
        """All definitions, in the order they were made."""
        return list(self._catalog.definitions.values())

    def rehearsal(
        self,
        name: str,
        text: str | Pattern,
        context: str = "recent",
        semantics: str = "detection",
        max_open: int | None = None,
    ) -> Detector:
        """A detector for one definition that is not made yet, and those it names: feed it the past, then `define`.

        Raises:
            DefinitionError: as `define`.
        """
        definition = self._parsed(name, text_of(text), context, semantics, max_open)
        others = {other: each for other, each in self._catalog.definitions.items() if other != name}
        family = Catalog(others).family(definition)
        apart = frozenset(each.name for each in family[:-1])
        family[-1] = msgspec.structs.replace(definition, generation=REHEARSAL, apart=apart)
        detector = Detector(max_open=self._max_open)
        detector._change(Catalog({each.name: each for each in family}))
        return detector

    def _parsed(self, name: str, text: str, context: str, semantics: str, max_open: int | None) -> Definition:
        if max_open is not None and (type(max_open) is not int or max_open < 1):
            raise DefinitionError(f"max_open is {max_open!r}", field="max_open", help="give a whole number from 1 up")
        definition = parse(name, text, context, semantics, {name, *self._catalog.definitions})
        return msgspec.structs.replace(definition, max_open=max_open)

    def twin(self) -> Detector:
        """The same again, for a change that may have to be undone: one of the two must not be used any more."""
        twin = Detector(max_open=self._max_open)
        twin._catalog, twin._state = self._catalog, self._state.twin()
        return twin

    def blank(self) -> Detector:
        """A detector of the same definitions that has seen nothing."""
        blank = Detector(max_open=self._max_open)
        blank._catalog = self._catalog
        return blank

    @classmethod
    def of(cls, definitions: Iterable[Definition], *, max_open: int = MAX_OPEN) -> Detector:
        """A detector of definitions that fit each other, in any order."""
        detector = cls(max_open=max_open)
        detector._catalog = Catalog({each.name: each for each in definitions})
        return detector

    def family(self, name: str) -> list[Definition]:
        """Those a definition is made of, in the end, and then itself."""
        return self._catalog.family(self._catalog.definitions[name])

    def filters(self) -> list[str]:
        """The filters of all leaves: an event that matches none of them changes nothing."""
        return list(dict.fromkeys(node.filter for node in self.graph.nodes if isinstance(node, LeafNode)))

    @property
    def graph(self) -> Graph:
        """The definitions as one graph."""
        return self._catalog.graph

    def _is_open(self) -> set[str]:
        return {identity for identity, cells in self._state.cells.items() if cells}

    def _change(self, catalog: Catalog, *, is_less: bool = False) -> None:
        if is_less or len(catalog.definitions) <= len(self._catalog.definitions):  # something may have gone
            kept = {node.identity for node in catalog.graph.nodes}
            self._state.cells = {identity: cells for identity, cells in self._state.cells.items() if identity in kept}
            self._state.counts.keep(kept, catalog.definitions)
        self._catalog, self._engine = catalog, None

    def _ready(self) -> Engine:
        if self._engine is None:
            graph = self._catalog.graph
            self._engine = Engine(graph, self._state, self._max_open)
            texts: dict[tuple[str, ...], dict[Key, msgspec.Raw]] = {}
            self._by_key = shared_key(self._engine)
            self._derivers = [Deriver(each, texts.setdefault(each.by, {})) for each in graph.definitions]
        return self._engine

    # -- detecting

    def feed(self, event: Event) -> list[Event]:
        """Take an event; returns what was detected up to it, in order."""
        return self.feed_batch((event,))

    def feed_batch(self, events: Iterable[Event]) -> list[Event]:
        """Take events in order; returns what was detected up to the last, in order."""
        found: list[Event] = []
        self._ready().feed(events, partial(self._tell, found))
        return found

    def pass_rows(self, instant: int, derived: Derived, emits: Collection[str]) -> None:
        """Let time pass up to an instant (microseconds), as `advance` does, and tell as `feed_rows` does."""
        self._ready().advance(instant, self._adding(derived, emits))

    def advance(self, time: datetime | str | int) -> list[Event]:
        """Let time pass (a datetime, ISO text, or microseconds): fire every timer due at or before it.

        Raises:
            EventError: it is no time, or has no timezone.
        """
        found: list[Event] = []
        instant = time if isinstance(time, int) else as_micros(parse_time(time, "time"))
        self._ready().advance(instant, partial(self._tell, found))
        return found

    def reach(self, offset: int, instant: int, derived: Derived, emits: Collection[str]) -> None:
        """Take an event that no leaf sees, of which only offset and journal time (microseconds) are known.

        Who leaves such events out must say at the end how far that was: timers due before then fire. What they detect
        is told as by `feed_rows`.
        """
        self._ready().reach(offset, instant, self._adding(derived, emits))

    def feed_rows(self, rows: Rows, derived: Derived, emits: Collection[str]) -> None:
        """Take events in columns, in order, as `feed_batch` takes them.

        Args:
            rows: the events.
            derived: gets what was detected up to the last one, in order.
            emits: definitions of which something is to be told; what others detect is not even counted.
        """
        engine = self._ready()
        if self._by_key:
            derivers = [each if each.name in emits else None for each in self._derivers]
            paired = feed_by_key(engine, self._by_key, rows, derivers)
            if paired is not None:
                detected = self._state.counts.detected
                for each in paired.found:
                    detected[each.deriver.name] = detected.get(each.deriver.name, 0) + len(each.closers)
                derived.pairs.append(paired)
                return
        derived.settle()  # what comes now comes behind it
        feed_rows(engine, rows, self._adding(derived, emits))

    def _adding(self, derived: Derived, emits: Collection[str]) -> Callable[[list[Detection]], None]:
        """`_tell` for columns."""
        derivers = [deriver if deriver.name in emits else None for deriver in self._derivers]
        detected = self._state.counts.detected

        def tell(detections: list[Detection]) -> None:
            seen: set[str] | None = set() if len(detections) > 1 else None
            for each in detections:
                deriver = derivers[each.definition]
                if deriver is not None and deriver.add(derived, each.key, each.occurrence, seen):
                    detected[deriver.name] = detected.get(deriver.name, 0) + 1

        return tell

    def _tell(self, found: list[Event], detections: list[Detection]) -> None:
        """Derive events from what was detected at one instant: one for each id."""
        events: dict[str, Event] = {}
        for each in detections:
            event = self._derivers[each.definition].event(each.key, each.occurrence)
            events.setdefault(event.id, event)
        detected = self._state.counts.detected
        for event in events.values():
            detected[event.type] = detected.get(event.type, 0) + 1
        found.extend(events.values())

    # -- seeing

    def explain(self, event: Event, events: Mapping[int, Event] | None = None) -> Explanation:
        """Why a derived event is there; with its constituents by offset, in more detail.

        Raises:
            EventError: none of the definitions, as they are now, made it.
        """
        if event.source != SOURCE:
            raise EventError(f"{event.source} is not where derived events come from", field="source", help=SOURCE)
        return explain(event, self._catalog.definitions, events)

    def waiting(self, name: str, limit: int = 10) -> list[Waiting]:
        """What a definition has half detected now, and what it waits for; at most so many.

        Raises:
            DefinitionError: there is no such definition.
        """
        names = list(self._catalog.definitions)
        if name not in names:
            raise undefined(name)
        return waiting(self.graph, self._state.cells, names.index(name), limit)

    def draw(self, format: str = "text", definitions: Sequence[str] | None = None, *, figures: bool = False) -> str:
        """The graph, or that of some definitions, as `text`, `dot` or `svg`; with figures: what each node holds.

        Raises:
            DefinitionError: there is no such format or definition.
        """
        return draw(self.graph, format, definitions, self.figures() if figures else None)

    def figures(self) -> dict[int, Figures]:
        """What each operation of the graph holds now, and has given up; by number of its node."""
        counts = self._state.counts
        return {
            number: Figures(held, counts.expired.get(identity, 0), counts.dropped.get(identity, 0))
            for number, (identity, held) in self._ready().held().items()
        }

    # -- where it is

    @property
    def position(self) -> int:
        """The offset of the last event it was fed; without offsets, how many there were."""
        return self._state.fed

    @property
    def time(self) -> int:
        """Up to this instant, in microseconds, everything has happened."""
        return self._state.time

    @property
    def over(self) -> int:
        """What was due before this instant, in microseconds, has happened; at it something may be due still."""
        return max(self._state.time, self._state.advanced + 1)

    @property
    def is_timed(self) -> bool:
        """Does any definition wait for time to pass?"""
        return bool(self._catalog.timed)

    @property
    def is_apart(self) -> bool:
        """Has no key to do with another, and does nobody wait for time? Then many rows at once take less time."""
        self._ready()
        return bool(self._by_key)

    @property
    def next_timer(self) -> int | None:
        """The instant at which something is due, in microseconds; None: nothing waits for time to pass."""
        return self._ready().next_timer() if self.is_timed else None

    def begin(self, instant: int) -> None:
        """Let absolute times that are new count from an instant on (microseconds), and not from the first event."""
        self._ready().begin(instant)

    def miss(self, keyless: int) -> None:
        """Count matches of events without a key, which somebody left out (as `Counts.keyless`)."""
        self._state.counts.keyless += keyless

    @property
    def left_out(self) -> tuple[int, int]:
        """How many matches had no key, and how many events came again: see `Counts`."""
        return self._state.counts.keyless, self._state.counts.repeated

    def skip(self, offset: int) -> None:
        """Go on after an offset: what is missing up to there will not come."""
        self._state.fed = max(self._state.fed, offset)

    # -- state

    def snapshot(self) -> bytes:
        """Definitions and everything half detected, as bytes."""
        stored = _Stored([], self._max_open, self._state.dump())
        for each in self.definitions():
            stored.definitions.append(
                (each.name, each.text, each.context, each.semantics, each.max_open, each.generation)
            )
            if each.apart:
                stored.apart[each.name] = each.apart
        return msgspec.msgpack.encode(stored)

    @classmethod
    def restore(cls, stored: bytes) -> Detector:
        """A detector as it was when `snapshot` was taken.

        Raises:
            DefinitionError: these bytes are none of ours, or of a later version.
        """
        try:
            found = msgspec.msgpack.decode(stored, type=_Stored)
        except msgspec.DecodeError as error:
            raise DefinitionError(f"this is no snapshot ({error})", help="restore what snapshot() gave") from None
        detector = cls(max_open=found.max_open)
        definitions = [
            msgspec.structs.replace(
                parse(*each), max_open=max_open, generation=generation, apart=found.apart.get(each[0], frozenset())
            )
            for *each, max_open, generation in found.definitions
        ]
        detector._catalog = Catalog({each.name: each for each in definitions})
        detector._state = State.load(found.state)
        return detector

    def stats(self) -> dict[str, Any]:
        """Count what happened, and what is open."""
        engine, counts = self._ready(), self._state.counts
        names = {node.identity: node.text for node in engine.graph.nodes if isinstance(node, OperationNode)}
        return {
            "events": counts.events,
            "keyless": counts.keyless,
            "skipped": counts.skipped,
            "repeated": counts.repeated,
            "detected": {name: counts.detected.get(name, 0) for name in self._catalog.definitions},
            "definitions": engine.figures(),
            "nodes": [
                {
                    "text": text,
                    "keys": len(self._state.cells.get(identity, {})),
                    "dropped": counts.dropped.get(identity, 0),
                    "expired": counts.expired.get(identity, 0),
                }
                for identity, text in names.items()
            ],
        }
