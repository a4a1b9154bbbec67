"""Parts of the pipeline without a Spark: its supervisor, its checkpoint, its statistics, what it says of its master."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from msgspec.structs import replace

pytest.importorskip("pyspark", reason="PySpark is not installed; `make setup` installs it")

import tocsin
from tests.helpers import node_of, soon, take, testing
from tests.pipeline.plant import until
from tocsin import Event
from tocsin.cli.pipeline import _lines
from tocsin.errors import JournalError, NetworkError, SessionError
from tocsin.net import pipelinelog, serve
from tocsin.net.supervisor import Supervisor, unlooked
from tocsin.node.beside import Progress
from tocsin.node.channel import HEADER, Archived, Definitions, Failed, Line, Look, Report, Settings, Up, decode, pack
from tocsin.node.divided import Divided, Relaid, ShardStatus
from tocsin.spark.pipeline import fitness
from tocsin.spark.pipeline.checkpoint import Checkpoint
from tocsin.spark.pipeline.detection import reached
from tocsin.spark.pipeline.failing import explained
from tocsin.spark.pipeline.statistics import KEPT, QUIET, Statistics, count, summary

SECOND = 1_000_000


def settings(folder: Path, **others: Any) -> Settings:
    journal, own = str(folder / "journal.db"), str(folder / "spark")
    return replace(Settings(journal, "http://127.0.0.1:1", None, "local[2]", own, None), **others)


# -- the supervisor

SAYS = """
import socket, sys
from tocsin.node.channel import *
line = Line(socket.socket(fileno=int(sys.argv[1])))
found = line.ask(Begin(), Settings)
assert found.master == "local[2]"
line.ask(Fit())
line.ask(Failed("it is a Monday", "wait"))
sys.exit(1)
"""


async def test_what_fails_is_started_again_less_and_less_often(tmp_path: Path, monkeypatch: Any) -> None:
    waits: list[float] = []
    sleep = asyncio.sleep

    async def slept(seconds: float) -> None:
        waits.append(seconds)
        await sleep(0)
        if len(waits) == 4:
            await supervisor.stop()

    async with tocsin.connect(f"file:{tmp_path / 'journal.db'}") as bus:
        supervisor = Supervisor(node_of(bus), settings(tmp_path), (sys.executable, "-c", "raise SystemExit(3)"))
        monkeypatch.setattr("asyncio.sleep", slept)
        await soon(supervisor.run())
        monkeypatch.undo()
    assert waits == [1, 2, 4, 8] and supervisor.restarts == 4
    status = supervisor.status()
    assert status.state == "ended" and status.trouble is not None
    assert "ended with code 3" in status.trouble.message and "pipeline.log" in str(status.trouble.help)


async def test_it_says_why_it_ends_and_nobody_waits_for_what_may_never_come(tmp_path: Path) -> None:
    async with tocsin.connect(f"file:{tmp_path / 'journal.db'}") as bus:
        node = node_of(bus)
        supervisor = Supervisor(node, settings(tmp_path), (sys.executable, "-c", SAYS))
        asking = asyncio.ensure_future(node.beside.is_attached())
        task = asyncio.ensure_future(supervisor.run())
        assert await soon(asking)
        async with asyncio.timeout(20):
            while supervisor.trouble is None:  # noqa: ASYNC110  a process is waited for
                await asyncio.sleep(0.01)
        assert (supervisor.trouble.message, supervisor.trouble.help) == ("it is a Monday", "wait")
        await supervisor.stop()
        task.cancel()
        broken = Supervisor(node, settings(tmp_path), ("/nothing/there",))
        asking = asyncio.ensure_future(node.beside.is_attached())
        task = asyncio.ensure_future(broken.run())
        assert not await soon(asking) and "does not start" in str(node.beside.halted)
        task.cancel()


def test_a_line_without_a_node_at_its_end() -> None:
    mine, its = socket.socketpair()
    its.close()
    with mine, pytest.raises(NetworkError, match="the node is gone"):
        Line(mine).ask(Look(None), Definitions)


async def test_a_process_that_fails_is_told_as_it_is_and_forgotten_when_it_works_again(tmp_path: Path) -> None:
    async with tocsin.connect(f"file:{tmp_path / 'journal.db'}") as bus:
        supervisor = Supervisor(node_of(bus), settings(tmp_path))
        mine, its = socket.socketpair()
        mine.setblocking(False)
        reader, writer = await asyncio.open_connection(sock=mine)
        answering = asyncio.ensure_future(supervisor.answer(reader, writer))

        def say(*messages: Any) -> None:
            line = Line(its)
            for message in messages:
                assert line.ask(message) is None

        await asyncio.to_thread(say, Report(trouble=("archive", "no room", "make some")), Up("4.3"))
        assert "no room" in str(supervisor.status().trouble)  # Spark is up, no more
        await asyncio.to_thread(say, Report(progress=Progress(0, 0), batch_seconds=0.1))
        assert "no room" in str(supervisor.status().trouble)
        await asyncio.to_thread(say, Report(progress=Progress(5, 0), batch_seconds=0.3))
        assert [(each.seconds, each.events) for each in supervisor.status().history] == [(0.1, 0), (0.3, 5)]
        await asyncio.to_thread(say, Report(archived=Archived(1, 1, 0.1)))
        assert (supervisor.status().trouble, supervisor.status().archived) == (None, Archived(1, 1, 0.1))
        await asyncio.to_thread(say, Failed("it is a Monday", "wait"))
        its.close()
        failed = await soon(answering)
        assert failed is not None and (failed.message, failed.help) == ("it is a Monday", "wait")
        writer.close()


async def test_shards_are_shown_to_people_and_machines(tmp_path: Path) -> None:
    """As the pipeline reports them: by `tocsin pipeline status`, `GET /pipeline` and `GET /metrics`."""
    at = datetime(2026, 11, 17, 9, 30, tzinfo=UTC)
    async with tocsin.connect(f"file:{tmp_path / 'journal.db'}") as bus, serve(bus) as server:
        server.pipeline = supervisor = Supervisor(node_of(bus), settings(tmp_path))

        async def got(route: str) -> str:
            where = server.url.replace("ws:", "http:") + route
            return await asyncio.to_thread(lambda: urllib.request.urlopen(where, timeout=20).read().decode())

        assert "subscriptions" not in "".join(_lines(json.loads(await got("/pipeline"))))
        assert "tocsin_pipeline_shards" not in await got("/metrics")
        await bus.subscribe("value > 1", consumer="far", placement="spark")
        await supervisor._reply(Report(matching=Divided(4, (ShardStatus("0 of 1", 1),))))
        await supervisor._reply(Report(batch_seconds=0.1))  # says nothing of shards, so they are as they were
        lines = list(_lines(json.loads(await got("/pipeline"))))
        at_last = lines.index("    1 subscriptions are matched there")
        assert lines[at_last + 1 : at_last + 3] == [
            "    their filters, version 4: 1 shards",
            "        0 of 1: 1 filters",
        ]
        shards = (ShardStatus("0 of 2", 30, 500, (0.25, 0.5)), ShardStatus("1 of 2"))
        changes = (Relaid(7, at, "split 0 of 1: 2 shards"),)
        packed = pack(Report(matching=Divided(7, shards, at, 1, 0, changes)))
        await supervisor._reply(decode(packed[HEADER.size :]))
        found = json.loads(await got("/pipeline"))
        assert (found["subscriptions"], found["matching"]["version"], found["matching"]["splits"]) == (1, 7, 1)
        assert found["matching"]["shards"][0] == {
            "name": "0 of 2",
            "filters": 30,
            "events": 500,
            "seconds": [0.25, 0.5],
        }
        lines = list(_lines(found))
        assert lines[lines.index("    their filters, version 7: 2 shards") + 1 :][:4] == [
            "        0 of 2: 30 filters, busy for 0.250, 0.500 s",
            "        1 of 2: not measured",
            "        split 1 times, merged 0 times since the query began",
            "        last change: split 0 of 1: 2 shards, 2026-11-17T09:30:00Z",
        ]
        metrics = await got("/metrics")
        for line in (
            "tocsin_pipeline_subscriptions 1.0",
            "tocsin_pipeline_filters_version 7.0",
            "tocsin_pipeline_shards 2.0",
            "tocsin_pipeline_splits_total 1.0",
            "tocsin_pipeline_merges_total 0.0",
            'tocsin_pipeline_shard_filters{shard="0 of 2"} 30.0',
            'tocsin_pipeline_shard_busy_seconds{shard="0 of 2"} 0.5',
        ):
            assert line in metrics.splitlines()
        assert 'shard="1 of 2"' not in metrics
        many = tuple(ShardStatus(f"{n} of 300", n, n, (float(n),)) for n in range(300))
        await supervisor._reply(Report(matching=Divided(8, many, at)))
        metrics = await got("/metrics")
        assert 'busy_seconds{shard="299 of 300"}' in metrics and metrics.count("busy_seconds{shard=") == 100


async def test_how_far_behind_it_is(tmp_path: Path) -> None:
    clock = testing.ManualClock()
    async with testing.node(url=f"file:{tmp_path / 'journal.db'}", clock=clock) as bus:
        node = node_of(bus)
        supervisor = Supervisor(node, settings(tmp_path))
        node.beside.attach()
        await bus.publish(Event("a", "plant"))
        await bus.define("pair", "SEQ([type = 'a'], [type = 'b'])", placement="spark")
        node.beside.report(Progress(node.head, node.now()))
        clock.advance(3600)
        assert (supervisor.status().lag, supervisor.status().lag_seconds) == (0, 0.0)
        await bus.publish(Event("a", "plant"))
        clock.advance(2)
        assert (supervisor.status().lag, supervisor.status().lag_seconds) == (1, 2.0)  # not an hour
        await bus.undefine("pair")
        assert supervisor.status().lag == 1  # it may have been completed before it went
        node.beside.report(Progress(node.head, node.now()))
        assert (supervisor.status().lag, supervisor.status().lag_seconds) == (None, None)


async def test_definitions_without_a_spark_are_named(tmp_path: Path) -> None:
    async with tocsin.connect(f"file:{tmp_path / 'journal.db'}") as bus:
        assert unlooked(node_of(bus)) == ""
        for name in ("here", "there"):
            await bus.define(name, "SEQ([type = 'a'], [type = 'b'])", placement="node" if name == "here" else "spark")
        said = unlooked(node_of(bus))
        assert "1 definitions" in said and "(there)" in said and "--placement node" in said
        await bus.subscribe("type = 'a'", consumer="near")
        await bus.subscribe("type = 'a'", consumer="far", placement="spark")
        assert unlooked(node_of(bus)).startswith(said) and "1 consumers" in unlooked(node_of(bus))
        await bus.undefine("there")
        assert "(far)" in unlooked(node_of(bus)) and "definitions" not in unlooked(node_of(bus))


def test_what_it_logs_stays_within_bounds_while_it_runs(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(pipelinelog, "_LARGEST", 1000)
    with pipelinelog.log_file(tmp_path) as log:
        process = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=log)
        assert process.stdin is not None
        path = tmp_path / pipelinelog.LOG
        for number in range(100):
            process.stdin.write(f"line {number} ".encode() + b"x" * 90 + b"\n")
            process.stdin.flush()
            until(lambda said=f"line {number} ": said in path.read_text(), "it is logged", 20)  # type: ignore[misc]
            pipelinelog.bound(tmp_path)
            assert path.stat().st_size <= 1000
        process.stdin.close()
        assert process.wait(20) == 0
    assert sum(each.stat().st_size for each in tmp_path.iterdir()) < 3000
    assert pipelinelog.last_line(path, 10_000).startswith(": line 99 ")


# -- the checkpoint


def made(folder: Path) -> Checkpoint:
    checkpoint = Checkpoint(folder)
    checkpoint.begin("journal-1", 5, 2)
    for name in ("offsets/0", "offsets/1", "commits/0"):
        path = checkpoint.spark / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text('v1\n{"batchWatermarkMs":0}\n{"offset": 7}')
    (checkpoint.spark / "metadata").write_text('{"id": "1"}')
    return checkpoint


def test_a_checkpoint_that_is_well(tmp_path: Path) -> None:
    about = made(tmp_path).about("journal-1")
    assert (about.first, about.buckets) == (5, 2) and about.writer.startswith("tocsin/pipeline/")
    again = Checkpoint(tmp_path)
    assert again.exists and again.about("journal-1").writer == about.writer
    assert again.reached() == 7
    again.remove()
    assert not again.exists


@pytest.mark.parametrize("name", ["about.json", "spark/offsets/1", "spark/commits/0", "spark/metadata"])
@pytest.mark.parametrize("content", ["", "v1\n{", "v1", "\x00\x00", None])
def test_a_checkpoint_that_is_damaged(tmp_path: Path, name: str, content: str | None) -> None:
    checkpoint, path = made(tmp_path), tmp_path / "detect" / name
    if content is not None:
        path.write_text(content)
    elif name in ("about.json", "spark/metadata"):  # of the others fewer may be there
        path.unlink()
    else:
        return
    with pytest.raises(JournalError, match="is damaged") as caught:
        checkpoint.about("journal-1")
    assert f"remove {tmp_path / 'detect'}" in str(caught.value.help) and "tells nothing twice" in str(caught.value.help)


def test_a_checkpoint_of_another_journal(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match="another journal"):
        made(tmp_path).about("journal-2")


def test_what_helps_is_said_for_what_the_checkpoint_is_for(tmp_path: Path) -> None:
    for name, help in (("detect", "detection begins anew"), ("match", "each event comes once")):
        assert help in str(Checkpoint(tmp_path, name).damaged("x").help)


def test_a_batch_that_says_nothing_does_not_keep_others_from_being_reported() -> None:
    done = {3: Progress(30, 3), 4: Progress(40, 4), 7: Progress(70, 7)}
    assert reached(done, 5) == Progress(40, 4)  # the fifth had not a single row
    assert reached(done, 6) is None
    assert reached(done, 7) == Progress(70, 7) and not done


@pytest.mark.parametrize("left", ["detect.new", "detect.old"])
def test_whoever_dies_while_a_checkpoint_is_made_or_removed_leaves_no_damage(tmp_path: Path, left: str) -> None:
    (tmp_path / left / "spark").mkdir(parents=True)
    (tmp_path / left / "about.json").write_text("{")
    assert not Checkpoint(tmp_path).exists
    checkpoint = Checkpoint(tmp_path)
    checkpoint.begin("journal-1", 5, 2)
    assert checkpoint.about("journal-1").first == 5
    checkpoint.remove()
    assert list(tmp_path.glob("detect*")) in ([], [tmp_path / "detect.new"])


def test_a_checkpoint_that_begins_again_has_another_writer(tmp_path: Path) -> None:
    checkpoint = made(tmp_path)
    first = checkpoint.about("journal-1").writer
    assert checkpoint.about("journal-1").writer == first
    for path in (checkpoint.spark / "offsets").iterdir():
        path.unlink()
    second = checkpoint.about("journal-1").writer
    assert second != first


@pytest.mark.parametrize(
    ("text", "message", "help", "is_final"),
    [
        ("x [CANNOT_LOAD_STATE_STORE.UNEXPECTED_FILE_SIZE] y", "is damaged", "remove", True),
        ("[STREAMING_STATEFUL_OPERATOR_MISSING_STATE_DIRECTORY] Cannot restart", "is damaged", "remove", True),
        ("[MALFORMED_LOG_FILE] Log file was malformed", "is damaged", "remove", True),
        ("java.io.IOException: No space left on device\nat {place}/spark/state/0", "the disk is full", "room", False),
        ("java.io.FileNotFoundException: {place}/spark/state/0/1 (Too many open files)", "Too many", "log", False),
        ("a\ntocsin.errors.UnauthorizedError: no token\nb", "no token", "--token", False),
        ("tocsin.errors.JournalError: offset 9 lies beyond the end of the journal", "beyond", "remove {place}", False),
        ("tocsin.errors.FilterSetError: version 3 of the filter set x was pruned", "pruned", "remove {place}", False),
        ("", "it says nothing", "log", False),
    ],
)
def test_what_spark_says_in_a_sentence(tmp_path: Path, text: str, message: str, help: str, is_final: bool) -> None:
    checkpoint = Checkpoint(tmp_path)
    error, final = explained(text.format(place=checkpoint.place), checkpoint)
    assert message in error.message and help.format(place=checkpoint.place) in str(error.help) and final == is_final


# -- statistics


def test_statistics_say_what_comes_and_who_is_silent() -> None:
    heard = {"old": 10 * SECOND}
    rows = [("m1", "value", 60, 100 * SECOND), ("m1", "alarm", 2, 70 * SECOND), ("m2", "value", 38, 95 * SECOND)]
    told = summary(rows, heard, 1, 100, 50 * SECOND)
    assert (told["events"], told["rate"], told["seconds"], told["sources"]) == (100, 2.0, 50.0, 2)
    assert [each["type"] for each in told["types"]] == ["value", "alarm"] and told["types"][0]["rate"] == 1.96
    assert told["silent"] == [{"source": "old", "seconds": 90.0}, {"source": "m2", "seconds": 5.0}]
    assert heard == {"old": 10 * SECOND, "m1": 100 * SECOND, "m2": 95 * SECOND}


def test_statistics_forget_who_was_heard_of_long_ago() -> None:
    heard = {f"s{n}": n for n in range(KEPT)}
    told = summary([("new", "value", 1, SECOND)], heard, 1, 1, 0)
    assert len(heard) == KEPT and "s0" not in heard and "new" in heard
    assert told["rate"] is None and len(told["silent"]) == 10


def test_events_are_counted_by_columns() -> None:
    rows = [("m1", "a", 5), ("m2", "a", 7), ("m1", "b", 6), ("m1", "a", 9)]
    source, type, arrived = zip(*rows, strict=True)
    columns = {"arrived": pa.array(arrived, pa.timestamp("us", "UTC")), "source": source, "type": type}
    [found] = count([pa.record_batch(columns)])
    told = Counter({(row["source"], row["type"], row["last"]): row["events"] for row in found.to_pylist()})
    assert told == {("m1", "a", 9): 2, ("m2", "a", 7): 1, ("m1", "b", 6): 1}


async def test_statistics_are_told_once_and_silence_too(tmp_path: Path, monkeypatch: Any) -> None:
    journal, now = tmp_path / "journal.db", time.time_ns() // 1000
    async with tocsin.connect(f"file:{journal}") as bus:
        heard = await bus.subscribe("type = 'tocsin.statistics'", consumer="ops", system=True)
        supervisor = Supervisor(node_of(bus), settings(tmp_path))
        mine, its = socket.socketpair()
        mine.setblocking(False)
        reader, writer = await asyncio.open_connection(sock=mine)
        answering = asyncio.ensure_future(supervisor.answer(reader, writer))

        async def told(later: float = 0) -> list[Any]:
            monkeypatch.setattr(time, "time_ns", lambda: (now + round(later * SECOND)) * 1000)
            await asyncio.to_thread(lives[-1].run)
            return [delivery.event.data for delivery in await take(bus, heard)]

        def live() -> Statistics:
            no_spark: Any = None  # so few are counted without
            return Statistics(no_spark, Line(its), dict, str(journal))

        lives = [await asyncio.to_thread(live)]
        await bus.publish_many([Event("a", "m1"), Event("a", "m2"), Event("b", "m1")])
        [first] = await told()
        assert (first["first"], first["last"], first["events"], first["sources"]) == (1, 3, 3, 2)
        lives.append(await asyncio.to_thread(live))  # the last one has died
        assert await told() == []
        await bus.publish(Event("a", "m1"))
        [second] = await told()
        assert second["events"] == 1 and second["first"] <= 5 and second["types"][0]["type"] == "a"
        assert await told(30) == []
        [silent] = await told(QUIET + 5)
        assert silent["events"] == 0 and {each["source"] for each in silent["silent"]} == {"m1", "m2"}
        assert await told(QUIET + 10) == []  # it was said
        its.close()
        await soon(answering)
        writer.close()


# -- where it runs


def test_a_node_that_executors_cannot_reach_is_refused(tmp_path: Path) -> None:
    fitness.check(settings(tmp_path))
    fitness.check(settings(tmp_path, master="spark://other:7077", url="http://node.example:8420"))
    for url in ("http://127.0.0.1:8420", "http://localhost:8420", "https://[::1]:8420"):
        with pytest.raises(SessionError, match="cannot reach this node") as caught:
            fitness.check(settings(tmp_path, master="spark://other:7077", url=url))
        assert caught.value.field == "advertise" and "--advertise" in str(caught.value.help)


def test_a_master_is_looked_for_before_spark_is_started() -> None:
    fitness.check_master("local[2]")
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        fitness.check_master(f"spark://127.0.0.1:{port}")
        fitness.check_master(f"spark://127.0.0.1:1,127.0.0.1:{port}")
    with pytest.raises(SessionError, match="cannot be reached") as caught:
        fitness.check_master(f"spark://127.0.0.1:{port}")
    assert caught.value.field == "master" and "--master" in str(caught.value.help)
    with pytest.raises(SessionError, match="names no port"):
        fitness.check_master("spark://host")


def test_nobody_takes_over_while_the_last_one_works(tmp_path: Path, monkeypatch: Any) -> None:
    fitness.wait_for_predecessor(tmp_path)  # there was none
    fitness.note_jvm(tmp_path, os.getpid())
    monkeypatch.setattr(fitness, "_SUCCESSION", 0.05)
    with pytest.raises(SessionError, match="still runs"):
        fitness.wait_for_predecessor(tmp_path)
    (tmp_path / "jvm").write_text(f"{os.getpid()} 1")  # another process had this number
    fitness.wait_for_predecessor(tmp_path)
