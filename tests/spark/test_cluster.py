"""Two executors, each a process of its own: nothing may rely on driver and tasks being one process or one JVM."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark.cluster_program import EVENTS, filters
from tocsin import Event, Matcher
from tocsin.journal.lake import Lake
from tocsin.journal.reader import open_reader
from tocsin.sync import connect

pytest.importorskip("tocsin.spark", reason="PySpark is not installed; `make setup` installs it")


@pytest.mark.timeout(600)  # three JVMs on two cores
def test_a_pipeline_on_two_separate_executors(tmp_path: Path) -> None:
    events = [Event("reading" if n % 3 else "other", "/test", id=str(n), data={"n": n}) for n in range(EVENTS)]
    with connect(f"file:{tmp_path}/in.db") as bus:
        bus.publish_many(events)
    done = subprocess.run(
        [sys.executable, "-m", "tests.spark.cluster_program", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    said = json.loads(done.stdout.splitlines()[-1])
    assert said["executors"] == 2
    assert len(said["daemons"]) == 2, "the Pythons of two executors have two parents"
    assert said["driver"] not in said["workers"]

    matcher = Matcher(filters().items())
    wanted = sorted((offset, str(key)) for offset, event in enumerate(events, 1) for key in matcher.match(event))
    assert len(wanted) > EVENTS
    assert [tuple(pair) for pair in said["pairs"]] == wanted
    with open_reader(tmp_path / "found.db") as reader:
        stored = [(event.data["offset"], event.data["key"]) for block in reader.blocks() for event in block.events()]
    assert sorted(stored) == wanted, "a stream through the sink stores each pair once"
    assert Lake(tmp_path / "lake").last == EVENTS
