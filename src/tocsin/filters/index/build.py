"""Build the static part of the index: file every conjunction under its rarest test.

    tables of conjunctions ─▶ how likely is each test? ─▶ rarest = access test, next = second test
                            ─▶ postings sorted by bucket, group, low end ─▶ conjunctions renumbered in that order

Likelihoods come from events seen lately, blended with how often filters name a value (before any event has been seen,
what filters ask for is the best guess of what will come). A test that is rare in events gives short buckets.

A bucket of more than `SMALL_BUCKET` entries is cut into groups by the dimension of the second test and sorted by its
low end, so that a match reads only the stretch that can be true. Renumbering puts conjunctions that are tested together
next to each other in memory.

Pure NumPy, so it runs the same without Numba and mostly without the interpreter lock.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Any

import msgspec
import numpy as np

from tocsin.filters.index.header import GRID_CELLS, NO_SECOND
from tocsin.filters.index.labels import HIGHEST, LOWEST
from tocsin.filters.index.layout import Array, code_bits, order_bits
from tocsin.filters.index.space import IN
from tocsin.filters.index.tables import Parts, Tables, spread, take_apart, take_records

__all__ = ["Likelihoods", "Segment", "build", "interval_nodes"]

SMALL_BUCKET = 48
MAX_LISTED = 256  # an IN list longer than this is an access test only where there is no other
MIN_GRID = 16  # fewer ranges on a dimension are filed under its mere presence
_LEVELS = GRID_CELLS.bit_length() - 1
_MAX_NODES = 4


class Likelihoods(msgspec.Struct, frozen=True):
    """What is known of events: how many were sampled, how often each code came, sorted key samples per dimension."""

    events: int
    code_counts: Array
    key_samples: list[Array]
    key_counts: list[int]


class Segment(msgspec.Struct, frozen=True):
    """A built index: arrays by their name in the header, and what the header must be told besides."""

    tables: Tables
    arrays: dict[str, Array]
    codes_known: int
    orders_known: int
    always_bucket: int
    unindexed: int
    informed: bool
    """Were real events behind the likelihoods?"""


class _Tests(msgspec.Struct):
    """Every test of every conjunction that could give access: its conjunction, its likelihood, where it stands."""

    conjunction: Array
    likelihood: Array
    kind: Array  # 0 code, 1 listed codes, 2 range
    place: Array  # index into codes, sets or ranges


def build(tables: Tables, code_dimension: Array, orders: int, seen: Likelihoods) -> Segment:
    """Build a segment of all records of `tables`."""
    parts = take_apart(tables.stream, tables.places)
    listed = spread(parts.set_at, np.where(parts.set_operation == IN, parts.set_size, 0))
    code_p = _code_likelihoods(parts, tables.stream[listed], code_dimension, seen)
    bounds = _grids(parts, orders, seen)
    tests = _tests(parts, tables.stream, code_p, bounds, seen)
    access, second = _rarest_two(tests, parts.rows)
    posting_bucket, posting_row, bucket_count, grids = _postings(
        parts, tables.stream, tests, access, bounds, len(code_dimension), orders
    )
    group, low, high = _second_level(parts, tests, second)

    order = np.argsort(posting_bucket, kind="stable")
    posting_bucket, posting_row = posting_bucket[order], posting_row[order]
    used, first = np.unique(posting_bucket, return_index=True)
    last = np.append(first[1:], len(posting_bucket))[: len(first)]  # nothing where there is nothing
    posting_row = posting_row[_sort_large(first, last, group[posting_row], low[posting_row])]

    # Reorder the records: as their first postings are, so that what is tested together lies together.
    first_posting = np.full(parts.rows, len(posting_row), np.int64)
    np.minimum.at(first_posting, posting_row, np.arange(len(posting_row)))
    new_order = np.argsort(first_posting, kind="stable")
    taken, places = take_records(tables, new_order)
    place_of = np.empty(parts.rows, np.int32)
    place_of[new_order] = places

    bucket_of = np.full(bucket_count, -1, np.int32)
    bucket_of[used] = np.arange(len(used), dtype=np.int32)
    node_base = len(code_dimension)
    presence_base = node_base + int((grids >= 0).sum()) * 2 * GRID_CELLS
    grid_bounds = [bounds[dimension] for dimension in range(orders) if grids[dimension] >= 0]
    always = int(bucket_of[-1])
    return Segment(
        tables=taken,
        arrays={
            "stream": taken.stream,
            "code_bucket": bucket_of[:node_base],
            "order_bucket": bucket_of[presence_base : presence_base + orders],
            "grid": grids,
            "grid_bounds": np.concatenate(grid_bounds) if grid_bounds else np.zeros(1, np.int64),
            "grid_bucket": bucket_of[node_base:presence_base],
            **_groups(first, last, group[posting_row]),
            "entries": _side_by_side(_signatures(parts)[posting_row], place_of[posting_row], high[posting_row]),
            "entry_low": low[posting_row],
        },
        codes_known=node_base,
        orders_known=orders,
        always_bucket=always,
        unindexed=int(last[always] - first[always]) if always >= 0 else 0,
        informed=seen.events > 0,
    )


def _code_likelihoods(parts: Parts, listed: Array, code_dimension: Array, seen: Likelihoods) -> Array:
    """How likely an event carries each code."""
    count = len(code_dimension)
    named = np.bincount(parts.codes, minlength=count) + np.bincount(listed, minlength=count)
    dimension = np.where(code_dimension < 0, 0, code_dimension)
    per_dimension = np.bincount(dimension, weights=named, minlength=1)
    prior = named / np.maximum(per_dimension[dimension], 1)
    weight = 32.0
    return (seen.code_counts[:count] + weight * prior) / (seen.events + weight)


def _grids(parts: Parts, orders: int, seen: Likelihoods) -> list[Array]:
    """Cell bounds for each ordered dimension: quantiles of the keys seen, or of the ends filters name."""
    bounds: list[Array] = []
    for dimension in range(orders):
        sample = seen.key_samples[dimension] if dimension < len(seen.key_samples) else np.zeros(0, np.int64)
        if len(sample) < 64:
            mine = parts.range_dimension == dimension
            ends = np.concatenate([parts.lows[mine], parts.highs[mine], sample])
            sample = np.sort(ends[(ends > LOWEST) & (ends < HIGHEST)])
        if not len(sample):
            sample = np.zeros(1, np.int64)
        picks = np.linspace(0, len(sample) - 1, GRID_CELLS - 1).astype(np.int64)
        bounds.append(sample[picks])
    return bounds


def _tests(parts: Parts, stream: Array, code_p: Array, bounds: list[Array], seen: Likelihoods) -> _Tests:
    listed = np.flatnonzero(parts.set_operation == IN)
    sizes = parts.set_size[listed]
    sums = np.concatenate([[0.0], np.cumsum(code_p[stream[spread(parts.set_at[listed], sizes)]])])
    ends = np.cumsum(sizes)
    set_p = sums[ends] - sums[ends - sizes]
    set_p = np.where(sizes > MAX_LISTED, 1.0 + set_p, set_p)
    counts = (len(parts.codes), len(listed), len(parts.lows))
    return _Tests(
        np.concatenate([parts.code_row, parts.set_row[listed], parts.range_row]),
        np.concatenate([code_p[parts.codes], set_p, _range_likelihoods(parts, bounds, seen)]).astype(np.float32),
        np.repeat(np.array([0, 1, 2], np.int8), counts),
        np.concatenate([np.arange(counts[0]), listed, np.arange(counts[2])]),
    )


def _range_likelihoods(parts: Parts, bounds: list[Array], seen: Likelihoods) -> Array:
    """The share of grid cells a range touches, times how often the dimension is there at all."""
    likelihood = np.ones(len(parts.lows))
    for dimension, cells in enumerate(bounds):
        mine = np.flatnonzero(parts.range_dimension == dimension)
        if len(mine):
            low, high = interval_cells(cells, parts.lows[mine], parts.highs[mine])
            there = (
                min(1.0, seen.key_counts[dimension] / seen.events)
                if seen.events and dimension < len(seen.key_counts)
                else 1.0
            )
            likelihood[mine] = (high - low + 1) / GRID_CELLS * there
    return likelihood


def _rarest_two(tests: _Tests, rows: int) -> tuple[Array, Array]:
    """For each row the test with the least likelihood, and the next that can order a group; -1 where there is none."""
    ranked = tests.likelihood.view(np.uint32).astype(np.uint64) << np.uint64(32) | np.arange(
        len(tests.place), dtype=np.uint64
    )
    nothing = np.uint64(2**64 - 1)
    best = np.full(rows, nothing)
    np.minimum.at(best, tests.conjunction, ranked)
    usable = (ranked != best[tests.conjunction]) & (tests.kind != 1)
    runner_up = np.full(rows, nothing)
    np.minimum.at(runner_up, tests.conjunction[usable], ranked[usable])
    return tuple(  # type: ignore[return-value]
        np.where(found == nothing, -1, (found & np.uint64(0xFFFF_FFFF)).astype(np.int64)) for found in (best, runner_up)
    )


def interval_cells(bounds: Array, lows: Array, highs: Array) -> tuple[Array, Array]:
    """First and last cell each range touches."""
    return np.searchsorted(bounds, lows, "right"), np.searchsorted(bounds, highs, "right")


def interval_nodes(bounds: Array, lows: Array, highs: Array) -> tuple[Array, Array]:
    """File ranges in a grid: first node and number of nodes (at most four) on the finest level where that is enough."""
    low, high = interval_cells(bounds, lows, highs)
    level = np.zeros(len(low), np.int64)
    for step in range(1, _LEVELS + 1):
        level = np.where((high >> level) - (low >> level) >= _MAX_NODES, step, level)
    first = (GRID_CELLS >> level) + (low >> level)
    return first, (high >> level) - (low >> level) + 1


def interval_node(bounds: Any, low: int, high: int) -> tuple[int, int]:
    """The same for one range, without arrays."""
    first, last, level = bisect_right(bounds, low), bisect_right(bounds, high), 0
    while (last >> level) - (first >> level) >= _MAX_NODES:
        level += 1
    return (GRID_CELLS >> level) + (first >> level), (last >> level) - (first >> level) + 1


def _postings(
    parts: Parts, stream: Array, tests: _Tests, access: Array, bounds: list[Array], codes: int, orders: int
) -> tuple[Array, Array, int, Array]:
    """(bucket, row) pairs; buckets are numbered: codes, grid nodes, dimensions without a grid, the unindexed."""
    rows = np.flatnonzero(access >= 0)
    kind, place = tests.kind[access[rows]], tests.place[access[rows]]
    by_code, by_list, by_range = (rows[kind == wanted] for wanted in (0, 1, 2))
    places = [place[kind == wanted] for wanted in (0, 1, 2)]

    buckets, owners = [parts.codes[places[0]].astype(np.int64)], [by_code]
    sizes = parts.set_size[places[1]]
    buckets.append(stream[spread(parts.set_at[places[1]], sizes)].astype(np.int64))
    owners.append(np.repeat(by_list, sizes))

    dimensions = parts.range_dimension[places[2]]
    busy = np.bincount(dimensions, minlength=orders) >= MIN_GRID
    grids = np.where(busy, np.cumsum(busy) - 1, -1).astype(np.int32)
    presence_base = codes + int(busy.sum()) * 2 * GRID_CELLS
    for dimension in np.unique(dimensions).tolist():
        mine = np.flatnonzero(dimensions == dimension)
        if grids[dimension] < 0:
            buckets.append(np.full(len(mine), presence_base + dimension))
            owners.append(by_range[mine])
            continue
        ranges = places[2][mine]
        node, count = interval_nodes(bounds[dimension], parts.lows[ranges], parts.highs[ranges])
        steps = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
        buckets.append(codes + int(grids[dimension]) * 2 * GRID_CELLS + np.repeat(node, count) + steps)
        owners.append(np.repeat(by_range[mine], count))
    always = presence_base + orders
    unfiled = np.flatnonzero(access < 0)
    buckets.append(np.full(len(unfiled), always))
    owners.append(unfiled)
    return np.concatenate(buckets), np.concatenate(owners), always + 1, grids


def _second_level(parts: Parts, tests: _Tests, second: Array) -> tuple[Array, Array, Array]:
    """Group (dimension of the second test), low and high (code, or upper halves of the keys) for each row."""
    rows = parts.rows
    group, low, high = np.full(rows, NO_SECOND, np.int32), np.zeros(rows, np.int32), np.full(rows, 2**31 - 1, np.int32)
    has = np.flatnonzero(second >= 0)
    kind, place = tests.kind[second[has]], tests.place[second[has]]
    coded, at = has[kind == 0], place[kind == 0]
    single = parts.code_dimension[at] >= 0
    group[coded[single]] = parts.code_dimension[at[single]]
    low[coded[single]] = parts.codes[at[single]]
    ranged, at = has[kind == 2], place[kind == 2]
    group[ranged] = -1 - parts.range_dimension[at]
    low[ranged] = parts.lows[at] >> 32
    high[ranged] = parts.highs[at] >> 32
    return group, low, high


def _sort_large(first: Array, last: Array, group: Array, low: Array) -> Array:
    """An order of postings that leaves small buckets alone and sorts large ones by group and low end."""
    order = np.arange(len(group))
    large = np.flatnonzero(last - first > SMALL_BUCKET)
    if not len(large):
        return order
    sizes = (last - first)[large]
    inside = np.repeat(first[large], sizes) + np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    rank = np.repeat(np.arange(len(large)), sizes)
    sorted_inside = np.lexsort((low[inside], group[inside], rank))
    order[inside] = inside[sorted_inside]
    return order


def _groups(first: Array, last: Array, group: Array) -> dict[str, Array]:
    """Buckets, large ones cut into runs of equal group; what is read together lies together."""
    large = last - first > SMALL_BUCKET
    starts = np.zeros(len(group) + 1, bool)
    inside = np.zeros(len(group) + 1, np.int64)
    inside[first[large]] += 1
    inside[last[large]] -= 1
    covered = np.cumsum(inside)[: len(group)] > 0
    starts[1 : len(group)] = group[1:] != group[:-1]
    starts[first] = True
    group_first = np.flatnonzero(starts[: len(group)] & covered)
    borders = np.unique(np.concatenate([group_first, last[large]]))
    group_last = borders[np.searchsorted(borders, group_first, "right")] if len(group_first) else group_first
    counts = np.zeros(len(first), np.int32)
    bucket_of_group = np.searchsorted(first, group_first, "right") - 1
    np.add.at(counts, bucket_of_group, 1)
    begins = np.cumsum(counts) - counts
    return {
        "buckets": np.column_stack([first, last, np.where(large, begins, -1), counts]).astype(np.int32),
        "group_dimension": group[group_first].astype(np.int32),
        "group_first": group_first.astype(np.int32),
        "group_last": group_last.astype(np.int32),
    }


def _side_by_side(signatures: Array, records: Array, highs: Array) -> Array:
    """Entries of four words, so that most tests of a small bucket read one line of the cache."""
    entries: Array = np.empty((len(records), 4), np.int32)
    entries[:, :2] = signatures.view(np.int32).reshape(-1, 2)
    entries[:, 2], entries[:, 3] = records, highs
    return entries


def _signatures(parts: Parts) -> Array:
    """The bits an event must have for a row to be true: one for each of its codes and ordered dimensions."""
    signatures = np.zeros(parts.rows, np.uint64)
    np.bitwise_or.at(signatures, parts.code_row, code_bits(parts.codes))
    np.bitwise_or.at(signatures, parts.range_row, order_bits(parts.range_dimension))
    return signatures
