"""Blocks and their companions as bytes."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.strategies import events
from tocsin.errors import EventError, JournalDamagedError
from tocsin.journal.blocks import (
    LOST,
    Stored,
    arrivals_of,
    batch_of,
    events_of,
    identities_of,
    pack_rows,
    seal,
    statistics_of,
    verify,
)
from tocsin.journal.draft import pack_offsets, unpack_offsets
from tocsin.journal.publishers import pack_publishers, publisher_at, unpack_publishers
from tocsin.journal.rows import from_arrow, to_row
from tocsin.model import Event


def packed(given_events: list[Event], runs: list[tuple[int, int]]) -> Stored:
    rows = bytearray()
    for each in given_events:
        rows += msgspec.msgpack.encode(to_row(each))
    return pack_rows(10, runs, rows)


def plainly(each: Event) -> object:
    """An event in a form that can be compared: NaN in an attribute is kept, but is not equal to itself."""
    return each.replace(attributes={}, offset=None, arrived=None), repr(each.attributes)


@given(st.lists(events(), min_size=1, max_size=5), st.data())
def test_a_block_gives_back_what_was_put_in(given_events: list[Event], data: st.DataObject) -> None:
    storable = []
    for each in given_events:
        try:
            to_row(each)
        except EventError:
            continue
        storable.append(each)
    if not storable:
        return
    cut = data.draw(st.integers(0, len(storable) - 1))
    runs = [(cut, 1_000), (len(storable) - cut, 2_000)] if cut else [(len(storable), 2_000)]
    block = packed(storable, runs)
    assert (block.first, block.last, block.arrived_last) == (10, 9 + len(storable), 2_000)
    found = events_of(block)
    assert [each.offset for each in found] == list(range(10, 10 + len(storable)))
    for others in (found, from_arrow(batch_of(block))):
        assert [plainly(each) for each in others] == [plainly(each) for each in storable]
    assert identities_of(block) == [(each.source, each.id) for each in storable]
    assert arrivals_of(block) == [1_000] * cut + [2_000] * (len(storable) - cut)


@given(st.data())
def test_any_changed_byte_is_noticed(data: st.DataObject) -> None:
    block = packed([Event("t", "s", "1", data={"a": 1}), Event("t", "s", "2")], [(2, 5)])
    place = data.draw(st.integers(0, len(block.data) - 1))
    change = data.draw(st.integers(1, 255))
    spoiled = bytearray(block.data)
    spoiled[place] ^= change
    for bad in (
        msgspec.structs.replace(block, data=bytes(spoiled)),
        msgspec.structs.replace(block, data=block.data[:place]),
        msgspec.structs.replace(block, first=block.first + change, last=block.last + change),
        msgspec.structs.replace(block, arrived_last=block.arrived_last + change),
        msgspec.structs.replace(block, format="a"),
    ):
        for read in (verify, events_of, batch_of, identities_of, arrivals_of):
            with pytest.raises(JournalDamagedError):
                read(bad)


def test_a_sealed_block_of_nonsense_is_damage_too() -> None:
    for format, body in [("m", b"\xc1"), ("m", b"\x92\x90\x90"), ("a", b"junk"), ("q", b""), ("m", b"")]:
        block = seal(format, 1, 2, (0, 0), body)
        for read in (events_of, batch_of, identities_of):
            with pytest.raises(JournalDamagedError):
                read(block)


def test_a_lost_block_reads_as_nothing() -> None:
    block = seal(LOST, 3, 9, (5, 5), b"")
    assert events_of(block) == [] and batch_of(block).num_rows == 0 and identities_of(block) == []
    assert arrivals_of(block) == []


def test_statistics_that_are_damaged_are_as_good_as_none() -> None:
    assert statistics_of(None) is statistics_of(b"") is statistics_of(b"junk" * 5) is None


@given(st.lists(st.integers(1, 50) | st.integers(1, 2**62), max_size=40))
def test_offsets_pack_and_unpack(offsets: list[int]) -> None:
    assert unpack_offsets(pack_offsets(offsets)) == offsets


def test_consecutive_offsets_are_short() -> None:
    assert len(pack_offsets(list(range(10**6, 10**6 + 10_000)))) < 12


@given(st.lists(st.tuples(st.integers(1, 5), st.sampled_from(["", "anna", "bert", "é"])), min_size=1, max_size=20))
def test_publishers_pack_and_unpack(runs: list[tuple[int, str]]) -> None:
    names = [name for count, name in runs for _ in range(count)]
    kept = pack_publishers(runs)
    assert (kept is None) == (not any(names))
    assert [name for count, name in unpack_publishers(kept, len(names)) for _ in range(count)] == names
    assert [publisher_at(kept, len(names), place) for place in range(len(names))] == names
    if kept is not None:
        for bad in (kept[:-1], bytes([kept[0] ^ 1]) + kept[1:], kept + b"\0"):
            with pytest.raises(JournalDamagedError):
                unpack_publishers(bad, len(names))
        with pytest.raises(JournalDamagedError):
            unpack_publishers(kept, len(names) + 1)
