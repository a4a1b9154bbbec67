"""The server: `WS /bus` and the routes of `net.http`, on one event loop with the node.

    async with tocsin.connect("file:plant.db") as bus, serve(bus, port=8420) as server:
        print(server.url)

It listens on loopback; elsewhere only with TLS and tokens, or if it is told that this is meant (`doors`).

Of two sessions of one name the newer wins; the older is told. `run` serves until SIGTERM or SIGINT, then drains: it
takes no more connections, finishes what was begun, says goodbye, and returns.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import signal
import socket
from collections.abc import AsyncIterator, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.routing import BaseRoute, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from tocsin.errors import NetworkError, ProtocolError
from tocsin.net.access import WS, Caller, Gate
from tocsin.net.doors import Doorkeeper, Tls, check_listening, is_loopback, tls_context
from tocsin.net.http import Files, Front, Upgraded, guarded, upgraded
from tocsin.net.protocol import LIMITS, REFUSED, Codec, Limits, choose
from tocsin.net.session import Session
from tocsin.net.supervisor import Pipeline, Supervisor, supervised, unlooked
from tocsin.node.pipeline import Node
from tocsin.security.tokens import TokenStore

__all__ = ["Server", "run", "serve"]

HOST, PORT = "127.0.0.1", 8420
_GLANCE = 0.005  # seconds between two looks whether connections are closed
Tokens = TokenStore | str | os.PathLike[str]


class _Socket:
    """A WebSocket as a session wants it."""

    def __init__(self, websocket: WebSocket, codec: Codec) -> None:
        self._websocket, self._wire, self._binary = websocket, upgraded(websocket.scope), codec.binary
        self.listen, self.pause, self.resume = self._wire.listen, self._wire.pause, self._wire.resume
        self.let_in = self._wire.let_in

    @property
    def is_writable(self) -> bool:
        return self._wire.is_writable

    def write(self, messages: Iterable[bytes]) -> None:
        self._wire.write(messages, binary=self._binary)

    async def close(self, code: int, reason: str) -> None:
        with contextlib.suppress(RuntimeError, WebSocketDisconnect, OSError, TimeoutError):  # it may be closed already
            async with asyncio.timeout(1):  # or take nothing any more
                await self._websocket.close(code, reason)


class Server:
    """A node on the network. `app` is an ASGI application; `serve` and `run` put it on a port.

    Elsewhere than on that listener it has no `WS /bus`.
    """

    def __init__(
        self,
        bus: Any,
        *,
        limits: Limits = LIMITS,
        routes: tuple[BaseRoute, ...] = (),
        tokens: TokenStore | None = None,
        hosts: frozenset[str] | None = frozenset(),
        page: Files | None = None,
    ) -> None:
        """Serve the node of a bus.

        Args:
            bus: an embedded bus.
            limits: what a connection may cost.
            routes: more routes.
            tokens: whom to let in; None: everybody.
            hosts: by which names it may be called, beside those of loopback; None: by any.
            page: the files of its page; None: it has a plain one.
        """
        self.node: Node = bus._node
        self.gate = Gate(self.node, bus.as_user, tokens)
        self.limits = limits
        self.url = ""
        """Where it is, once it listens."""
        self.pipeline: Supervisor | None = None
        """Of its Spark pipeline; None: it has none."""
        self.sessions: set[Session] = set()
        self._named: dict[str, Session] = {}
        self.draining = False
        self.http = Front(self, limits, page or {})
        self.app = Starlette(
            routes=[WebSocketRoute("/bus", self._connect), *routes],
            middleware=[Middleware(Doorkeeper, gate=self.gate, hosts=hosts)],
        )
        self.http.add_to(self.app.router)

    async def _connect(self, websocket: WebSocket) -> None:
        codec, subprotocol = choose(websocket.scope.get("subprotocols", ()))
        try:
            socket = _Socket(websocket, codec)
        except ProtocolError as error:
            await websocket.close(1011, error.message)
            return
        await websocket.accept(subprotocol)
        where = websocket.client.host if websocket.client is not None else ""

        def admit(token: str | None, name: str | None) -> Caller:
            behind = secrets.token_hex(6)
            caller = self.gate.admit(token, name, where, f"client-{behind}", behind, WS)
            caller.watch(lambda error: session.leave(error.message, REFUSED, error))
            socket.let_in()
            return caller

        session = Session(self.node, admit, self._arrive, socket, codec)
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
        """Let every session and every request finish what it has begun, and end it."""
        self.draining = True
        sessions = list(self.sessions)
        for session in sessions:
            session.leave("draining")
        await asyncio.gather(self.http.drain(), *(session.ended() for session in sessions))


class _Uvicorn(uvicorn.Server):
    """Says when it listens; leaves signals to `run`; ends when it is told, and not at the next of its own looks."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready, self._leaving = asyncio.Event(), asyncio.Event()

    def leave(self) -> None:
        """Listen no more; `serve` returns when all connections are closed."""
        self.should_exit = True
        self._leaving.set()

    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets)
        self.ready.set()

    async def main_loop(self) -> None:
        """Turn the date that answers carry once a second: a tick that is no multiple of ten does nothing else."""
        while not await self.on_tick(0):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1):
                    await self._leaving.wait()

    async def shutdown(self, sockets: Any = None) -> None:
        """As uvicorn does it, but for a pause of a tenth of a second before each look whether all is closed."""
        state = self.server_state
        for server in self.servers:
            server.close()
        for connection in list(state.connections):
            connection.shutdown()
        try:
            async with asyncio.timeout(self.config.timeout_graceful_shutdown):
                while state.connections or state.tasks:  # noqa: ASYNC110 - uvicorn's sets tell nobody
                    await asyncio.sleep(_GLANCE)
                for server in self.servers:
                    await server.wait_closed()
        except TimeoutError:
            for task in state.tasks:
                task.cancel()

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
    bus: Any,
    host: str = HOST,
    port: int = 0,
    *,
    limits: Limits = LIMITS,
    routes: tuple[BaseRoute, ...] = (),
    tls: Tls | None = None,
    tokens: Tokens | None = None,
    insecure: bool = False,
    page: Files | None = None,
) -> AsyncIterator[Server]:
    """Put the node of a bus on a port while the context is open; the bus stays open after it.

    Args:
        bus: an embedded bus.
        host: the address to listen on.
        port: 0: any that is free; `url` of the server says which.
        limits: what a connection may cost.
        routes: more routes.
        tls: the paths of a certificate and of its key (PEM).
        tokens: whom to let in: a store, or the path of its file, which need not be there yet. See docs/SECURITY.md.
        insecure: listen off loopback also without TLS or tokens.
        page: the files of its page, as `tocsin.web.page()` gives them; None: it has a plain one.

    Raises:
        NetworkError: it cannot listen there, or should not.
        TokenError: the tokens cannot be read.
    """
    store = TokenStore(tokens) if isinstance(tokens, str | os.PathLike) else tokens
    context = tls_context(tls) if tls is not None else None
    has_tokens = store is not None and store.is_used
    check_listening(host, has_tls=context is not None, has_tokens=has_tokens, insecure=insecure)
    hosts = None if insecure and not is_loopback(host) else frozenset({host})
    server = Server(bus, limits=limits, routes=routes, tokens=store, hosts=hosts, page=page)
    config = uvicorn.Config(
        server.app,
        host=host,
        port=port,
        http=guarded(limits),
        ws=Upgraded,
        ws_max_size=limits.max_frame,
        ws_per_message_deflate=False,
        ws_ping_interval=None,  # our own heartbeat goes through the same queues as everything else
        lifespan="off",
        log_config=None,
        # Its warnings are one for each odd request, so that strangers could fill the log; below them it writes down
        # urls, and with them what somebody put there.
        log_level="error",
        access_log=False,
        proxy_headers=False,  # an address that the client itself may choose is no use in an audit
        server_header=False,
        timeout_graceful_shutdown=5,
    )
    config.load()
    config.ssl = context
    listener = _Uvicorn(config)
    with _listening(host, port) as listening:
        shown = f"[{host}]" if ":" in host else host
        server.url = f"{'ws' if context is None else 'wss'}://{shown}:{listening.getsockname()[1]}"
        loop = asyncio.get_running_loop()
        task, keeping = loop.create_task(listener.serve([listening])), loop.create_task(server.gate.keep())
        try:
            await listener.ready.wait()
            yield server
        finally:
            await server.drain()
            keeping.cancel()
            listener.leave()
            await asyncio.gather(task, keeping, return_exceptions=True)
            task.result()


async def run(
    opening: AbstractAsyncContextManager[Any],
    host: str = HOST,
    port: int = PORT,
    *,
    limits: Limits = LIMITS,
    tls: Tls | None = None,
    tokens: Tokens | None = None,
    insecure: bool = False,
    pipeline: Pipeline | None = None,
    page: Files | None = None,
    ready: Any = None,
) -> None:
    """Open a node and serve it until SIGTERM or SIGINT; then drain, close the node and return.

    Args:
        opening: what `tocsin.connect("file:…")` gives.
        host: the address to listen on.
        port: the port; 0: any that is free.
        limits: what a connection may cost.
        tls: as for `serve`.
        tokens: as for `serve`.
        insecure: as for `serve`.
        pipeline: have a Spark pipeline beside the node. Nothing waits for it.
        page: as for `serve`.
        ready: called with the server once it listens.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for each in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(each, stop.set)
    try:
        async with (
            opening as bus,
            serve(bus, host, port, limits=limits, tls=tls, tokens=tokens, insecure=insecure, page=page) as server,
            contextlib.AsyncExitStack() as beside,
        ):
            if pipeline is not None:
                server.pipeline = await beside.enter_async_context(supervised(server.node, pipeline, server.url))
            elif left := unlooked(server.node):
                logging.getLogger("tocsin").warning("this node runs without Spark: %s", left)
            if ready is not None:
                ready(server)
            await stop.wait()
    finally:
        for each in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(each)
