"""A view: one built segment, the delta on top of it, and the scratch space to match events against both.

A matcher replaces its view when it rebuilds; a match that holds the old one still finds everything in it. A running
match takes a scratch space out of `pool` (or makes one) and puts it back, so any number of threads may match at once.

Concurrency: `generation` grows whenever an array that headers point to has moved, or a dimension was added. A match
checks it *after* encoding the event: whatever number the event then carries has room in the arrays of that generation.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from tocsin.filters.index import engine
from tocsin.filters.index.build import Likelihoods, Segment
from tocsin.filters.index.builtin import builtin
from tocsin.filters.index.delta import Delta
from tocsin.filters.index.encoder import Buffers, Encoder
from tocsin.filters.index.header import GRID_CELLS, SAMPLES, SLOT, Header
from tocsin.filters.index.labels import ABSENT, LOWEST, NO_KEY
from tocsin.filters.index.layout import FLAG_SHIFT, SHARED, Array, Column, read_record, record_words
from tocsin.filters.index.naming import namer
from tocsin.filters.index.plan import Lookups, Plan
from tocsin.filters.index.registry import Registry
from tocsin.filters.index.space import CodedConjunction, Space
from tocsin.filters.normal import NormalForm
from tocsin.filters.values import NUMBER
from tocsin.model import Event

__all__ = ["Observed", "Scratch", "View"]

_RESIDUES = SLOT["residue_count"]
_NODES = GRID_CELLS.bit_length()  # nodes of a grid that one key lies in
_COUNTED = ("events", "scanned", "tested", "matched")


class Observed:
    """Arrays that go with the numbers of a space: where a code stands in a row, and what events have carried."""

    def __init__(self) -> None:
        """Nothing seen yet."""
        self.code_dimension = Column(np.int32, fill=-1)
        self.code_counts = Column(np.int32)
        self.is_double = Column(np.uint8)
        self.key_samples = Column(np.int64, SAMPLES)
        self.key_counts = Column(np.int32)
        self.sampled: Array = np.zeros(1, np.int64)

    def reserve(self, codes: int, orders: int) -> bool:
        """Make room; True if an array moved."""
        moved = [
            self.code_dimension.reserve(codes),
            self.code_counts.reserve(codes),
            self.is_double.reserve(orders),
            self.key_samples.reserve(orders * SAMPLES),
            self.key_counts.reserve(orders),
        ]
        return any(moved)

    def follow(self, space: Space) -> None:
        """Fill in what the space has made since."""
        if self.code_dimension.size == len(space.code_values) and self.is_double.size == len(space.ordered):
            return
        for code in range(self.code_dimension.size, len(space.code_values)):
            self.code_dimension.data[code] = space.row_of_code(code)
        self.code_dimension.size = self.code_counts.size = len(space.code_values)
        for order in range(self.is_double.size, len(space.ordered)):
            self.is_double.data[order] = space.ordered[order].kind == NUMBER
        self.is_double.size = self.key_counts.size = len(space.ordered)
        self.key_samples.size = len(space.ordered) * SAMPLES

    def forget(self) -> None:
        """Begin to learn anew."""
        for column in (self.code_counts, self.key_counts):
            column.data[:] = 0
        self.sampled[0] = 0

    def likelihoods(self) -> Likelihoods:
        """What has been seen, as the builder wants it."""
        counts = self.key_counts.used.tolist()
        samples = [
            np.sort(self.key_samples.data[order * SAMPLES : order * SAMPLES + min(count, SAMPLES)])
            for order, count in enumerate(counts)
        ]
        return Likelihoods(int(self.sampled[0]), self.code_counts.used.copy(), [s[s > LOWEST] for s in samples], counts)

    def renumbered(self, old: Space, new: Space, moved: Array) -> Observed:
        """The same for a renumbered space."""
        fresh = Observed()
        fresh.reserve(len(new.code_values), len(new.ordered))
        kept = moved >= 0
        fresh.code_counts.data[moved[kept]] = self.code_counts.used[: len(moved)][kept]
        fresh.key_counts.data[: len(old.ordered)] = self.key_counts.data[: len(old.ordered)]
        fresh.sampled[0] = self.sampled[0]
        for before, after in zip(old.ordered, new.ordered, strict=True):
            mine = slice(before.number * SAMPLES, (before.number + 1) * SAMPLES)
            keys = self.key_samples.data[mine]
            moves = before.labels is not None and after.labels is not None
            fresh.key_samples.data[mine] = before.labels.move(keys, after.labels) if moves else keys  # type: ignore[union-attr,arg-type]
        fresh.follow(new)
        return fresh


class Scratch:
    """What one running match needs for itself; `ask` is the quick way through it."""

    __slots__ = ("ask", "codes", "encode", "generation", "header", "keys", "residues", "width")

    def __init__(self, view: View, registry: Registry, events: int = 1) -> None:
        """Make room for `events` at a time, as large as the view is now."""
        coded, ordered = view.coded_capacity, view.ordered_capacity
        self.generation = view.generation
        encoder, lookups = view.reading()
        self.width = encoder.width
        self.codes: Array = np.zeros(events * view.codes_per_event, np.int32)
        self.keys: Array = np.full(events * self.width, NO_KEY, np.int64)
        out: Array = np.zeros(view.entry_capacity, np.int32)
        residues: Array = np.zeros(view.residue_capacity, np.int32)
        self.residues = memoryview(residues)  # type: ignore[arg-type]
        self.encode = _reader(encoder, lookups, self.codes, self.keys)
        self.header = header = Header()
        view.pin(header)
        header["coded"], header["width"] = encoder.coded, self.width
        for name, array in (
            ("codes_in", self.codes),
            ("orders_in", np.zeros(ordered, np.int32)),
            ("keys_in", self.keys),
            ("row_codes", np.full(coded, -1, np.int32)),
            ("row_keys", np.full(ordered, ABSENT, np.int64)),
            ("out_entries", out),
            ("out_residues", residues),
            ("entry_seen", np.zeros(view.entry_capacity, np.int64)),
            ("buckets", np.zeros(view.codes_per_event + _NODES * ordered + 1, np.int32)),
            ("heads", np.zeros(view.codes_per_event + _NODES * ordered + 1, np.int32)),
        ):
            header.pin(name, array)
        kernels = engine.kernels()
        self.ask = (
            None if kernels is None else _ask(view, self, builtin(kernels.match_one, header.address), registry, out)
        )


Answer = tuple[list[Any], list[int] | None]
Reader = Callable[[Event, int, int], int]
"""Writes an event behind so many codes, and into the row of keys that begins there; returns the new number of codes."""


def _reader(encoder: Encoder, lookups: Lookups, codes: Array, keys: Array) -> Reader:
    """The quickest way to read events into these buffers."""
    buffers, encode, compute, computes = Buffers(codes, keys), encoder.encode, encoder.compute, encoder.computes
    native = engine.native()
    if native is None:
        return lambda event, written, row: encode(event, buffers, written, row)
    plan = Plan(lookups, codes, keys)
    read = builtin(native.read_event, plan.address)

    def read_event(event: Event, written: int, row: int, plan: Plan = plan) -> int:  # the default keeps it alive
        found: int = read(event, written, row)
        if found < 0:
            return encode(event, buffers, written, row)
        return compute(event, buffers, found, row) if computes else found

    return read_event


def _ask(
    view: View, scratch: Scratch, run: Callable[[int], int], registry: Registry, out_array: Array
) -> Callable[[Event], list[Any] | Answer | None]:
    """Make the function that matches one event.

    Everything it needs is a local name, which saves a microsecond of look-ups.

    It answers None where the view has changed so that the event must be encoded anew; a list of keys; or, where there
    is more to do, the entries found and the conjunctions that have residues.
    """
    encode, generation, header = scratch.encode, scratch.generation, scratch.header
    counters, residues, out = header.view, scratch.residues, memoryview(out_array)  # type: ignore[arg-type]
    name = namer(registry, out_array)

    def ask(event: Event) -> list[Any] | Answer | None:
        codes = encode(event, 0, 0)
        if generation != view.generation:
            return None
        count = run(codes)
        if count >= 0:
            return name(count)
        return out[: -1 - count].tolist(), residues[: counters[_RESIDUES]].tolist() if counters[_RESIDUES] else []

    return ask


class View:
    """Segment and delta over one space."""

    def __init__(self, space: Space, observed: Observed, segment: Segment | None) -> None:
        """Look at a segment (None: nothing is built yet), with an empty delta over it."""
        self.space, self.observed, self.segment = space, observed, segment
        self.delta = Delta(segment, len(space.code_values), len(space.ordered))
        self.generation = 0
        self.pool: list[Scratch] = []
        self.counters = dict.fromkeys(_COUNTED, 0)
        self.pairs_per_event = 0.0
        """How many filters an event of the last batch matched: how much room the next one needs."""
        self.residue_rows = len(segment.tables.residues) if segment is not None else 0
        # What there is room for: codes, coded and ordered dimensions, entries, residues, codes of one event.
        self._room: tuple[int, ...] = (0, 0, 0, 0, 0, 0)
        self._version = space.version
        self._reading: tuple[Encoder, Lookups] | None = None
        self._words = memoryview(segment.tables.stream if segment is not None else b"")  # type: ignore[arg-type]
        self._reserve(0, 0, 0, 0, 0)

    @classmethod
    def empty(cls) -> View:
        """A view of nothing."""
        return cls(Space(), Observed(), None)

    # -- changing (under the matcher's lock)

    def make_room(self, form: NormalForm, entries: int) -> None:
        """Make room for a filter *before* its codes can be seen by anyone."""
        numbers = 4
        for conjunction in form.alternatives:
            numbers += 2 * len(conjunction.residues) + sum(map(len, conjunction.sets.values()))
        self._reserve(numbers, numbers, numbers, entries, len(form.alternatives))

    def _reserve(self, codes: int, coded: int, orders: int, entries: int, rows: int) -> None:
        space = self.space
        room = self._room
        dimensions = len(space.coded) + coded
        needed = (
            len(space.code_values) + codes,
            dimensions,
            len(space.ordered) + orders,
            entries,
            self.residue_rows + rows,
            dimensions + space.members + codes,
        )
        if all(map(operator.lt, needed, room)):
            return
        self.observed.reserve(16 + 2 * needed[0], 16 + 2 * needed[2])
        self.delta.reserve(16 + 2 * needed[0], 16 + 2 * needed[2])
        self._room = tuple(16 + 2 * size for size in needed)
        (
            _,
            self.coded_capacity,
            self.ordered_capacity,
            self.entry_capacity,
            self.residue_capacity,
            self.codes_per_event,
        ) = self._room
        # Who still holds the old sizes must not meet what needs the new ones.
        self.delta.detach_readers()
        self.generation += 1

    def add(self, row: CodedConjunction, entry: int, multiple: bool) -> int:
        """Add a conjunction to the delta; returns its place there."""
        self.observed.follow(self.space)
        self.residue_rows += bool(row.residues)
        words = record_words(row, self.observed.code_dimension.view.__getitem__, entry, multiple)
        moved = self.delta.add(row, words, self.observed.code_counts)
        if moved or self._version != self.space.version:  # scratch spaces need new addresses, or another encoder
            self._version = self.space.version
            self.generation += 1
        return self.delta.places.view[len(self.delta) - 1]

    def kill(self, place: int) -> None:
        """Make a conjunction false for ever: at `place` in the segment, or -1 - place in the delta."""
        stream = self._words if place >= 0 else self.delta.stream.view
        stream[(place if place >= 0 else -1 - place) + 2] &= (1 << FLAG_SHIFT) - 1

    def mark_shared(self, place: int) -> None:
        """Note that several keys are behind a conjunction: results with it must be flattened."""
        stream = self._words if place >= 0 else self.delta.stream.view
        stream[(place if place >= 0 else -1 - place) + 2] |= SHARED << FLAG_SHIFT

    def make_room_for_all(self, entries: int, added_rows: int) -> None:
        """Make room for so many entries, and for rows that come over from the delta of the view before."""
        self._reserve(0, 0, 0, entries, added_rows)

    # -- asking

    def reading(self) -> tuple[Encoder, Lookups]:
        """What reads events into the space as it is now; made anew when a dimension was added."""
        made = self._reading
        if made is None or made[0].version != self.space.version:
            encoder = Encoder(self.space)
            made = self._reading = (encoder, Lookups(encoder))
        return made

    def collect(self, scratch: Scratch) -> None:
        """Take the counters out of a scratch space."""
        for name in _COUNTED:
            self.counters[name] += scratch.header[name]
            scratch.header[name] = 0

    def record(self, place: int) -> tuple[CodedConjunction, int, int]:
        """A conjunction with its entry and flags: at `place` in the segment, or -1 - place in the delta."""
        if place < 0:
            return self.delta.record(-1 - place)
        assert self.segment is not None
        tables = self.segment.tables
        return read_record(tables.stream, place, tables.residues.get(place, ()))

    def owner_and_residues(self, place: int) -> tuple[int, tuple[str, ...]]:
        """Entry and residues of a conjunction."""
        if place < 0:
            return self.delta.stream.view[-1 - place], self.delta.residues[-1 - place]
        assert self.segment is not None
        return self._words[place], self.segment.tables.residues[place]

    def totals(self) -> dict[str, int]:
        """Counters of all matches so far (of those under way, when they are done)."""
        totals = dict(self.counters)
        for scratch in list(self.pool):
            for name in _COUNTED:
                totals[name] += scratch.header[name]
        return totals

    def pin(self, header: Header) -> None:
        """Point a header to everything but the scratch space's own arrays."""
        segment, delta, observed = self.segment, self.delta, self.observed
        if segment is not None:
            for name, array in segment.arrays.items():
                header.pin(f"segment_{name}", array)
            header["codes_known"], header["orders_known"] = segment.codes_known, segment.orders_known
            header["bucket_count"] = len(segment.arrays["buckets"])
        header["always_bucket"] = segment.always_bucket if segment is not None else -1
        for name in (
            "stream",
            "code_head",
            "order_head",
            "grid_head",
            "always_head",
            "link_next",
            "link_record",
            "links",
        ):
            header.pin(f"delta_{name}", getattr(delta, name).data)
        for name in ("code_dimension", "code_counts", "is_double", "key_samples", "key_counts"):
            header.pin(name, getattr(observed, name).data)
        header.pin("sampled", observed.sampled)
