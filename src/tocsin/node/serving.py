"""Serving with a function: `async with bus.serve(resource, handler)`.

Each request is handled in a task of its own, so a slow one does not hold up others. A plain function runs on a thread
of its server, never on the node's: it may block, and may call a blocking bus. What a handler raises reaches the
requester as a message, without a traceback, and is logged here.

At a clean end nothing new comes, and what is in hand has `DRAIN` seconds to be finished; then, and at once if the end
is an error or a crash, it goes to other servers.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final

from tocsin.clock import SECOND
from tocsin.errors import PeerError, TocsinError
from tocsin.node import requests
from tocsin.node.through import seen_through
from tocsin.peers.requests import Request, check_name, pack
from tocsin.peers.servers import Server

if TYPE_CHECKING:
    from types import TracebackType

    from tocsin.node.sessions import Session

__all__ = ["Handler", "Serving"]

Handler = Callable[[Request], Any]
"""Returns reply data, or an awaitable of it."""

DRAIN: Final = 5.0
"""Seconds that requests in hand have at a clean end."""
THREADS: Final = 8
"""Requests that a plain function handles at a time; others wait their turn."""
_log = logging.getLogger("tocsin")


class Serving:
    """A resource that is served while this is entered."""

    def __init__(self, session: Session, resource: str, handler: Handler) -> None:
        """Say what; nothing is served yet.

        Raises:
            PeerError: the resource is no name, or the handler cannot be called.
        """
        if not callable(handler):
            raise PeerError(f"a handler is a function, not {handler!r:.80}", field="handler", help="give a function")
        self.resource = check_name(resource)
        self._session, self._handler = session, handler
        called = type(handler).__call__ if not inspect.isroutine(handler) else handler
        self._is_async = inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(called)
        self._threads: ThreadPoolExecutor | None = None
        self._server: Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._idle = asyncio.Event()
        self._idle.set()

    async def __aenter__(self) -> Serving:
        """Serve; everybody may know when this returns."""
        if self._server is not None:
            raise PeerError(f"{self.resource!r} is served with this already", help="call serve() again")
        session = self._session
        session.check()
        if not self._is_async:
            self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="tocsin-handler")
        self._server = Server(self.resource, session.id, session.name, self._deliver)
        session.belongings.add(self)
        try:
            await requests.serve(session, self._server)
            session.check()
        except BaseException:
            await self.gone()
            self._server = None
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop serving."""
        assert self._server is not None
        await seen_through(self._end(self._server, drains=kind is None))

    async def _end(self, server: Server, drains: bool) -> None:
        session = self._session
        try:
            await requests.withdraw(session, server)
        except TocsinError as error:
            if not session.node.closed:  # its end, or that of the session, says it later
                _log.error("it is not stored that %r is not served any more: %s", self.resource, error)
        if drains and not session.ended:
            clock = session.node.clock
            await clock.wait(self._idle, clock.now() + round(DRAIN * SECOND))
        await self.gone()

    async def gone(self) -> None:
        """See `sessions.Belonging`: what is in hand goes to others, what is at work is told to stop."""
        if self._server is not None:
            self._session.node.peers.exchange.drop(self._server)
        self._session.belongings.discard(self)
        for task in self._tasks:
            if task is not asyncio.current_task():
                task.cancel()
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)

    # -- one request

    def _deliver(self, request: Request) -> None:
        task = asyncio.get_running_loop().create_task(self._handle(request))
        self._tasks.add(task)
        self._idle.clear()
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not self._tasks:
            self._idle.set()

    async def _handle(self, request: Request) -> None:
        server, exchange = self._server, self._session.node.peers.exchange
        assert server is not None  # from before it is known until all it had in hand has stopped
        try:
            found = self._handler(request) if self._is_async else await self._on_thread(request)
            body = pack(await found if inspect.isawaitable(found) else found)
        except Exception as error:
            _log.warning("the handler of %r failed", self.resource, exc_info=error)
            exchange.fail(server, request.id, f"{type(error).__name__}: {error}")
        except asyncio.CancelledError:  # if not by us, it is the handler's own doing
            exchange.fail(server, request.id, "it was cancelled")
            raise
        else:
            exchange.reply(server, request.id, body)

    async def _on_thread(self, request: Request) -> Any:
        assert self._threads is not None
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._handler, request)
