"""The parts of a BE-Tree (thesis §2.2, §6.2): plain nodes that know their place and their counts, and decide nothing.

    c-node ── l-node: expressions that rest here
       └──── p-directory: attribute → p-node
                              └──── c-directory: bucket of the whole domain
                                       ├── its c-node
                                       ├── bucket of the lower half ── its c-node …
                                       └── bucket of the upper half ── its c-node …

A c-node's *key* maps each attribute on the path from the root to the span of the bucket passed there. Every expression
at or below the c-node lies inside its key, and no attribute comes twice on a path. `growth` decides when nodes split,
`betree` where an expression goes and which nodes an event visits.

The thesis also keeps a p-node's last matching time, to choose what moves to another process. There is one process here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tocsin.filters.filter import Filter
from tocsin.filters.reference.scores import Parameters, Span, Tally

__all__ = ["Bucket", "CNode", "Entry", "Expression", "PNode"]


class Entry:
    """A key and its filter, as they were added."""

    __slots__ = ("expressions", "filter", "key")

    def __init__(self, key: Any, filter: Filter) -> None:
        """Begin without expressions."""
        self.key, self.filter = key, filter
        self.expressions: list[Expression] = []


class Expression:
    """One alternative of a filter: where it lies in each declared attribute, and the c-node it rests in."""

    __slots__ = ("entry", "home", "spans")

    def __init__(self, entry: Entry, spans: dict[str, Span]) -> None:
        """Make an expression that rests nowhere yet."""
        self.entry, self.spans = entry, spans
        self.home: CNode | None = None


class CNode:
    """A c-node with its l-node and p-directory."""

    __slots__ = ("bucket", "capacity", "key", "lnode", "parameters", "pdirectory", "tally")

    def __init__(self, parameters: Parameters, key: dict[str, Span], bucket: Bucket | None = None) -> None:
        """Make an empty c-node; the root has an empty key and no bucket."""
        self.parameters = parameters
        self.key = key
        self.bucket = bucket
        self.lnode: dict[Expression, None] = {}
        self.capacity = parameters.largest
        self.pdirectory: dict[str, PNode] = {}
        self.tally = Tally()

    @property
    def overflowed(self) -> bool:
        """Strictly more than the capacity (thesis §2.2)."""
        return len(self.lnode) > self.capacity

    @property
    def bare(self) -> bool:
        """Nothing rests here or was partitioned away from here."""
        return not self.lnode and not self.pdirectory

    def fitting_capacity(self) -> int:
        """The least multiple of the configured size that holds the l-node ([OURS]: the thesis gives no formula)."""
        size = self.parameters.largest
        return max(size, -(-len(self.lnode) // size) * size)

    def append(self, expression: Expression) -> None:
        """Let an expression rest here, and count it up to the root."""
        self.lnode[expression] = None
        expression.home = self
        self._count(expression, 1)

    def take(self, expression: Expression) -> None:
        """Take an expression out, and count it out up to the root; a raised capacity falls again with its use."""
        del self.lnode[expression]
        expression.home = None
        self._count(expression, -1)
        self.capacity = min(self.capacity, self.fitting_capacity())

    def _count(self, expression: Expression, sign: int) -> None:
        one = Tally.of(self.key, expression.spans)
        cnode: CNode | None = self
        while cnode is not None:
            cnode.tally.add(one, sign)
            if cnode.bucket is None:
                return
            pnode = cnode.bucket.pnode
            pnode.tally.add(one, sign)
            cnode = pnode.parent


class PNode:
    """A p-node: the expressions of a c-node that constrain one attribute, by its value."""

    __slots__ = ("attribute", "parent", "root", "tally")

    def __init__(self, attribute: str, whole: Span, parent: CNode) -> None:
        """Make a p-node with one bucket for the whole domain."""
        self.attribute = attribute
        self.parent = parent
        self.tally = Tally()
        self.root = Bucket(self, whole, None)

    @property
    def score(self) -> float:
        """Sum of the scores of all c-nodes in the c-directory; −∞ if empty."""
        return self.tally.score(self.parent.parameters)

    def buckets(self) -> Iterator[Bucket]:
        """All buckets of the c-directory, the whole domain first."""
        waiting = [self.root]
        while waiting:
            bucket = waiting.pop()
            yield bucket
            waiting.extend(reversed(bucket.halves))


class Bucket:
    """A range of a domain's indices, with the c-node for it and, once it was clustered, its two halves."""

    __slots__ = ("cnode", "halves", "high", "low", "parent", "pnode")

    def __init__(self, pnode: PNode, span: Span, parent: Bucket | None) -> None:
        """Make a leaf bucket with an empty c-node."""
        self.pnode = pnode
        self.low, self.high = span
        self.parent = parent
        self.halves: tuple[Bucket, ...] = ()
        self.cnode = CNode(pnode.parent.parameters, pnode.parent.key | {pnode.attribute: span}, self)

    @property
    def atomic(self) -> bool:
        """One value only."""
        return self.low == self.high

    def encloses(self, span: Span) -> bool:
        """Does the whole span lie in this bucket?"""
        return self.low <= span[0] and span[1] <= self.high

    def smallest_enclosing(self, span: Span) -> Bucket:
        """The smallest bucket from here down that encloses the span, which this one does: the insertion rule (§2.2)."""
        bucket = self
        while True:
            for half in bucket.halves:
                if half.encloses(span):
                    bucket = half
                    break
            else:
                return bucket

    def halve(self) -> None:
        """Make two halves; of an odd number of values the lower half has one more ([OURS])."""
        middle = (self.low + self.high) // 2
        self.halves = (
            Bucket(self.pnode, (self.low, middle), self),
            Bucket(self.pnode, (middle + 1, self.high), self),
        )
