"""Commands as people run them: in processes of their own, with lines that are read as they come, or here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.unit.test_cli_journal import ENVIRONMENT
from tests.unit.test_cli_rules import Running

COMMAND = [sys.executable, "-m", "tocsin.cli"]
QUICK = ENVIRONMENT | {"TOCSIN_KERNELS": "numpy"}
"""Numba takes a second to load, in every process."""


@dataclass(frozen=True)
class Node:
    """A node that `tocsin up` runs."""

    url: str
    data: Path
    running: Running

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])


@contextmanager
def started(*arguments: str | Path, cwd: Path | None = None, **environment: str) -> Iterator[Running]:
    """A command at work; it is killed at the end if it has not ended."""
    process = subprocess.Popen(
        [*COMMAND, *map(str, arguments)],
        cwd=cwd,
        env=QUICK | environment,
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
def up(data: Path, *arguments: str | Path) -> Iterator[Node]:
    """A node on a free port."""
    port = () if "--port" in arguments else ("--port", "0")
    with started("up", *port, "--no-spark", "--data", data, "--json", *arguments) as running:
        said = json.loads(running.until("url")[-1])
        assert said["pid"] == running.process.pid and Path(said["data"]) == data.resolve()
        yield Node(said["url"], data, running)


def shim(folder: Path) -> dict[str, str]:
    """An environment in which `tocsin` is this one."""
    program = folder / "tocsin"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m tocsin.cli "$@"\n')
    program.chmod(0o755)
    return QUICK | {"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}
