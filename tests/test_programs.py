"""What people start by hand runs: the warm-up, and the benchmarks on a small cell."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest
from _pytest.mark.structures import ParameterSet

from benchmarks import bench_delivery, bench_detect, bench_journal, bench_match
from tocsin.filters.index import engine

ROOT = Path(__file__).resolve().parents[1]


def run(*arguments: str, timeout: float = 110) -> str:
    done = subprocess.run([sys.executable, "-m", *arguments], capture_output=True, text=True, cwd=ROOT, timeout=timeout)
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    return done.stdout


def test_kernels_are_compiled_ahead() -> None:
    assert run("tocsin.filters.warm").startswith("matching kernels ready")
    assert run("tocsin.spark.warm").startswith("Spark's kernels ready")


@pytest.mark.timeout(300)
def test_a_small_cell_of_the_benchmark() -> None:
    """The cell checks its contenders against each other before it times them; here we look at what it reports."""
    assert engine.wait()
    row = bench_match.run(400, 0.01, repeat=1)
    assert row["matches_per_event"] > 1
    assert 0 < row["tested_per_event"] <= row["scanned_per_event"] < 400
    assert all(row[name]["per_s"] > 0 for name in ("single", "arrow", "list", "flat_scan"))
    assert "400" in bench_match.summary([row])


JOURNAL = bench_journal.Sizes(
    repeat=1, publish=2000, tasks=400, disk=2000, alone=400, merge=2000, merge_alone=400,
    past=20_000, decoded=200, reopen=2000, consumers=3,
)  # fmt: skip
DELIVERY = bench_delivery.Sizes(repeat=1, stream=2000, seconds=1, consumers=20, crowd=1000, behind=20_000, before=2000)


def parts(names: Iterable[str]) -> list[ParameterSet]:
    """Those that start processes, or fill a long journal, are slow."""
    return [pytest.param(n, marks=[pytest.mark.slow] * (n in ("past", "reopen", "memory"))) for n in names]


@pytest.mark.parametrize("part", parts(bench_journal.PARTS))
def test_a_small_run_of_the_journal_benchmark(part: str, tmp_path: Path) -> None:
    """Each part checks what it has stored and found while it measures."""
    rows = [{"part": part, **row} for row in bench_journal.PARTS[part](JOURNAL, tmp_path)]
    assert rows == json.loads(json.dumps(rows))
    assert len(bench_journal.summary(rows).splitlines()) > len(rows)


@pytest.mark.parametrize("part", parts(bench_delivery.PARTS))
def test_a_small_run_of_the_delivery_benchmark(part: str, tmp_path: Path) -> None:
    """Each part counts what was delivered while it measures."""
    assert engine.wait()
    rows = [{"part": part, **row} for row in bench_delivery.PARTS[part](DELIVERY, tmp_path)]
    assert rows == json.loads(json.dumps(rows))
    assert len(bench_delivery.summary(rows).splitlines()) > len(rows)


DETECT = bench_detect.Sizes(
    repeat=1, events=4000, keys=100, durable=200, definitions=20, open=2000, soak=100_000, pairs=20
)


@pytest.mark.parametrize("part", parts(bench_detect.PARTS))
def test_a_small_run_of_the_detection_benchmark(part: str) -> None:
    """Each part compares what was found, or counts it, while it measures."""
    rows = [{"part": part, **row} for row in bench_detect.PARTS[part](DETECT)]
    assert rows == json.loads(json.dumps(rows))
    assert len(bench_detect.summary(rows).splitlines()) > len(rows)
