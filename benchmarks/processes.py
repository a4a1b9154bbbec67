"""Programs of a benchmark that run beside it: started, told to go, asked what they measured, and ended.

    with Program("benchmarks.wire_programs", "publish", url, "1000") as publisher:
        publisher.said()  # that it is ready
        publisher.go()
        found = publisher.said()

A program says lines of JSON on its standard output: `{"ready": true, …}` when it has prepared, and then, after a line
has come on its standard input, what it has measured. CPU seconds are those the system has counted for the process with
all its threads: a busy neighbour makes them a little larger, not much.
"""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

__all__ = ["Program", "cpu_of", "memory_of", "say", "wait_for_go"]

_TICK = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
PATIENCE = 180.0
"""Seconds until a program that says nothing is given up."""


def cpu_of(pid: int) -> float:
    """CPU seconds of a process so far, of all its threads; to a hundredth of a second."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICK


def memory_of(pid: int) -> int:
    """Bytes of memory a process has."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE


class Program:
    """A program beside this one; in `with`: it is ended at the end."""

    def __init__(self, module: str, *arguments: object) -> None:
        """Start `python -m module arguments`."""
        command = [sys.executable, "-m", module, *map(str, arguments)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._name = " ".join(map(str, arguments[:1]))

    @property
    def pid(self) -> int:
        """Its number."""
        return self._process.pid

    def said(self) -> dict[str, Any]:
        """The next thing it says."""
        found = self.heard(PATIENCE)
        if found is None:
            raise SystemExit(f"{self._name} says nothing")
        return found

    def heard(self, seconds: float) -> dict[str, Any] | None:
        """The next thing it says; None: nothing so long."""
        assert self._process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            if not selector.select(seconds):
                return None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"{self._name} has ended: {self._process.wait()}")
        found: dict[str, Any] = json.loads(line)
        return found

    def go(self) -> None:
        """Tell it to begin, or to go on."""
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()

    def __enter__(self) -> Self:
        """Use it."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End it."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.terminate()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdin.close()
        self._process.stdout.close()


def say(**what: Any) -> None:
    """In a program: tell who has started it."""
    print(json.dumps(what), flush=True)


def wait_for_go() -> float:
    """In a program: say that it is ready, wait for the word, and return the time."""
    say(ready=True)
    if not sys.stdin.readline():
        raise SystemExit
    return time.perf_counter()
