"""Keys of ordered dimensions, and *labels*: numbers for texts that keep the order of the texts.

Filters name texts as ends of ranges (and prefixes are ranges). Each such text gets a label between those of its neighbours;
any other text, seen or unseen, then falls at a label, behind one, or before all, and that is its key. A range test on texts
is thereby a comparison of whole numbers, exact for texts no filter ever mentioned.

Concurrency: one writer. A reader checks a version number that is odd while labels change, and looks again.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Any

import numpy as np
import numpy.typing as npt

from tocsin.filters import intervals

__all__ = ["ABSENT", "HIGHEST", "LOWEST", "CrowdedError", "Labels"]

ABSENT = -(2**63)
"""The key of a missing value: below every `low`, so that a missing value passes no range test."""
LOWEST, HIGHEST = ABSENT + 1, 2**63 - 2  # a cut just behind the highest must still be a machine word

_GAP = 2**32  # distance of a label at either end from its neighbour
_WIDEST = 2**61  # labels stay within plus and minus this


class CrowdedError(Exception):
    """There is no number left between two labels: the space must be relabelled."""


class Labels:
    """Numbers for the texts that bound ranges, in the order of the texts."""

    def __init__(self) -> None:
        self.version = 0
        self._texts: list[str] = []
        self._labels: list[int] = []

    def __len__(self) -> int:
        return len(self._texts)

    def label(self, text: str) -> int:
        """Return the label of a bound, making one.

        Raises:
            CrowdedError: no room is left between its neighbours.
        """
        place = bisect_right(self._texts, text)
        if place and self._texts[place - 1] == text:
            return self._labels[place - 1]
        if place == len(self._texts):
            label = self._labels[-1] + _GAP if place else 0
        elif place == 0:
            label = self._labels[0] - _GAP
        else:
            low, high = self._labels[place - 1], self._labels[place]
            label = (low + high) // 2 & ~3
            if label - low < 4:
                raise CrowdedError
        if abs(label) > _WIDEST:
            raise CrowdedError
        self.version += 1
        self._texts.insert(place, text)
        self._labels.insert(place, label)
        self.version += 1
        return label

    def key(self, text: str) -> int:
        """The key of a value: at a bound (label + 1), behind one (label + 2), or before all."""
        while True:
            version = self.version
            if not version & 1:
                place = bisect_right(self._texts, text)
                if not place:
                    key = LOWEST + 1
                else:
                    try:
                        key = self._labels[place - 1] + (1 if self._texts[place - 1] == text else 2)
                    except IndexError:
                        continue
                if version == self.version:
                    return key

    def closed(self, cut: Any, high: bool) -> int:
        """The key that a cut allows first (as a low end) or last (as a high end)."""
        if cut == intervals.TOP_TEXT:
            return HIGHEST
        if cut == intervals.BOTTOM_TEXT:
            return LOWEST
        return self.label(cut[1]) + (cut[2] if high else 1 + cut[2])

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

    def move(self, keys: npt.NDArray[np.int64], other: Labels) -> npt.NDArray[np.int64]:
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
