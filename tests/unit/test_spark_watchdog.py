"""A JVM does not outlive its driver. Here both are small programs, so that every way of dying can be tried."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed; `make setup` installs it")

from tests.processes import lives
from tocsin.spark import watchdog

# A driver starts a JVM, the JVM a worker; then the driver starts a watchdog as `session` does, and tells who they are.
DRIVER = """
import os, subprocess, sys
jvm = subprocess.Popen([sys.executable, "-c", sys.argv[1]], stdout=subprocess.PIPE, text=True)
worker = int(jvm.stdout.readline())
watch = [sys.executable, "-I", "-S", sys.argv[2], str(jvm.pid), str(os.getpid())]
watching = subprocess.Popen(watch, start_new_session=True)
print(jvm.pid, worker, watching.pid, flush=True)
sys.stdin.read()
"""
JVM = """
import signal, subprocess, sys, time
signal.signal(signal.SIGTERM, {on_term})
ignoring = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(1, flush=True); time.sleep(600)"
worker = subprocess.Popen([sys.executable, "-c", ignoring], stdout=subprocess.PIPE)
worker.stdout.readline()
print(worker.pid, flush=True)
time.sleep(600)
"""


def gone(processes: list[int], seconds: float) -> bool:
    until = time.monotonic() + seconds
    while any(map(lives, processes)):
        if time.monotonic() > until:
            return False
        time.sleep(0.02)
    return True


@pytest.fixture
def family(request: pytest.FixtureRequest) -> Iterator[tuple[subprocess.Popen[str], list[int]]]:
    """A driver, and its JVM, worker and watchdog."""
    jvm = JVM.format(on_term=request.param)
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER, jvm, watchdog.__file__],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert driver.stdout is not None
    processes = [int(word) for word in driver.stdout.readline().split()]
    assert len(processes) == 3
    assert all(map(lives, processes))
    yield driver, processes
    for process in (driver.pid, *processes):
        if lives(process):
            os.kill(process, signal.SIGKILL)
    driver.communicate()


needs_proc = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="the test looks into /proc")


@needs_proc
@pytest.mark.parametrize("family", ["signal.SIG_IGN"], indirect=True)
def test_what_does_not_heed_a_request_is_killed_after_some_seconds(
    family: tuple[subprocess.Popen[str], list[int]],
) -> None:
    driver, processes = family
    driver.kill()
    driver.wait()
    assert not gone(processes[:2], 2), "first it is asked, and has time to clean up"
    assert gone(processes, 20)


@needs_proc
@pytest.mark.parametrize("family", ["lambda *_: sys.exit()"], indirect=True)
def test_children_of_a_jvm_that_ends_in_good_order_end_too(family: tuple[subprocess.Popen[str], list[int]]) -> None:
    driver, (jvm, worker, watching) = family
    driver.kill()
    driver.wait()
    assert gone([jvm], 4), "it was asked to"
    assert gone([worker, watching], 20)


@needs_proc
@pytest.mark.parametrize("family", ["signal.SIG_DFL"], indirect=True)
def test_a_watchdog_ends_with_its_jvm(family: tuple[subprocess.Popen[str], list[int]]) -> None:
    driver, (jvm, worker, watching) = family
    os.kill(jvm, signal.SIGKILL)
    # A zombie of the driver's by now; that is enough.
    assert gone([watching], 10)
    assert lives(worker), "the driver lives: what its JVM left behind is the driver's to decide on"
    assert driver.poll() is None
