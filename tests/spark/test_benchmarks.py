"""The benchmarks of Spark, on a small scale: each checks what it has found while it measures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import bench_spark_batch, bench_spark_detect, bench_spark_match, bench_spark_source
from benchmarks.rules import CONTENDERS

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

SIZES = bench_spark_source.Sizes(1, source=3_000, archive=3_000, sink=500, loop_seconds=5, loop_warm=5)


def test_contenders_find_the_same_pairs(spark: Any, tmp_path: Path) -> None:
    row = bench_spark_match.measured(spark, tmp_path, 400, dict.fromkeys(CONTENDERS, 400), 1)
    assert row == json.loads(json.dumps(row))
    assert len({row[name]["pairs"] for name in CONTENDERS}) == 1 and row["tocsin"]["pairs"] > 0
    assert "400 rules, tocsin" in bench_spark_match.summary([row])


@pytest.mark.parametrize(
    "part", [pytest.param(part, marks=[pytest.mark.slow] * (part == "loop")) for part in bench_spark_source.PARTS]
)
def test_a_small_run_of_the_source_benchmark(spark: Any, part: str, tmp_path: Path) -> None:
    rows = [{"part": part, **row} for row in bench_spark_source.PARTS[part](SIZES, tmp_path)]
    assert rows == json.loads(json.dumps(rows))
    assert len(bench_spark_source.summary(rows).splitlines()) > len(rows)


@pytest.mark.parametrize("part", ["windows_json", "windows_ten", "engines_where"])
def test_a_small_run_of_detection_over_history(spark: Any, part: str, tmp_path: Path) -> None:
    row = bench_spark_batch.measured(spark, tmp_path, part, 8_000, 1)
    assert row == json.loads(json.dumps(row)) and row["found"] > 0
    assert part in bench_spark_batch.summary([row])


@pytest.mark.parametrize("part", ["1000", "open", "journal"])
def test_a_small_run_of_detection_in_a_stream(spark: Any, part: str, tmp_path: Path) -> None:
    row = bench_spark_detect.measured(spark, tmp_path, part, 8_000, with_per_key=part == "1000")
    assert row == json.loads(json.dumps(row)) and row["tocsin"]["found"] > 0
    assert f"{part}, tocsin" in bench_spark_detect.summary([row])
