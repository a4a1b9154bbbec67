"""Commands as people run them: in processes of their own, with lines that are read as they come, or here."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.processes import Running, running
from tests.unit.test_cli_journal import ENVIRONMENT

COMMAND = [sys.executable, "-m", "tocsin.cli"]
QUICK = ENVIRONMENT | {"TOCSIN_KERNELS": "numpy", "TOCSIN_NO_SPARK": "1"}
"""Numba takes a second to load, in every process; Spark takes ten."""


@dataclass(frozen=True)
class Node:
    """A node that `tocsin up` runs."""

    url: str
    data: Path
    running: Running

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])


def started(*arguments: str | Path, cwd: Path | None = None, **environment: str) -> AbstractContextManager[Running]:
    """A command of ours at work."""
    return running([*COMMAND, *map(str, arguments)], cwd, QUICK | environment)


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
