"""How programs use Tocsin: `connect` gives a bus, which has every verb.

A node is embedded in this process (`embedded.Bus`), or elsewhere (`remote.RemoteBus`): the verbs are the same.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
from types import TracebackType
from typing import cast

from tocsin.clock import Clock, SystemClock
from tocsin.embedded import Bus, Receipts
from tocsin.errors import OptionError, TocsinError
from tocsin.journal.opening import open_journal
from tocsin.node import Node
from tocsin.node.pipeline import HOT_BYTES, MAX_WAITING, PATIENCE

__all__ = ["Bus", "Receipts", "connect"]


class connect:
    """Open a node: `async with tocsin.connect("file:plant.db") as bus`.

    Args:
        url: `memory:`, `file:` and a path, or `ws://host:port`: a node elsewhere.
        name: who you are: publisher, and who may cancel. A random one if left out.
        clock: time to go by; the machine's if left out.
        lake: where the journal's archive is; if left out, where it was archived to, if it was.
        hot_bytes: memory for the newest events.
        max_waiting: events on their way to the journal before publishers must wait.
        patience: seconds a publisher waits for room before it gets `OverloadError`; of a node elsewhere, seconds
            without a connection before a verb gets `ConnectionLostError`.
        strict_advertise: refuse to publish what was not advertised.
        token: shown to a node elsewhere; see docs/SECURITY.md.
        ca: path of the certificates to trust (PEM) for `wss:`; those of the system if left out.
        spool: a directory of your own: what you publish while a node elsewhere cannot be reached waits there, over
            restarts of yours too, and is sent in order and once. Then `publish` answers with an offset of None.
            Connecting succeeds if the node is away.
        spool_bytes: how much may wait in the spool before publishers get `OverloadError`; 256 MiB if left out.

    Raises (when entered):
        OptionError: an option that this kind of node does not have; `.field` names it.
        JournalLockedError: another process has the journal open for writing.
        JournalError: the url or the file is not one of ours.
        LakeError: the lake is another journal's.
        NetworkError: the node cannot be reached.
    """

    def __init__(
        self,
        url: str,
        *,
        name: str | None = None,
        clock: Clock | None = None,
        lake: str | os.PathLike[str] | None = None,
        hot_bytes: int | None = None,
        max_waiting: int | None = None,
        patience: float = PATIENCE,
        strict_advertise: bool = False,
        token: str | None = None,
        ca: str | os.PathLike[str] | None = None,
        spool: str | os.PathLike[str] | None = None,
        spool_bytes: int | None = None,
    ) -> None:
        """Say where; nothing is opened yet."""
        self._url, self._name, self._clock, self._lake = url, name, clock, lake
        self._hot_bytes, self._max_waiting, self._patience = hot_bytes, max_waiting, patience
        self._strict, self._token, self._ca = strict_advertise, token, ca
        self._spool, self._spool_bytes = spool, spool_bytes
        self._bus: Bus | None = None

    async def __aenter__(self) -> Bus:
        """Open it."""
        if self._url.startswith(("ws:", "wss:")):
            self._refuse("it belongs to the node", clock=self._clock, lake=self._lake, hot_bytes=self._hot_bytes)
            self._refuse("it belongs to the node", max_waiting=self._max_waiting)
            return await self._connect()
        self._refuse("there is no way to it that could fail", spool=self._spool, spool_bytes=self._spool_bytes)
        clock = self._clock if self._clock is not None else SystemClock()
        opening = asyncio.ensure_future(asyncio.to_thread(open_journal, self._url, clock=clock, lake=self._lake))
        try:
            journal = await asyncio.shield(opening)
        except asyncio.CancelledError:  # a thread cannot be called back: what it opens must not stay locked
            with contextlib.suppress(TocsinError):
                await asyncio.to_thread((await opening).close)
            raise
        hot_bytes = HOT_BYTES if self._hot_bytes is None else self._hot_bytes
        max_waiting = MAX_WAITING if self._max_waiting is None else self._max_waiting
        node = Node(journal, clock, hot_bytes, max_waiting, self._patience)
        self._bus = Bus(node, self._name or "bus-" + secrets.token_hex(6), strict=self._strict)
        return self._bus

    def _refuse(self, why: str, **given: object) -> None:
        """Refuse options that this kind of node does not have, rather than pass over them."""
        kind = self._url.partition(":")[0]
        for name, value in given.items():
            if value is not None:
                raise OptionError(f"{kind}: takes no {name}: {why}", field=name, help="leave it out")

    async def _connect(self) -> Bus:
        """A node elsewhere: its bus has the same verbs."""
        try:
            from tocsin.remote import Credentials, RemoteBus, open_spool
        except ImportError as error:
            if (error.name or "").partition(".")[0] == "tocsin":
                raise  # not an extra that is missing, but a defect
            raise TocsinError(f"{error.name} is not installed", help="pip install 'tocsin[server]'") from None
        shown = Credentials(self._token, self._ca)
        spool = await asyncio.to_thread(open_spool, self._spool, self._spool_bytes) if self._spool is not None else None
        name = self._name if spool is None else self._name or spool.name
        remote = RemoteBus(self._url, name, self._patience, strict=self._strict, credentials=shown, spool=spool)
        try:
            await remote.open()
        except BaseException:  # also if it was cancelled: nothing may go on trying, or stay locked
            await remote.close()
            raise
        self._bus = cast("Bus", remote)
        return self._bus

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        assert self._bus is not None
        await self._bus.close()
