"""The baselines: no index at all, every filter tested for every event by a compiled loop.

Both take their numbers from the matcher's encoder, so all pay the same for reading an event. `RecordScan` asks the
matcher's own verifier of every record: the scan of the experiment our goals come from. `FlatScan` shares no matching
code: its own columns, its own kernel, and a test that fails ends a filter's turn; it is about twice as quick, and the
oracle.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

from tocsin import Event, Matcher
from tocsin.filters.index.kernels import _double_key, _holds
from tocsin.filters.index.labels import ABSENT, NO_KEY
from tocsin.filters.index.registry import flat
from tocsin.filters.index.tables import take_apart
from tocsin.filters.index.view import Scratch

__all__ = ["FlatScan", "RecordScan"]

Array = npt.NDArray[Any]


class FlatScan:
    """All filters of a matcher, scanned. The matcher must have been optimised and not changed since."""

    def __init__(self, matcher: Matcher) -> None:
        live = matcher._live
        view, segment = live.view, live.view.segment
        assert segment is not None and not len(view.delta)
        assert not segment.tables.residues, "the workload has only tests that arrays can hold"
        self._names = live.registry.keys
        scratch = self._scratch = Scratch(view, live.registry)
        parts = take_apart(segment.tables.stream, segment.tables.places)
        order = np.argsort(parts.set_row, kind="stable")
        items = [
            segment.tables.stream[at : at + size].astype(np.int64)
            for at, size in zip(parts.set_at[order].tolist(), parts.set_size[order].tolist(), strict=True)
        ]
        assert (parts.set_operation != 2).all(), "the workload has no sets of ranges"
        sizes = np.array([len(item) for item in items], np.int64)
        self._columns = (
            _starts(parts.code_row, parts.rows),
            parts.code_dimension.astype(np.int64),
            parts.codes.astype(np.int64),
            _starts(parts.range_row, parts.rows),
            parts.range_dimension.astype(np.int64),
            parts.lows,
            parts.highs,
            _starts(parts.set_row[order], parts.rows),
            parts.set_dimension[order].astype(np.int64),
            (parts.set_operation[order] == 0).astype(np.int64),
            np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
            np.concatenate([*items, np.zeros(1, np.int64)]),
        )
        self._entries = segment.tables.entries.astype(np.int64)
        self._event = (
            scratch.codes,
            scratch.keys,
            view.observed.code_dimension.data,
            view.observed.is_double.data,
            np.full(max(1, len(view.space.coded)), -1, np.int64),
            np.full(scratch.width, ABSENT, np.int64),
        )
        self._out = np.zeros(parts.rows, np.int64)

    def match(self, event: Event) -> list[Any]:
        """Return the keys of all filters that are true for the event."""
        codes = self._scratch.encode(event, 0, 0)
        count = _scan(self._columns, self._event, codes, self._out)
        entries = self._entries[self._out[:count]].tolist()
        return flat([self._names[entry] for entry in entries])


class RecordScan:
    """All records of a matcher, verified one after the other. As for `FlatScan`, the matcher must not have changed."""

    def __init__(self, matcher: Matcher) -> None:
        live = matcher._live
        view, segment = live.view, live.view.segment
        assert segment is not None and not len(view.delta)
        self._names = live.registry.keys
        self._scratch = Scratch(view, live.registry)
        self._stream, self._places = segment.tables.stream, segment.tables.places
        self._rows = (
            np.full(max(1, len(view.space.coded)), -1, np.int32),
            np.full(self._scratch.width, ABSENT, np.int64),
        )
        self._event = (
            self._scratch.codes,
            self._scratch.keys,
            view.observed.code_dimension.data,
            view.observed.is_double.data,
        )
        self._out = np.zeros(len(self._places), np.int32)

    def match(self, event: Event) -> list[Any]:
        """Return the keys of all filters that are true for the event."""
        codes = self._scratch.encode(event, 0, 0)
        count = _verify(self._stream, self._places, self._event, *self._rows, codes, self._out)
        return flat([self._names[entry] for entry in self._out[:count].tolist()])


def _starts(rows: Array, count: int) -> Array:
    return np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=count))]).astype(np.int64)


@njit
def _verify(stream, places, event, row_codes, row_keys, code_count, out):  # type: ignore[no-untyped-def]
    codes_in, keys_in, code_dimension, is_double = event
    for i in range(code_count):
        row_codes[code_dimension[codes_in[i]]] = codes_in[i]
    for d in range(row_keys.shape[0]):
        bits = keys_in[d]
        keys_in[d] = NO_KEY
        row_keys[d] = ABSENT if bits == NO_KEY else _double_key(bits) if is_double[d] else bits
    count = 0
    for place in places:
        record = stream.ctypes.data + 4 * place
        if _holds(record, row_codes.ctypes.data, row_keys.ctypes.data, codes_in.ctypes.data, code_count):
            out[count] = stream[place]
            count += 1
    for i in range(code_count):
        row_codes[code_dimension[codes_in[i]]] = -1
    return count


@njit(cache=True)
def _scan(columns, event, code_count, out):  # type: ignore[no-untyped-def]
    (code_starts, code_dimensions, codes, range_starts, range_dimensions, lows, highs,
     set_starts, set_dimensions, set_in, item_starts, items) = columns  # fmt: skip
    codes_in, keys_in, code_dimension, is_double, row_codes, row_keys = event
    for i in range(code_count):
        row_codes[code_dimension[codes_in[i]]] = codes_in[i]
    for d in range(row_keys.shape[0]):
        bits = keys_in[d]
        keys_in[d] = NO_KEY
        if bits == NO_KEY:
            row_keys[d] = ABSENT
        elif is_double[d]:
            magnitude = bits & 0x7FFF_FFFF_FFFF_FFFF
            row_keys[d] = magnitude if bits >= 0 else -magnitude
        else:
            row_keys[d] = bits
    count = 0
    for row in range(code_starts.shape[0] - 1):
        true = True
        for i in range(code_starts[row], code_starts[row + 1]):
            if row_codes[code_dimensions[i]] != codes[i]:
                true = False
                break
        if not true:
            continue
        for i in range(range_starts[row], range_starts[row + 1]):
            key = row_keys[range_dimensions[i]]
            if key < lows[i] or key > highs[i]:
                true = False
                break
        if not true:
            continue
        for i in range(set_starts[row], set_starts[row + 1]):
            code = row_codes[set_dimensions[i]]
            found = False
            for j in range(item_starts[i], item_starts[i + 1]):
                if items[j] == code:
                    found = True
                    break
            if code < 0 or found != (set_in[i] == 1):
                true = False
                break
        if true:
            out[count] = row
            count += 1
    for i in range(code_count):
        row_codes[code_dimension[codes_in[i]]] = -1
    return count
