"""Parts of the pipeline in the tests' own Spark session, beside a real node: quicker than `tocsin up`, and as real."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import tocsin
from tests.helpers import node_of
from tests.pipeline.plant import until
from tocsin import Event
from tocsin.net import serve
from tocsin.net.supervisor import Status, Supervisor
from tocsin.node.channel import Line, Settings
from tocsin.spark.pipeline.detection import Detecting
from tocsin.web import page

T = TypeVar("T")


class Beside:
    """A node on a loop of its own, and the line to it."""

    def __init__(self, loop: asyncio.AbstractEventLoop, bus: Any, supervisor: Supervisor, line: Line, folder: Path):
        self._loop, self.bus, self.supervisor, self.line, self.folder = loop, bus, supervisor, line, folder
        self.settings = settings(folder)
        self.node = node_of(bus)

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        """Have the node do something."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60)

    @contextmanager
    def served(self) -> Iterator[str]:
        """Its page and routes, and where they are, until the block ends."""
        serving = serve(self.bus, page=page())
        server = self.do(serving.__aenter__())
        server.pipeline = self.supervisor
        try:
            yield f"{server.url.replace('ws', 'http', 1)}/"
        finally:
            self.do(serving.__aexit__(None, None, None))

    def status(self) -> Status:
        async def ask() -> Status:
            return self.supervisor.status()

        return self.do(ask())

    def publish(self, *kinds: str, k: str = "x") -> None:
        self.do(self.bus.publish_many([Event(kind, "plant", data={"k": k}) for kind in kinds]))

    def counts(self) -> dict[str, int]:
        return {each.name: each.detected for each in self.do(self.bus.definitions())}

    def source(self) -> dict[str, str]:
        lake = self.folder / "lake"
        return {"url": f"file:{self.folder / 'journal.db'}"} | ({"lake": str(lake)} if lake.exists() else {})

    def detecting(self, spark: Any) -> Detecting:
        return Detecting(spark, self.line, self.settings, self.source)

    def look_until(self, detecting: Detecting, condition: Callable[[], T], what: str) -> T:
        """Let detection go on until something is so."""

        def look() -> T:
            detecting.look()
            return condition()

        return until(look, what, 90)

    def caught_up(self, detecting: Detecting) -> None:
        """Let detection go on until everything is looked at, and Spark has noted it."""
        self.look_until(detecting, lambda: self.status().lag == 0, "all is looked at")


def settings(folder: Path) -> Settings:
    return Settings(
        str(folder / "journal.db"), "http://127.0.0.1:1", None, "local[2]", str(folder / "spark"), str(folder / "lake")
    )


@contextmanager
def beside(folder: Path) -> Iterator[Beside]:
    """A node whose journal is in a folder, until the block ends."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    mine, its = socket.socketpair()

    async def open_() -> tuple[Any, Any, Supervisor, asyncio.Task[Any]]:
        opening = tocsin.connect(f"file:{folder / 'journal.db'}")
        bus = await opening.__aenter__()
        supervisor = Supervisor(node_of(bus), settings(folder))
        node_of(bus).beside.attach()
        mine.setblocking(False)
        reader, writer = await asyncio.open_connection(sock=mine)

        async def answer() -> None:
            await supervisor.answer(reader, writer)
            writer.close()
            await writer.wait_closed()

        return opening, bus, supervisor, asyncio.ensure_future(answer())

    async def close(opening: Any, task: asyncio.Task[Any]) -> None:
        its.close()
        await task
        await opening.__aexit__(None, None, None)

    try:
        (folder / "spark").mkdir(exist_ok=True)
        opening, bus, supervisor, task = asyncio.run_coroutine_threadsafe(open_(), loop).result(60)
        try:
            yield Beside(loop, bus, supervisor, Line(its), folder)
        finally:
            asyncio.run_coroutine_threadsafe(close(opening, task), loop).result(60)
    finally:
        mine.close()
        loop.call_soon_threadsafe(loop.stop)
        thread.join(20)
        loop.close()
