"""Absolute times at work: which is due next.

When one is due next is part of the state, so that an instant which is over does not come again, and one that was missed
while nobody fed events comes when somebody does. A time that is new counts from the first instant that is known.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Container

from tocsin.composite.graph import Graph, TimeNode
from tocsin.composite.occurrence import Window
from tocsin.composite.schedule import parse_schedule
from tocsin.composite.state import State

__all__ = ["NEVER", "Times"]

NEVER = 1 << 62
"""Later than any instant."""


class Times:
    """All absolute times of a graph."""

    def __init__(self, graph: Graph, state: State) -> None:
        """Take up the state where it is."""
        self._state = state
        self._nodes: dict[int, tuple[TimeNode, Callable[[int], int | None]]] = {}
        self._due: list[tuple[int, int]] = []
        self.is_new: list[int] = []
        """Those of which nothing is due because no instant is known: see `begin`."""
        for number, node in enumerate(graph.nodes):
            if isinstance(node, TimeNode):
                self._nodes[number] = node, parse_schedule(node.at).after
                if cells := state.cells.get(node.identity):
                    self._note(number, cells[()][0].due)
                else:
                    self.is_new.append(number)
        self._look()

    def begin(self, instant: int, only: Container[str] | None = None) -> None:
        """Let new ones count from an instant on, itself included: all, or those of these texts."""
        begun = [each for each in self.is_new if only is None or self._nodes[each][0].at in only]
        for number in begun:
            self._plan(number, instant - 1)
        self.is_new = [each for each in self.is_new if each not in begun]
        self._look()

    def take(self, instant: int) -> list[TimeNode]:
        """Those due at an instant, which must be the next one."""
        found = []
        while self._due and self._due[0][0] == instant:
            number = heapq.heappop(self._due)[1]
            found.append(self._nodes[number][0])
            self._plan(number, instant)
        self._look()
        return found

    def _plan(self, number: int, after: int) -> None:
        node, next_after = self._nodes[number]
        due = next_after(after)
        self._state.cells[node.identity] = {(): [Window([], [], due)]}
        self._note(number, due)

    def _note(self, number: int, due: int | None) -> None:
        if due is not None:
            heapq.heappush(self._due, (due, number))

    def _look(self) -> None:
        self.next = self._due[0][0] if self._due else NEVER
        """The instant of the next one, or NEVER."""
