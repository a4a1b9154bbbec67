"""What a definition has half detected now, and what it waits for. It looks at state and changes nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from itertools import islice
from typing import Any

import msgspec

from tocsin.clock import as_datetime
from tocsin.composite.graph import Graph, OperationNode
from tocsin.composite.keys import Key, shown
from tocsin.composite.occurrence import Occurrence, Window, windows_of
from tocsin.composite.walk import below, constituents, node_text
from tocsin.model import time_text

__all__ = ["Waiting", "waiting"]

_MOST = 1_000  # occurrences of one kind that are looked at: a pool may hold a million
Cells = Mapping[str, Mapping[Key, list[Any]]]


class Waiting(msgspec.Struct, frozen=True):
    """Something half detected."""

    operation: str
    key: dict[str, Any]
    offsets: tuple[int, ...]
    """The events it holds; of AND and ANY those of the first thousand occurrences of each kind."""
    since: datetime
    """Journal time of the first of them."""
    wants: tuple[str, ...]
    """What would bring it on, any one of them; empty: only time does."""
    ends: str | None
    """What would end it without a detection."""
    ticks: datetime | None
    """When a timer is due."""
    expires: datetime | None
    """From when on it is too old."""

    @property
    def text(self) -> str:
        """The same as `str()`."""
        key = ", ".join(f"{field} = {value!r}" for field, value in self.key.items())
        said = [f"{self.operation}{f' for {key}' if key else ''}: since {time_text(self.since)}"]
        said.append(f"holds {', '.join(f'offset {offset}' for offset in self.offsets)}")
        if self.wants:
            said.append(f"waits for {' or '.join(self.wants)}")
        if self.ticks is not None:
            said.append(f"ticks at {time_text(self.ticks)}")
        if self.ends is not None:
            said.append(f"ends with {self.ends}")
        if self.expires is not None:
            said.append(f"expires after {time_text(self.expires)}")
        return "; ".join(said)

    def __str__(self) -> str:
        """Return it as a line."""
        return self.text


def waiting(graph: Graph, cells: Cells, definition: int, limit: int) -> list[Waiting]:
    """What a definition, by its number, and those it names have open; at most so many, from the top down."""
    return list(islice(_all(graph, cells, definition, limit), limit))


def _all(graph: Graph, cells: Cells, definition: int, limit: int) -> Iterator[Waiting]:
    made_of = constituents(graph)
    for number, owner in below(graph, [definition]):
        node = graph.nodes[number]
        if not isinstance(node, OperationNode):
            continue
        kinds = [node_text(graph.nodes[each]) for each in made_of[number]]
        for key, held in cells.get(node.identity, {}).items():
            cell = windows_of(held if node.is_pool else held[:limit])
            for openers, window in _held(node, cell):
                wants, ends = _wants(node, kinds, cell, window)
                first = min(opener.first for opener in openers)
                within = node.rules.within
                offsets = {part.offset for opener in openers for part in opener.parts if part.offset is not None}
                yield Waiting(
                    node.text,
                    shown(owner.by, key),
                    tuple(sorted(offsets)),
                    as_datetime(first),
                    wants,
                    ends,
                    None if window is None or window.due is None else as_datetime(window.due),
                    None if within is None else as_datetime(first + within),
                )


def _held(node: OperationNode, cell: list[Window]) -> Iterator[tuple[list[Occurrence], Window | None]]:
    """What lies together: a window; of AND and ANY outside `continuous`, all kinds."""
    if node.is_pool and node.rules.context != "continuous":
        yield [opener for window in cell for opener in window.openers[:_MOST]], None
        return
    for window in cell:
        yield [*window.openers, *window.middles], window


def _wants(
    node: OperationNode, kinds: list[str], cell: list[Window], window: Window | None
) -> tuple[tuple[str, ...], str | None]:
    operator = node.rules.operator
    if node.is_pool:
        there = window.kinds if window is not None else [kind for kind, each in enumerate(cell) if each.openers]
        missing = tuple(text for kind, text in enumerate(kinds) if kind not in there)
        return missing or tuple(kinds), None
    if operator in ("P", "PLUS"):
        return (), kinds[1] if len(kinds) > 1 else None
    if operator in ("NOT", "A"):
        wanted, ends = (kinds[2], kinds[1]) if operator == "NOT" else (kinds[1], kinds[2])
        return (wanted,), ends
    return (kinds[-1],), None
