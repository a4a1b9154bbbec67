"""How the filters that Spark matches are divided into shards: told by whoever matches, shown to whoever asks."""

from __future__ import annotations

from datetime import datetime

import msgspec

__all__ = ["Divided", "Relaid", "ShardStatus"]


class ShardStatus(msgspec.Struct, frozen=True):
    """One shard, as it was last measured."""

    name: str
    """Which keys it holds: `1 of 6`."""
    filters: int | None = None
    """None: not measured since the layout changed or the query began; so the next two."""
    events: int | None = None
    seconds: tuple[float, ...] = ()
    """How long it was busy in each of the last batches, the newest last."""


class Relaid(msgspec.Struct, frozen=True):
    """A change of the layout."""

    version: int
    """Of the filter set: batches of this version and later ones have it."""
    time: datetime
    what: str


class Divided(msgspec.Struct, frozen=True):
    """How a filter set is divided, and how busy its shards are."""

    version: int
    """The set's newest."""
    shards: tuple[ShardStatus, ...]
    measured: datetime | None = None
    """When an elastic query last reported; None: none has."""
    splits: int = 0
    """How many the query made, since it began."""
    merges: int = 0
    changes: tuple[Relaid, ...] = ()
    """Its last changes, the newest last."""
