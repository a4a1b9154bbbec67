"""A real standalone cluster: `make cluster` to its end, and nothing left behind, however it ends."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from tests.processes import gone, marked
from tocsin import SessionError

pytest.importorskip("tocsin.spark", reason="PySpark is not installed; `make setup` installs it")
from tocsin.spark import standalone

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

ROOT = Path(__file__).resolve().parents[2]
MARK = "TOCSIN_TEST_MARK"


@pytest.mark.slow
@pytest.mark.crash
@pytest.mark.skipif(shutil.which("make") is None, reason="there is no make")
def test_make_cluster_matches_and_detects_while_pythons_are_killed() -> None:
    mark = uuid.uuid4().hex
    done = subprocess.run(
        ["make", "cluster", "ARGS=--events 8000 --kill"],
        cwd=ROOT,
        env={**os.environ, MARK: mark},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    assert "on 2 executors" in done.stdout
    assert "killed a Python" in done.stdout
    assert re.search(r"8,000 events, 4,000 filters: [1-9][\d,]* notices, [1-9][\d,]* composite events", done.stdout)
    assert "The cluster and one process agree." in done.stdout
    assert gone(f"{MARK}={mark}", 5) == []


@pytest.mark.slow
def test_a_cluster_ends_with_its_program_also_if_that_is_killed(tmp_path: Path) -> None:
    mark = uuid.uuid4().hex
    program = (
        "from tocsin.spark.standalone import standalone\n"
        "import sys\n"
        "with standalone(1, memory='512m') as cluster:\n"
        "    print(cluster.master, flush=True)\n"
        "    sys.stdin.readline()\n"
    )
    for how in ("end", "kill"):
        process = subprocess.Popen(
            [sys.executable, "-c", program],
            env={**os.environ, MARK: mark, "TMPDIR": str(tmp_path)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        assert process.stdout.readline().startswith("spark://127.0.0.1:")
        assert len(marked(f"{MARK}={mark}")) >= 3  # the program, a master, a worker
        if how == "kill":
            process.send_signal(signal.SIGKILL)
        process.communicate("\n" if how == "end" else None, timeout=60)
        assert process.returncode == (0 if how == "end" else -signal.SIGKILL)
        assert gone(f"{MARK}={mark}") == []
        assert how == "kill" or not list(tmp_path.glob("tocsin-cluster-*"))


def test_what_does_not_come_up_says_why(tmp_path: Path) -> None:
    log = tmp_path / "log"
    environment = standalone._environment(tmp_path)
    process = standalone._start(log, environment, "master.Nothing")
    try:
        with pytest.raises(SessionError, match=r"(?s)the master of the cluster ended with code \d.*master\.Nothing"):
            standalone._wait_for(standalone._MASTER.search, process, log, "the master")
    finally:
        standalone._end(process)
