"""A matcher as bytes: to ship it to Spark's executors, or to keep it.

MessagePack around raw little-endian arrays: the tables of conjunctions, the dictionaries behind their codes, the keys, and
what was learnt about events. The sorted postings are not stored: building them anew takes about a microsecond a filter.
Never pickle; a damaged or foreign text of bytes raises `MatcherError`.
"""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

from tocsin.errors import MatcherError, TocsinError
from tocsin.filters.index.layout import CONJUNCTION_COLUMNS, Array
from tocsin.filters.index.registry import Registry
from tocsin.filters.index.space import Labels, Space
from tocsin.filters.index.tables import Tables
from tocsin.filters.index.view import Observed, View
from tocsin.filters.language import parse

__all__ = ["dump", "load"]

_MAGIC = b"tocsin-matcher\x01"


class _Stored(msgspec.Struct):
    tables: dict[str, bytes]
    residues: dict[int, tuple[str, ...]]
    keys: list[Any]
    digests: bytes
    coded: list[tuple[str, str, int]]
    ordered: list[tuple[str, str, list[str] | None, list[int] | None]]
    terms: list[str]
    code_values: list[Any]
    code_owner: bytes
    code_counts: bytes
    sampled: int
    key_counts: bytes
    key_samples: bytes


def dump(registry: Registry, view: View) -> bytes:
    """Store everything behind a view whose delta is empty."""
    assert view.segment is not None
    space, observed = view.space, view.observed
    live = view.segment.tables
    return _MAGIC + msgspec.msgpack.encode(
        _Stored(
            tables={name: _raw(live.arrays[name]) for name in CONJUNCTION_COLUMNS},
            residues=live.residues,
            keys=registry.keys,
            digests=_raw(registry.digests),
            coded=[(dimension.term, dimension.test, dimension.other) for dimension in space.coded],
            ordered=[(o.term, o.kind, *(o.labels.dump() if o.labels is not None else (None, None))) for o in space.ordered],
            terms=list(space.terms),
            code_values=space.code_values,
            code_owner=_raw(np.array(space.code_owner, np.int32)),
            code_counts=_raw(observed.code_counts.used),
            sampled=int(observed.sampled[0]),
            key_counts=_raw(observed.key_counts.used),
            key_samples=_raw(observed.key_samples.used),
        )
    )


def _raw(array: Array) -> bytes:
    return np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<"), copy=False).tobytes()


def _array(raw: bytes, dtype: Any) -> Array:
    return np.frombuffer(raw, np.dtype(dtype).newbyteorder("<")).astype(dtype)


def load(stored: bytes) -> tuple[Registry, Space, Observed, Tables]:
    """Read what `dump` wrote.

    Raises:
        MatcherError: not a matcher, another version, or damaged.
    """
    if not bytes(stored[: len(_MAGIC)]) == _MAGIC:
        raise MatcherError("these bytes are not a stored matcher of this version", help="make them with Matcher.to_bytes()")
    try:
        parts = msgspec.msgpack.decode(memoryview(stored)[len(_MAGIC) :], type=_Stored)
        return _restore(parts)
    except (msgspec.MsgspecError, ValueError, IndexError, KeyError, TypeError, TocsinError) as error:
        raise MatcherError(f"the stored matcher is damaged ({error})", help="make it again with Matcher.to_bytes()") from None


def _restore(parts: _Stored) -> tuple[Registry, Space, Observed, Tables]:
    tables = Tables({name: _array(parts.tables[name], dtype) for name, dtype in CONJUNCTION_COLUMNS.items()}, parts.residues)
    space = _space(parts)
    observed = Observed()
    observed.reserve(len(space.code_values), len(space.ordered))
    for name in ("code_counts", "key_counts", "key_samples"):
        column = getattr(observed, name)
        found = _array(getattr(parts, name), column.data.dtype)
        column.data[: len(found)] = found
    observed.sampled[0] = parts.sampled
    _check(tables, space, len(parts.keys))
    return Registry.restored(parts.keys, _array(parts.digests, np.uint64)), space, observed, tables


def _space(parts: _Stored) -> Space:
    space = Space()
    for term in parts.terms:
        space.restore_term(term, parse(f"{term} IS NULL"))
    for term, test, _ in parts.coded:
        space.restore_coded(term, test)
    for code, (owner, value) in enumerate(zip(_array(parts.code_owner, np.int32).tolist(), parts.code_values, strict=True)):
        dimension = space.coded[owner]
        is_other = code == parts.coded[owner][2]
        space.restore_code(dimension, value, is_other)
    for term, kind, texts, labels in parts.ordered:
        space.restore_ordered(term, kind, Labels.load(texts, labels) if texts is not None and labels is not None else None)
    space.residues = {text: parse(text) for texts in parts.residues.values() for text in texts}
    return space


def _check(tables: Tables, space: Space, entries: int) -> None:
    """Numbers that lead outside the arrays would crash a kernel: refuse them here."""
    arrays = tables.arrays
    rows = len(tables.flags)
    within = {
        "codes": len(space.code_values),
        "pool_codes": len(space.code_values),
        "range_dimensions": len(space.ordered),
        "entries": entries,
    }
    for name, end in within.items():
        if len(arrays[name]) and not (arrays[name].min() >= 0 and arrays[name].max() < end):
            raise ValueError(f"{name} out of range")
    for starts, items in (("code_starts", "codes"), ("range_starts", "range_lows"), ("set_starts", "set_sizes")):
        found = arrays[starts]
        if len(found) != rows + 1 or found[0] != 0 or found[-1] != len(arrays[items]) or (np.diff(found) < 0).any():
            raise ValueError(f"{starts} do not fit")
    for name, other in (("range_lows", "range_highs"), ("range_lows", "range_dimensions"), ("set_sizes", "set_firsts"),
                        ("set_sizes", "set_operations"), ("set_sizes", "set_dimensions"), ("flags", "entries")):  # fmt: skip
        if len(arrays[name]) != len(arrays[other]):
            raise ValueError(f"{name} and {other} differ in length")
    in_cuts = arrays["set_operations"] == 2
    ends = arrays["set_firsts"].astype(np.int64) + arrays["set_sizes"]
    for pool, dimensions, mine in (("pool_cuts", len(space.ordered), in_cuts), ("pool_codes", len(space.coded), ~in_cuts)):
        if mine.any() and not (
            arrays["set_firsts"][mine].min() >= 0
            and arrays["set_sizes"][mine].min() >= 0
            and ends[mine].max() <= len(arrays[pool])
            and 0 <= arrays["set_dimensions"][mine].min()
            and arrays["set_dimensions"][mine].max() < dimensions
        ):
            raise ValueError(f"sets lead outside {pool}")


