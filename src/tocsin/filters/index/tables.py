"""Many records at once: join streams, pick and reorder records, take them apart into columns, renumber. Pure NumPy."""

from __future__ import annotations

import msgspec
import numpy as np

from tocsin.filters.index.layout import CODE_WORDS, FLAG_SHIFT, HEAD_WORDS, RANGE_WORDS, SET_HEAD_WORDS, Array
from tocsin.filters.index.space import WITHIN_CUTS, Space

__all__ = ["Parts", "Tables", "join_tables", "renumber", "spread", "take_apart", "take_records"]


class Tables(msgspec.Struct, frozen=True):
    """A finished stream: its words, where its records begin, and the residues of the records that have some."""

    stream: Array
    places: Array
    residues: dict[int, tuple[str, ...]]

    @property
    def flags(self) -> Array:
        """Flags of every record."""
        flags: Array = self.stream[self.places + 2] >> FLAG_SHIFT & 0xFF
        return flags

    @property
    def entries(self) -> Array:
        """Entry of every record."""
        return self.stream[self.places]


class Parts(msgspec.Struct, frozen=True):
    """Records taken apart. `*_row` is the number of the record (not its place), `*_at` a place in the stream."""

    rows: int
    code_row: Array
    code_dimension: Array
    codes: Array
    code_at: Array
    range_row: Array
    range_dimension: Array
    lows: Array
    highs: Array
    range_at: Array
    set_row: Array
    set_dimension: Array
    set_operation: Array
    set_size: Array
    set_at: Array  # of its first item


def spread(firsts: Array, sizes: Array) -> Array:
    """Indices of all items of stretches that begin at `firsts` and have `sizes`."""
    ends = np.cumsum(sizes)
    total = int(ends[-1]) if len(ends) else 0
    return np.repeat(firsts - (ends - sizes), sizes) + np.arange(total)


def join_tables(parts: list[Tables]) -> Tables:
    """Put streams one behind the other."""
    residues: dict[int, tuple[str, ...]] = {}
    places = []
    base = 0
    for part in parts:
        places.append(part.places + base)
        residues.update({base + place: texts for place, texts in part.residues.items()})
        base += len(part.stream)
    return Tables(np.concatenate([part.stream for part in parts]), np.concatenate(places).astype(np.int32), residues)


def take_records(tables: Tables, rows: Array) -> tuple[Tables, Array]:
    """Pick records by number, in the order given; returns the new tables and the new place of each."""
    sizes = np.diff(tables.places, append=np.int32(len(tables.stream)))[rows]
    firsts = tables.places[rows]
    places = (np.cumsum(sizes) - sizes).astype(np.int32)
    residues: dict[int, tuple[str, ...]] = {}
    if tables.residues:
        for old, new in zip(firsts.tolist(), places.tolist(), strict=True):
            if old in tables.residues:
                residues[new] = tables.residues[old]
    return Tables(tables.stream[spread(firsts, sizes)], places, residues), places


def take_apart(stream: Array, places: Array) -> Parts:
    """Split the records at `places` into columns."""
    rows = np.arange(len(places))
    counts = stream[places + 1]
    code_count, range_count = counts & 0xFFFF, counts >> 16 & 0xFFFF
    set_count = stream[places + 2] & 0xFF_FFFF
    at = places.astype(np.int64) + HEAD_WORDS
    code_row = np.repeat(rows, code_count)
    code_at = np.repeat(at, code_count) + CODE_WORDS * _steps(code_count)
    at = at + CODE_WORDS * code_count
    range_row = np.repeat(rows, range_count)
    range_at = np.repeat(at, range_count) + RANGE_WORDS * _steps(range_count)
    at = at + RANGE_WORDS * range_count
    set_rows, set_ats = [], []
    left = np.flatnonzero(set_count)
    done = 0
    while len(left):  # a set begins where the one before it ends, so they are found one per record at a time
        set_rows.append(left)
        set_ats.append(at[left] + SET_HEAD_WORDS)
        width = np.where(stream[at[left] + 1] == WITHIN_CUTS, 2, 1)
        at[left] += SET_HEAD_WORDS + width * stream[at[left] + 2]
        done += 1
        left = left[set_count[left] > done]
    set_row = np.concatenate(set_rows) if set_rows else np.zeros(0, np.int64)
    set_at = np.concatenate(set_ats) if set_ats else np.zeros(0, np.int64)
    return Parts(
        rows=len(places),
        code_row=code_row,
        code_dimension=stream[code_at],
        codes=stream[code_at + 1],
        code_at=code_at,
        range_row=range_row,
        range_dimension=stream[range_at],
        lows=_long(stream, range_at + 1, range_at + 3),
        highs=_long(stream, range_at + 2, range_at + 4),
        range_at=range_at,
        set_row=set_row,
        set_dimension=stream[set_at - 3],
        set_operation=stream[set_at - 2],
        set_size=stream[set_at - 1],
        set_at=set_at,
    )


def _steps(counts: Array) -> Array:
    """0, 1, … for each record anew."""
    steps: Array = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
    return steps


def _long(stream: Array, upper: Array, lower: Array) -> Array:
    return stream[upper].astype(np.int64) << 32 | stream[lower].view(np.uint32).astype(np.int64)


def _write_long(stream: Array, upper: Array, lower: Array, values: Array) -> None:
    stream[upper] = values >> 32
    stream[lower] = (values & 0xFFFF_FFFF).astype(np.uint32).view(np.int32)


def renumber(tables: Tables, moved: Array, old: Space, new: Space) -> Tables:
    """Rewrite codes and labels for a renumbered space; lists of codes stay sorted because numbers keep their order."""
    stream = tables.stream.copy()
    parts = take_apart(stream, tables.places)
    stream[parts.code_at + 1] = moved[parts.codes]
    listed = parts.set_operation != WITHIN_CUTS
    items = spread(parts.set_at[listed], parts.set_size[listed])
    stream[items] = moved[stream[items]]
    for before, after in zip(old.ordered, new.ordered, strict=True):
        if before.labels is None or after.labels is None:
            continue
        mine = parts.range_dimension == before.number
        at = parts.range_at[mine]
        _write_long(stream, at + 1, at + 3, before.labels.move(parts.lows[mine], after.labels))
        _write_long(stream, at + 2, at + 4, before.labels.move(parts.highs[mine], after.labels))
        cuts = ~listed & (parts.set_dimension == before.number)
        at = spread(parts.set_at[cuts], 2 * parts.set_size[cuts])[::2]
        _write_long(stream, at, at + 1, before.labels.move(_long(stream, at, at + 1), after.labels))
    return Tables(stream, tables.places, tables.residues)
