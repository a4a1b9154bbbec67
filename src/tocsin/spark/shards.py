"""Which matcher holds which filter, when there are too many filters for one: the layout of shards.

A shard is an index over some of the filters; every event meets every shard once. A `Layout` says how many shards there
are and which a key belongs to; whoever ships, loads or serves indexes asks it and knows nothing else.

A *policy* makes the layout. There is one: `primitive`, after the thesis's baseline (`seeds/cloud.md`, section 4): a
fixed number, keys dealt out evenly. It differs from the thesis in dealing by a hash of the key, not in turn, so that a
key's shard is known wherever its filter is added, replaced or removed. A policy that splits and merges shards by load
is another function that returns a layout, and needs a layout that can say so.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable
from typing import Any

import msgspec
import numpy as np

from tocsin.errors import MatcherError

__all__ = ["ENOUGH", "Layout", "primitive"]

ENOUGH = 1_000_000
"""Filters that one shard serves well: an index of some 300 MB that is loaded in seconds."""


class Layout(msgspec.Struct, frozen=True):
    """Which shard a key belongs to. The same on every machine, for ever."""

    shards: int = 1
    """How many there are."""

    def shard_of(self, key: str | int) -> int:
        """The shard of a key, from 0."""
        if self.shards == 1:
            return 0
        digest = hashlib.blake2b(str(key).encode(), digest_size=8).digest()
        return int.from_bytes(digest, "little") % self.shards

    def shards_of(self, keys: Iterable[str | int]) -> np.ndarray[Any, np.dtype[np.int64]]:
        """The shard of each key."""
        return np.fromiter(map(self.shard_of, keys), np.int64)


def primitive(filters: int, shards: int | None = None) -> Layout:
    """Fix the number of shards: as many as asked for, else one for each million filters.

    Raises:
        MatcherError: a number of shards that means nothing.
    """
    if shards is None:
        return Layout(max(1, math.ceil(filters / ENOUGH)))
    if type(shards) is not int or not 1 <= shards <= 10_000:
        raise MatcherError(f"shards is {shards!r}", help="give a whole number from 1 to 10,000, or None")
    return Layout(shards)
