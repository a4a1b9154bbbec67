"""Programs as processes of their own, for tests: commands whose lines are read as they come, and parts of a test."""

from __future__ import annotations

import queue
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def state_and_parent(process: int) -> tuple[str, int] | None:
    """What /proc says of a process; None: there is none. A program's name, in parentheses, may hold anything."""
    try:
        state, parent = Path(f"/proc/{process}/stat").read_text(errors="replace").rpartition(")")[2].split()[:2]
    except OSError:
        return None
    return state, int(parent)


def lives(process: int) -> bool:
    """Does a process run? One that has ended and was not waited for does not."""
    found = state_and_parent(process)
    return found is not None and found[0] not in "ZX"


def below(process: int) -> set[int]:
    """Processes that run and come from one, itself left out."""
    numbers = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    known = {number: state_and_parent(number) for number in numbers}
    parents = {number: each[1] for number, each in known.items() if each is not None and each[0] not in "ZX"}
    found = {process}
    while more := {each for each, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {process}


def marked(setting: str) -> list[str]:
    """What runs with this `NAME=value` in its environment: all that was started below a program, and got it along."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and setting.encode() in (entry / "environ").read_bytes().split(b"\0"):
                found.append(f"{entry.name}: {(entry / 'cmdline').read_bytes()[:300]!r}")
        except OSError:
            continue
    return found


def gone(setting: str, seconds: float = 20) -> list[str]:
    """Wait until nothing so marked runs any more; what is left after so many seconds."""
    until = time.monotonic() + seconds
    while (left := marked(setting)) and time.monotonic() < until:
        time.sleep(0.1)
    return left


class Running:
    """A command at work, and its lines as they come."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self._lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line.rstrip("\n"))

    def until(self, part: str) -> list[str]:
        found: list[str] = []
        while not found or part not in found[-1]:
            found.append(self._lines.get(timeout=60))
        return found

    def end(self, number: int) -> tuple[int, str]:
        """Tell it to stop; its exit code and stderr."""
        self.process.send_signal(number)
        self.process.wait(60)
        assert self.process.stderr is not None
        return self.process.returncode, self.process.stderr.read()


@contextmanager
def running(command: Sequence[str], cwd: Path | None, environment: Mapping[str, str]) -> Iterator[Running]:
    """A command at work; it is killed at the end if it has not ended."""
    process = subprocess.Popen(
        command,
        cwd=cwd,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield Running(process)
    finally:
        process.kill()
        process.wait()
        for stream in (process.stdout, process.stderr):
            assert stream is not None
            stream.close()


@contextmanager
def program(module: str, *words: object) -> Iterator[subprocess.Popen[str]]:
    """A module of the tests at work, whose lines the test reads; it is killed at the end."""
    command = [sys.executable, "-m", module, *map(str, words)]
    path = f"{ROOT}:{ROOT / 'src'}"
    with subprocess.Popen(command, cwd=ROOT, env={"PYTHONPATH": path}, stdout=subprocess.PIPE, text=True) as child:
        try:
            yield child
        finally:
            child.kill()
