"""Events in columns: what a detector needs to know of them, found out beforehand by who has many at once.

An `Event` is asked for its type, its key, which filters it matches and what `WHERE` wants of it. Whoever has columns
finds all that for thousands of events together (`spark/packing.py`), and gives a detector the answers only.

Promised by who makes them: offsets ascend; what is said of an event is what a detector would have found itself. Events
that no leaf sees may be left out; then `Detector.begin` tells when the first of all came, and `reach` how late it is.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise
from operator import itemgetter
from typing import Any, NamedTuple

from tocsin.composite.keys import Key
from tocsin.composite.occurrence import Part
from tocsin.composite.where import Needs

__all__ = ["CLOCK_ROW", "Rows"]

CLOCK_ROW = -1
"""In `Rows.seen`: a clock record."""


class Rows(NamedTuple):
    """Columns, all of the same length."""

    offsets: list[int]
    times: list[int]
    """Journal time, microseconds."""
    seen: list[int]
    """Which of `matches` is true of each event, or CLOCK_ROW."""
    matches: list[tuple[str, ...]]
    """Filters that are true together."""
    ids: list[str]
    sources: list[str]
    levels: list[int] | None
    """Places in `model.CLASSIFICATION`; None: all are the first."""
    keys: dict[tuple[str, ...], list[Key | None]]
    """By the fields of BY; None: the event has no key. Not there for no fields, where the key is empty."""
    values: dict[Needs, list[dict[str, Any] | None]]
    """By what `WHERE` asks for."""

    def part(self, row: int, name: str | None, time: int) -> Part:
        """A row as a constituent that is called so and happens then; of its values nothing is kept."""
        level = 0 if self.levels is None else self.levels[row]
        return Part(name, self.offsets[row], self.ids[row], self.sources[row], time, None, level)

    def between(self, above: int, upto: int | None) -> Rows:
        """Those above an offset, and up to another."""
        start = bisect_right(self.offsets, above)
        stop = len(self.offsets) if upto is None else bisect_right(self.offsets, upto)
        if start == 0 and stop == len(self.offsets):
            return self
        return self._each(lambda column: column[start:stop])

    def _each(self, change: Any) -> Rows:
        """The same change to every column."""
        return Rows(
            change(self.offsets),
            change(self.times),
            change(self.seen),
            self.matches,
            change(self.ids),
            change(self.sources),
            None if self.levels is None else change(self.levels),
            {by: change(column) for by, column in self.keys.items()},
            {needs: change(column) for needs, column in self.values.items()},
        )

    @classmethod
    def merged(cls, several: Sequence[Rows]) -> Rows:
        """All of them in the order of offsets; they must have the same columns."""
        if len(several) == 1:
            return several[0]
        matches: list[tuple[str, ...]] = []
        seen: list[int] = []
        for rows in several:
            first = len(matches)
            matches += rows.matches
            seen += [each if each == CLOCK_ROW else each + first for each in rows.seen]
        plain = all(rows.levels is None for rows in several)
        whole = cls(
            [each for rows in several for each in rows.offsets],
            [each for rows in several for each in rows.times],
            seen,
            matches,
            [each for rows in several for each in rows.ids],
            [each for rows in several for each in rows.sources],
            None if plain else [each for rows in several for each in rows.levels or [0] * len(rows.offsets)],
            {by: [each for rows in several for each in rows.keys[by]] for by in several[0].keys},
            {needs: [each for rows in several for each in rows.values[needs]] for needs in several[0].values},
        )
        if all(before.offsets[-1:] < after.offsets[:1] for before, after in pairwise(several) if after.offsets):
            return whole
        order = sorted(range(len(whole.offsets)), key=whole.offsets.__getitem__)
        if len(order) < 2:
            return whole
        pick = itemgetter(*order)
        return whole._each(lambda column: list(pick(column)))
