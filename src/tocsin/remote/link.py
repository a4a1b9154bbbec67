"""The connection to a node: kept up, heard, and asked.

A link connects when it is first used, and again whenever it was lost, with pauses that grow from 0.1 s to 5 s. Commands
that were not answered are sent again; all of them may be, unless who asks says otherwise. Before anything else is sent
on a new connection, what was open on the old one is opened again (`resume`).

Concurrency: one event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import random
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final, TypeVar

from msgspec import Raw
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidURI
from websockets.typing import Subprotocol

from tocsin.errors import (
    ConnectionLostError,
    JournalError,
    NetworkError,
    ProtocolError,
    ReplacedError,
    TocsinError,
)
from tocsin.net import frames
from tocsin.net.faults import from_wire
from tocsin.net.protocol import BROKEN, LIMITS, MSGPACK, VERSION

__all__ = ["Link", "Lost"]

T = TypeVar("T")
SHORTEST, LONGEST = 0.1, 5.0
"""Seconds between attempts to connect."""
PATH: Final = "/bus"
_log = logging.getLogger("tocsin.remote")


class Lost(Exception):
    """The connection was lost before the answer came; inside only."""


class Link:
    """One session with a node, over as many connections as it takes."""

    def __init__(
        self,
        url: str,
        name: str | None,
        patience: float,
        *,
        resume: Callable[[], Awaitable[None]],
        hear: Callable[[frames.ServerFrame], None],
        before: Callable[[], None],
        lost: Callable[[], None],
        over: Callable[[TocsinError], None],
        options: dict[str, Any],
    ) -> None:
        """Prepare; nothing is opened yet.

        Args:
            url: `ws://host:port`.
            name: who; None: the node gives a name, which stays.
            patience: seconds without a connection after which a command fails.
            resume: opens again what was open; called on every connection but the first.
            hear: gets every frame that is no answer.
            before: called before a command is sent, to send what is to come first.
            lost: called when the connection is lost.
            over: called when there will be no other.
            options: said in hello.
        """
        self.url, self.name, self._patience, self._options = url, name, patience, options
        self._resume, self._hear, self._before, self._lost, self._over = resume, hear, before, lost, over
        self.received = 0
        """Frames that were no answers."""
        self.generation = 0
        """How many connections there were."""
        self.limits: dict[str, float] = {name: getattr(LIMITS, name) for name in LIMITS.__struct_fields__}
        self._fatal: TocsinError | None = None
        self._ready: asyncio.Event | None = None
        self._first: asyncio.Future[None] | None = None
        self._must_begin = False  # is it an error if the first attempt fails?
        self._task: asyncio.Task[None] | None = None
        self._socket: ClientConnection | None = None
        self._numbers = itertools.count(1)
        self._pending: dict[int, asyncio.Future[Any]] = {}
        self._slots: asyncio.Semaphore | None = None
        self._waiting: deque[bytes] = deque()
        self._wake = asyncio.Event()
        self._said = self._heard = 0.0
        self._now = (0, 0.0)

    # -- asking

    async def ask(self, build: Callable[[int], frames.ClientFrame], *, repeat: bool = True) -> Raw:
        """Send a command and return its answer; on a new connection if need be.

        Args:
            build: makes the frame for a number.
            repeat: may it be carried out twice?

        Raises:
            ConnectionLostError: there was no connection for too long, or it was lost and the command cannot be
                repeated. It may have been carried out.
            TocsinError: what the node says.
        """
        while True:
            await self.ready()
            try:
                return await self.ask_now(build)
            except Lost:
                if not repeat:
                    raise ConnectionLostError(
                        "the connection was lost before the answer came",
                        help="it may have been done: look, then repeat",
                    ) from None

    async def ask_now(self, build: Callable[[int], frames.ClientFrame]) -> Raw:
        """As `ask`, on this connection alone.

        Raises:
            Lost: it was lost.
        """
        if self._slots is None:
            self._slots = asyncio.Semaphore(round(self.limits["max_open"]))
        async with self._slots:  # the node takes so many at a time
            return await self._ask(build)

    async def _ask(self, build: Callable[[int], frames.ClientFrame]) -> Raw:
        if self._socket is None:
            raise Lost
        n = next(self._numbers)
        answer: asyncio.Future[Raw] = asyncio.get_running_loop().create_future()
        message = MSGPACK.encode(build(n))
        if len(message) > self.limits["max_frame"]:
            raise ProtocolError(
                f"this has {len(message):,} bytes, {self.limits['max_frame']:,.0f} are allowed in one frame",
                help="send less at a time",
            )
        self._before()
        self._pending[n] = answer
        self._put(message)
        try:
            return await answer
        finally:
            self._pending.pop(n, None)

    def tell(self, frame: frames.ClientFrame) -> None:
        """Send a frame that is not answered; without a connection it is dropped."""
        if self._socket is not None:
            self._put(MSGPACK.encode(frame))

    async def ping(self) -> None:
        """Wait until everything sent before was read by the node, and what it had to send has come.

        Raises:
            Lost: the connection was lost.
        """
        n = next(self._numbers)
        self._pending[n] = asyncio.get_running_loop().create_future()
        self.tell(frames.Ping(n))
        try:
            await self._pending[n]
        finally:
            self._pending.pop(n, None)

    def now(self) -> int:
        """Journal time, as far as it is known here: in microseconds."""
        said, at = self._now
        return said + round((time.monotonic() - at) * 1e6)

    # -- being there

    async def ready(self) -> None:
        """Wait for a connection on which everything is as it was.

        Raises:
            ConnectionLostError: that took too long.
            NetworkError: it is closed, or was refused.
        """
        if self._task is None:
            self._begin()
        if self._fatal is not None:
            raise self._fatal
        assert self._ready is not None
        if self._ready.is_set():
            return
        try:
            async with asyncio.timeout(self._patience):
                await self._ready.wait()
        except TimeoutError:
            raise ConnectionLostError(
                f"{self.url} could not be reached for {self._patience:g} s", help="is the node up? then try again"
            ) from None
        if self._fatal is not None:
            raise self._fatal

    async def open(self) -> None:
        """Connect for the first time.

        Raises:
            NetworkError: nobody is there, or one who does not let you in.
        """
        self._must_begin = True
        self._begin()
        assert self._first is not None
        try:
            await self._first
        except NetworkError:
            await self.close()
            raise

    def _begin(self) -> None:
        if self._task is None:
            loop = asyncio.get_running_loop()
            self._ready, self._first = asyncio.Event(), loop.create_future()
            self._task = loop.create_task(self._run())

    async def close(self) -> None:
        """Say goodbye, and end."""
        if self._fatal is None:
            self._end(JournalError("the bus is closed", help="connect again"))
        socket, self._socket = self._socket, None
        if socket is not None:
            with contextlib.suppress(ConnectionClosed, TimeoutError):
                async with asyncio.timeout(5):
                    while self._waiting:
                        await socket.send(self._waiting.popleft())
                    await socket.send(MSGPACK.encode(frames.Bye("closed")))
                    await socket.close()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _end(self, error: TocsinError) -> None:
        """There will be no other connection."""
        self._fatal = error
        for answer in self._pending.values():
            if not answer.done():
                answer.set_exception(error)
        if self._ready is not None:
            self._ready.set()
        self._over(error)

    # -- the connection

    async def _run(self) -> None:
        pause = SHORTEST
        assert self._first is not None and self._ready is not None
        while not self._is_over():
            try:
                async with connect(
                    self.url.rstrip("/") + PATH,
                    subprotocols=[Subprotocol(MSGPACK.name)],
                    compression=None,
                    ping_interval=None,
                    max_size=None,
                    open_timeout=self.limits["hello"],
                    close_timeout=1,
                ) as socket:
                    await self._live(socket)
                pause = SHORTEST
            except (OSError, TimeoutError, ConnectionClosed, InvalidHandshake, Lost) as error:
                said: BaseException = error
            except InvalidURI as error:
                self._refuse(NetworkError(f"{self.url} is no address", field="url", help="give ws://host:port"), error)
                return
            except NetworkError as error:
                self._refuse(error, error)
                return
            except TocsinError as error:  # what was open could not be opened again, for now
                said = error
            else:
                said = Lost()
            was_up = self._ready.is_set()
            self._drop()
            if self._must_begin and not self._first.done():
                self._refuse(
                    NetworkError(f"{self.url} cannot be reached: {said}", field="url", help="is the node up?"), said
                )
                return
            pause = SHORTEST if was_up else min(LONGEST, pause * 2)
            if not self._is_over():
                await asyncio.sleep(pause * random.uniform(0.5, 1))

    def _is_over(self) -> bool:
        return self._fatal is not None

    def _refuse(self, error: NetworkError, cause: BaseException) -> None:
        assert self._first is not None
        self._drop()
        self._end(error)
        if self._must_begin and not self._first.done():
            self._first.set_exception(error)
        else:
            _log.error("the connection to %s is over: %s", self.url, error)

    async def _live(self, socket: ClientConnection) -> None:
        """One connection, from hello to its end."""
        loop = asyncio.get_running_loop()
        await socket.send(MSGPACK.encode(frames.Hello(VERSION, self.name, options=self._options)))
        first = MSGPACK.from_server(await socket.recv())
        if isinstance(first, frames.Failed):
            refusal = from_wire(first.error)
            raise refusal if isinstance(refusal, NetworkError) else NetworkError(str(refusal))
        if isinstance(first, frames.Bye):
            raise Lost
        if not isinstance(first, frames.Welcome):
            raise ProtocolError("the node does not welcome", help="is this a Tocsin node?")
        self.name, self.limits = first.name, {**self.limits, **first.limits}
        self._set_now(first.now)
        self._socket = socket
        self.generation += 1
        self._heard = self._said = loop.time()
        tasks = [loop.create_task(work) for work in (self._read(socket), self._write(socket), self._beat(socket))]
        try:
            if self.generation > 1:
                resuming = loop.create_task(_whole(self._resume()))
                await asyncio.wait([resuming, tasks[0]], return_when=asyncio.FIRST_COMPLETED)
                if not resuming.done():
                    self._drop()
                await resuming
            assert self._first is not None and self._ready is not None
            self._ready.set()
            if not self._first.done():
                self._first.set_result(None)
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _drop(self) -> None:
        """The connection is lost: who waits for an answer must ask again."""
        if self._ready is not None and self._fatal is None:
            self._ready.clear()
        self._socket = None
        self._waiting.clear()
        for answer in list(self._pending.values()):
            if not answer.done():
                answer.set_exception(Lost())
        self._lost()

    async def _read(self, socket: ClientConnection) -> None:
        loop = asyncio.get_running_loop()
        try:
            async for message in socket:
                self._heard = loop.time()
                self._take(MSGPACK.from_server(message))
        except ConnectionClosed:
            pass
        except TocsinError as error:
            _log.error("the node at %s says what means nothing: %s", self.url, error)
        if socket.close_code == BROKEN:  # what was sent would be refused again
            for answer in list(self._pending.values()):
                if not answer.done():
                    answer.set_exception(ProtocolError(f"the node has refused: {socket.close_reason}"))

    def _take(self, frame: frames.ServerFrame) -> None:
        match frame:
            case frames.Done():
                self._answer(frame.re, frame.value)
            case frames.Failed():
                error = from_wire(frame.error)
                answer = self._pending.get(frame.re) if frame.re is not None else None
                if answer is not None and not answer.done():
                    answer.set_exception(error)
                elif frame.re is None:
                    _log.warning("the node at %s refuses: %s", self.url, error)
            case frames.Pong():
                self._set_now(frame.now)
                self._answer(frame.n, None)
            case frames.Ping():
                self.tell(frames.Pong(frame.n))
            case frames.Bye(reason="replaced"):
                self._end(
                    ReplacedError(f"a newer session has the name {self.name!r}", help="give every program its own name")
                )
            case _:
                if isinstance(frame, frames.Deliver):
                    self._set_now(frame.now)
                self.received += 1
                self._hear(frame)

    def _answer(self, n: int, value: Any) -> None:
        answer = self._pending.get(n)
        if answer is not None and not answer.done():
            answer.set_result(value)

    def _set_now(self, now: int) -> None:
        self._now = now, time.monotonic()

    def _put(self, message: bytes) -> None:
        if self._socket is not None:
            self._waiting.append(message)
            self._wake.set()

    async def _write(self, socket: ClientConnection) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._waiting:
                await socket.send(self._waiting.popleft())
                self._said = loop.time()

    async def _beat(self, socket: ClientConnection) -> None:
        loop = asyncio.get_running_loop()
        while loop.time() - self._heard < self.limits["silence"]:
            await asyncio.sleep(self.limits["beat"] / 3)
            if loop.time() - self._said > self.limits["beat"]:
                self.tell(frames.Ping())


async def _whole(work: Awaitable[T] | Coroutine[Any, Any, T]) -> T:
    return await work
