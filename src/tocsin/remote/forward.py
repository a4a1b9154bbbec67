"""Store and forward: publishing through a spool, so that an outage of the node stops no publisher.

    publish ─┬─ nothing waits, and there is a connection ─▶ the node; answered with offsets
             └─ else ─▶ the spool; answered without ─▶ the node, in order and once, when it is there

Order: what is published after something was answered comes after it, whichever way either went. Once: what is spooled
is numbered, and a number is stored once, however often it is sent. A publication that was on its way when the
connection was lost is spooled too; should the node have stored it, it knows its `(source, id)` again.

Concurrency: one event loop; the spool's file is used on one thread of its own.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from msgspec import Raw

from tocsin.errors import JournalError, NetworkError, OverloadError, TocsinError, WriterError
from tocsin.net import frames
from tocsin.net.protocol import MSGPACK
from tocsin.node import Published
from tocsin.remote.link import Link, Lost
from tocsin.remote.spool import MAX_EVENTS, Row, Spool

__all__ = ["Forwarder"]

T = TypeVar("T")
_PAUSE = 1.0  # seconds until a node that has no room is asked again
_AROUND = 256  # bytes of a frame beside its events, at most
_log = logging.getLogger("tocsin.remote")


class Forwarder:
    """The way of publications to one node, with a spool beside it."""

    def __init__(self, link: Link, spool: Spool) -> None:
        """Begin to send what waits."""
        self._link, self._spool = link, spool
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="tocsin-spool")
        self._new: list[tuple[Row, asyncio.Future[None]]] = []  # to be kept with the next commit
        self._keeping: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()
        self._sending = asyncio.get_running_loop().create_task(self._send())

    @property
    def spooled(self) -> int:
        """Events that wait to be sent."""
        return self._spool.events + sum(row.count for row, _ in self._new)

    async def publish(self, ids: list[str], parts: list[Raw]) -> list[Published]:
        """Publish packed events; returns when the node has them, or the spool.

        Raises:
            OverloadError: the spool has no room; nothing was kept.
            ProtocolError: they are too large for one frame.
            TocsinError: the node refuses them; or there will be no connection any more.
        """
        if self._link.error is not None:
            raise self._link.error
        if not parts:
            return []
        size = sum(map(len, parts)) + _AROUND
        if size > self._link.limits["max_frame"]:  # it could never be sent, so it must not be spooled either
            raise self._link.too_large(size)
        if not self.spooled and self._link.is_ready:
            try:
                raw = await self._link.ask_now(lambda n: frames.Publish(n, parts))
            except Lost:
                pass
            else:
                answers: list[Published] = MSGPACK.read(raw, list[Published])
                return answers
        await self._keep(Row.of(parts))
        return [Published(id, None) for id in ids]

    # -- into the spool

    async def _keep(self, row: Row) -> None:
        size = self._spool.bytes + sum(len(each.events) for each, _ in self._new) + len(row.events)
        if size > self._spool.max_bytes or self.spooled + row.count > MAX_EVENTS:
            raise OverloadError(
                f"the spool {self._spool.path} is full: {self.spooled:,} events wait",
                help="publish again when the node is back, or give it more room (spool_bytes)",
            )
        kept: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._new.append((row, kept))
        if self._keeping is None:
            self._keeping = asyncio.get_running_loop().create_task(self._keep_all())
        kept.add_done_callback(_look)
        await asyncio.shield(kept)

    async def _keep_all(self) -> None:
        """Keep what was published meanwhile, many with one commit, in the order they came."""
        while self._new:
            batch = list(self._new)
            error: Exception | None = None
            try:
                await self._do(lambda rows=[row for row, _ in batch]: self._spool.add(rows))  # type: ignore[misc]
            except Exception as failure:
                error = failure
            del self._new[: len(batch)]
            for _, kept in batch:
                if kept.cancelled():
                    continue
                if error is None:
                    kept.set_result(None)
                else:
                    kept.set_exception(error)
            self._wake.set()
        self._keeping = None

    async def _do(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    # -- out of the spool

    async def _send(self) -> None:
        while True:
            self._wake.clear()
            try:
                while await self._send_next():
                    pass
            except TocsinError as error:
                if self._link.error is not None:
                    _log.info("%d events stay in %s: %s", self.spooled, self._spool.path, error)
                    return
                if not isinstance(error, NetworkError):
                    _log.warning("what is spooled in %s cannot be sent now: %s", self._spool.path, error)
                    await asyncio.sleep(_PAUSE)
                continue
            await self._wake.wait()

    async def _send_next(self) -> bool:
        """Send the next group; False: nothing waits.

        Raises:
            TocsinError: not now.
        """
        group = await self._do(self._spool.next_group)
        if group is None:
            return False
        await self._link.ready()
        try:
            await self._link.ask_now(
                lambda n: frames.Publish(n, group.parts, self._spool.writer, group.position),
            )
        except Lost:
            return True
        except WriterError:  # the node has gone back in time (a backup, a repair): it has never seen this
            await self._do(lambda: self._spool.split(group.position))
        except (OverloadError, JournalError):
            raise
        except TocsinError as error:
            if self._link.error is not None:
                raise
            await self._set_aside(group.position, group.rows, error)
        else:
            await self._do(lambda: self._spool.done(group.position))
        return True

    async def _set_aside(self, position: int, rows: int, error: TocsinError) -> None:
        if rows > 1:
            await self._do(lambda: self._spool.split(position))
            return
        _log.error("the node refuses what was spooled; it is set aside in %s: %s", self._spool.path, error)
        await self._do(lambda: self._spool.refuse(position, str(error)))

    async def close(self) -> None:
        """Stop; what waits is sent when the spool is opened again."""
        self._sending.cancel()
        await asyncio.gather(self._sending, return_exceptions=True)
        if self._keeping is not None:
            await asyncio.gather(self._keeping, return_exceptions=True)
        await self._do(self._spool.close)
        self._thread.shutdown(wait=False)


def _look(kept: asyncio.Future[None]) -> None:
    """Who waits may have been cancelled, and looks no more."""
    if not kept.cancelled():
        kept.exception()
