"""What was found, in short: how many pairs (offset, key), and the sum of their CRC-32. Who agrees has the same sums."""

from __future__ import annotations

import zlib
from typing import Any, NamedTuple

from tocsin.filters.index import Matcher
from tocsin.model import Event

__all__ = ["OneProcess", "Totals", "totals"]


class Totals(NamedTuple):
    """An answer in short: two sides that agree have the same."""

    pairs: int = 0
    checksum: int = 0

    def plus(self, offset: int, keys: list[Any]) -> Totals:
        """With the pairs of one more event."""
        codes = (zlib.crc32(f"{offset}:{key}".encode()) for key in keys)
        return Totals(self.pairs + len(keys), self.checksum + sum(codes))


class OneProcess:
    """Matching in this process."""

    def __init__(self, filters: dict[str, str]) -> None:
        """Compile the filters."""
        self._matcher = Matcher(filters.items())
        self.totals = Totals()
        """What was found so far."""

    def ask(self, events: list[Event]) -> None:
        """Match events as they were stored, with their offsets."""
        for event, keys in zip(events, self._matcher.match_batch(events), strict=True):
            self.totals = self.totals.plus(event.offset or 0, keys)


def totals(pairs: Any) -> Totals:
    """The answer in a DataFrame of pairs, added up by executors."""
    code = "crc32(concat_ws(':', CAST(offset AS STRING), key))"
    found = pairs.selectExpr("count(*) AS pairs", f"coalesce(sum({code}), 0) AS checksum").collect()[0]
    return Totals(int(found["pairs"]), int(found["checksum"]))
