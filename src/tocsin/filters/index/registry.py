"""Who is behind an entry: keys, identical filters, and where an entry's conjunctions stand.

An *entry* is one distinct filter; keys with identical filters share it. Identity is a 128-bit digest of the normal
form, kept in sorted arrays (28 bytes a filter) plus a dictionary for those added since the last build.

Concurrency: written under the matcher's lock. Readers look up `keys[entry]`, which is None for an entry just removed. A
removed entry's number is used again only after the next build, when no conjunction refers to it any more.
"""

from __future__ import annotations

import hashlib
import struct
from bisect import bisect_left
from typing import Any

import msgspec
import numpy as np

from tocsin.errors import MatcherError
from tocsin.filters.index.layout import MULTIPLE, Array, Column
from tocsin.filters.index.tables import Tables
from tocsin.filters.normal import NormalForm

__all__ = ["NO_ROWS", "Key", "Registry", "Shared", "check_key", "digest", "flat", "not_an_event"]

Key = str | int
NO_ROWS = -(2**31)
"""Place of an entry that is never true and so has no conjunctions."""

_words = struct.Struct("=QQ").unpack
_encode = msgspec.msgpack.Encoder().encode


def digest(form: NormalForm) -> bytes:
    """Identity of a filter: equal digests mean equal normal forms."""
    return hashlib.blake2b(_encode(form.key()), digest_size=16).digest()


def check_key(key: object) -> None:
    """Refuse what cannot be a key.

    Raises:
        MatcherError: neither text nor a whole number, or one that could not be stored.
    """
    if type(key) is str:
        if not key.isascii():
            try:
                key.encode()
            except UnicodeEncodeError:
                raise MatcherError(
                    f"the key {key!r} is not proper Unicode", help="it holds half of a character"
                ) from None
    elif type(key) is not int:
        raise MatcherError(f"a key is text or a whole number, not {type(key).__name__}", help="use str(key)")
    elif key.bit_length() > 1024:
        raise MatcherError(f"the key has {key.bit_length():,} bits, 1,024 are allowed", help="use a text")


def not_an_event(found: object) -> MatcherError:
    """The error for something that should have been an event."""
    return MatcherError(f"an event is expected, not {type(found).__name__}", help="make one: Event(type, source, …)")


class Shared(dict[Key, None]):
    """Several keys behind one entry, in order: a dictionary, since one popular filter may have thousands.

    Changed in place. Readers take all keys with one operation (`list.extend`), which no other thread can interrupt.
    """


def flat(found: list[Any]) -> list[Key]:
    """Put shared keys in line, and drop what was removed while we matched."""
    keys: list[Key] = []
    for key in found:
        if isinstance(key, Shared):
            keys.extend(key)
        elif key is not None:
            keys.append(key)
    return keys


class Registry:
    """Keys ↔ entries ↔ rows."""

    def __init__(self) -> None:
        """No keys yet."""
        self.keys: list[Any] = []  # entry → key, Shared, or None
        self.entry_of: dict[Key, int] = {}
        self._is_shared = Column(np.uint8)
        self.changes = 0
        """Grows with every entry made and every key attached or detached."""
        self._rows = Column(np.int32)
        self._other_rows: dict[int, list[int]] = {}
        self._digests = Column(np.uint64)
        # Entries of the last build in the order of their digests; none that may be used again, so the order holds.
        self._by_digest: Any = memoryview(b"")
        self._sorted_digests: Any = memoryview(b"")  # the first words of their digests
        self._recent: dict[bytes, int] = {}
        self._free: list[int] = []
        self._removed: list[int] = []

    def __len__(self) -> int:
        """The number of keys."""
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
            made.keys.append(None)
            if key is None:
                made._free.append(entry)
            for name in key if isinstance(key, list) else [key]:
                if name is not None:
                    made.attach(name, entry)
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
        if entry is not None and self.keys[entry] is not None:  # else it was removed; its number is not used again yet
            return entry
        word = _words(identity)[0]
        place = bisect_left(self._sorted_digests, word)
        while place < len(self._sorted_digests) and self._sorted_digests[place] == word:
            entry = int(self._by_digest[place])
            if self._identity(entry) == identity and self.keys[entry] is not None:
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
        self.changes += 1
        if self._free:
            entry = self._free.pop()
        else:
            entry = len(self.keys)
            self.keys.append(None)
            self._rows.reserve(entry + 1)
            self._digests.reserve(2 * entry + 2)
            self._rows.size, self._digests.size = entry + 1, 2 * entry + 2
        digests = self._digests.view
        digests[2 * entry], digests[2 * entry + 1] = _words(identity)
        self._rows.view[entry] = NO_ROWS
        self._other_rows.pop(entry, None)
        self._recent[identity] = entry
        return entry

    # -- keys

    def attach(self, key: Key, entry: int) -> None:
        """Put a key behind an entry."""
        self.changes += 1
        self.entry_of[key] = entry
        present = self.keys[entry]
        if present is None:
            self.keys[entry] = key
            return
        self._is_shared.reserve(entry + 1)
        self._is_shared.view[entry] = 1
        self._is_shared.size = max(self._is_shared.size, entry + 1)
        if present.__class__ is Shared:
            present[key] = None
        else:
            self.keys[entry] = Shared.fromkeys((present, key))

    def detach(self, key: Key, entry: int) -> bool:
        """Take a key away from its entry; True if that has no keys left now."""
        self.changes += 1
        del self.entry_of[key]
        present = self.keys[entry]
        if present.__class__ is not Shared:
            self.keys[entry] = None
            self._removed.append(entry)
            return True
        del present[key]
        if len(present) == 1:
            self.keys[entry] = next(iter(present))
        return False

    def are_shared(self, entries: Array) -> Array:
        """Which of these entries have (or had) several keys?"""
        known = self._is_shared
        shared: Array = (entries < known.size) & (known.data[np.minimum(entries, len(known.data) - 1)] != 0)
        return shared

    def shared_entries(self) -> list[int]:
        """Entries that have (or had) several keys."""
        found: list[int] = np.flatnonzero(self._is_shared.used).tolist()
        return found

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
        kept = np.ones(len(self.keys), bool)
        kept[self._free] = False
        live = np.flatnonzero(kept).astype(np.int32)
        firsts = self._digests.used[::2][live]
        order = np.argsort(firsts)
        self._by_digest, self._sorted_digests = live[order].data, firsts[order].data
        self._recent = {}

    @property
    def size_in_bytes(self) -> int:
        """Memory of the arrays."""
        columns = (self._rows, self._digests, self._is_shared)
        sorted_bytes: int = self._by_digest.nbytes + self._sorted_digests.nbytes
        return sum(column.data.nbytes for column in columns) + sorted_bytes

    @property
    def key_bytes(self) -> int:
        """Memory of Python's own: the list of keys, the dictionary from key to entry with its numbers; not the keys."""
        return (
            self.keys.__sizeof__()
            + self.entry_of.__sizeof__()
            + 32 * len(self.entry_of)
            + self._recent.__sizeof__()
            + 49 * len(self._recent)
        )
