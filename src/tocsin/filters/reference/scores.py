"""The BE-Tree's settings and the score by which an insertion chooses among p-nodes (thesis §6.2.1, eq. 6.1 and 6.2).

    Gain(l)  = (1-β)·subsumed + β·covered     predicates equal to the key's, and others inside it
    Score(l) = (1-α)·Gain(l) − α·Loss(l)      Loss is 0, as in the thesis: matching then never changes a score
    Score(c) = Score(l) + Σ Score(p)          over its p-directory
    Score(p) = Σ Score(c)                     over its c-directory; the thesis leaves this formula out, the sum is ours

Counts are kept as whole numbers and weighed only when asked, so that adding and removing leaves no rounding behind.
A branch that holds nothing scores −∞. A score steers where an expression goes; a poor one costs time, never an answer.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import msgspec

from tocsin.errors import MatcherError

__all__ = ["Parameters", "Span", "Tally", "gain"]

Span = tuple[int, int]
"""First and last index of a discrete domain, both included."""


class Parameters(msgspec.Struct, frozen=True):
    """The `.betree` file of the thesis (§6.2.1, App. A). It does not report the values used; the defaults are ours."""

    largest: int = 8
    """Expressions an l-node may hold before it is split: more than this is an overflow."""
    smallest: int = 1
    """An attribute that fewer expressions of an l-node constrain is not worth a p-node."""
    alpha: float = 0.0
    """Weight of Loss. Loss being 0, it scales all scores alike."""
    beta: float = 0.25
    """Weight of predicates inside the key against those equal to it."""

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        if not 1 <= self.smallest <= self.largest:
            raise MatcherError(
                f"an l-node cannot hold from {self.smallest} to {self.largest}",
                help="give 1 <= smallest <= largest",
            )
        if not (0 <= self.alpha <= 1 and 0 <= self.beta <= 1):
            raise MatcherError(f"alpha {self.alpha} or beta {self.beta} is no weight", help="give numbers from 0 to 1")


class Tally:
    """How many expressions a branch holds, and how their predicates relate to the keys above them."""

    __slots__ = ("covered", "entries", "subsumed")

    def __init__(self, entries: int = 0, subsumed: int = 0, covered: int = 0) -> None:
        """Start with these counts."""
        self.entries, self.subsumed, self.covered = entries, subsumed, covered

    @classmethod
    def of(cls, key: Mapping[str, Span], spans: Mapping[str, Span]) -> Tally:
        """Count one expression with these predicates, resting under this key."""
        inside = [name for name in key if name in spans]
        subsumed = sum(spans[name] == key[name] for name in inside)
        return cls(1, subsumed, len(inside) - subsumed)

    def add(self, other: Tally, sign: int = 1) -> None:
        """Count `other` in; out again with sign -1."""
        self.entries += sign * other.entries
        self.subsumed += sign * other.subsumed
        self.covered += sign * other.covered

    def gain(self, beta: float) -> float:
        """Gain of what is counted."""
        return (1 - beta) * self.subsumed + beta * self.covered

    def score(self, parameters: Parameters) -> float:
        """Score of a branch with these counts; −∞ if it holds nothing."""
        return (1 - parameters.alpha) * self.gain(parameters.beta) if self.entries else -math.inf


def gain(key: Mapping[str, Span], expressions: Iterable[Mapping[str, Span]], beta: float) -> float:
    """Gain of an l-node under `key` that holds expressions with these predicates (eq. 6.1)."""
    total = Tally()
    for spans in expressions:
        total.add(Tally.of(key, spans))
    return total.gain(beta)
