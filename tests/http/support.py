"""A stranger with a socket: HTTP by hand, so that nothing of ours, and no library, mends what is sent or answered."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from tests.helpers import soon, testing
from tocsin.net import serve
from tocsin.net.protocol import Limits
from tocsin.net.server import Server

STRUCTURED = {"content-type": "application/cloudevents+json"}
BATCH = {"content-type": "application/cloudevents-batch+json"}
ARROW = {"accept": "application/vnd.apache.arrow.stream"}


def cloud(id: str = "1", **more: Any) -> dict[str, Any]:
    return {"specversion": "1.0", "id": id, "source": "stranger", "type": "greeting", "data": {"n": 1}, **more}


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> tuple[int, str]:
        """Status and class; the shape of an error is checked on the way."""
        said = self.json
        assert said.keys() - {"replies"} == {"error", "message", "field", "position", "help"}, said
        assert self.headers["content-type"] == "application/json"
        return self.status, said["error"]


class Place:
    """A server and how to reach it."""

    def __init__(self, bus: Any, server: Server) -> None:
        self.bus, self.server = bus, server
        self.port = int(server.url.rpartition(":")[2])
        self.url = f"http://127.0.0.1:{self.port}"
        self._wires: list[Wire] = []

    async def open(self) -> Wire:
        secure = None
        if self.server.url.startswith("wss:"):
            secure = ssl.create_default_context()
            secure.check_hostname, secure.verify_mode = False, ssl.CERT_NONE
        self._wires.append(Wire(*await asyncio.open_connection("127.0.0.1", self.port, limit=1 << 26, ssl=secure)))
        return self._wires[-1]

    async def close(self) -> None:
        """Leave nothing open."""
        for wire in self._wires:
            wire.writer.transport.abort()
            with contextlib.suppress(OSError):
                await wire.writer.wait_closed()

    async def ask(
        self, method: str, path: str, body: bytes | Any = b"", headers: dict[str, str] | None = None
    ) -> Answer:
        wire = await self.open()
        try:
            content = body if isinstance(body, bytes) else json.dumps(body).encode()
            wire.send(method, path, {**(headers or {}), "content-length": str(len(content))}, content)
            return await soon(wire.answer(method))
        finally:
            wire.writer.close()

    async def get(self, path: str, **headers: str) -> Answer:
        return await self.ask("GET", path, headers={name.replace("_", "-"): text for name, text in headers.items()})

    async def publish(self, *events: dict[str, Any]) -> Answer:
        return await self.ask("POST", "/events", list(events), BATCH)


class Wire:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    def send(self, method: str, path: str, headers: dict[str, str], body: bytes = b"") -> None:
        lines = [f"{method} {path} HTTP/1.1", "host: 127.0.0.1", *(f"{name}: {each}" for name, each in headers.items())]
        self.writer.write("\r\n".join([*lines, "", ""]).encode("latin-1") + body)

    async def head(self) -> tuple[int, dict[str, str]]:
        lines = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = dict(line.split(": ", 1) for line in lines[1:] if line)
        return int(lines[0].split()[1]), {name.lower(): each for name, each in headers.items()}

    async def answer(self, method: str = "GET") -> Answer:
        status, headers = await self.head()
        while status == 100:
            status, headers = await self.head()
        if method == "HEAD" or status in (204, 304):
            return Answer(status, headers, b"")
        if headers.get("transfer-encoding") != "chunked":
            return Answer(status, headers, await self.reader.readexactly(int(headers["content-length"])))
        parts = []
        while part := await self.chunk():
            parts.append(part)
        return Answer(status, headers, b"".join(parts))

    async def chunk(self) -> bytes:
        size = int(await self.reader.readuntil(b"\r\n"), 16)
        return (await self.reader.readexactly(size + 2))[:-2]

    async def is_closed(self) -> bool:
        """Wait for the end; whatever comes before it is passed over."""
        try:
            while await soon(self.reader.read(1 << 16)):
                pass
        except ConnectionError:
            pass
        return True


class Listener:
    """A reader of Server-Sent Events, as the standard says."""

    def __init__(self, wire: Wire) -> None:
        self.wire, self.comments, self.retry, self.place = wire, list[str](), "", ""
        self._text = b""

    async def begin(self) -> None:
        """Read what comes before all events."""
        while b"\n\n" not in self._text:
            self._text += await soon(self.wire.chunk())
        block, _, self._text = self._text.partition(b"\n\n")
        assert self._block(block.decode()) is None

    async def next(self) -> tuple[str | None, dict[str, Any]] | None:
        """Id and data of the next event; None: the stream has ended."""
        while True:
            while b"\n\n" in self._text:
                block, _, self._text = self._text.partition(b"\n\n")
                if (found := self._block(block.decode())) is not None:
                    return found
            chunk = await soon(self.wire.chunk())
            if not chunk:
                return None
            self._text += chunk

    def _block(self, block: str) -> tuple[str | None, dict[str, Any]] | None:
        place, data = None, []
        for line in block.split("\n"):
            name, _, text = line.partition(": ")
            if line.startswith(":"):
                self.comments.append(line[1:].strip())
            elif name == "id":
                place = text
            elif name == "data":
                data.append(text)
            else:
                assert name == "retry", line
                self.retry = text
        self.place = place or self.place  # as a browser keeps it, also of a block without data
        assert len(data) <= 1, "one line of data for each event"
        return (place, json.loads(data[0])) if data else None

    async def take(self, count: int) -> list[str]:
        """Ids of the next events."""
        found = [await self.next() for _ in range(count)]
        return [each[1]["id"] for each in found if each is not None]

    async def rest(self) -> list[str]:
        found = []
        while (each := await self.next()) is not None:
            found.append(each[1]["id"])
        return found


@asynccontextmanager
async def listening(place: Place, query: str = "", **headers: str) -> AsyncIterator[Listener]:
    wire = await place.open()
    try:
        wire.send("GET", f"/subscribe?{query}", {name.replace("_", "-"): text for name, text in headers.items()})
        status, found = await soon(wire.head())
        assert (status, found["content-type"]) == (200, "text/event-stream; charset=utf-8"), (status, found)
        listener = Listener(wire)
        yield listener
    finally:
        wire.writer.close()


async def until(condition: Any) -> None:
    """Wait until something holds."""

    async def look() -> None:
        while not condition():  # noqa: ASYNC110 - of what is far inside nobody is told
            await asyncio.sleep(0.005)

    await soon(look())


@asynccontextmanager
async def served(
    url: str = "memory:", tokens: Any = None, clock: Any = None, tls: Any = None, lake: Any = None, **limits: Any
) -> AsyncIterator[Place]:
    options = {} if lake is None else {"lake": lake}
    async with (
        testing.node(url, clock, **options) as bus,
        serve(bus, limits=Limits(**limits), tokens=tokens, tls=tls) as server,
    ):
        place = Place(bus, server)
        try:
            yield place
        finally:
            await place.close()
