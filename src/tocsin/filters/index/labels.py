"""Keys of ordered dimensions, and *labels*: numbers for texts that keep the order of the texts.

Filters name texts as ends of ranges (and prefixes are ranges). Each such text gets a label between those of its
neighbours; any other text, seen or unseen, then falls at a label, behind one, or before all, and that is its key. A
range test on texts is thereby a comparison of whole numbers, exact for texts no filter ever mentioned.

Concurrency: one writer. A reader checks a version number that is odd while labels change, and looks again.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tocsin.filters import intervals

__all__ = ["ABSENT", "HIGHEST", "LOWEST", "NO_KEY", "Array", "CrowdedError", "Labels"]

Array = npt.NDArray[Any]

ABSENT = -(2**63)
"""The key of a missing value: below every `low`, so that a missing value passes no range test."""
NO_KEY = 0x7FF8_70C5_1000_0001
"""Bits that mark an empty place in an encoder's buffer: a NaN Python never makes, and a whole number no key can be."""
LOWEST, HIGHEST = ABSENT + 1, 2**63 - 2  # a cut just behind the highest must still be a machine word

_STEP = 2**22  # from a label to the next one, when texts come in order
_WIDEST = 2**61  # labels stay within plus and minus this


class CrowdedError(Exception):
    """There is no number left between two labels: the space must be relabelled."""


class Labels:
    """Numbers for the texts that bound ranges, in the order of the texts."""

    def __init__(self) -> None:
        """No bounds yet."""
        self.version = 0
        self._texts: list[str] = []
        self._labels: list[int] = []
        self._latest: str | None = None

    def __len__(self) -> int:
        """The number of bounds."""
        return len(self._texts)

    def label(self, text: str) -> int:
        """Return the label of a bound, making one.

        Raises:
            CrowdedError: no room is left between its neighbours.
        """
        place = bisect_right(self._texts, text)
        if place and self._texts[place - 1] == text:
            return self._labels[place - 1]
        low = self._labels[place - 1] if place else -_WIDEST
        high = self._labels[place] if place < len(self._labels) else _WIDEST
        # Half way between the neighbours; but texts that come in order would halve the same gap again and again, so one
        # that follows (or comes before) the one made last goes a short step beside it.
        label = (low + high) // 2
        if place and self._texts[place - 1] == self._latest:
            label = min(label, low + _STEP)
        elif place < len(self._texts) and self._texts[place] == self._latest:
            label = max(label, high - _STEP)
        label &= ~3
        if label - low < 4:
            raise CrowdedError
        self.version += 1
        self._texts.insert(place, text)
        self._labels.insert(place, label)
        self._latest = text
        self.version += 1
        return label

    def make(self, texts: list[str]) -> None:
        """Make labels for sorted texts, the middle one first: so many in one gap take few halvings.

        Raises:
            CrowdedError: no room is left.
        """
        if texts:
            middle = len(texts) // 2
            self.label(texts[middle])
            self.make(texts[:middle])
            self.make(texts[middle + 1 :])

    def key(self, text: str) -> int:
        """The key of a value: at a bound (label + 1), behind one (label + 2), or before all."""
        while True:
            version = self.version
            texts = self._texts
            place = bisect_right(texts, text)
            try:
                key = self._labels[place - 1] + (1 if texts[place - 1] == text else 2) if place else LOWEST + 1
            except IndexError:  # a bound is being added
                continue
            if version == self.version and not version & 1:
                return key

    def keys(self, texts: list[str], array: pa.Array) -> Array:
        """Keys of many distinct values, given as a list and as an Arrow array."""
        _, (mine, labels) = self.snapshot()
        if not mine:
            return np.full(len(texts), LOWEST + 1)
        if len(mine) <= 2 * len(texts):
            places = _places_by_sorting(mine, array)
        else:
            places = np.fromiter((bisect_right(mine, text) for text in texts), np.int64, len(texts))
        exact = np.fromiter(
            (mine[place - 1] == text for place, text in zip(places.tolist(), texts, strict=True)), bool, len(texts)
        )
        found = np.array(labels, np.int64)[places - 1] + np.where(exact, 1, 2)
        return np.where(places > 0, found, LOWEST + 1)

    def snapshot(self) -> tuple[int, tuple[list[str], list[int]]]:
        """Texts and labels that belong together, copied, with the version they are of."""
        while True:
            version = self.version
            texts, labels = list(self._texts), list(self._labels)
            if version == self.version and not version & 1:
                return version, (texts, labels)

    def closed(self, cut: Any, high: bool) -> int:
        """The key that a cut allows first (as a low end) or last (as a high end)."""
        if cut == intervals.TOP_TEXT:
            return HIGHEST
        if cut == intervals.BOTTOM_TEXT:
            return LOWEST
        beyond: int = cut[2]
        return self.label(cut[1]) + (beyond if high else 1 + beyond)

    def bound(self, key: int, high: bool) -> Any:
        """Undo `closed`."""
        if key == HIGHEST:
            return intervals.TOP_TEXT
        if key == LOWEST:
            return intervals.BOTTOM_TEXT
        place = bisect_right(self._labels, key) - 1
        return (0, self._texts[place], key - self._labels[place] - (0 if high else 1))

    def relabelled(self) -> Labels:
        """The same texts with labels spread out evenly, which leaves room for about forty halvings between any two."""
        gap = (2 * _WIDEST // (len(self._texts) + 1)) & ~3
        return Labels.load(self._texts, [-_WIDEST + gap * (place + 1) for place in range(len(self._texts))])

    def move(self, keys: Array, other: Labels) -> Array:
        """Keys of these labels as keys of `other`, which has the same texts."""
        if not self._labels:
            return keys
        mine, theirs = np.array(self._labels), np.array(other._labels)
        place = np.searchsorted(mine, keys, "right") - 1
        moved = np.where(place < 0, keys, theirs[place] + (keys - mine[place]))
        return np.where((keys <= LOWEST + 1) | (keys >= HIGHEST), keys, moved)

    def dump(self) -> tuple[list[str], list[int]]:
        """Texts and labels, to be stored."""
        return self._texts, self._labels

    @classmethod
    def load(cls, texts: list[str], labels: list[int]) -> Labels:
        """Undo `dump`."""
        made = cls()
        made._texts, made._labels = list(texts), list(labels)
        return made


def _places_by_sorting(bounds: list[str], texts: pa.Array) -> Array:
    """How many bounds lie at or below each text: sort both together (Arrow does it in C++, stably) and count."""
    order = pc.sort_indices(pa.concat_arrays([pa.array(bounds, pa.large_string()), texts.cast(pa.large_string())]))
    order = order.to_numpy(zero_copy_only=False)
    is_bound = order < len(bounds)
    below = np.cumsum(is_bound)
    places = np.empty(len(texts), np.int64)
    places[order[~is_bound] - len(bounds)] = below[~is_bound]
    return places
