"""Who is behind an entry: keys, identical filters, and where an entry's conjunctions stand.

An *entry* is one distinct filter; keys with identical filters share it. Identity is a 128-bit digest of the normal form, kept
in sorted arrays (20 bytes a filter) plus a dictionary for those added since the last build.

Concurrency: written under the matcher's lock. Readers look up `keys[entry]`, which is None for an entry just removed. A
removed entry's number is used again only after the next build, when no conjunction refers to it any more.
"""

from __future__ import annotations

import hashlib
import struct
from typing import Any

import msgspec
import numpy as np

from tocsin.filters.index.layout import MULTIPLE, Array, Column
from tocsin.filters.index.tables import Tables
from tocsin.filters.normal import NormalForm

__all__ = ["NO_ROWS", "Key", "Registry", "Shared", "digest"]

Key = str | int
NO_ROWS = -(2**31)
"""Place of an entry that is never true and so has no conjunctions."""

_words = struct.Struct("=QQ").unpack
_encode = msgspec.msgpack.Encoder().encode


def digest(form: NormalForm) -> bytes:
    """Identity of a filter: equal digests mean equal normal forms."""
    return hashlib.blake2b(_encode(form.key()), digest_size=16).digest()


class Shared(list[Key]):
    """Several keys behind one entry."""


class Registry:
    """Keys ↔ entries ↔ rows."""

    def __init__(self) -> None:
        self.keys: list[Any] = []  # entry → key, Shared, or None
        self.entry_of: dict[Key, int] = {}
        self.shared = 0
        """Entries with several keys: while there are none, results need not be flattened."""
        self._rows = Column(np.int32)
        self._other_rows: dict[int, list[int]] = {}
        self._digests = Column(np.uint64)
        self._sorted: Array = np.zeros(0, np.uint64)
        self._sorted_entries: Array = np.zeros(0, np.int32)
        self._recent: dict[bytes, int] = {}
        self._free: list[int] = []
        self._removed: list[int] = []

    def __len__(self) -> int:
        return len(self.entry_of)

    @property
    def entries(self) -> int:
        """Distinct filters."""
        return len(self.keys) - len(self._free) - len(self._removed)

    @classmethod
    def restored(cls, keys: list[Any], digests: Array) -> Registry:
        """Undo what `wire.dump` stored; rows come with the first build."""
        if len(digests) != 2 * len(keys):
            raise ValueError("keys and digests differ in number")
        made = cls()
        for entry, key in enumerate(keys):
            made.keys.append(Shared(key) if isinstance(key, list) else key)
            made.shared += isinstance(key, list)
            if key is None:
                made._free.append(entry)
            for name in key if isinstance(key, list) else [key]:
                if name is not None:
                    made.entry_of[name] = entry
        made._rows.extend([NO_ROWS] * len(keys))
        made._digests.extend(digests)
        return made

    @property
    def digests(self) -> Array:
        """Two machine words for each entry."""
        return self._digests.used

    # -- identity

    def find(self, identity: bytes) -> int | None:
        """The live entry with this identity."""
        entry = self._recent.get(identity)
        if entry is not None:
            return entry
        if not len(self._sorted):
            return None
        high, low = np.frombuffer(identity, np.uint64)
        place = int(self._sorted.searchsorted(high))
        while place < len(self._sorted) and self._sorted[place] == high:
            entry = int(self._sorted_entries[place])
            if self._digests.data[2 * entry + 1] == low and self._digests.data[2 * entry] == high and self.keys[entry] is not None:
                return entry
            place += 1
        return None

    def has_identity(self, entry: int, identity: bytes) -> bool:
        """Is this the entry's identity?"""
        return self._identity(entry) == identity

    def _identity(self, entry: int) -> bytes:
        return self._digests.data[2 * entry : 2 * entry + 2].tobytes()

    def new_entry(self, identity: bytes) -> int:
        """Make an entry; it has no keys and no rows yet."""
        if self._free:
            entry = self._free.pop()
        else:
            entry = len(self.keys)
            self.keys.append(None)
            self._rows.reserve(entry + 1)
            self._digests.reserve(2 * entry + 2)
            self._rows.size, self._digests.size = entry + 1, 2 * entry + 2
        self._digests.view[2 * entry], self._digests.view[2 * entry + 1] = _words(identity)
        self._rows.view[entry] = NO_ROWS
        self._other_rows.pop(entry, None)
        self._recent[identity] = entry
        return entry

    # -- keys

    def attach(self, key: Key, entry: int) -> None:
        """Put a key behind an entry."""
        self.entry_of[key] = entry
        present = self.keys[entry]
        if present is None:
            self.keys[entry] = key
        elif isinstance(present, Shared):
            self.keys[entry] = Shared([*present, key])
        else:
            self.keys[entry] = Shared([present, key])
            self.shared += 1

    def detach(self, key: Key) -> int | None:
        """Take a key away; returns its entry if that has no keys left now."""
        entry = self.entry_of.pop(key)
        present = self.keys[entry]
        if not isinstance(present, Shared):
            self.keys[entry] = None
            self._removed.append(entry)
            if self._recent:
                self._recent.pop(self._identity(entry), None)
            return entry
        rest = [other for other in present if other != key]
        self.keys[entry] = Shared(rest) if len(rest) > 1 else rest[0]
        self.shared -= len(rest) == 1
        return None

    # -- rows

    def rows(self, entry: int) -> list[int]:
        """Places of an entry's conjunctions: in the segment, or -1 - place in the delta."""
        first = self._rows.view[entry]
        if first == NO_ROWS:
            return []
        return [first, *self._other_rows[entry]] if entry in self._other_rows else [first]

    def add_row(self, entry: int, row: int) -> None:
        """Note where another conjunction of an entry stands."""
        if self._rows.view[entry] == NO_ROWS:
            self._rows.view[entry] = row
        else:
            self._other_rows.setdefault(entry, []).append(row)

    def removed_since(self, mark: int) -> list[int]:
        """Entries removed since there were `mark` of them in the list."""
        return self._removed[mark:]

    @property
    def removed_mark(self) -> int:
        """How many entries wait to be used again."""
        return len(self._removed)

    def after_build(self, tables: Tables, removed_mark: int) -> None:
        """Take over the places in a new segment; entries removed before it was begun are free again."""
        entries, places = tables.entries, tables.places
        freed = self._removed[:removed_mark]
        self._removed = self._removed[removed_mark:]
        self._free.extend(freed)
        self._rows.data[: len(self.keys)] = NO_ROWS
        self._rows.data[entries[::-1]] = places[::-1]
        self._other_rows = {}
        several = tables.flags & MULTIPLE != 0
        for entry, place in zip(entries[several].tolist(), places[several].tolist(), strict=True):
            if self._rows.view[entry] != place:
                self._other_rows.setdefault(entry, []).append(place)
        high = self._digests.used[::2]
        self._sorted_entries = np.argsort(high).astype(np.int32)
        self._sorted = high[self._sorted_entries]
        self._recent = {}

    @property
    def size_in_bytes(self) -> int:
        """Memory held, without the keys themselves: arrays, the key dictionary and its whole numbers, the key list."""
        arrays = (self._rows.data, self._digests.data, self._sorted, self._sorted_entries)
        return (
            sum(array.nbytes for array in arrays)
            + self.entry_of.__sizeof__()
            + 32 * len(self.entry_of)
            + self.keys.__sizeof__()
            + self._recent.__sizeof__()
            + 49 * len(self._recent)
        )
