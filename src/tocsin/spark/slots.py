"""Which task has which bucket of a stream: numbers that Spark's hash puts on the partitions that one wants.

Spark sends the rows of a group to the partition murmur3(its key) modulo the number of partitions. Buckets that were
simply numbered would meet there by chance: of two buckets and two partitions, half the time one task gets both. So each
bucket is known by a *slot*, a number that was looked for until its hash fits: with P partitions bucket b goes to
partition b modulo P, for every P that divides `SPREAD`, and to no worse a place than chance for others.

Promised: slots depend on nothing but the bucket's number, since state is kept under them: never change this module.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

__all__ = ["SPREAD", "partition_of", "slots"]

SPREAD = 960
"""Is divided by 2 to 6, 8, 10, 12, 15, 16, 20, 24, 30, 32, 40, 48, 60, 64, 80, 96 …: as many cores as machines have."""
_PAGE = 1 << 17
_SEED = 42

Array = np.ndarray[Any, Any]


@lru_cache(maxsize=8)
def slots(buckets: int) -> tuple[int, ...]:
    """The slot of each of so many buckets; more buckets have the same ones first."""
    places: list[list[int]] = [[] for _ in range(min(buckets, SPREAD))]
    first = 0
    while min(map(len, places)) * SPREAD < buckets:
        numbers = np.arange(first, first + _PAGE, dtype=np.uint32)
        rests = _murmur3(numbers).astype(np.int64) % SPREAD
        for place, found in enumerate(places):
            found += numbers[rests == place].tolist()
        first += _PAGE
    return tuple(places[bucket % SPREAD][bucket // SPREAD] for bucket in range(buckets))


def partition_of(slot: int, partitions: int) -> int:
    """Where Spark sends a slot."""
    return int(_murmur3(np.array([slot], np.uint32))[0]) % partitions


def _murmur3(numbers: Array) -> Array:
    """Spark's hash of an INT, as a signed number."""
    with np.errstate(over="ignore"):
        mixed = numbers * np.uint32(0xCC9E2D51)
        mixed = _turned(mixed, 15) * np.uint32(0x1B873593)
        found = _turned(np.uint32(_SEED) ^ mixed, 13) * np.uint32(5) + np.uint32(0xE6546B64)
        found = found ^ np.uint32(4)
        found = (found ^ (found >> np.uint32(16))) * np.uint32(0x85EBCA6B)
        found = (found ^ (found >> np.uint32(13))) * np.uint32(0xC2B2AE35)
        return (found ^ (found >> np.uint32(16))).view(np.int32)


def _turned(numbers: Array, bits: int) -> Array:
    turned: Array = (numbers << np.uint32(bits)) | (numbers >> np.uint32(32 - bits))
    return turned
