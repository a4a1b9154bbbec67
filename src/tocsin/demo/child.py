"""`tocsin up` as a child process, in a folder of its own, as a user would start it; cleared away at the end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import msgspec

from tocsin.errors import TocsinError

__all__ = ["PORT", "Child", "free_port", "node"]

PORT: Final = 8420
_READY: Final = 60.0  # seconds to come up in
_GRACE: Final = 25.0  # seconds to end in: the pipeline alone may take ten
_SHOWN: Final = 5  # lines of its log, if it fails
# What a user has set for a node of his own is not for this one; which kernels to use is.
_KEPT: Final = {"TOCSIN_KERNELS"}


class Child:
    """A node at work."""

    def __init__(self, process: asyncio.subprocess.Process, url: str, folder: Path) -> None:
        """Wrap one that is up."""
        self.process, self.url, self._folder = process, url, folder

    @property
    def page(self) -> str:
        """Where a browser finds it."""
        return self.url.replace("ws", "http", 1)

    async def fate(self) -> None:
        """Wait until it ends by itself, which it should not.

        Raises:
            TocsinError: it has.
        """
        code = await self.process.wait()
        raise TocsinError(f"the node has ended with code {code}", help=_said(self._folder) or None)


def free_port(wanted: int) -> int:
    """The port that is wanted if nobody has it, else 0, which means any."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", wanted))
        except OSError:
            return 0
    return wanted


@asynccontextmanager
async def node(*, port: int, spark: bool) -> AsyncIterator[Child]:
    """Start one and wait until it listens; at the end it is told to end, and its folder goes.

    Raises:
        TocsinError: it does not come up; the help is what it said.
    """
    with tempfile.TemporaryDirectory(prefix="tocsin-demo-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        words = ["up", "--host", "127.0.0.1", "--port", str(port), "--data", str(folder / "data"), "--json"]
        words += ["--master", "local[*]"] if spark else ["--no-spark"]
        environment = {key: value for key, value in os.environ.items() if key in _KEPT or not key.startswith("TOCSIN_")}
        environment["TMPDIR"] = name  # what Spark leaves there goes with the rest
        with (folder / "node.log").open("wb") as log:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "tocsin.cli",
                *words,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                env=environment,
                start_new_session=True,  # Ctrl-C is for the demo, which then ends it
            )
        try:
            yield Child(process, await _url(process, folder), folder)
        finally:
            await _end(process)


async def _url(process: asyncio.subprocess.Process, folder: Path) -> str:
    assert process.stdout is not None
    try:
        async with asyncio.timeout(_READY):
            line = await process.stdout.readline()
        return str(msgspec.json.decode(line)["url"])
    except (TimeoutError, msgspec.DecodeError):
        raise TocsinError("the node did not come up", help=_said(folder) or "try `tocsin up` by itself") from None


async def _end(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
    try:
        async with asyncio.timeout(_GRACE):
            await process.wait()
    except (TimeoutError, asyncio.CancelledError):  # it hangs, or somebody is in a hurry
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


def _said(folder: Path) -> str:
    lines = (folder / "node.log").read_text(errors="replace").splitlines()
    return "\n".join(lines[-_SHOWN:])
