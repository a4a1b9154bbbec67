"""Which matcher holds which filter, when there are too many filters for one: shards, and layouts of them.

A shard is an index over some of the filters; every event meets every shard once. Keys are dealt out by a hash: a shard
holds those whose hash leaves a certain rest when it is divided by a certain number. So a key's shard is known wherever
its filter is added, replaced or removed, and a shard can be halved without touching the others:

    1 of 3  ─▶  1 of 6 and 4 of 6        those whose hash leaves 1 by 3 leave 1 or 4 by 6
    1 of 6 and 4 of 6  ─▶  1 of 3        and back

A `Layout` is a list of shards that together hold every key once; whoever ships, loads or serves indexes asks it and
knows nothing else. A *policy* makes layouts: `primitive`, here, fixes a number, after the thesis's baseline
(`seeds/cloud.md`, section 4); `elastic` splits and merges by load.

Promised: a key's shard is the same on every machine, for ever. A layout that can be made holds every key once.
"""

from __future__ import annotations

import functools
import hashlib
import math
from collections.abc import Iterable
from typing import Any

import msgspec
import numpy as np

from tocsin.errors import MatcherError

__all__ = ["ENOUGH", "MOST", "WHOLE", "Layout", "Shard", "even", "primitive"]

ENOUGH = 1_000_000
"""Filters that one shard serves well: an index of some 300 MB that is loaded in seconds."""
MOST = 10_000
"""Shards of a layout: every event is copied to each."""
_DEEPEST = 1 << 40  # what hashes are divided by at most; they have 64 bits


class Shard(msgspec.Struct, frozen=True, array_like=True):
    """The keys whose hash leaves `rest` when it is divided by `of`."""

    of: int = 1
    rest: int = 0

    def __str__(self) -> str:
        """As people read it: `1 of 6`."""
        return f"{self.rest} of {self.of}"

    def holds(self, key: str | int) -> bool:
        """Does this key belong here?"""
        return self.of == 1 or _hash(key) % self.of == self.rest

    @property
    def halves(self) -> tuple[Shard, Shard] | None:
        """What it splits into; None if it is as small as can be."""
        if self.of * 2 > _DEEPEST:
            return None
        return Shard(self.of * 2, self.rest), Shard(self.of * 2, self.rest + self.of)

    @property
    def whole(self) -> Shard | None:
        """What it is one half of; None if it is no half."""
        return None if self.of % 2 else Shard(self.of // 2, self.rest % (self.of // 2))


WHOLE = Shard()
"""All keys."""


class Layout(msgspec.Struct, frozen=True):
    """Shards that together hold every key once. A shard's number is its place here, from 0."""

    shards: tuple[Shard, ...] = (WHOLE,)

    def __post_init__(self) -> None:
        """Refuse shards that leave a key out, or have it twice."""
        if not 1 <= len(self.shards) <= MOST or not _is_exact(self.shards):
            raise MatcherError(
                f"{len(self.shards)} shards that do not hold every key once",
                help="make layouts with even(), then split",
            )

    def __len__(self) -> int:
        """How many shards there are."""
        return len(self.shards)

    def shard_of(self, key: str | int) -> int:
        """The number of a key's shard."""
        if len(self.shards) == 1:
            return 0
        number, places = _hash(key), _places(self)
        return next(place for of, known in places.items() if (place := known.get(number % of, -1)) >= 0)

    def shards_of(self, keys: Iterable[str | int]) -> np.ndarray[Any, np.dtype[np.int64]]:
        """The number of each key's shard."""
        return np.fromiter(map(self.shard_of, keys), np.int64)

    def split(self, shard: Shard) -> Layout:
        """The same with the two halves of one: the first in its place, the second at the end.

        Raises:
            MatcherError: there is no such shard, or it cannot be split.
        """
        if shard not in self.shards or shard.halves is None:
            raise MatcherError(f"the shard {shard} cannot be split in this layout")
        first, second = shard.halves
        return Layout((*(first if each == shard else each for each in self.shards), second))

    def merge(self, shard: Shard) -> Layout:
        """The same with one shard in the place of its two halves.

        Raises:
            MatcherError: its halves are not there.
        """
        if shard.halves is None or not set(shard.halves) <= set(self.shards):
            raise MatcherError(f"there are no halves of the shard {shard} in this layout")
        first, second = shard.halves
        return Layout(tuple(shard if each == first else each for each in self.shards if each != second))


def even(shards: int) -> Layout:
    """So many shards of equal size; a key's number is its hash modulo that."""
    return Layout(tuple(Shard(shards, rest) for rest in range(shards)))


def primitive(filters: int, shards: int | None = None) -> Layout:
    """Fix the number of shards: as many as asked for, else one for each million filters.

    Raises:
        MatcherError: a number of shards that means nothing.
    """
    if shards is None:
        return even(max(1, math.ceil(filters / ENOUGH)))
    if type(shards) is not int or not 1 <= shards <= MOST:
        raise MatcherError(f"shards is {shards!r}", help="give a whole number from 1 to 10,000, an Elastic, or None")
    return even(shards)


def _hash(key: str | int) -> int:
    return int.from_bytes(hashlib.blake2b(str(key).encode(), digest_size=8).digest(), "little")


@functools.lru_cache(maxsize=64)
def _places(layout: Layout) -> dict[int, dict[int, int]]:
    """For each divisor, the numbers of the shards by their rests."""
    found: dict[int, dict[int, int]] = {}
    for number, shard in enumerate(layout.shards):
        found.setdefault(shard.of, {})[shard.rest] = number
    return found


def _is_exact(shards: tuple[Shard, ...]) -> bool:
    """Is every key in one of them? Merging halves, the smallest first, must end in an even layout."""
    by_size: dict[int, set[int]] = {}
    for shard in shards:
        rests = by_size.setdefault(shard.of, set())
        if not 1 <= shard.of <= _DEEPEST or not 0 <= shard.rest < shard.of or shard.rest in rests:
            return False
        rests.add(shard.rest)
    while len(by_size) > 1:
        of = max(by_size)
        rests = by_size.pop(of)
        if of % 2:
            return False
        merged = {rest for rest in rests if rest < of // 2}
        if {rest - of // 2 for rest in rests if rest >= of // 2} != merged:
            return False
        above = by_size.setdefault(of // 2, set())
        if above & merged:
            return False
        above |= merged
    ((of, rests),) = by_size.items()
    return len(rests) == of
