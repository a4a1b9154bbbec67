"""A network that can be cut, stalled and mended: a TCP proxy between a client and a server, on the test's own loop."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

__all__ = ["Proxy", "proxy"]


class Proxy:
    """The way to one server."""

    def __init__(self, host: str, port: int) -> None:
        self._target = host, port
        self._writers: set[asyncio.StreamWriter] = set()
        self._flows = asyncio.Event()
        self._flows.set()
        self._is_cut = False
        self._tasks: set[asyncio.Task[None]] = set()
        self.url = ""
        self.count = 0
        """Connections that were ever let through."""
        self.passed = 0
        """Bytes that were."""

    def cut(self) -> None:
        """Break all connections; new ones are refused until `mend`."""
        self._is_cut = True
        self.snap()

    def mend(self) -> None:
        """Let new connections through."""
        self._is_cut = False

    def snap(self) -> None:
        """Break all connections; new ones are let through."""
        for writer in list(self._writers):
            writer.transport.abort()
        self._flows.set()

    def stall(self) -> None:
        """Pass nothing on, in either direction; connections stay."""
        self._flows.clear()

    def flow(self) -> None:
        """Pass on again."""
        self._flows.set()

    async def meet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._writers.add(writer)
        try:
            if self._is_cut:
                return
            self.count += 1
            there, back = await asyncio.open_connection(*self._target)
            self._writers.add(back)
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(self._pass_on(reader, back))
                    group.create_task(self._pass_on(there, writer))
            finally:
                self._writers.discard(back)
                back.transport.abort()
        except (OSError, ExceptionGroup):
            pass
        finally:
            self._tasks.discard(task)
            self._writers.discard(writer)
            writer.transport.abort()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while part := await reader.read(65_536):
            await self._flows.wait()
            self.passed += len(part)
            writer.write(part)
            await writer.drain()
        raise ConnectionResetError  # one side is gone: so is the other

    async def close(self) -> None:
        self.cut()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@contextlib.asynccontextmanager
async def proxy(url: str) -> AsyncIterator[Proxy]:
    """Stand before the server of a url."""
    parts = urlsplit(url)
    assert parts.hostname is not None and parts.port is not None
    made = Proxy(parts.hostname, parts.port)
    server = await asyncio.start_server(made.meet, "127.0.0.1", 0)
    made.url = f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield made
    finally:
        server.close()
        await made.close()
