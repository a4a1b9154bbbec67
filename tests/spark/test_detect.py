"""`ts.detect` on a stream: the events that a detector of a node derives, wherever batches end and wherever it stops."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from tests.processes import below, state_and_parent
from tests.spark.detect_cases import NOON, Run, append, events_in, expected, plant, some_definitions
from tocsin import DefinitionError, Event, SchemaError
from tocsin import spark as ts
from tocsin.clock import ManualClock, as_micros
from tocsin.cloudevents import encode_json
from tocsin.journal.sqlite import SqliteJournal
from tocsin.spark import keeper

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

STOP = "SEQ([type = 'a'] AS a, [type = 'b'] AS b) WITHIN 9 SECONDS BY machine"
LATE = "PLUS([type = 'a'] AS a, 4 SECONDS) BY machine"


def same(row: Any, event: Event) -> bool:
    assert event.time is not None
    instant = round(row.time.timestamp() * 1e6)
    stored = encode_json(event.data, "data").decode()
    return (row.type, row.source, instant, row.classification, row.data) == (
        event.type,
        event.source,
        as_micros(event.time),
        event.classification,
        stored,
    )


# -- the meaning


@pytest.mark.parametrize(("seed", "most"), [(1, 23), (3, 1000)])
def test_random_definitions_detect_what_a_node_detects(spark: Any, tmp_path: Path, seed: int, most: int) -> None:
    """Forty at once: every operator in every context, keyed and not, timed, named by others, with WHERE and WITHIN."""
    journal = plant(tmp_path / "plant.db", seed, 100)
    events = events_in(journal)
    definitions = some_definitions(random.Random(seed), events)
    wanted = expected(definitions, events)
    run = Run(spark, journal, tmp_path / "checkpoint", definitions, most).drain()
    assert run.rows.keys() == wanted.keys()
    assert all(same(row, wanted[name]) for name, row in run.rows.items())
    assert {event.type for event in wanted.values()} == definitions.keys()
    assert len([rows for rows in run.batches.values() if rows]) == -(-len(events) // most)


def test_columns_say_what_it_is_made_of(spark: Any, tmp_path: Path) -> None:
    journal = plant(tmp_path / "plant.db", 5, 60)
    run = Run(spark, journal, tmp_path / "checkpoint", {"stop": STOP, "late": LATE, "some": "[type = 'e']"}).drain()
    wanted = expected({"stop": STOP, "late": LATE, "some": "[type = 'e']"}, events_in(journal))
    assert run.rows.keys() == wanted.keys()
    for name, row in run.rows.items():
        data = wanted[name].data
        assert (json.loads(row.key) if row.key else {}) == data["key"]
        assert [(part.name, part.offset, part.id, part.source) for part in row.parts] == [
            (part["name"], part.get("offset"), part.get("id"), part.get("source")) for part in data["parts"]
        ]
        assert all((part.time is not None) == ("time" in data["parts"][n]) for n, part in enumerate(row.parts))
    assert {row.type for row in run.rows.values()} == {"stop", "late", "some"}


def test_tasks_detect_and_not_the_driver(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tocsin.composite.detector.Detector.feed_batch", lambda *_: pytest.fail("the driver detects"))
    monkeypatch.setattr("tocsin.composite.detector.Detector.feed_rows", lambda *_: pytest.fail("the driver detects"))
    monkeypatch.setattr("tocsin.spark.engines.feed", lambda *_: pytest.fail("the driver detects"))
    monkeypatch.setattr(keeper, "do", lambda *_: pytest.fail("the driver detects"))
    run = Run(spark, plant(tmp_path / "plant.db", 6, 60), tmp_path / "checkpoint", {"stop": STOP}).drain()
    assert run.rows


# -- stopping and going on


def test_a_restart_goes_on_where_it_was(spark: Any, tmp_path: Path) -> None:
    """What is open and what waits for time is in the checkpoint, and nowhere else."""
    whole = plant(tmp_path / "plant.db", 8, 90)
    events = events_in(whole)
    definitions = some_definitions(random.Random(8), events)
    rows: dict[str, Any] = {}
    path, clock = tmp_path / "again.db", ManualClock(NOON)
    with SqliteJournal(path, clock=clock, merge=False) as journal:
        for part in (events[:40], events[40:]):
            for event in part:
                assert event.arrived is not None
                clock.advance((as_micros(event.arrived) - clock.now()) / 1e6)
                journal.append([event.replace(offset=None, arrived=None)])
            found = Run(spark, path, tmp_path / "checkpoint", definitions, 30).drain().rows
            assert found and not found.keys() & rows.keys()
            rows |= found
            _end_keepers()
    assert rows.keys() == expected(definitions, events).keys()


def test_a_batch_writes_what_has_come_and_not_what_is_open(spark: Any, tmp_path: Path) -> None:
    path, count = tmp_path / "plant.db", 20_000
    with SqliteJournal(path, clock=ManualClock(NOON), merge=False) as journal:
        journal.append([Event("a", "/test", data={"machine": f"m{n}"}) for n in range(count)])
        journal.append([Event("b", "/test", data={"machine": f"m{n}"}) for n in range(30)])
    definitions = {"pair": "SEQ([type = 'a'], [type = 'b']) BY machine"}
    run = Run(spark, path, tmp_path / "checkpoint", definitions, count)
    query = run.start()
    assert query.awaitTermination(120)
    assert [len(rows) for rows in run.batches.values()] == [0, 30]
    first, second = (each.stateOperators[0].customMetrics for each in query.recentProgress if each.numInputRows)
    written = "rocksdbTotalBytesWritten"
    assert first[written] > 50 * count and second[written] < first[written] / 50


def test_other_definitions_on_the_same_checkpoint(spark: Any, tmp_path: Path) -> None:
    """Those that stay go on undisturbed; a new one sees what comes from then on; one that is gone tells nothing."""
    clock, draw, path = ManualClock(NOON), random.Random(9), tmp_path / "plant.db"
    before = {"stop": STOP, "gone": "SEQ([type = 'b'], [type = 'c']) BY machine", "late": LATE}
    after = {"stop": STOP, "new": "SEQ([type = 'c'] AS c, stop) BY machine", "late": LATE}
    with SqliteJournal(path, clock=clock, merge=False) as journal:
        append(journal, clock, draw, 60)
        first = Run(spark, path, tmp_path / "checkpoint", before).drain().rows
        head = journal.head
        append(journal, clock, draw, 60)
        second = Run(spark, path, tmp_path / "checkpoint", after).drain().rows
    events = events_in(path)
    stay = expected({"stop": STOP, "late": LATE}, events)
    assert {name for name, row in (first | second).items() if row.type in ("stop", "late")} == stay.keys()
    assert any(row.type == "gone" for row in first.values()) and all(row.type != "gone" for row in second.values())
    new = {name for name, row in second.items() if row.type == "new"}
    assert new and new <= expected(after, events).keys()
    assert all(part.offset > head for name in new for part in second[name].parts if part.name == "c")


# -- what dies


def _keepers() -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and (entry / "comm").read_text().strip() == keeper.NAME:
                found.append(int(entry.name))
        except OSError:  # it has ended meanwhile
            continue
    return found


def _end_keepers() -> int:
    """Kill the keepers of this process; returns how many."""
    mine = set(_keepers()) & below(os.getpid())
    for process in mine:
        os.kill(process, signal.SIGKILL)
    return len(mine)


@pytest.mark.skipif(not Path("/proc/self/comm").exists(), reason="processes are found in /proc")
def test_engines_live_beside_the_workers_and_are_made_anew_when_they_die(spark: Any, tmp_path: Path) -> None:
    journal = plant(tmp_path / "plant.db", 11, 90)
    definitions = some_definitions(random.Random(11), events_in(journal))
    run = Run(spark, journal, tmp_path / "checkpoint", definitions, 20)
    killed = []
    run.after = lambda number: killed.append(_end_keepers()) if number in (1, 3) else None
    run.drain()
    assert len(killed) == 2 and all(killed)
    wanted = expected(definitions, events_in(journal))
    assert run.rows.keys() == wanted.keys()


@pytest.mark.skipif(not Path("/proc/self/comm").exists(), reason="processes are found in /proc")
def test_a_worker_killed_in_a_batch(spark: Any, tmp_path: Path) -> None:
    """On one machine Spark gives the query up: from its checkpoint it goes on, with nothing lost and nothing twice."""
    from pyspark.errors import PySparkException

    journal = plant(tmp_path / "plant.db", 12, 90)
    definitions = some_definitions(random.Random(12), events_in(journal))
    run = Run(spark, journal, tmp_path / "checkpoint", definitions, 20)
    query = run.start()
    end = time.monotonic() + 60
    while 1 not in run.batches and time.monotonic() < end:
        time.sleep(0.01)
    while query.isActive and time.monotonic() < end:  # until one is hit that works for the query
        for process in below(os.getpid()):
            if _is_worker(process):
                os.kill(process, signal.SIGKILL)
        time.sleep(0.1)
    with pytest.raises(PySparkException):
        query.awaitTermination(60)
    done = len(run.batches)
    assert 2 <= done < 5
    run.drain()
    wanted = expected(definitions, events_in(journal))
    assert run.rows.keys() == wanted.keys()


def _is_worker(process: int) -> bool:
    """A process forked by Spark's daemon, or a keeper."""
    try:
        command = Path(f"/proc/{process}/cmdline").read_bytes()
        found = state_and_parent(process)
        return (
            found is not None
            and b"spark.daemon\x00pyspark.worker" in command
            and b"daemon" in Path(f"/proc/{found[1]}/cmdline").read_bytes()
        )
    except OSError:
        return False


# -- what is refused


def test_what_is_wrong_is_told_by_the_driver(spark: Any, tmp_path: Path) -> None:
    journal = plant(tmp_path / "plant.db", 1, 5)
    events = spark.readStream.format("tocsin").option("url", f"file:{journal}").load()
    for definitions, field in (({}, "definitions"), ({"a b": STOP}, "name"), ({"x": "SEQ([type = 'a'],"}, None)):
        with pytest.raises(DefinitionError) as caught:
            ts.detect(events, definitions)
        assert field is None or caught.value.field == field
    with pytest.raises(DefinitionError, match="itself"):
        ts.detect(events, {"x": "SEQ(y, y)", "y": "SEQ(x, x)"})
    with pytest.raises(DefinitionError, match="no end"):
        ts.detect(events, {"stop": STOP}, until="2026-01-01T00:00:00Z")
    with pytest.raises(DefinitionError, match="silent"):
        ts.detect(events, {"stop": STOP}, silent=["stop"])
    with pytest.raises(DefinitionError, match="DataFrame"):
        ts.detect([], {"stop": STOP})  # type: ignore[arg-type]
    with pytest.raises(SchemaError, match="arrived"):
        ts.detect(events.drop("arrived"), {"stop": STOP})
    with pytest.raises(SchemaError, match="offset"):
        ts.detect(events.withColumn("offset", events.id), {"stop": STOP})
