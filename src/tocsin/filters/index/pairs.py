"""Matches as pairs of columns: row numbers and keys. For whoever goes on in columns, as Spark does.

With a hundred keys to an event, making Python lists of them takes longer than finding them. Here the keys stand in one
Arrow array, made once and again only after filters changed, and an answer is taken from it by entry.

    entries ─▶ places in the array (several where filters are identical, none for what was just removed) ─▶ take

Concurrency: the array is made under the matcher's lock, so it holds every change that was finished. `changes` of the
registry says whether it is still true; a change under way bumps it first, and whoever sees that waits for the lock.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from tocsin.errors import MatcherError
from tocsin.filters.index.batch import Entries, ResidueCheck, in_chunks
from tocsin.filters.index.layout import Array
from tocsin.filters.index.live import LiveIndex
from tocsin.filters.index.registry import Registry, Shared
from tocsin.filters.index.tables import spread

__all__ = ["KeyColumn", "match_pairs"]


class _Names(NamedTuple):
    """All keys of a registry as it was after so many changes."""

    registry: Registry
    changes: int
    keys: pa.Array
    """The key of each entry (NULL where it has none or several), then the keys of those that have several."""
    odd: Array | None = None
    """Which entries have no key or several; None if none has."""
    starts: Array = np.empty(0, np.int64)
    """Where an entry's keys begin."""
    counts: Array = np.empty(0, np.int64)
    """How many an entry has."""


class KeyColumn:
    """The keys of a matcher as an Arrow array, kept until filters change."""

    def __init__(self, live: LiveIndex) -> None:
        """Nothing is made before it is needed."""
        self._live = live
        self._names: _Names | None = None

    @property
    def type(self) -> pa.DataType:
        """The type of the keys.

        Raises:
            MatcherError: keys are of both kinds, or too long.
        """
        return self._current().keys.type

    def pairs(self, registry: Registry, found: Entries) -> tuple[int, Array, pa.Array]:
        """Name the entries of a chunk: its size, the event of each pair in order, the key of each pair."""
        events, entries = found.events, found.entries
        if found.more:
            sizes = [len(more) for more in found.more.values()]
            late = np.repeat(np.fromiter(found.more, np.int64, len(found.more)), sizes)
            asked = np.array([entry for more in found.more.values() for entry in more], np.int64)
            events, entries = np.concatenate([events, late]), np.concatenate([entries, asked])
            order = np.argsort(events, kind="stable")
            events, entries = events[order], entries[order]
        names = self._current()
        if names.odd is not None and names.odd[entries].any():
            counts = names.counts[entries]
            events, entries = np.repeat(events, counts), spread(names.starts[entries], counts)
        return len(found.starts) - 1, events, names.keys.take(pa.array(entries))

    def _current(self) -> _Names:
        names, registry = self._names, self._live.registry
        if names is None or names.registry is not registry or names.changes != registry.changes:
            with self._live.lock:
                registry = self._live.registry
                names = self._names = _name_all(registry)
        return names


def _name_all(registry: Registry) -> _Names:
    """Write down every key. The registry must not change meanwhile."""
    single: list[Any] = list(registry.keys)
    shared = [entry for entry in registry.shared_entries() if single[entry].__class__ is Shared]
    several: list[Any] = []
    sizes = []
    for entry in shared:
        several.extend(single[entry])
        sizes.append(len(single[entry]))
        single[entry] = None
    kind = _kind(single, several)
    try:
        keys = pa.array(single, kind)
        if several:
            keys = pa.concat_arrays([keys, pa.array(several, kind)])
    except (pa.ArrowException, TypeError):
        raise MatcherError(
            "some keys are text and some are whole numbers: a column holds one kind",
            help="use str(key) for all, or match_batch()",
        ) from None
    except OverflowError:
        raise MatcherError("a key has more than 64 bits: no column holds it", help="use a text") from None
    if not keys.null_count:
        return _Names(registry, registry.changes, keys)
    starts = np.arange(len(single))
    counts = keys.is_valid().to_numpy(zero_copy_only=False)[: len(single)].astype(np.int64)
    if shared:
        counts[shared] = sizes
        starts[shared] = len(single) + np.cumsum(sizes) - sizes
    return _Names(registry, registry.changes, keys, counts != 1, starts, counts)


def _kind(*lists: list[Any]) -> pa.DataType:
    """The kind of the first key decides; without any key it is text."""
    for keys in lists:
        for key in keys:
            if key is not None:
                return pa.string() if isinstance(key, str) else pa.int64()
    return pa.string()


def match_pairs(live: LiveIndex, keys: KeyColumn, data: Any, residue_check: ResidueCheck) -> tuple[Array, pa.Array]:
    """See `Matcher.match_pairs`."""
    rows: list[Array] = [np.empty(0, np.int64)]
    columns: list[pa.Array] = []
    first = 0
    for count, events, names in in_chunks(live, data, keys.pairs, residue_check):
        if len(events):
            rows.append(np.add(events, first, dtype=np.int64))
            columns.append(names)
        first += count
    return np.concatenate(rows), pa.concat_arrays(columns) if columns else pa.array([], keys.type)
