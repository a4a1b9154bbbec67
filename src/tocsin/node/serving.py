"""Serving with a function: `async with bus.serve(resource, handler)`.

Each request is handled in a task of its own, so a slow one does not hold up others. A plain function runs on a thread
of its server, never on the node's: it may block, and may call a blocking bus. What a handler raises reaches the
requester as a message, without a traceback, and is logged here.

At a clean end nothing new comes, and what is in hand has `requests.DRAIN` seconds to be finished; then, and at once if
the end is an error or a crash, it goes to other servers.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final

from tocsin.errors import PeerError
from tocsin.node import requests
from tocsin.node.through import seen_through
from tocsin.peers.requests import Request, check_name, pack
from tocsin.peers.servers import Server

if TYPE_CHECKING:
    from types import TracebackType

    from tocsin.node.sessions import Session

__all__ = ["Handler", "Handlers", "Serving"]

Handler = Callable[[Request], Any]
"""Returns reply data, or an awaitable of it."""

THREADS: Final = 8
"""Requests that a plain function handles at a time; others wait their turn."""
_log = logging.getLogger("tocsin")


class Handlers:
    """A handler at work on requests: each in a task, a plain function on a thread. Wherever its node is."""

    def __init__(
        self, resource: str, handler: Handler, reply: Callable[[str, bytes], None], fail: Callable[[str, str], None]
    ) -> None:
        """Prepare.

        Args:
            resource: what it answers for.
            handler: the function.
            reply: gets the id of a request and its packed reply.
            fail: gets the id of a request and what went wrong.

        Raises:
            PeerError: the resource is no name, or the handler cannot be called.
        """
        if not callable(handler):
            raise PeerError(f"a handler is a function, not {handler!r:.80}", field="handler", help="give a function")
        self._resource = check_name(resource)
        self._handler, self._reply, self._fail = handler, reply, fail
        called = type(handler).__call__ if not inspect.isroutine(handler) else handler
        self._is_async = inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(called)
        self._threads: ThreadPoolExecutor | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.idle = asyncio.Event()
        """Is nothing in hand?"""
        self.idle.set()

    def start(self) -> None:
        """Be ready for requests."""
        if not self._is_async:
            self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="tocsin-handler")

    def take(self, request: Request) -> None:
        """Begin with one."""
        task = asyncio.get_running_loop().create_task(self._handle(request))
        self._tasks.add(task)
        self.idle.clear()
        task.add_done_callback(self._done)

    def drop(self) -> None:
        """Tell what is at work to stop: nobody waits for it."""
        for task in self._tasks:
            if task is not asyncio.current_task():
                task.cancel()

    def stop(self) -> None:
        """Be done."""
        self.drop()
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not self._tasks:
            self.idle.set()

    async def _handle(self, request: Request) -> None:
        try:
            found = self._handler(request) if self._is_async else await self._on_thread(request)
            body = pack(await found if inspect.isawaitable(found) else found)
        except Exception as error:
            _log.warning("the handler of %r failed", self._resource, exc_info=error)
            self._fail(request.id, f"{type(error).__name__}: {error}")
        except asyncio.CancelledError:  # if not by us, it is the handler's own doing
            self._fail(request.id, "it was cancelled")
            raise
        else:
            self._reply(request.id, body)

    async def _on_thread(self, request: Request) -> Any:
        assert self._threads is not None
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._handler, request)


class Serving:
    """A resource that is served while this is entered."""

    def __init__(self, session: Session, resource: str, handler: Handler) -> None:
        """Say what; nothing is served yet.

        Raises:
            PeerError: the resource is no name, or the handler cannot be called.
        """
        self._session, self._exchange = session, session.node.peers.exchange
        self._handlers = Handlers(resource, handler, self._reply, self._fail)
        self.resource = resource
        self._server: Server | None = None

    async def __aenter__(self) -> Serving:
        """Serve; everybody may know when this returns."""
        if self._server is not None:
            raise PeerError(f"{self.resource!r} is served with this already", help="call serve() again")
        session = self._session
        session.check()
        self._handlers.start()
        self._server = Server(self.resource, session.id, session.name, self._handlers.take)
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
        await requests.end(self._session, server, self._handlers.idle if drains else None)
        await self.gone()

    async def gone(self) -> None:
        """See `sessions.Belonging`: what is in hand goes to others, what is at work is told to stop."""
        if self._server is not None:
            self._exchange.drop(self._server)
        self._session.belongings.discard(self)
        self._handlers.stop()

    def _reply(self, id: str, body: bytes) -> None:
        assert self._server is not None  # from before it is known until all it had in hand has stopped
        self._exchange.reply(self._server, id, body)

    def _fail(self, id: str, message: str) -> None:
        assert self._server is not None
        self._exchange.fail(self._server, id, message)
