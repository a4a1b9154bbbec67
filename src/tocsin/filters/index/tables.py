"""Tables of conjunctions as plain arrays: join them, pick rows, renumber codes. Pure NumPy."""

from __future__ import annotations

import msgspec
import numpy as np

from tocsin.filters.index.layout import CONJUNCTION_COLUMNS, Array
from tocsin.filters.index.space import WITHIN_CUTS

__all__ = ["Tables", "empty_tables", "join_tables", "ragged", "recode", "take_rows"]


class Tables(msgspec.Struct, frozen=True):
    """Finished tables: arrays by column name, and the residues of the rows that have some."""

    arrays: dict[str, Array]
    residues: dict[int, tuple[str, ...]]

    @property
    def flags(self) -> Array:
        """One flag byte for each row."""
        return self.arrays["flags"]


def empty_tables() -> Tables:
    """No rows."""
    arrays = {name: np.zeros(1 if name.endswith("_starts") else 0, dtype) for name, dtype in CONJUNCTION_COLUMNS.items()}
    return Tables(arrays, {})


def ragged(starts: Array) -> Array:
    """For each item of a ragged column, the row it belongs to."""
    return np.repeat(np.arange(len(starts) - 1), np.diff(starts))


def _spread(firsts: Array, sizes: Array) -> Array:
    """Indices of all items of stretches that begin at `firsts` and have `sizes`."""
    ends = np.cumsum(sizes)
    total = int(ends[-1]) if len(ends) else 0
    return np.repeat(firsts - (ends - sizes), sizes) + np.arange(total)


def _starts(sizes: Array) -> Array:
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)


def join_tables(parts: list[Tables]) -> Tables:
    """Put tables one below the other."""
    if len(parts) == 1:
        return parts[0]
    arrays: dict[str, Array] = {}
    for name in CONJUNCTION_COLUMNS:
        if name.endswith("_starts"):
            sizes = np.concatenate([np.diff(part.arrays[name]) for part in parts])
            arrays[name] = _starts(sizes)
        elif name == "set_firsts":
            moved, codes, cuts = [], 0, 0
            for part in parts:
                in_cuts = part.arrays["set_operations"] == WITHIN_CUTS
                moved.append(part.arrays[name] + np.where(in_cuts, cuts, codes).astype(np.int32))
                codes += len(part.arrays["pool_codes"])
                cuts += len(part.arrays["pool_cuts"])
            arrays[name] = np.concatenate(moved)
        else:
            arrays[name] = np.concatenate([part.arrays[name] for part in parts])
    residues: dict[int, tuple[str, ...]] = {}
    base = 0
    for part in parts:
        residues.update({base + row: texts for row, texts in part.residues.items()})
        base += len(part.flags)
    return Tables(arrays, residues)


def take_rows(tables: Tables, rows: Array) -> Tables:
    """Pick rows, in the order given."""
    old = tables.arrays
    new: dict[str, Array] = {}
    for starts, columns in (
        ("code_starts", ("codes",)),
        ("range_starts", ("range_dimensions", "range_lows", "range_highs")),
        ("set_starts", ("set_dimensions", "set_operations", "set_firsts", "set_sizes")),
    ):
        firsts = old[starts][:-1][rows]
        sizes = np.diff(old[starts])[rows]
        new[starts] = _starts(sizes)
        items = _spread(firsts, sizes)
        for column in columns:
            new[column] = old[column][items]
    in_cuts = new["set_operations"] == WITHIN_CUTS
    firsts = np.zeros(len(in_cuts), np.int32)
    for pool, mine in (("pool_codes", ~in_cuts), ("pool_cuts", in_cuts)):
        sizes = new["set_sizes"][mine]
        new[pool] = old[pool][_spread(new["set_firsts"][mine], sizes)]
        firsts[mine] = _starts(sizes)[:-1]
    new["set_firsts"] = firsts
    new["entries"], new["flags"] = old["entries"][rows], old["flags"][rows]
    residues: dict[int, tuple[str, ...]] = {}
    if tables.residues:
        for place, row in enumerate(rows.tolist()):
            if row in tables.residues:
                residues[place] = tables.residues[row]
    return Tables({name: new[name] for name in CONJUNCTION_COLUMNS}, residues)


def recode(tables: Tables, moved: Array) -> Tables:
    """Replace codes by their new numbers; lists of codes stay sorted because numbers keep their order."""
    arrays = dict(tables.arrays)
    arrays["codes"] = moved[arrays["codes"]]
    arrays["pool_codes"] = moved[arrays["pool_codes"]]
    return Tables(arrays, tables.residues)
