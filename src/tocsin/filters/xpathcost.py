"""What an XPath costs: the power with which its work grows with the document.

`//a` looks at each node once: power 1. `//a[.//b]` may look below every node: power 2. libxml2 forgets which nodes it
met by several ways after each step, so the length of a path adds nothing, but it looks through all it has for each node
that it may have met: beside, before and behind many nodes is power 3. Square brackets inside each other add up, and so
do nodes compared with nodes. `Part` carries two numbers, since `//a[b]` asks for `b` of every node, yet visits each
node once: the cost of being asked *once*, and of being asked of *each* node of a document.

Promised: never too low (rounding up is allowed: ancestors and descendants count as if documents were one long chain).
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = [
    "BOOLEAN",
    "LOCAL_AXES",
    "NODES",
    "NUMBER",
    "TEXT",
    "Part",
    "combined",
    "longest",
    "stepped",
    "united",
    "where",
]

NODES, TEXT, NUMBER, BOOLEAN = "nodes", "a text", "a number", "a boolean"
"""What an expression gives."""

WORK = 40_000_000
"""Nodes that one question looks at, at most: some tenths of a second."""
READ = 1_600_000
"""Characters read once by each of 255 elements inside each other: as much work."""
MAX_DOCUMENT = 1_048_576
"""Characters of a document, at most, however cheap the question."""
LOCAL_AXES = frozenset(["child", "attribute", "self"])
"""Asked of every node, these still visit each node once."""
_NODE = 4  # characters that a node takes at least: <a/>


class Part(NamedTuple):
    """An expression: what it gives and its cost."""

    kind: str
    once: int = 0
    each: int = 1
    many: bool = False
    """Can it give more than one node?"""
    local: bool = False
    """Does it stay with children and attributes, so that two questions never look at the same ones?"""

    def read(self) -> Part:
        """The same with the texts of its nodes read."""
        if self.kind != NODES:
            return self
        once = max(self.once, 1)
        return self._replace(once=once, each=self.each if self.local else once + 1)


ONE_NUMBER = Part(NUMBER, 0, 0)
"""A constant, or `last()`: in square brackets it chooses one node."""


def stepped(part: Part, axis: str, narrow: bool) -> Part:
    """One step from these nodes; `narrow`: it leads from each node to one other at most."""
    local = part.local and axis in LOCAL_AXES
    beside = axis.startswith(("following", "preceding"))
    if part.many:
        visits = 1 if axis in LOCAL_AXES else 3 if beside else 2
    else:  # what comes before is found backwards, and to sort it takes the square
        visits = 0 if narrow else 2 if axis.startswith("preceding") else 1
    once = max(part.once, visits)
    return Part(NODES, once, part.each if local else once + 1, part.many or not narrow, local)


def where(before: Part, part: Part, axis: str, test: Part) -> Part:
    """The step from `before` to `part` with a condition in square brackets, asked of every node that it meets."""
    if not part.many:
        asked = test.once
    elif axis in LOCAL_AXES or not before.many:  # no node is met twice
        asked = test.each
    else:
        asked = part.once + test.once
    once = max(part.once, asked)
    many = part.many and (before.many or test != ONE_NUMBER)
    return Part(NODES, once, max(part.each, test.each) if part.local else once + 1, many, part.local)


def united(left: Part, right: Part) -> Part:
    """Nodes of either; each is looked for among the others."""
    once = max(left.once, right.once, 2 if left.many and right.many else 0)
    local = left.local and right.local
    return Part(NODES, once, max(left.each, right.each, once) if local else once + 1, True, local)


def combined(left: Part, right: Part, kind: str, compared: bool) -> Part:
    """An operator between two; where nodes are compared with nodes, it is each with each."""
    if compared or kind == NUMBER:
        left, right = left.read(), right.read()
    once, each = max(left.once, right.once), max(left.each, right.each)
    if compared and left.many and right.many:
        each = max(each, 2) if left.local and right.local else max(once, 2) + 1
        once = max(once, 2)
    return Part(kind, once, each)


def longest(part: Part, parts: int, reads: int) -> tuple[int, int]:
    """The power, and the length of document up to which the work stays bounded.

    Args:
        part: the whole expression.
        parts: how many steps and operators it has.
        reads: how often it goes through the text of a node; the texts of nodes inside each other overlap.
    """
    power = max(1, part.read().once)
    by_nodes = int(_NODE * (WORK / max(1, parts + reads)) ** (1 / power))
    return power, min(MAX_DOCUMENT, by_nodes, READ // max(1, reads))
