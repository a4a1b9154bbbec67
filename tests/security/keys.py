"""What these tests share: a guarded node, its tokens, a stranger with a raw WebSocket, a plain HTTP request."""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import tocsin
from tests.helpers import testing
from tests.net.test_server import Raw, stranger
from tocsin.net import serve
from tocsin.net.server import Server
from tocsin.security.tokens import TokenStore

__all__ = ["Guarded", "Raw", "guarded", "http", "stranger"]


class Guarded:
    """A node on a port, and those who may use it."""

    def __init__(self, bus: tocsin.Bus, server: Server, store: TokenStore, clock: Any) -> None:
        self.bus, self.server, self.store, self.clock = bus, server, store, clock
        self.url = server.url

    def token(self, name: str, *rights: str, **more: Any) -> str:
        return self.store.add(name, rights, **more)[0]

    def caller(self, name: str, *rights: str, **more: Any) -> Any:
        """Somebody let in with a token of these rights: what a session or a request has."""
        return self.server.gate.admit(self.token(name, *rights, **more), None, "127.0.0.1", "nobody")

    def connect(self, token: str | None, **more: Any) -> tocsin.connect:
        return tocsin.connect(self.url, token=token, **more)

    def read(self) -> str:
        """The file of tokens."""
        return Path(self.store.path).read_text()

    def write(self, text: str) -> None:
        """Another such file, as an editor writes it."""
        Path(self.store.path).write_text(text)

    async def refused(self) -> list[dict[str, Any]]:
        """What the journal says of refusals."""
        sub = await self.bus.subscribe("type = 'tocsin.refused'", past=tocsin.retained(), system=True, order="journal")
        await testing.settled(self.bus)
        found = [delivery.event.data for delivery in iter(sub.poll, None)]
        await sub.close()
        return found


@asynccontextmanager
async def guarded(
    path: Path, *, url: str = "memory:", clock: Any = None, listens: bool = True, **serving: Any
) -> AsyncIterator[Guarded]:
    """A node that has a token already, so that one is needed. One that does not listen has a gate all the same."""
    clock = clock if clock is not None else testing.ManualClock()
    store = TokenStore(path / "tokens.json")
    if not store.all():
        store.add("first", ["metrics"])
    async with testing.node(url, clock=clock, name="node") as bus:
        if not listens:
            yield Guarded(bus, Server(bus, tokens=store), store, clock)
            return
        async with serve(bus, tokens=store, **serving) as server:
            yield Guarded(bus, server, store, clock)


async def http(
    url: str, method: str = "GET", token: str | None = None, *, body: Any = None, **headers: str
) -> tuple[int, Any, Any]:
    """Status, headers and body of an answer."""
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    if token is not None:
        sent["Authorization"] = f"Bearer {token}"
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url.replace("ws", "http", 1), data, sent, method=method)

    def ask() -> tuple[int, Any, Any]:
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return answer.status, answer.headers, answer.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.headers, error.read()

    return await asyncio.to_thread(ask)
