"""Small blocks are read together, and nothing is lost or moved by it."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.past import PastJournal, stored
from tocsin.clock import ManualClock
from tocsin.errors import TrimmedError
from tocsin.journal.gather import Gathering
from tocsin.journal.reader import open_reader
from tocsin.journal.rows import SCHEMA, from_arrow
from tocsin.journal.sqlite import SqliteJournal
from tocsin.model import Event


def filled(path: Path, sizes: list[int]) -> SqliteJournal:
    journal = SqliteJournal(path, clock=ManualClock(), merge=False)
    number = 0
    for size in sizes:
        journal.append([Event("t", "s", str(number + place), data={"n": number + place}) for place in range(size)])
        number += size
    return journal


def test_single_events_come_as_one_batch(tmp_path: Path) -> None:
    with filled(tmp_path / "j.db", [1] * 300), open_reader(tmp_path / "j.db") as reader:
        gathering = Gathering()
        blocks = list(reader.blocks())
        assert len(blocks) == 300
        assert [batch for block in blocks for batch in gathering.add(block)] == []
        (batch,) = gathering.rest()
        assert batch.schema == SCHEMA
        assert from_arrow(batch) == [event for block in blocks for event in block.events()]
        assert list(gathering.rest()) == []


def test_gathering_ends_when_it_is_enough(tmp_path: Path) -> None:
    with filled(tmp_path / "j.db", [1_000] * 20), open_reader(tmp_path / "j.db") as reader:
        gathering = Gathering(("id",))
        found = [batch.num_rows for block in reader.blocks() for batch in gathering.add(block)]
        assert found == [9_000, 9_000]
        assert [batch.num_rows for batch in gathering.rest()] == [2_000]


def test_every_mixture_of_blocks_gives_the_same_events(tmp_path: Path) -> None:
    draw = random.Random(5)
    for round in range(12):
        path = tmp_path / f"{round}.db"
        sizes = [draw.choice((1, 1, 1, 2, 5, 40, 1_500)) for _ in range(draw.randrange(1, 60))]
        with filled(path, sizes) as journal, open_reader(path) as reader:
            if round % 2:
                journal.merge_now()
                journal.append([Event("t", "s", f"late {number}") for number in range(3)])
            columns = draw.choice((None, ("type", "data"), ()))
            kept = [block for block in reader.blocks() if draw.random() < 0.9]
            if round % 3 == 0:  # merged between listing and reading: a block is found again inside a larger one
                journal.merge_now()
            gathering = Gathering(columns)
            batches = [batch for block in kept for batch in gathering.add(block)] + list(gathering.rest())
            expected = [offset for block in kept for offset in range(block.first, block.last + 1)]
            assert [offset for batch in batches for offset in batch.column("offset").to_pylist()] == expected
            for batch in batches:
                offsets = batch.column("offset").to_pylist()
                assert offsets == list(range(offsets[0], offsets[0] + len(offsets))), "offsets in a batch have no gap"
                assert batch.schema.names == ["offset", *(columns if columns is not None else SCHEMA.names[1:])]


def test_what_was_given_before_a_block_that_is_gone_is_not_lost(tmp_path: Path) -> None:
    with filled(tmp_path / "j.db", [1, 1, 1_100, 1, 1]) as journal, open_reader(tmp_path / "j.db") as reader:
        blocks = list(reader.blocks())
        gathering = Gathering()
        assert [batch for block in blocks[:2] for batch in gathering.add(block)] == []
        journal.trim(1_104)
        with pytest.raises(TrimmedError):
            list(gathering.add(blocks[2]))
        assert [batch.column("offset").to_pylist() for batch in gathering.rest()] == [[1, 2]]


def test_blocks_of_other_journals_are_taken_as_they_are() -> None:
    events = stored([Event("t", "s", str(number)) for number in range(10)])
    gathering = Gathering()
    found = [batch for block in PastJournal(events, size=4).blocks() for batch in gathering.add(block)]
    assert [batch.num_rows for batch in found] == [4, 4, 2]
