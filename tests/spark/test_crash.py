"""Kill -9 the driver, a Python worker and the publisher while a query runs: nothing is lost, nothing comes twice.

Real processes, real SIGKILL, at moments drawn from a seed. In the end journal and lake must be exactly those of an
undisturbed run: the pairs by the filters' own answer, the lake by what the journal holds.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.processes import below, lives
from tests.spark.plant_programs import expected, found
from tocsin.journal.reader import open_reader

pytestmark = [pytest.mark.spark, pytest.mark.crash, pytest.mark.timeout(600)]

ROOT = Path(__file__).resolve().parents[2]
WORKER = [b"-m", b"tocsin.spark.daemon", b"pyspark.worker"]


def start(verb: str, directory: Path, count: int) -> subprocess.Popen[bytes]:
    if verb == "pipeline":
        (directory / "started").unlink(missing_ok=True)
    log = (directory / f"{verb}.log").open("ab")
    command = [sys.executable, "-m", "tests.spark.plant_programs", verb, str(directory), str(count)]
    return subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log, start_new_session=True)


def is_worker(process: int) -> bool:
    """Is it one of the executor's Pythons? The JVM is none, though its class path names pyspark."""
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")[1:4] == WORKER
    except OSError:
        return False


def wait_for(condition: object, seconds: float, what: str) -> None:
    until = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < until, f"{what} did not happen in {seconds} s"
        time.sleep(0.05)


def kill(process: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(process, signal.SIGKILL)


def disturb(directory: Path, count: int, kills: int, seed: int) -> dict[str, int]:
    """Run publisher and pipeline to their ends, killing things on the way; returns what was killed.

    Each kind is killed once at least: the publisher first, while it has something left to do, the worker last, since
    that may end the query and its driver.
    """
    draw = random.Random(seed)
    killed = {"driver": 0, "worker": 0, "publisher": 0}
    plan = ["publisher", "driver", "worker", *draw.choices(list(killed), k=kills - 3)]
    driver = start("pipeline", directory, count)
    wait_for((directory / "ready").exists, 120, "the session")
    publisher = start("publish", directory, count)
    try:
        for what in plan:
            if driver.poll() is not None:
                driver = start("pipeline", directory, count)
            wait_for((directory / "started").exists, 90, "the start of the query")
            time.sleep(draw.uniform(0.5, 4))
            if what == "worker" and not killed["worker"]:
                wait_for(lambda pid=driver.pid: any(map(is_worker, below(pid))), 60, "the first worker")
            family = below(driver.pid)
            if what == "worker" and (workers := [each for each in family if is_worker(each)]):
                kill(draw.choice(workers))
                killed["worker"] += 1
            elif what == "publisher" and publisher.poll() is None:
                kill(publisher.pid)
                publisher.wait()
                publisher = start("publish", directory, count)
                killed["publisher"] += 1
            elif driver.poll() is None:
                kill(driver.pid)
                driver.wait()
                killed["driver"] += 1
                wait_for(lambda family=family: not any(map(lives, family)), 30, "the end of the JVM and its workers")
                driver = start("pipeline", directory, count)
        assert publisher.wait(120) == 0, (directory / "publish.log").read_text()[-2000:]
        for _ in range(3):  # a worker that was killed may have ended the query: start it again
            if driver.wait(240) == 0:
                break
            driver = start("pipeline", directory, count)
        assert driver.wait(240) == 0, (directory / "pipeline.log").read_text()[-3000:]
    finally:
        for process in (publisher, driver):
            for each in [*below(process.pid), process.pid]:
                kill(each)
            process.wait()
    return killed


def check(directory: Path, count: int) -> None:
    wanted = expected(count)
    assert len(wanted) > count  # every event is heard of more than once
    assert sorted(found(directory)) == wanted
    with open_reader(directory / "in.db") as reader:
        ids = [each.id for block in reader.blocks() for each in block.events()]
    assert ids == [f"e{number}" for number in range(1, count + 1)]
    files = [file for file in (directory / "lake").rglob("*.parquet") if "_tocsin" not in file.parts]
    archived = sorted(
        (offset, id)
        for file in files
        for offset, id in zip(
            *(pq.ParquetFile(file).read(["offset", "id"]).column(name).to_pylist() for name in ("offset", "id")),
            strict=True,
        )
    )
    assert archived == list(enumerate(ids, 1))


def test_killed_driver_worker_and_publisher_lose_and_repeat_nothing(tmp_path: Path) -> None:
    killed = disturb(tmp_path, 4_000, kills=3, seed=5)
    assert killed == {"driver": 1, "worker": 1, "publisher": 1}
    check(tmp_path, 4_000)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_many_kills_lose_and_repeat_nothing(tmp_path: Path, seed: int) -> None:
    killed = disturb(tmp_path, 12_000, kills=8, seed=seed)
    assert sum(killed.values()) > 3 and min(killed.values()) > 0
    check(tmp_path, 12_000)
