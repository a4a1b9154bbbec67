"""The HTTP side of a server: its routes, what is open, what was counted, and its end."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, Final, Protocol

from starlette.routing import Route, Router
from starlette.types import Receive, Scope, Send

from tocsin.net.http.bodies import Bodies
from tocsin.net.http.endpoint import Endpoint, Missing
from tocsin.net.http.page import Files
from tocsin.net.http.staged import Staged
from tocsin.net.http.table import OPERATIONS
from tocsin.net.metrics import LoopLag
from tocsin.net.protocol import Limits

if TYPE_CHECKING:
    from tocsin.net.server import Server

__all__ = ["Front", "Lasting"]

STREAMS: Final = 1_000
"""Server-sent streams at a time."""
READS: Final = 64
"""Parts of the journal that are read at a time; more wait for their turn."""
LOOKS: Final = 2
"""Looks back over the journal at a time; more wait for their turn."""
TURN: Final = 10.0
"""Seconds for which it waits for that."""
_GRACE: Final = 2.0  # seconds a request may take when the node leaves


class Lasting(Protocol):
    """Something that goes on until it is told to end."""

    def end(self, reason: str) -> None:
        """Finish, and say why."""

    def abort(self) -> None:
        """End at once."""


class Front:
    """What the routes of one server share."""

    def __init__(self, server: Server, limits: Limits, files: Files) -> None:
        """Serve a node by HTTP, with the files of a page."""
        self.server, self.limits, self.files = server, limits, files
        self.bodies = Bodies(limits.hello)
        self.streams: set[Lasting] = set()
        self.most_streams = STREAMS
        self.reads = asyncio.Semaphore(READS)
        self.looks = asyncio.Semaphore(LOOKS)
        self.turn, self.now = TURN, time.monotonic
        self.staged = Staged(server.node.journal)
        self.storing = asyncio.Lock()
        """Held while a batch is stored."""
        self.requests: dict[asyncio.Task[Any], bool] = {}
        """Those on their way; true: it is cut short."""
        self.counts: Counter[tuple[str, str, int]] = Counter()
        """Answers by path, method and status."""
        self.lag = LoopLag()

    def add_to(self, router: Router) -> None:
        """Have all routes served, and what is at no route refused in the same way."""
        for path in dict.fromkeys(each.path for each in OPERATIONS):
            router.routes.append(Route(path, Endpoint(self, path, (each for each in OPERATIONS if each.path == path))))
        router.redirect_slashes = False
        elsewhere, others = Missing(self), router.default

        async def nowhere(scope: Scope, receive: Receive, send: Send) -> None:
            await (elsewhere if scope["type"] == "http" else others)(scope, receive, send)

        router.default = nowhere  # no pattern of Starlette's matches every path: not one with a line feed

    def count(self, path: str, method: str, status: int) -> None:
        """One more answer. Methods that are none count as one, so that nobody can make us count without end."""
        known = method in ("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH")
        self.counts[path, method if known else "other", status] += 1

    async def drain(self) -> None:
        """End what lasts, let the rest finish, and cut short what takes too long."""
        self.lag.stop()
        for stream in list(self.streams):
            stream.end("draining")
        await self._empty(_GRACE)
        for stream in list(self.streams):
            stream.abort()
        for task in list(self.requests):
            self.requests[task] = True
            task.cancel()
        await self._empty(_GRACE)

    async def _empty(self, seconds: float) -> None:
        own = asyncio.current_task()
        if tasks := [task for task in self.requests if task is not own]:
            await asyncio.wait(tasks, timeout=seconds)
