"""The slow one, obviously right: ask every filter. All others are measured against it.

Promises the contract, in the order of adding. Does not promise anything about time: it is linear in the filters.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from tocsin.filters.filter import Filter
from tocsin.filters.reference.contract import ADDED, NOT_ADDED, NOT_REMOVED, REMOVED, Outcome
from tocsin.model import Event

__all__ = ["LinearScan"]


class LinearScan:
    """A dictionary of filters and a loop over it."""

    def __init__(self) -> None:
        """Start empty."""
        self._filters: dict[Any, Filter] = {}
        self.candidates = 0
        """Filters tested by the last match."""

    def add(self, key: Hashable, filter: Filter) -> Outcome:
        """Put a filter in under a key; NOT_ADDED if the key is taken."""
        if key in self._filters:
            return NOT_ADDED
        self._filters[key] = filter
        return ADDED

    def remove(self, key: Hashable) -> Outcome:
        """Take a key out; NOT_REMOVED if it is unknown."""
        return NOT_REMOVED if self._filters.pop(key, None) is None else REMOVED

    def match(self, event: Event) -> list[Any]:
        """Return the keys whose filters are true for the event."""
        self.candidates = len(self._filters)
        return [key for key, filter in self._filters.items() if filter.matches(event)]

    def __len__(self) -> int:
        """How many keys are in."""
        return len(self._filters)

    def stats(self) -> dict[str, Any]:
        """Entries, and candidates of the last match: all of them."""
        return {"entries": len(self._filters), "nodes": 0, "candidates": self.candidates}
