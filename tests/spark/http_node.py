"""A node that is killed and started again: `python -m tests.spark.http_node FILE PORT [POINT TIMES]`.

With a crash point it ends itself, as SIGKILL would, when that is reached for the so-many-th time after its start.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def main(path: str, port: int, point: str = "", times: int = 1) -> None:
    import tocsin
    from tocsin import testing
    from tocsin.net import run

    def ready(server: object) -> None:
        if point:
            testing.crash_at(point, times)
        print("ready", flush=True)

    asyncio.run(run(tocsin.connect(f"file:{path}"), port=port, ready=ready))


class Phoenix:
    """A node on one port, started again whenever it ends, each life with the next crash point."""

    def __init__(self, path: Path, lives: list[tuple[str, int]]) -> None:
        self._path, self._lives = path, list(lives)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.deaths = 0
        self._over = threading.Event()
        self._process = self._start()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()

    def _start(self) -> subprocess.Popen[str]:
        life = self._lives.pop(0) if self._lives else ()
        command = [sys.executable, "-m", "tests.spark.http_node", str(self._path), str(self.port), *map(str, life)]
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        return process

    def _watch(self) -> None:
        while not self._over.is_set():
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(0.05)
                if not self._over.is_set():
                    self.deaths += 1
                    self._close()
                    self._process = self._start()

    def kill(self) -> None:
        """SIGKILL; it comes back."""
        self._process.kill()

    def _close(self) -> None:
        if self._process.stdout is not None:
            self._process.stdout.close()

    def end(self) -> None:
        self._over.set()
        self._thread.join(30)
        self._process.kill()
        self._process.wait(30)
        self._close()


@contextlib.contextmanager
def phoenix(path: Path, *lives: tuple[str, int]) -> Iterator[Phoenix]:
    node = Phoenix(path, list(lives))
    try:
        yield node
    finally:
        node.end()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), *sys.argv[3:4], *map(int, sys.argv[4:5]))
