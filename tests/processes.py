"""Programs as processes of their own, for tests: commands whose lines are read as they come, and parts of a test."""

from __future__ import annotations

import queue
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


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
