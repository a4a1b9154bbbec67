"""How a BE-Tree splits and shrinks (thesis §2.2, §6.2; cloud.md 2B, 2D).

    an l-node overflows ─▶ its bucket is a leaf of several values:  space clustering, halve the bucket
                        └▶ else (root, atomic, already halved):     space partitioning, give an attribute a p-node

*Forced split rule*: a bucket is clustered before its c-node is partitioned, so a c-directory unfolds as far as it helps
before another attribute is used up. *Merge rule*: a bucket whose c-node was partitioned is neither removed nor merged.

Promises: after `settle` no l-node it came by overflows; it ends, since every step uses up a bucket's halving, an
attribute of a path, or raises a capacity. Decisions depend on the expressions in the l-node, not on their order.
Does not promise: that the tree stays the best one for a set that has changed. It splits, and drops what is empty; it
does not rebuild.
"""

from __future__ import annotations

from collections import Counter

from tocsin.filters.reference.domains import Domains
from tocsin.filters.reference.nodes import Bucket, CNode, PNode

__all__ = ["settle", "tidy"]


def settle(cnode: CNode, domains: Domains) -> None:
    """Split `cnode` and what comes of it until no l-node overflows.

    A work list in place of the thesis's recursion: a path can be longer than Python's stack.
    """
    waiting = [cnode]
    while waiting:
        cnode = waiting.pop()
        if not cnode.overflowed:
            continue
        bucket = cnode.bucket
        if bucket is not None and not bucket.atomic and not bucket.halves:
            waiting.extend(_cluster(bucket))
        waiting.extend(_partition(cnode, domains))


def _cluster(bucket: Bucket) -> list[CNode]:
    """Halve a leaf bucket and move each expression that fits a half; returns the halves' c-nodes."""
    bucket.halve()
    attribute = bucket.pnode.attribute
    for expression in list(bucket.cnode.lnode):
        for half in bucket.halves:
            if half.encloses(expression.spans[attribute]):
                bucket.cnode.take(expression)
                half.cnode.append(expression)
    return [half.cnode for half in bucket.halves]


def _partition(cnode: CNode, domains: Domains) -> list[CNode]:
    """While `cnode` overflows, move the expressions on its commonest unused attribute to a new p-node.

    Returns the c-nodes that received some. When no attribute is left, the capacity grows.
    """
    received = []
    while cnode.overflowed:
        attribute = _commonest(cnode, domains)
        if attribute is None:
            cnode.capacity = cnode.fitting_capacity()
            break
        pnode = PNode(attribute, domains[attribute].whole, cnode)
        cnode.pdirectory[attribute] = pnode
        for expression in list(cnode.lnode):
            if attribute in expression.spans:
                cnode.take(expression)
                pnode.root.cnode.append(expression)
        received.append(pnode.root.cnode)
    return received


def _commonest(cnode: CNode, domains: Domains) -> str | None:
    """The attribute most expressions of the l-node constrain, neither in the key nor in the p-directory.

    Ties go to the one declared first ([OURS]). One that too few constrain is infeasible.
    """
    counts = Counter(
        name
        for expression in cnode.lnode
        for name in expression.spans
        if name not in cnode.key and name not in cnode.pdirectory
    )
    if not counts:
        return None
    name = max(counts, key=lambda name: (counts[name], -domains.rank[name]))
    return name if counts[name] >= cnode.parameters.smallest else None


def tidy(cnode: CNode) -> None:
    """After a removal from `cnode`: drop halves and p-nodes that hold nothing, from here upward.

    The thesis describes no shrinking; its merge rule permits this much ([OURS]). Without it a tree under constant
    change would fill with empty nodes.
    """
    while (bucket := cnode.bucket) is not None:
        halves = bucket.halves
        if halves and not cnode.pdirectory and all(half.cnode.bare and not half.halves for half in halves):
            bucket.halves = ()
        if bucket.halves or not cnode.bare:
            return
        if bucket.parent is not None:
            cnode = bucket.parent.cnode
        else:
            cnode = bucket.pnode.parent
            del cnode.pdirectory[bucket.pnode.attribute]
