"""What is stored of engines, who keeps them, and what happens when a keeper cannot: without a Spark."""

from __future__ import annotations

import logging
import os
import random
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed; `make setup` installs it")

import pandas as pd  # type: ignore[import-untyped]

from tests.spark.detect_cases import NOON
from tests.spark.test_detect_engines import batch_of, chunks_of
from tocsin import DefinitionError, Event
from tocsin.spark import engines, keeper, stateful
from tocsin.spark.detecting import Plan, number_of, plan
from tocsin.spark.engines import Engines, Stored, Work, written
from tocsin.spark.packing import Packing

pytestmark = pytest.mark.spark

PAIR = plan({"pair": "SEQ([type = 'a'], [type = 'b']) BY machine"})


def frame_of(made: Plan, *events: Event) -> Any:
    """The packed rows of a batch, as Spark hands them to a bucket."""
    batch = [batch_of(list(events))] if events else []
    return pd.concat([each.to_pandas() for each in Packing(made).rows(iter(batch))])


def event(kind: str, offset: int, machine: str = "m1") -> Event:
    return Event(kind, "/test", f"e{offset}", data={"machine": machine}, offset=offset, arrived=NOON)


class Memory:
    """A state store for one bucket, which counts what is written."""

    def __init__(self) -> None:
        self.head: Any = None
        self.pieces: dict[int, bytes] = {}
        self.written = 0

    # what a handle gives
    def getValueState(self, name: str, schema: Any) -> Any:
        return self

    def getMapState(self, name: str, key: Any, value: Any) -> Any:
        return self

    # what states do
    def get(self) -> Any:
        return self.head

    def update(self, value: tuple[bytes]) -> None:
        self.head = value
        self.written += len(value[0])

    def getValue(self, key: tuple[int]) -> Any:
        return (self.pieces[key[0]],)

    def updateValue(self, key: tuple[int], value: tuple[bytes]) -> None:
        self.pieces[key[0]] = value[0]
        self.written += len(value[0])

    def removeKey(self, key: tuple[int]) -> None:
        del self.pieces[key[0]]


def batch(store: Memory, made: Plan, *events: Event) -> list[str]:
    """The types of what is detected in a batch."""
    processor = stateful.Detection(made)
    processor.init(store)  # type: ignore[arg-type]
    found = processor.handleInputRows((0,), iter([frame_of(made, *events)]), None)
    told = [content for frame in found for content in frame["detected"]]
    return [name for content in told for each in stateful.unpacked(content) for name in each["type"].to_pylist()]


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks do everything themselves, and remember nothing."""
    monkeypatch.setenv("TOCSIN_KEEPERS", "off")
    monkeypatch.setattr(keeper, "_here", Engines())


@pytest.mark.usefixtures("alone")
def test_many_small_batches_are_few_entries_and_no_snapshots(monkeypatch: pytest.MonkeyPatch) -> None:
    """However much is open: 200 batches of one event write what has come, each a few times."""
    store, count, many = Memory(), 200, 2000
    opened = [event("a", offset, f"m{offset}") for offset in range(1, many + 1)]
    batch(store, PAIR, *opened)
    large, store.written = store.written, 0
    for number in range(count):
        assert batch(store, PAIR, event("b", many + 1 + number, f"m{number + 1}")) == ["pair"]
    kept = stateful.read_kept(store.head[0], 1)
    (head,) = kept.heads.values()
    assert sum(stateful.SEVERAL**entry.rank for entry in head.batches) == count
    assert len(head.batches) < 3 * stateful.SEVERAL and len(store.pieces) == len(head.batches) + 1
    assert store.written / count < large / 10
    monkeypatch.setattr(keeper, "_here", Engines())  # a new process: everything is read
    assert batch(store, PAIR, event("b", 9000, "m1"), event("b", 9001, f"m{count + 1}")) == ["pair", "pair"]


@pytest.mark.usefixtures("alone")
def test_a_snapshot_is_made_when_chunks_have_become_larger(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stateful, "LEAST", 4000)
    store, sizes = Memory(), []
    for offset in range(1, 60):
        batch(store, PAIR, event("a", offset, f"m{offset}"))
        (head,) = stateful.read_kept(store.head[0], 1).heads.values()
        assert head.snapshot is not None
        sizes.append(head.snapshot.size)
    assert 2 < len(set(sizes)) < 20
    assert batch(store, PAIR, event("b", 60, "m1")) == ["pair"]


@pytest.mark.usefixtures("alone")
def test_a_division_that_is_gone_takes_its_state_along() -> None:
    store, other = Memory(), plan({"other": "SEQ([type = 'x'], [type = 'y']) BY door"})
    batch(store, PAIR, event("a", 1))
    batch(store, other)  # no event at all
    assert {number_of(("door",))} == stateful.read_kept(store.head[0], 1).heads.keys() and len(store.pieces) == 1
    assert batch(store, PAIR, event("b", 3)) == []


@pytest.mark.usefixtures("alone")
def test_a_row_is_late_whatever_types_those_had_that_came_before(monkeypatch: pytest.MonkeyPatch) -> None:
    store, other = Memory(), "SEQ([type = 'c'], [type = 'b']) BY machine, door"
    assert batch(store, PAIR, event("a", 1), event("x", 4)) == []
    assert batch(store, PAIR, event("x", 9), event("x", 8)) == []  # no event counts
    assert batch(store, PAIR, event("b", 9), event("b", 7), event("b", 3)) == []
    assert batch(store, PAIR, event("b", 10), event("b", 9)) == ["pair"]
    monkeypatch.setattr(keeper, "_here", Engines())  # a new process: what is stored knows what was late
    assert batch(store, PAIR, event("a", 10), event("b", 11, "m2"), event("b", 12)) == ["pair"]
    both = plan({"pair": PAIR.divisions[0].schedule[0].text, "other": other})
    assert batch(store, both, event("c", 11), event("b", 13)) == ["pair"]  # for one that is new it is late, too
    assert stateful.read_kept(store.head[0], 1).seen == 13


# -- versions


def test_snapshots_and_chunks_of_another_version_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    chunks = written([chunk for _, chunk in chunks_of(PAIR, [event("a", 1)])])
    work = Work(b"x", b"", b"1", PAIR.divisions[0], chunks, True)
    answer = Engines().run(msgspec.structs.replace(work, stored=Stored(None, [])))
    assert answer is not None and answer.snapshot is not None
    after = Work(b"x", b"1", b"2", PAIR.divisions[0], chunks, False, Stored(answer.snapshot, [chunks]))
    assert Engines().run(after) is not None
    monkeypatch.setattr(engines, "_VERSION", 7)
    with pytest.raises(DefinitionError, match="has version 1, and this program knows 7"):
        Engines().run(after)
    monkeypatch.undo()
    monkeypatch.setattr("tocsin.spark.chunks.CHUNK_VERSION", 7)
    with pytest.raises(DefinitionError, match="packed in a way that this program does not know"):
        Engines().run(after)


def test_fields_whose_numbers_are_the_same_are_refused() -> None:
    known: dict[int, str] = {}
    draw = random.Random(1)
    for _ in range(300_000):
        name = f"f{draw.getrandbits(64):x}"
        if (other := known.setdefault(number_of((name,)), name)) != name:
            break
    else:
        pytest.fail("no two names have one number")
    with pytest.raises(DefinitionError, match="the same number"):
        plan({each: f"SEQ([type = 'a'], [type = 'b']) BY {each}" for each in (name, other)})


# -- engines that are kept


def test_all_engines_of_a_running_query_are_kept() -> None:
    kept, count = Engines(), engines.KEPT + 44
    chunks = written([])
    for number in range(count):
        work = Work(b"%d" % number, b"", b"1", PAIR.divisions[0], chunks, False, Stored(None, []))
        assert kept.run(work) is not None
    for number in range(count):
        work = Work(b"%d" % number, b"1", b"2", PAIR.divisions[0], chunks, False)
        assert kept.run(work) is not None  # else what is stored would be asked for


# -- keepers


@pytest.fixture
def keepers(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where the keepers of this test lie, who end with it; not in pytest's own place, whose name may be too long."""
    tmp_path_factory.getbasetemp()  # else pytest would make its own in ours, which goes
    before = _all()
    keeper._doors.clear()
    with tempfile.TemporaryDirectory(prefix="k-", dir="/tmp") as place:
        monkeypatch.setattr(tempfile, "tempdir", place)
        yield Path(place)
        for door in keeper._doors.values():
            door.close()
        keeper._doors.clear()
        for process in _all() - before:
            os.kill(process, signal.SIGKILL)


def _all() -> set[int]:
    found = set()
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and (entry / "comm").read_text().strip() == keeper.NAME:
                found.add(int(entry.name))
        except OSError:
            continue
    return found


@pytest.mark.skipif(not Path("/proc/self/comm").exists(), reason="processes are found in /proc")
def test_what_goes_wrong_with_the_store_is_told_as_it_is(keepers: Path) -> None:
    work = Work(os.urandom(8), b"old", b"new", PAIR.divisions[0], written([]), False)
    asked = []

    def fetch() -> Stored:
        asked.append(1)
        raise OSError("the store cannot be read")

    with pytest.raises(OSError, match="the store cannot be read"):
        keeper.do(work, 0, fetch)
    assert len(asked) == 1
    assert keeper.do(work, 0, lambda: Stored(None, [])).is_done  # the keeper is well
    assert len(list(keepers.rglob("*.sock"))) == 1


@pytest.mark.skipif(not Path("/proc/self/comm").exists(), reason="processes are found in /proc")
@pytest.mark.usefixtures("keepers")
def test_a_keeper_that_cannot_begin_costs_time_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(keeper, "_STARTING", 1.0)
    monkeypatch.setattr(keeper, "_here", Engines())
    place = keeper._directory(os.getppid())
    assert place is not None
    (place / "0.sock").mkdir()  # so it cannot listen there
    spent = []
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            begin = time.monotonic()
            work = Work(os.urandom(8), b"", b"1", PAIR.divisions[0], written([]), False)
            keeper.do(work, 0, lambda: Stored(None, []))
            spent.append(time.monotonic() - begin)
    assert spent[0] > 0.9 and max(spent[1:]) < 0.5
    assert len(caplog.records) == 1


@pytest.mark.usefixtures("keepers")
def test_a_place_whose_name_is_too_long_for_a_keeper_is_told_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / ("long" * 25)).mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / ("long" * 25)))
    monkeypatch.setattr(keeper, "_here", Engines())
    keeper._is_too_long.cache_clear()
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            work = Work(os.urandom(8), b"", b"1", PAIR.divisions[0], written([]), False)
            assert keeper.do(work, 0, lambda: Stored(None, [])).is_done
    assert len(caplog.records) == 1 and "TMPDIR" in caplog.text


def test_a_process_that_took_over_a_number_is_another_one() -> None:
    mine = os.getpid()
    assert keeper._lives(mine, keeper._born(mine))
    assert not keeper._lives(mine, "7")
