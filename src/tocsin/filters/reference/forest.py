"""The covering forest: the structure the thesis compares the BE-Tree with (§7.1).

    roots: filters no other covers ── children: filters their parent covers ── children …

An event that a filter does not match cannot match what the filter covers, so matching descends only where the parent
matched.

Promises: a parent covers each child as far as `Filter.covers` can tell (after a removal: by way of the removed node);
no filter covers its sibling; filters with the same normal form share one node.
Does not promise: one shape for one set. A filter covered by several siblings hangs under the first of them, so the
order of adding shows in the shape, never in the answers.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Any

from tocsin.filters.filter import Filter
from tocsin.filters.reference.contract import ADDED, NOT_ADDED, NOT_REMOVED, REMOVED, Outcome
from tocsin.model import Event

__all__ = ["CoveringForest", "Node"]


class Node:
    """One filter, the keys that have it, and the filters it covers. The forest's top is a node without a filter."""

    __slots__ = ("children", "filter", "identity", "keys", "parent", "_names", "_needs")

    def __init__(self, filter: Filter | None, identity: Hashable) -> None:
        """Make a node that hangs nowhere yet."""
        self.filter = filter
        self.identity = identity
        self.keys: dict[Any, None] = {}
        self.parent: Node | None = None
        self.children: dict[Node, None] = {}
        alternatives = () if filter is None else filter.form.alternatives
        named = [frozenset(term for term, _ in alternative.sets) for alternative in alternatives]
        self._needs = named[0] if len(named) == 1 else None
        self._names = frozenset.intersection(*named) if named else None

    def covers(self, other: Node) -> bool:
        """Does every event of `other` match here, as far as can be told?"""
        if self.filter is None:
            return True
        # A conjunction that tests what the other never names is not sure to cover it: the usual case, told cheaply.
        if self._needs is not None and other._names is not None and not self._needs <= other._names:
            return False
        return other.filter is not None and self.filter.covers(other.filter)

    def hang(self, child: Node) -> None:
        """Take a child that hangs nowhere."""
        child.parent = self
        self.children[child] = None

    def unhang(self, child: Node) -> None:
        """Let go of a child."""
        child.parent = None
        del self.children[child]


class CoveringForest:
    """Filters ordered by what they cover."""

    def __init__(self) -> None:
        """Start empty."""
        self.top = Node(None, None)
        """Above all roots: covers everything, matches nothing of itself. To look at."""
        self._nodes: dict[Hashable, Node] = {}
        self._homes: dict[Any, Node] = {}
        self.candidates = 0
        """Filters tested by the last match."""

    def add(self, key: Hashable, filter: Filter) -> Outcome:
        """Put a filter in under a key; NOT_ADDED if the key is taken."""
        if key in self._homes:
            return NOT_ADDED
        identity = filter.form.key()
        node = self._nodes.get(identity)
        if node is None:
            node = self._nodes[identity] = Node(filter, identity)
            self._place(node, self.top)
        node.keys[key] = None
        self._homes[key] = node
        return ADDED

    def remove(self, key: Hashable) -> Outcome:
        """Take a key out; NOT_REMOVED if it is unknown. Children of a node without keys left hang anew from above."""
        node = self._homes.pop(key, None)
        if node is None:
            return NOT_REMOVED
        del node.keys[key]
        if not node.keys:
            parent = node.parent
            assert parent is not None, "a node hangs under a node, if only the top"
            parent.unhang(node)
            del self._nodes[node.identity]
            for child in list(node.children):
                node.unhang(child)
                self._place(child, parent)
        return REMOVED

    def match(self, event: Event) -> list[Any]:
        """Return the keys whose filters are true for the event."""
        found: list[Any] = []
        candidates = 0
        waiting = list(self.top.children)
        while waiting:
            node = waiting.pop()
            candidates += 1
            if node.filter is not None and node.filter.matches(event):
                found.extend(node.keys)
                waiting.extend(node.children)
        self.candidates = candidates
        return found

    def __len__(self) -> int:
        """How many keys are in."""
        return len(self._homes)

    def stats(self) -> dict[str, Any]:
        """Entries, nodes (different filters), roots, depth, and candidates: filters tested by the last match."""
        return {
            "entries": len(self._homes),
            "nodes": len(self._nodes),
            "roots": len(self.top.children),
            "depth": max((depth for _, depth in self.walk()), default=0),
            "candidates": self.candidates,
        }

    def walk(self) -> Iterator[tuple[Node, int]]:
        """All nodes, each with its depth; roots have depth 1."""
        waiting = [(root, 1) for root in self.top.children]
        while waiting:
            node, depth = waiting.pop()
            yield node, depth
            waiting.extend((child, depth + 1) for child in node.children)

    def _place(self, node: Node, parent: Node) -> None:
        """Hang a node, with all below it, as deep under `parent` (which covers it) as covering goes.

        Siblings that the node covers come to hang below it; if it brought children, one of them may cover the sibling,
        so these are placed likewise. A work list, not recursion: chains of filters can be longer than Python's stack.
        """
        waiting = [(node, parent)]
        while waiting:
            node, parent = waiting.pop()
            while (closer := next((child for child in parent.children if child.covers(node)), None)) is not None:
                parent = closer
            for sibling in [sibling for sibling in parent.children if node.covers(sibling)]:
                parent.unhang(sibling)
                waiting.append((sibling, node))
            parent.hang(node)
