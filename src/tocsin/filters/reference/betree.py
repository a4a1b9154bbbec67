"""The BE-Tree (thesis §2.2, §6.2; cloud.md 2A to 2G): the structure the elastic broker was built on.

    add:    filter ─▶ alternatives ─▶ per declared attribute a hull of indices ─▶ smallest bucket that encloses it
    match:  event ─▶ per attribute it has one index ─▶ p-nodes of these, one path of buckets each ─▶ exact tests

Read in this order: `domains` (values as indices), `scores`, `nodes` (the parts), `growth` (splitting), then this file.

Promises:
    - Any filter is accepted and answers are exact: the hull decides only where an expression rests, `Filter.matches`
      decides whether it matches. What cannot be placed (no declared domain, RLIKE, IS NULL, never comparable) rests in
      the root.
    - A key is reported once, though several of its alternatives match.
    - Adding a key twice changes nothing, wherever scores would send it the second time: keys are known at the entrance.
    - No more is visited than the pruned search (cloud.md 2F, [OURS]) has to.

Does not promise: speed (a reference in Python), threads, or the distributed tree with its proxies and splits of
processes.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any

from tocsin.filters.filter import Filter
from tocsin.filters.reference.contract import ADDED, NOT_ADDED, NOT_REMOVED, REMOVED, Outcome
from tocsin.filters.reference.domains import Domain, Domains
from tocsin.filters.reference.growth import settle, tidy
from tocsin.filters.reference.nodes import CNode, Entry, Expression, PNode
from tocsin.filters.reference.scores import Parameters, Span
from tocsin.model import Event

__all__ = ["BETree"]


class BETree:
    """A BE-Tree over declared domains.

    Args:
        domains: what can be used to place expressions; their order breaks ties.
        parameters: sizes of l-nodes and weights of scores.

    Raises:
        SchemaError: two domains have the same name.
    """

    def __init__(self, domains: Iterable[Domain] = (), parameters: Parameters | None = None) -> None:
        """Start with an empty root."""
        self._domains = Domains(domains)
        self._entries: dict[Any, Entry] = {}
        self.candidates = 0
        """Filters tested by the last match."""
        self.root = CNode(parameters or Parameters(), {})
        """The root c-node, to look at."""

    def add(self, key: Hashable, filter: Filter) -> Outcome:
        """Put a filter in under a key; NOT_ADDED if the key is taken."""
        if key in self._entries:
            return NOT_ADDED
        entry = self._entries[key] = Entry(key, filter)
        for alternative in filter.form.alternatives:
            expression = Expression(entry, self._domains.hulls(alternative.sets))
            entry.expressions.append(expression)
            self._insert(expression)
        return ADDED

    def remove(self, key: Hashable) -> Outcome:
        """Take a key out; NOT_REMOVED if it is unknown. Expressions know where they rest: nothing is searched."""
        entry = self._entries.pop(key, None)
        if entry is None:
            return NOT_REMOVED
        for expression in entry.expressions:
            home = expression.home
            assert home is not None, "an expression of an entry rests somewhere"
            home.take(expression)
            tidy(home)
        return REMOVED

    def match(self, event: Event) -> list[Any]:
        """Return the keys whose filters are true for the event."""
        spans = self._domains.spans(event)
        found: list[Any] = []
        tested: set[Entry] = set()
        visits = [self.root]
        while visits:
            cnode = visits.pop()
            for expression in cnode.lnode:
                entry = expression.entry
                if entry not in tested:  # the test is of the whole filter: another alternative has answered for it
                    tested.add(entry)
                    if entry.filter.matches(event):
                        found.append(entry.key)
            if cnode.pdirectory:
                for attribute, span in spans.items():
                    pnode = cnode.pdirectory.get(attribute)
                    if pnode is not None:
                        _visit_path(pnode, span, visits)
        self.candidates = len(tested)
        return found

    def __len__(self) -> int:
        """How many keys are in."""
        return len(self._entries)

    def stats(self) -> dict[str, Any]:
        """Count nodes and what they hold.

        `nodes` is the sum of `cnodes`, `pnodes` and `buckets`; `expressions` are the alternatives of the `entries`;
        `lnodes` maps the size of an l-node to how many have it; `depth` is the greatest number of p-nodes on a path,
        `bucket_depth` of buckets in one c-directory; `candidates` are the filters tested by the last match.
        """
        cnodes = pnodes = buckets = depth = bucket_depth = 0
        sizes: dict[int, int] = {}
        waiting = [self.root]
        while waiting:
            cnode = waiting.pop()
            cnodes += 1
            sizes[len(cnode.lnode)] = sizes.get(len(cnode.lnode), 0) + 1
            depth = max(depth, len(cnode.key))
            for pnode in cnode.pdirectory.values():
                pnodes += 1
                levels = {pnode.root: 1}
                for bucket in pnode.buckets():
                    buckets += 1
                    if bucket.parent is not None:
                        levels[bucket] = levels[bucket.parent] + 1
                    waiting.append(bucket.cnode)
                bucket_depth = max(bucket_depth, *levels.values())
        return {
            "entries": len(self._entries),
            "expressions": self.root.tally.entries,
            "nodes": cnodes + pnodes + buckets,
            "cnodes": cnodes,
            "pnodes": pnodes,
            "buckets": buckets,
            "lnodes": dict(sorted(sizes.items())),
            "depth": depth,
            "bucket_depth": bucket_depth,
            "candidates": self.candidates,
        }

    def _insert(self, expression: Expression) -> None:
        """Descend to where the expression belongs, let it rest there, split if that is too much (thesis §6.2.1)."""
        cnode = self.root
        while (pnode := self._best(cnode, expression)) is not None:
            cnode = pnode.root.smallest_enclosing(expression.spans[pnode.attribute]).cnode
        cnode.append(expression)
        settle(cnode, self._domains)

    def _best(self, cnode: CNode, expression: Expression) -> PNode | None:
        """The p-node with the highest score of those whose attribute the expression constrains; None without one."""
        fitting = [pnode for name in expression.spans if (pnode := cnode.pdirectory.get(name)) is not None]
        # Ties go to the attribute declared first ([OURS]): spans are in that order, and max keeps the first of equals.
        return max(fitting, key=lambda pnode: pnode.score, default=None)


def _visit_path(pnode: PNode, span: Span, visits: list[CNode]) -> None:
    """Note the c-nodes of every bucket that shares an index with the span: one path, if the span is one index."""
    low, high = span
    bucket = pnode.root
    others = []
    while True:
        visits.append(bucket.cnode)
        inside = [half for half in bucket.halves if half.low <= high and low <= half.high]
        if inside:
            bucket = inside[0]
            others.extend(inside[1:])
        elif others:
            bucket = others.pop()
        else:
            return
