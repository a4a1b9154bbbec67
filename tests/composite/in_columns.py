"""Events in columns for tests: what is said of each is found out one by one, with what the engine itself asks."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from tocsin.clock import as_datetime
from tocsin.composite import Detector
from tocsin.composite.deriving import Derived
from tocsin.composite.graph import LeafNode
from tocsin.composite.keys import key_reader
from tocsin.composite.leaves import CLOCK, SOURCE, SYSTEM
from tocsin.composite.rows import CLOCK_ROW, Rows
from tocsin.composite.where import reader
from tocsin.filters.filter import Filter
from tocsin.filters.values import micros
from tocsin.model import CLASSIFICATION, Event

__all__ = ["events_of", "rows_of"]


def rows_of(detector: Detector, events: Sequence[Event]) -> Rows:
    """What a detector needs to know of events, which have offsets; those that no leaf sees are left out."""
    leaves = [node for node in detector.graph.nodes if isinstance(node, LeafNode)]
    keys = {by: key_reader(by) for by in {node.by for node in leaves if node.by}}
    values = {needs: reader(needs) for needs in {node.needs for node in leaves if node.needs}}
    matches: dict[tuple[str, ...], int] = {}
    kept: list[tuple[Event, int]] = []
    for event in events:
        if event.type == CLOCK:
            kept.append((event, CLOCK_ROW))
        elif not event.type.startswith(SYSTEM) and event.source != SOURCE:
            match = tuple(text for text in detector.filters() if Filter(text).matches(event))
            if match:
                kept.append((event, matches.setdefault(match, len(matches))))
    chosen = [event for event, _ in kept]
    return Rows(
        [event.offset or 0 for event in chosen],
        [micros(event.arrived or event.time or datetime.min) for event in chosen],
        [seen for _, seen in kept],
        list(matches),
        [event.id for event in chosen],
        [event.source for event in chosen],
        [CLASSIFICATION.index(event.classification) for event in chosen],
        {by: [read(event) for event in chosen] for by, read in keys.items()},
        {needs: [read(event) for event in chosen] for needs, read in values.items()},
    )


def events_of(derived: Derived) -> list[Event]:
    """Derived events as a detector gives them."""
    derived.settle()
    columns = (derived.types, derived.ids, derived.times, derived.levels, derived.data, derived.keys)
    found = []
    for kind, name, time, level, data, key in zip(*columns, strict=True):
        told = msgspec.json.decode(data)
        assert (msgspec.json.decode(key) if key is not None else {}) == told["key"]
        found.append(Event(kind, SOURCE, name, time=as_datetime(time), data=told, classification=CLASSIFICATION[level]))
    return found
