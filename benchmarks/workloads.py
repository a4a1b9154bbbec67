"""Named, seeded workloads for matching: the same filters and events for every contender and every run.

`CONTENT` is the workload of the experiment behind our goals: conjunctions of 1 to 6 tests (mean 3.5) over 20 attributes
(8 numbers from 0 to 1000; 10 texts with 100 to 10,000 values, Zipf 1.0; 2 path-like texts), 40 % ranges of numbers, 40
% `=`, 12 % IN of 2 to 8, 8 % prefixes. Events carry 8 to 20 of the attributes, 2 % of their texts are in no filter. The
share of filters an event matches is set by choosing each test's selectivity, and is measured, not assumed.
"""

from __future__ import annotations

import math
import random
from bisect import bisect
from itertools import accumulate
from typing import Any

from tocsin import Event

__all__ = ["ATTRIBUTES", "Content"]

NUMBERS = [f"n{i}" for i in range(8)]
TEXTS = {f"t{i}": size for i, size in enumerate((100, 100, 300, 300, 1000, 1000, 3000, 3000, 10_000, 10_000))}
PATHS = ["p0", "p1"]
ATTRIBUTES = [*NUMBERS, *TEXTS, *PATHS]
PRESENT = 0.7  # 14 of 20 on average

_LEAVES = 20
_CAPS = {1e-4: 2.4, 1e-3: 4.6, 1e-2: 11.0}  # set so that the measured mean rate is the one asked for


class Content:
    """Filters and events, both endless and both reproducible from the seed.

    Args:
        rate: the share of filters that one event should match.
        seed: another seed, another workload of the same kind.
    """

    def __init__(self, rate: float, seed: int = 1) -> None:
        self.rate = rate
        self._filters = random.Random(f"{seed} filters {rate}")
        self._events = random.Random(f"{seed} events")
        self._weights = {name: [1 / (rank + 1) for rank in range(size)] for name, size in TEXTS.items()}
        self._totals = {name: sum(weights) for name, weights in self._weights.items()}
        self._cumulated = {name: list(accumulate(weights)) for name, weights in self._weights.items()}

    # -- events

    def event(self) -> Event:
        """Draw an event; its attributes are top-level fields of a JSON payload."""
        return Event("reading", "bench", id="e", data=self.values())

    def values(self) -> dict[str, Any]:
        """Draw the attributes of an event."""
        draw = self._events
        chosen = draw.sample(ATTRIBUTES, draw.randint(8, 20))
        return {name: self._value(name) for name in chosen}

    def _value(self, name: str) -> Any:
        draw = self._events
        if name in NUMBERS:
            return draw.random() * 1000
        if draw.random() < 0.02:
            return f"unseen-{draw.randrange(10**6)}"
        if name in PATHS:
            return "/".join(["", *(str(draw.randrange(_LEAVES)) for _ in range(4))])
        return f"{name}-{bisect(self._cumulated[name], draw.random() * self._totals[name])}"

    # -- filters

    def filter(self) -> str:
        """Draw a filter text; the mean chance of all filters to match an event is near `rate`.

        A filter is drawn as people would write it (ranges of 2 to 60 % of the domain, popular values more often than
        rare ones); one that would match more than `_CAP` times the rate is narrowed until it does not.
        """
        draw = self._filters
        kinds = draw.choices(("range", "equal", "in", "prefix"), (40, 40, 12, 8), k=draw.randint(1, 6))
        taken: set[str] = set()
        shares: list[float] = []
        names: list[str] = []
        for kind in kinds:
            name = self._pick(kind, taken)
            names.append(name)
            shares.append(self._natural_share(kind, name))
        chance = math.prod(shares) * PRESENT ** len(shares)
        narrow = min(1.0, (_CAPS[self.rate] * self.rate / chance) ** (1 / len(shares)))
        return " AND ".join(
            self._test(kind, name, share * narrow) for kind, name, share in zip(kinds, names, shares, strict=True)
        )

    def _pick(self, kind: str, taken: set[str]) -> str:
        """An attribute the kind of test suits, each once in a filter as long as there are any."""
        pool = (
            NUMBERS
            if kind == "range"
            else PATHS
            if kind == "prefix"
            else [*TEXTS, *PATHS]
            if kind == "equal"
            else list(TEXTS)
        )
        name = self._filters.choice([name for name in pool if name not in taken] or pool)
        taken.add(name)
        return name

    def _natural_share(self, kind: str, name: str) -> float:
        draw = self._filters
        if kind == "range":
            return draw.uniform(0.02, 0.6)
        if name in PATHS:
            leaves: float = _LEAVES ** -float(draw.randint(1, 3) if kind == "prefix" else 4)
            return leaves
        share = self._chance(name, bisect(self._cumulated[name], draw.random() * self._totals[name]))
        return min(1.0, share * 3) if kind == "in" else share

    def _test(self, kind: str, name: str, share: float) -> str:
        draw = self._filters
        if kind == "range":
            width = 1000 * share
            form = draw.choice(("between", "<", ">"))
            if form == "<":
                return f"{name} < {width:.4f}"
            if form == ">":
                return f"{name} > {1000 - width:.4f}"
            low = draw.uniform(0, 1000 - width)
            return f"{name} BETWEEN {low:.4f} AND {low + width:.4f}"
        if name in PATHS:
            levels = 4 if kind == "equal" else min(3, max(1, math.ceil(-math.log(share, _LEAVES) - 0.3)))
            path = "/".join(["", *(str(draw.randrange(_LEAVES)) for _ in range(levels))])
            return f"{name} = '{path}'" if kind == "equal" else f"{name} LIKE '{path}/%'"
        if kind == "equal":
            return f"{name} = '{name}-{self._rank_near(name, share)}'"
        count = draw.randint(2, 8)
        ranks = sorted({self._rank_near(name, share / count) for _ in range(count)})
        return f"{name} IN ({', '.join(repr(f'{name}-{rank}') for rank in ranks)})"

    def _chance(self, name: str, rank: int) -> float:
        return self._weights[name][rank] / self._totals[name]

    def _rank_near(self, name: str, share: float) -> int:
        """A value whose chance is within a factor of two of `share`, if the attribute has one."""
        middle = 1 / (max(share, 1e-9) * self._totals[name])
        low, high = int(middle / 2), int(middle * 2) + 1
        return min(TEXTS[name] - 1, self._filters.randint(low, max(low, high)))
