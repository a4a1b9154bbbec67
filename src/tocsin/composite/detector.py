"""`Detector`: composite events in your own process, without a node.

    define ─▶ graph          feed(event), advance(time) ─▶ derived events
    snapshot ─▶ bytes ─▶ restore: as if it had never stopped

Promised: the same events in the same order give the same derived events, however they are cut into batches and wherever
a snapshot lies between; ids are made of what was detected, so the same detection has the same id everywhere.
Not promised: anything about events that come again. What has an offset at or below the last one is dropped and counted.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from datetime import datetime
from typing import Any

import msgspec

from tocsin.clock import as_datetime
from tocsin.composite.engine import Detection, Engine
from tocsin.composite.expression import Definition, leaves
from tocsin.composite.graph import Graph, OperationNode, compile_graph
from tocsin.composite.keys import shown
from tocsin.composite.language import parse
from tocsin.composite.occurrence import Part
from tocsin.composite.state import State
from tocsin.errors import DefinitionError
from tocsin.filters.values import micros
from tocsin.model import Event, time_text

__all__ = ["MAX_OPEN", "SOURCE", "Detector"]

SOURCE = "tocsin:definitions"
"""The source of derived events. Leaves do not see them."""
MAX_OPEN = 1_000_000
"""The most openers that an operator keeps; then the oldest are given up, and counted."""


class _Stored(msgspec.Struct, array_like=True):
    definitions: list[tuple[str, str, str, str]]
    max_open: int
    state: bytes


class Detector:
    """Detects composite events in what it is fed."""

    def __init__(self, *, max_open: int = MAX_OPEN) -> None:
        """Begin with no definitions."""
        self._definitions: dict[str, Definition] = {}
        self._graph = compile_graph([])
        self._state = State()
        self._max_open = max_open
        self._engine: Engine | None = None

    # -- definitions

    def define(self, name: str, text: str, context: str = "recent", semantics: str = "detection") -> Definition:
        """Add a definition; from now on it is looked for.

        Raises:
            DefinitionError: it cannot be read, or does not fit the others; nothing has changed then.
        """
        if name in self._definitions:
            raise DefinitionError(f"{name} is defined already", field="name", help="undefine it first")
        definition = parse(name, text, context, semantics)
        changed = {**self._definitions, name: definition}
        try:
            graph = compile_graph(list(changed.values()))
        except DefinitionError as error:
            raise DefinitionError(error.message, text=text, position=error.position, help=error.help) from None
        self._definitions, self._graph, self._engine = changed, graph, None
        return definition

    def undefine(self, name: str) -> None:
        """Remove a definition, and what it alone has half detected.

        Raises:
            DefinitionError: there is no such definition, or others are made of it.
        """
        if name not in self._definitions:
            raise DefinitionError(f"there is no definition {name}", field="name", help="see definitions()")
        users = [
            other.name
            for other in self._definitions.values()
            if any(leaf.definition == name for leaf in leaves(other.expression))
        ]
        if users:
            raise DefinitionError(f"{', '.join(users)} is made of {name}", field="name", help="undefine that first")
        del self._definitions[name]
        self._graph = compile_graph(list(self._definitions.values()))
        kept = {node.identity for node in self._graph.nodes}
        self._state.cells = {identity: cells for identity, cells in self._state.cells.items() if identity in kept}
        self._engine = None

    def definitions(self) -> list[Definition]:
        """All definitions, in the order they were made."""
        return list(self._definitions.values())

    @property
    def graph(self) -> Graph:
        """The definitions as one graph."""
        return self._graph

    def _ready(self) -> Engine:
        if self._engine is None:
            self._engine = Engine(self._graph, self._state, self._max_open)
        return self._engine

    # -- detecting

    def feed(self, event: Event) -> list[Event]:
        """Take an event; returns what was detected up to it, in order."""
        found: list[Event] = []
        self._feed(self._ready(), event, found)
        return found

    def feed_batch(self, events: Iterable[Event]) -> list[Event]:
        """Take events in order; returns what was detected up to the last, in order."""
        engine, found = self._ready(), []  # type: ignore[var-annotated]
        for event in events:
            self._feed(engine, event, found)
        return found

    def advance(self, time: datetime | int) -> list[Event]:
        """Let time pass (a datetime, or microseconds): fire every timer due at or before it."""
        found: list[Event] = []
        instant = micros(time) if isinstance(time, datetime) else time
        engine, state = self._ready(), self._state
        self._fire(engine, instant, found)
        if instant >= state.time:
            state.time = state.advanced = instant
        engine.expire()
        return found

    def _feed(self, engine: Engine, event: Event, found: list[Event]) -> None:
        state = self._state
        moment = event.arrived if event.arrived is not None else event.time
        time = state.time if moment is None else max(micros(moment), state.time)
        offset = state.fed + 1 if event.offset is None else event.offset
        if offset <= state.fed:
            state.counts.repeated += 1
            return
        if time <= state.advanced:  # that instant is over: see `advance`
            time = state.advanced + 1
        state.fed = offset
        state.counts.events += 1
        next_timer = engine.next_timer()
        if next_timer is not None and next_timer < time:
            self._fire(engine, time - 1, found)
        if event.source == SOURCE or event.type.startswith("tocsin."):
            state.counts.skipped += 1
            state.time = time
            return
        detections = engine.event(event, time, offset)
        if detections:
            self._derive(engine, detections, found)

    def _fire(self, engine: Engine, upto: int, found: list[Event]) -> None:
        while (instant := engine.next_timer()) is not None and instant <= upto:
            detections = engine.timers(instant)
            if detections:
                self._derive(engine, detections, found)

    def _derive(self, engine: Engine, detections: list[Detection], found: list[Event]) -> None:
        seen = set()
        detected = self._state.counts.detected
        for detection in detections:
            definition = engine.graph.definitions[detection.definition]
            event = derived(definition, detection)
            if event.id not in seen:
                seen.add(event.id)
                found.append(event)
                detected[definition.name] = detected.get(definition.name, 0) + 1

    # -- state

    def snapshot(self) -> bytes:
        """Definitions and everything half detected, as bytes."""
        stored = _Stored([], self._max_open, self._state.dump())
        for each in self._definitions.values():
            stored.definitions.append((each.name, each.text, each.context, each.semantics))
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
        detector._definitions = {each[0]: parse(*each) for each in found.definitions}
        detector._graph = compile_graph(list(detector._definitions.values()))
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
            "detected": {name: counts.detected.get(name, 0) for name in self._definitions},
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


def derived(definition: Definition, detection: Detection) -> Event:
    """The event that tells of a detection."""
    occurrence = detection.occurrence
    semantics = () if definition.semantics == "detection" else (definition.semantics,)
    primitive = [(part.source, part.id) for part in occurrence.parts if part.offset is not None]
    ticks = [part.time for part in occurrence.parts if part.offset is None]
    named = (definition.name, definition.text, definition.context, *semantics)
    made = msgspec.msgpack.encode((named, detection.key, primitive, ticks, occurrence.instants))
    parts = [_shown(place, part) for place, part in enumerate(occurrence.parts, 1)]
    return Event(
        definition.name,
        SOURCE,
        id=hashlib.blake2b(made, digest_size=16).hexdigest(),
        time=as_datetime(occurrence.last),
        data={"parts": parts, "key": shown(definition.by, detection.key)},
    )


def _shown(place: int, part: Part) -> dict[str, Any]:
    if part.offset is None:
        return {"name": part.name or f"t{place}", "time": time_text(as_datetime(part.time))}
    return {"name": part.name or f"e{place}", "offset": part.offset, "id": part.id, "source": part.source}
