"""The demo with Spark, until it has shown what it promises: everything promised is seen, and nothing is left behind."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.processes import COMMAND
from tests.demo.test_ending import MARK
from tests.pipeline.plant import ENVIRONMENT
from tests.processes import gone
from tocsin.demo.promises import PROMISES

pytest.importorskip("pyspark", reason="PySpark is not installed; `make setup` installs it")


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """A folder with a short name: sockets will lie in it, and their paths have little room."""
    with tempfile.TemporaryDirectory(prefix="demo-") as name:
        yield Path(name)


@pytest.mark.spark
@pytest.mark.timeout(300)
@pytest.mark.parametrize("seconds", [10, pytest.param(60, marks=pytest.mark.slow)])
def test_it_shows_one_of_each(short_folder: Path, seconds: int) -> None:
    """However short it is to be, it goes on until all was seen."""
    command = [*COMMAND, "demo", "--headless", "--seconds", str(seconds), "--port", "0", "--json"]
    environment = ENVIRONMENT | {"TMPDIR": str(short_folder), MARK: str(short_folder)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=280)
    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads(done.stdout)
    assert found["missing"] == []
    assert found["seen"].keys() == PROMISES.keys()
    assert all(each["count"] >= 1 and each["first"] > 0 for each in found["seen"].values())
    told = done.stderr
    assert "Traceback" not in told and "its JVM warms up" in told
    assert told.index("SMOKE") < told.index("is up, after"), "the node does not wait for Spark"
    assert "Spark finds drift: m6 drifts" in told and "why drift? a = 9" in told
    assert gone(f"{MARK}={short_folder}") == [] and os.listdir(short_folder) == []
