"""A matcher as bytes: to ship it to Spark's executors, or to keep it.

MessagePack around raw little-endian arrays: the stream of conjunctions, the dictionaries behind their codes, the keys,
and what was learnt about events. The sorted postings are not stored: building them anew takes about a microsecond a
filter. Never pickle; a damaged or foreign text of bytes raises `MatcherError`.
"""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec
import numpy as np

from tocsin.errors import MatcherError, TocsinError
from tocsin.filters.index.labels import Labels
from tocsin.filters.index.layout import CODE_WORDS, HEAD_WORDS, RANGE_WORDS, SET_HEAD_WORDS, Array
from tocsin.filters.index.registry import Registry, Shared
from tocsin.filters.index.space import WITHIN_CUTS, Space
from tocsin.filters.index.tables import Tables, spread, take_apart
from tocsin.filters.index.view import Observed, View
from tocsin.filters.language import parse

__all__ = ["dump", "load"]

_MAGIC = b"tocsin-matcher\x01"


class _Stored(msgspec.Struct):
    stream: bytes
    places: bytes
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
    stored = msgspec.msgpack.encode(
        _Stored(
            stream=_raw(live.stream),
            places=_raw(live.places),
            residues=live.residues,
            keys=[_pack_key(list(key) if isinstance(key, Shared) else key) for key in registry.keys],
            digests=_raw(registry.digests),
            coded=[(dimension.term, dimension.test, dimension.other) for dimension in space.coded],
            ordered=[
                (o.term, o.kind, *(o.labels.dump() if o.labels is not None else (None, None))) for o in space.ordered
            ],
            terms=list(space.terms),
            code_values=space.code_values,
            code_owner=_raw(np.array(space.code_owner, np.int32)),
            code_counts=_raw(observed.code_counts.used),
            sampled=int(observed.sampled[0]),
            key_counts=_raw(observed.key_counts.used),
            key_samples=_raw(observed.key_samples.used),
        )
    )
    return _MAGIC + _checksum(stored) + stored


def _checksum(stored: bytes | memoryview) -> bytes:
    return hashlib.blake2b(stored, digest_size=16).digest()


def _pack_key(key: Any) -> Any:
    """MessagePack has whole numbers of 64 bits; Python's longer ones travel as text in a map."""
    if isinstance(key, list):
        return [_pack_key(one) for one in key]
    return {"int": str(key)} if isinstance(key, int) and not -(2**63) <= key < 2**63 else key


def _unpack_key(key: Any) -> Any:
    if isinstance(key, list):
        return [_unpack_key(one) for one in key]
    return int(key["int"]) if isinstance(key, dict) else key


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
        raise MatcherError(
            "these bytes are not a stored matcher of this version", help="make them with Matcher.to_bytes()"
        )
    try:
        body = memoryview(stored)[len(_MAGIC) :]
        if _checksum(body[16:]) != bytes(body[:16]):
            raise ValueError("its checksum does not fit")
        parts = msgspec.msgpack.decode(body[16:], type=_Stored)
        return _restore(parts)
    except (msgspec.MsgspecError, ValueError, IndexError, KeyError, TypeError, TocsinError) as error:
        raise MatcherError(
            f"the stored matcher is damaged ({error})", help="make it again with Matcher.to_bytes()"
        ) from None


def _restore(parts: _Stored) -> tuple[Registry, Space, Observed, Tables]:
    tables = Tables(_array(parts.stream, np.int32), _array(parts.places, np.int32), parts.residues)
    space = _space(parts)
    observed = Observed()
    observed.reserve(len(space.code_values), len(space.ordered))
    for name in ("code_counts", "key_counts", "key_samples"):
        column = getattr(observed, name)
        found = _array(getattr(parts, name), column.data.dtype)
        column.data[: len(found)] = found
    observed.sampled[0] = parts.sampled
    _check(tables, space, len(parts.keys))
    return (
        Registry.restored([_unpack_key(key) for key in parts.keys], _array(parts.digests, np.uint64)),
        space,
        observed,
        tables,
    )


def _space(parts: _Stored) -> Space:
    space = Space()
    for term in parts.terms:
        space.restore_term(term, parse(f"{term} IS NULL"))
    for term, test, _ in parts.coded:
        space.restore_coded(term, test)
    for code, (owner, value) in enumerate(
        zip(_array(parts.code_owner, np.int32).tolist(), parts.code_values, strict=True)
    ):
        dimension = space.coded[owner]
        is_other = code == parts.coded[owner][2]
        space.restore_code(dimension, value, is_other)
    for term, kind, texts, labels in parts.ordered:
        space.restore_ordered(
            term, kind, Labels.load(texts, labels) if texts is not None and labels is not None else None
        )
    space.residues = {text: parse(text) for texts in parts.residues.values() for text in texts}
    return space


def _check(tables: Tables, space: Space, entries: int) -> None:
    """Numbers that lead outside the arrays would crash a kernel: refuse them here."""
    stream, places = tables.stream, tables.places
    if len(places) and (places[0] != 0 or (np.diff(places) <= 0).any() or places[-1] + HEAD_WORDS > len(stream)):
        raise ValueError("records are out of order")
    if not len(places) and len(stream):
        raise ValueError("words outside records")
    parts = take_apart(stream, places)
    _within("entries", tables.entries, 0, entries)
    _within("codes", parts.codes, 0, len(space.code_values))
    _within("dimensions of codes", parts.code_dimension, -1, len(space.coded))
    _within("dimensions of ranges", parts.range_dimension, 0, len(space.ordered))
    in_cuts = parts.set_operation == WITHIN_CUTS
    _within("operations", parts.set_operation, 0, 3)
    _within("dimensions of cuts", parts.set_dimension[in_cuts], 0, len(space.ordered))
    _within("dimensions of sets", parts.set_dimension[~in_cuts], 0, len(space.coded))
    _within("sizes of sets", parts.set_size, 0, len(stream))
    words = np.where(in_cuts, 2, 1) * parts.set_size.astype(np.int64)
    _within("ends of sets", parts.set_at + words, 0, len(stream) + 1)
    _within("listed codes", stream[spread(parts.set_at[~in_cuts], parts.set_size[~in_cuts])], 0, len(space.code_values))
    ends = places.astype(np.int64) + HEAD_WORDS
    ends += CODE_WORDS * np.bincount(parts.code_row, minlength=len(places)) + RANGE_WORDS * np.bincount(
        parts.range_row, minlength=len(places)
    )
    np.add.at(ends, parts.set_row, SET_HEAD_WORDS + words)
    if (ends != np.append(places[1:], len(stream))[: len(places)]).any():
        raise ValueError("records overlap")


def _within(what: str, numbers: Array, first: int, end: int) -> None:
    if len(numbers) and not (numbers.min() >= first and numbers.max() < end):
        raise ValueError(f"{what} out of range")
