"""`Detector`: composite events in your own process, without a node.

    define ─▶ graph          feed(event), advance(time) ─▶ derived events
    snapshot ─▶ bytes ─▶ restore: as if it had never stopped

Promised: the same events in the same order give the same derived events, however they are cut into batches and wherever
a snapshot lies between; ids are made of what was detected, so the same detection has the same id everywhere.
Not promised: anything about events that come again. What has an offset at or below the last one is dropped and counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any

import msgspec

from tocsin.clock import as_micros
from tocsin.composite.builder import Pattern, text_of
from tocsin.composite.catalog import REHEARSAL, Catalog
from tocsin.composite.deriving import deriver
from tocsin.composite.drawing import Figures, draw
from tocsin.composite.engine import Detection, Engine
from tocsin.composite.explain import Explanation, explain
from tocsin.composite.expression import Definition, leaves
from tocsin.composite.graph import Graph, LeafNode, OperationNode
from tocsin.composite.language import parse
from tocsin.composite.leaves import CLOCK, SOURCE
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
                changed = catalog.replaced(definition, is_open, apart=apart)
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
            there = rehearsed._catalog.own_nodes(rehearsed._catalog.definitions[name])
            for mine, theirs in zip(changed.own_nodes(changed.definitions[name]), there, strict=True):
                self._state.cells[mine] = rehearsed._state.cells.get(theirs, {})
        if any(leaf.at is not None for leaf in leaves(definition.expression)):
            known = max(self._state.time, now or 0)
            if known:
                self._ready().begin(known + 1)
        return changed.definitions[name]

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
        definition = msgspec.structs.replace(definition, generation=REHEARSAL)
        others = {other: each for other, each in self._catalog.definitions.items() if other != name}
        family = Catalog(others).family(definition)
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

    def _change(self, catalog: Catalog) -> None:
        if len(catalog.definitions) <= len(self._catalog.definitions):  # something may have gone
            kept = {node.identity for node in catalog.graph.nodes}
            self._state.cells = {identity: cells for identity, cells in self._state.cells.items() if identity in kept}
            self._state.counts.keep(kept, catalog.definitions)
        self._catalog, self._engine = catalog, None

    def _ready(self) -> Engine:
        if self._engine is None:
            graph = self._catalog.graph
            self._engine = Engine(graph, self._state, self._max_open)
            self._derivers = [deriver(definition) for definition in graph.definitions]
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

    def advance(self, time: datetime | str | int) -> list[Event]:
        """Let time pass (a datetime, ISO text, or microseconds): fire every timer due at or before it.

        Raises:
            EventError: it is no time, or has no timezone.
        """
        found: list[Event] = []
        instant = time if isinstance(time, int) else as_micros(parse_time(time, "time"))
        self._ready().advance(instant, partial(self._tell, found))
        return found

    def reach(self, offset: int, instant: int) -> list[Event]:
        """Take an event that no leaf sees, of which only offset and journal time (microseconds) are known.

        Who leaves such events out must say at the end how far that was: timers due before then fire.
        """
        found: list[Event] = []
        self._ready().reach(offset, instant, partial(self._tell, found))
        return found

    def _tell(self, found: list[Event], detections: list[Detection]) -> None:
        """Derive events from what was detected at one instant: one for each id."""
        events: dict[str, Event] = {}
        for each in detections:
            event = self._derivers[each.definition](each.key, each.occurrence)
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
            raise DefinitionError(f"there is no definition {name}", field="name", help="see definitions()")
        return waiting(self.graph, self._state.cells, names.index(name), limit)

    def draw(self, format: str = "text", definitions: Sequence[str] | None = None, *, figures: bool = False) -> str:
        """The graph, or that of some definitions, as `text`, `dot` or `svg`; with figures: what each node holds.

        Raises:
            DefinitionError: there is no such format or definition.
        """
        counts, found = self._state.counts, {}
        for number, node in enumerate(self.graph.nodes if figures else ()):
            if isinstance(node, OperationNode):
                windows = [window for cell in self._state.cells.get(node.identity, {}).values() for window in cell]
                held = sum(len(window.openers) + len(window.middles) for window in windows)
                identity = node.identity
                found[number] = Figures(held, counts.expired.get(identity, 0), counts.dropped.get(identity, 0))
        return draw(self.graph, format, definitions, found)

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
    def is_timed(self) -> bool:
        """Does any definition wait for time to pass?"""
        return bool(self._catalog.timed)

    @property
    def next_timer(self) -> int | None:
        """The instant at which something is due, in microseconds; None: nothing waits for time to pass."""
        return self._ready().next_timer() if self.is_timed else None

    def begin(self, instant: int) -> None:
        """Let absolute times that are new count from an instant on (microseconds), and not from the first event."""
        self._ready().begin(instant)

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
            msgspec.structs.replace(parse(*each), max_open=max_open, generation=generation)
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
