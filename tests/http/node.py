"""A node in a process of its own, for tests of strangers and of its end: prints its address, serves until SIGTERM."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def main() -> None:
    import tocsin
    from tocsin.net import run

    async def serve() -> None:
        def ready(server: object) -> None:
            print(server.url, flush=True)  # type: ignore[attr-defined]

        await run(tocsin.connect(sys.argv[1]), port=0, ready=ready)

    asyncio.run(serve())


class Process:
    """The process, and where it listens."""

    def __init__(self, process: subprocess.Popen[str], url: str) -> None:
        self.process, self.ws = process, url
        self.http = url.replace("ws:", "http:")
        self.port = int(url.rpartition(":")[2])

    def end(self) -> tuple[int, str]:
        """Ask it to end; its exit code, and what it had to complain of."""
        self.process.send_signal(signal.SIGTERM)
        _, errors = self.process.communicate(timeout=20)
        return self.process.returncode, errors


@contextlib.contextmanager
def node(url: str) -> Iterator[Process]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT)))}
    process = subprocess.Popen(
        [sys.executable, __file__, url], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )
    try:
        assert process.stdout is not None and process.stderr is not None
        line = process.stdout.readline().strip()
        assert line.startswith("ws://"), process.stderr.read()
        yield Process(process, line)
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()
        for pipe in (process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()


if __name__ == "__main__":
    main()
