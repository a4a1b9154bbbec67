"""Which offsets a Spark query reads: beginnings, ends, batches of a stream, shares of tasks."""

from __future__ import annotations

import random
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.clock import SECOND, ManualClock
from tocsin.errors import JournalError, TrimmedError
from tocsin.journal.memory import MemoryJournal
from tocsin.model import Event

pytest.importorskip("pyspark", reason="PySpark is not installed; `make setup` installs it")

from tocsin.spark.options import ReadOptions
from tocsin.spark.ranges import Beginning, Range, advance, beginning, check_range, ending, position, share_size, shares

START = ManualClock().now()


def journal(count: int = 10, *, trimmed: int = 1, each: int = 1) -> MemoryJournal:
    """Events a second apart, the first at `START`, `each` to a block."""
    clock = ManualClock()
    made = MemoryJournal(clock=clock)
    for number in range(0, count, each):
        made.append([Event("t", "s", str(number + place)) for place in range(each)])
        clock.advance(1)
    made.trim(trimmed)
    return made


def options(**fields: Any) -> ReadOptions:
    return ReadOptions(url="file:/plant.db", **fields)


def test_a_read_begins_where_it_is_told() -> None:
    whole = journal()
    assert beginning(whole, options()) == Beginning(1)
    assert beginning(whole, options(start=4)) == Beginning(4)
    assert beginning(whole, options(start=11)) == Beginning(11)
    assert beginning(whole, options(latest=True)) == Beginning(11)
    assert beginning(whole, options(since=START + 2 * SECOND)) == Beginning(3)
    assert beginning(whole, options(since=START + 2 * SECOND + 1)) == Beginning(4)
    assert beginning(whole, options(since=START - 1)) == Beginning(1)
    assert beginning(whole, options(since=START + 99 * SECOND)) == Beginning(11)
    assert beginning(journal(0), options()) == Beginning(1)


def test_a_read_ends_where_it_is_told_and_both_ends_count() -> None:
    whole = journal()
    assert ending(whole, options()) == 10
    assert ending(whole, options(end=4)) == 4
    assert ending(whole, options(end=40)) == 10
    assert ending(whole, options(until=START + 2 * SECOND)) == 3
    assert ending(whole, options(until=START + 2 * SECOND - 1)) == 2
    assert ending(whole, options(until=START - 1)) == 0
    assert ending(whole, options(until=START + 99 * SECOND)) == 10
    assert ending(journal(0), options()) == 0


def test_what_was_trimmed_is_an_error_or_a_number() -> None:
    short = journal(trimmed=4)
    assert beginning(short, options()) == Beginning(4)
    assert beginning(short, options(start=4)) == Beginning(4)
    with pytest.raises(
        TrimmedError, match=r"offset 2 is no longer kept; 4 is the first.*allowGaps=true.*lake="
    ) as caught:
        beginning(short, options(start=2))
    assert caught.value.first == 4
    assert beginning(short, options(start=2, allow_gaps=True)) == Beginning(4, skipped=2)
    # Offset 1 is a number like any other: who wants whatever there is says earliest.
    with pytest.raises(TrimmedError):
        beginning(short, options(start=1))


def test_a_time_before_the_oldest_event_may_miss_some() -> None:
    short = journal(trimmed=4)
    for since in (START - 1, START + SECOND, START + 3 * SECOND):
        with pytest.raises(TrimmedError, match=r"arrived from .*Z on may no longer be kept.*startingOffset=earliest"):
            beginning(short, options(since=since))
        assert beginning(short, options(since=since, allow_gaps=True)) == Beginning(4, unsure=True)
    assert beginning(short, options(since=START + 3 * SECOND + 1)) == Beginning(5)


def test_a_start_beyond_the_end_is_another_journal() -> None:
    with pytest.raises(
        JournalError, match=r"startingOffset 12 lies beyond .* newest offset is 10; give 11 or less, .*replaced"
    ):
        beginning(journal(), options(start=12))


def test_a_stream_advances_by_what_it_may_take() -> None:
    whole = journal()
    assert advance(whole, {"offset": 0}, options(), None) == {"offset": 10}
    assert advance(whole, {"offset": 0}, options(), 3) == {"offset": 3}
    assert advance(whole, {"offset": 9}, options(), 3) == {"offset": 10}
    assert advance(whole, {"offset": 0}, options(), None, upto=7) == {"offset": 7}
    assert advance(whole, {"offset": 5}, options(), 3, upto=7) == {"offset": 7}
    for start in ({"offset": 10}, {"offset": 10, "filters": 3}):
        assert advance(whole, start, options(), 3) == start
    assert advance(whole, {"offset": 8}, options(), None, upto=7) == {"offset": 8}


def test_a_stream_counts_what_it_could_not_read() -> None:
    short, lenient = journal(trimmed=4), options(allow_gaps=True)
    with pytest.raises(TrimmedError, match="offset 2 is no longer kept"):
        advance(short, {"offset": 1}, options(), None)
    assert advance(short, {"offset": 3}, options(), None) == {"offset": 10}
    assert advance(short, {"offset": 1}, lenient, None) == {"offset": 10, "skipped": 2}
    assert advance(short, {"offset": 1, "skipped": 7}, lenient, 2) == {"offset": 5, "skipped": 9}
    assert advance(short, {"offset": 5, "skipped": 9}, lenient, None) == {"offset": 10, "skipped": 9}
    assert advance(short, {"offset": 0}, lenient, None, upto=2) == {"offset": 2, "skipped": 2}
    gone = journal(trimmed=11)
    assert advance(gone, {"offset": 0}, lenient, 3) == {"offset": 10, "skipped": 10}
    assert advance(gone, {"offset": 10}, options(), None) == {"offset": 10}


def test_a_stream_does_not_follow_a_journal_that_shrank() -> None:
    with pytest.raises(JournalError, match=r"read up to offset 11, which lies beyond .* 10; .*new checkpoint"):
        advance(journal(), {"offset": 11}, options(allow_gaps=True), None)
    with pytest.raises(JournalError, match="offset 12 lies beyond"):
        check_range(journal(), Range(5, 12), options())


@pytest.mark.parametrize(
    "held", [{}, {"offset": "5"}, {"offset": None}, {"offset": True}, {"offset": -1}, {"index": 3}, [1], 7, None]
)
def test_a_checkpoint_of_something_else_is_refused(held: Any) -> None:
    with pytest.raises(JournalError, match=r"the checkpoint holds .*; give the query a checkpointLocation of its own"):
        position(held)


def test_a_range_is_checked_before_it_is_planned() -> None:
    short = journal(trimmed=4)
    assert check_range(short, Range(4, 9), options()) == Range(4, 9)
    with pytest.raises(TrimmedError):
        check_range(short, Range(3, 9), options())
    assert check_range(short, Range(2, 9), options(allow_gaps=True)) == Range(4, 9)


def test_shares_are_cut_between_blocks() -> None:
    blocks = [Range(1, 30), Range(31, 60), Range(61, 90), Range(91, 200), Range(201, 210)]
    assert shares(blocks, Range(1, 210), 60) == [
        (Range(1, 60),),
        (Range(61, 90),),
        (Range(91, 200),),
        (Range(201, 210),),
    ]
    assert shares(blocks, Range(1, 210), 10_000) == [(Range(1, 210),)]
    assert shares(blocks, Range(15, 45), 10_000) == [(Range(15, 45),)]
    assert shares([], Range(1, 210), 60) == []
    assert shares(blocks, Range(300, 400), 60) == []


@pytest.mark.parametrize(
    ("events", "size"), [(1, 50_000), (400_000, 50_000), (1_000_000, 125_000), (2_000_000, 250_000), (10**8, 250_000)]
)
def test_tasks_are_worth_starting_and_leave_work_for_others(events: int, size: int) -> None:
    assert share_size(Range(11, 10 + events), ReadOptions(url="file:x")) == size
    assert share_size(Range(11, 10 + events), ReadOptions(url="file:x", events_per_partition=7)) == 7


def test_shares_leave_out_what_lies_between() -> None:
    assert shares([Range(1, 10), Range(41, 50), Range(51, 60)], Range(1, 100), 100) == [(Range(1, 10), Range(41, 60))]


@given(
    sizes=st.lists(st.integers(1, 40), max_size=60),
    events=st.integers(1, 100),
    ends=st.tuples(st.integers(1, 400), st.integers(0, 600)),
    seed=st.integers(0, 2**32),
)
def test_shares_hold_every_wanted_offset_of_the_blocks_once_and_in_order(
    sizes: list[int], events: int, ends: tuple[int, int], seed: int
) -> None:
    blocks, first = [], 1
    for size in sizes:
        blocks.append(Range(first, first + size - 1))
        first += size
    draw = random.Random(seed)
    kept = [block for block in blocks if draw.random() < 0.7]
    wanted = Range(ends[0], ends[0] + ends[1])
    found = shares(kept, wanted, events)
    offsets = [offset for share in found for each in share for offset in range(each.first, each.last + 1)]
    expected = [offset for block in kept for offset in range(block.first, block.last + 1)]
    assert offsets == [offset for offset in expected if wanted.first <= offset <= wanted.last]
    for share in found:
        load = sum(each.last - each.first + 1 for each in share)
        touched = [
            block for block in kept if any(block.first <= each.last and each.first <= block.last for each in share)
        ]
        assert load <= events or len(touched) == 1
    assert all(re.search(r"^Range", repr(each)) for share in found for each in share)
