"""A node and a plant as processes, for tests of the page."""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.processes import ROOT, Running, program, running

ARTEFACTS = Path(__file__).parent / "artefacts"
WIDTHS = {"wide": (1280, 800), "narrow": (390, 844)}


class Node:
    """A node as `tocsin up` runs it, without Spark. Ended and started again it keeps its port and its journal."""

    def __init__(self, data: Path) -> None:
        self.data = data
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.port = probe.getsockname()[1]
        self.http = f"http://127.0.0.1:{self.port}/"
        self.ws = f"ws://127.0.0.1:{self.port}"
        self._stack = ExitStack()
        self._running: Running

    def start(self) -> Node:
        path = os.pathsep.join((str(ROOT / "src"), str(ROOT)))
        up = ["up", "--no-spark", "--json", "--port", str(self.port), "--data", str(self.data)]
        environment = {**os.environ, "PYTHONPATH": path}
        self._running = self._stack.enter_context(running([sys.executable, "-m", "tocsin.cli", *up], ROOT, environment))
        self._running.until("ws://")
        return self

    def end(self) -> tuple[int, str]:
        """Ask it to end; its exit code, and what it had to complain of."""
        return self._running.end(signal.SIGTERM)

    def close(self) -> None:
        self._stack.close()


@contextmanager
def node_in(data: Path) -> Iterator[Node]:
    node = Node(data)
    try:
        yield node.start()
    finally:
        node.close()


@contextmanager
def plant(url: str, rate: float) -> Iterator[None]:
    with program("tests.page.plant", url, rate) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        yield
