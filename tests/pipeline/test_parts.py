"""Parts of the pipeline without a Spark: its supervisor, its checkpoint, its statistics, what it says of its master."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed; `make setup` installs it")

import tocsin
from tests.helpers import node_of, soon
from tocsin.errors import JournalError, NetworkError, SessionError
from tocsin.net.supervisor import Supervisor
from tocsin.node.channel import Definitions, Failed, Line, Look, Settings
from tocsin.spark.pipeline import fitness
from tocsin.spark.pipeline.checkpoint import Checkpoint
from tocsin.spark.pipeline.statistics import KEPT, summary

SECOND = 1_000_000


def settings(folder: Path) -> Settings:
    return Settings(str(folder / "journal.db"), "http://127.0.0.1:1", None, "local[2]", str(folder / "spark"), None)


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


def test_failures_are_told_as_they_are() -> None:
    mine, its = socket.socketpair()
    with mine, its:
        its.sendall(b"\x00\x00\x00\x01\xc0")
        assert Line(mine).ask(Failed("x", None)) is None


# -- the checkpoint


def made(folder: Path) -> Checkpoint:
    checkpoint = Checkpoint(folder)
    checkpoint.begin("journal-1", 5, 2)
    for name in ("offsets/0", "offsets/1", "commits/0"):
        path = checkpoint.spark / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text('v1\n{"batchWatermarkMs":0}\n{"offset": 7}')
    return checkpoint


def test_a_checkpoint_that_is_well(tmp_path: Path) -> None:
    about = made(tmp_path).about("journal-1")
    assert (about.first, about.buckets) == (5, 2) and about.writer.startswith("tocsin/pipeline/")
    again = Checkpoint(tmp_path)
    assert again.exists and again.about("journal-1").writer == about.writer
    assert again.reached() == 7
    again.remove()
    assert not again.exists


@pytest.mark.parametrize("name", ["detect/about.json", "detect/spark/offsets/1", "detect/spark/commits/0"])
@pytest.mark.parametrize("content", ["", "v1\n{", "v1", "\x00\x00"])
def test_a_checkpoint_that_is_damaged(tmp_path: Path, name: str, content: str) -> None:
    checkpoint = made(tmp_path)
    (tmp_path / name).write_text(content)
    with pytest.raises(JournalError, match="is damaged") as caught:
        checkpoint.about("journal-1")
    assert f"remove {tmp_path / 'detect'}" in str(caught.value.help) and "tells nothing twice" in str(caught.value.help)


def test_a_checkpoint_of_another_journal(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match="another journal"):
        made(tmp_path).about("journal-2")


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


# -- where it runs


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
