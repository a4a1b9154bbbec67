"""What people start by hand runs: the demo, the warm-up, and the benchmarks on a small cell."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import bench_match
from tocsin.filters.index import engine

ROOT = Path(__file__).resolve().parents[1]


def run(*arguments: str) -> str:
    done = subprocess.run([sys.executable, "-m", *arguments], capture_output=True, text=True, cwd=ROOT, timeout=110)
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    return done.stdout


def test_the_demo_shows_who_hears_what_and_why() -> None:
    shown = run("tocsin.demo", "--headless", "--seconds", "0", "--filters", "300")
    assert "adding 300 filters" in shown
    assert "→" in shown, "an event that somebody heard of"
    assert "✓" in shown, "the reason why"
    assert "300 filters, 2,000 events" in " ".join(shown.split())


def test_kernels_are_compiled_ahead() -> None:
    assert run("tocsin.filters.warm").startswith("matching kernels ready")


@pytest.mark.timeout(300)
def test_a_small_cell_of_the_benchmark() -> None:
    """The cell checks its contenders against each other before it times them; here we look at what it reports."""
    assert engine.wait()
    row = bench_match.run(400, 0.01)
    assert row["matches_per_event"] > 1
    assert 0 < row["tested_per_event"] <= row["scanned_per_event"] < 400
    assert all(row[name]["per_s"] > 0 for name in ("single", "arrow", "list", "flat_scan"))
    assert "400" in bench_match.summary([row])
