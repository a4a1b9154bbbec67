"""What every reference structure does: keys with filters go in, an event comes, the keys that match come out.

Promises, for each structure:
    - `match` returns exactly the keys whose filter is true for the event, each once, in no particular order.
    - `add` and `remove` are idempotent: doing either twice changes nothing, and says so.
    - `stats()["candidates"]` counts the filters tested by the last `match`: a structure that scans cannot hide it.

Does not promise: speed, or safety when threads share one structure.
"""

from __future__ import annotations

import enum
from collections.abc import Hashable
from typing import Any, Final, Protocol

from tocsin.filters.filter import Filter
from tocsin.model import Event

__all__ = ["ADDED", "NOT_ADDED", "NOT_REMOVED", "REMOVED", "Outcome", "Structure"]


class Outcome(enum.Enum):
    """What became of a request (thesis §6.2.1; its third answer, FORWARDED, belongs to the distributed tree)."""

    ADDED = "added"
    NOT_ADDED = "not added"
    """The key is there already; its filter stays as it was, also if the new one differs."""
    REMOVED = "removed"
    NOT_REMOVED = "not removed"
    """There is no such key."""


ADDED: Final = Outcome.ADDED
NOT_ADDED: Final = Outcome.NOT_ADDED
REMOVED: Final = Outcome.REMOVED
NOT_REMOVED: Final = Outcome.NOT_REMOVED


class Structure(Protocol):
    """A set of filters under keys, to be asked which of them an event matches."""

    def add(self, key: Hashable, filter: Filter) -> Outcome:
        """Put a filter in under a key: ADDED, or NOT_ADDED if the key is taken."""
        ...

    def remove(self, key: Hashable) -> Outcome:
        """Take a key out: REMOVED, or NOT_REMOVED if it is unknown."""
        ...

    def match(self, event: Event) -> list[Any]:
        """Return the keys whose filters are true for the event, each once."""
        ...

    def __len__(self) -> int:
        """How many keys are in."""
        ...

    def stats(self) -> dict[str, Any]:
        """Sizes by name: at least `entries`, `nodes` and `candidates` (tests made by the last match)."""
        ...
