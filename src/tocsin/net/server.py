"""The server: `WS /bus` and `GET /health`, on one event loop with the node.

    async with tocsin.connect("file:plant.db") as bus, serve(bus, port=8420) as server:
        print(server.url)

Of two sessions of one name the newer wins; the older is told. `run` serves until SIGTERM or SIGINT, then drains: it
takes no more connections, finishes what was begun, says goodbye, and returns.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from tocsin.errors import NetworkError
from tocsin.net.access import Caller, Gate
from tocsin.net.protocol import LIMITS, Codec, Limits, choose
from tocsin.net.session import Session
from tocsin.node.pipeline import Node

__all__ = ["Server", "run", "serve"]

HOST, PORT = "127.0.0.1", 8420


class _Socket:
    """A Starlette WebSocket as a session wants it."""

    def __init__(self, websocket: WebSocket, codec: Codec) -> None:
        self._websocket = websocket
        self._kind = "bytes" if codec.binary else "text"

    async def receive(self) -> bytes | str | None:
        message = await self._websocket.receive()
        if message["type"] == "websocket.disconnect":
            return None
        text = message.get("text")
        data: bytes | str = text if text is not None else message.get("bytes") or b""
        return data

    async def send(self, message: bytes) -> None:
        content = message if self._kind == "bytes" else message.decode()
        await self._websocket.send({"type": "websocket.send", self._kind: content})

    async def close(self, code: int, reason: str) -> None:
        with contextlib.suppress(RuntimeError, WebSocketDisconnect, OSError, TimeoutError):  # it may be closed already
            async with asyncio.timeout(1):  # or take nothing any more
                await self._websocket.close(code, reason)


class Server:
    """A node on the network. `app` is an ASGI application; `serve` and `run` put it on a port."""

    def __init__(self, bus: Any, *, limits: Limits = LIMITS, routes: tuple[BaseRoute, ...] = ()) -> None:
        """Serve the node of a bus; more routes may be given."""
        self.node: Node = bus._node
        self.gate = Gate(bus.as_user)
        self.limits = limits
        self.url = ""
        """Where it is, once it listens."""
        self.sessions: set[Session] = set()
        self._named: dict[str, Session] = {}
        self.draining = False
        self.app = Starlette(
            routes=[Route("/health", self._health), WebSocketRoute("/bus", self._connect), *routes],
        )

    async def _health(self, request: Request) -> Response:
        """Is it well? 200, or 503 while it drains."""
        about = {
            "status": "draining" if self.draining else "ok",
            "head": self.node.head,
            "sessions": len(self.sessions),
        }
        return JSONResponse(about, status_code=503 if self.draining or self.node.closed else 200)

    async def _connect(self, websocket: WebSocket) -> None:
        codec, subprotocol = choose(websocket.scope.get("subprotocols", ()))
        await websocket.accept(subprotocol)
        where = websocket.client.host if websocket.client is not None else ""

        def admit(token: str | None, name: str | None) -> Caller:
            return self.gate.admit(token, name, where, "client-" + secrets.token_hex(6))

        session = Session(self.node, admit, self._arrive, _Socket(websocket, codec), codec)
        self.sessions.add(session)
        try:
            if self.draining:
                session.leave("draining")
            await session.run(self.limits)
        finally:
            self.sessions.discard(session)
            if self._named.get(session.name) is session:
                del self._named[session.name]

    async def _arrive(self, session: Session) -> None:
        """The newer session of a name wins: the older gives back all it has before the newer begins."""
        older, self._named[session.name] = self._named.get(session.name), session
        if older is not None:
            older.replace()
            await older.ended()

    async def drain(self) -> None:
        """Let every session finish what it has begun, and end it."""
        self.draining = True
        sessions = list(self.sessions)
        for session in sessions:
            session.leave("draining")
        await asyncio.gather(*(session.ended() for session in sessions))


class _Uvicorn(uvicorn.Server):
    """Says when it listens; leaves signals to `run`."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = asyncio.Event()

    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets)
        self.ready.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Any:
        yield


def _listening(host: str, port: int) -> socket.socket:
    """A socket that is bound.

    Raises:
        NetworkError: it cannot be.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # The protocol is named: asyncio sets TCP_NODELAY only where it is, and without that each answer waits 40 ms.
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host, port))
    except OSError as error:
        bound.close()
        raise NetworkError(
            f"cannot listen on {host}, port {port}: {error.strerror}",
            field="port",
            help="choose another port, or end what listens there",
        ) from None
    return bound


@asynccontextmanager
async def serve(
    bus: Any, host: str = HOST, port: int = 0, *, limits: Limits = LIMITS, routes: tuple[BaseRoute, ...] = ()
) -> AsyncIterator[Server]:
    """Put the node of a bus on a port while the context is open; the bus stays open after it.

    Args:
        bus: an embedded bus.
        host: the address to listen on.
        port: 0: any that is free; `url` of the server says which.
        limits: what a connection may cost.
        routes: more routes.

    Raises:
        NetworkError: it cannot listen there.
    """
    server = Server(bus, limits=limits, routes=routes)
    config = uvicorn.Config(
        server.app,
        host=host,
        port=port,
        ws="websockets-sansio",
        ws_max_size=limits.max_frame,
        ws_per_message_deflate=False,
        ws_ping_interval=None,  # our own heartbeat goes through the same queues as everything else
        lifespan="off",
        log_config=None,
        access_log=False,
        timeout_graceful_shutdown=5,
    )
    listener = _Uvicorn(config)
    with _listening(host, port) as listening:
        shown = f"[{host}]" if ":" in host else host
        server.url = f"ws://{shown}:{listening.getsockname()[1]}"
        task = asyncio.get_running_loop().create_task(listener.serve([listening]))
        try:
            await listener.ready.wait()
            yield server
        finally:
            await server.drain()
            listener.should_exit = True
            await task


async def run(
    opening: AbstractAsyncContextManager[Any],
    host: str = HOST,
    port: int = PORT,
    *,
    limits: Limits = LIMITS,
    ready: Any = None,
) -> None:
    """Open a node and serve it until SIGTERM or SIGINT; then drain, close the node and return.

    Args:
        opening: what `tocsin.connect("file:…")` gives.
        host: the address to listen on.
        port: the port; 0: any that is free.
        limits: what a connection may cost.
        ready: called with the server once it listens.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for each in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(each, stop.set)
    try:
        async with opening as bus, serve(bus, host, port, limits=limits) as server:
            if ready is not None:
                ready(server)
            await stop.wait()
    finally:
        for each in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(each)
