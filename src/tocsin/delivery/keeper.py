"""Writing mailboxes down: many settlings share one commit, and none returns before its own is stored.

While one write is under way, everything that becomes dirty waits for the next; that next write holds the newest place
of each mailbox, so a hundred acks of one consumer cost one small record.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from tocsin import crashpoints
from tocsin.delivery.durable import CONSUMER, PLACE, dump_consumer, dump_place
from tocsin.delivery.mailbox import Mailbox
from tocsin.delivery.receipts import Kept
from tocsin.journal.contract import Note
from tocsin.model import Event

__all__ = ["Keeper", "Store"]

EMPTY: Mapping[str, bytes | None] = MappingProxyType({})

Store = Callable[..., "asyncio.Future[list[int]]"]
"""The node's way to its journal: events, state and notes in one request."""


class Keeper:
    """Saves mailboxes in the background, one write at a time."""

    def __init__(
        self,
        store: Store,
        head: Callable[[], int],
        mailboxes: Mapping[str, Mailbox],
        tell: Callable[[list[tuple[str, Kept]]], None],
    ) -> None:
        """Save by `store`; places are as of `head()`; a mailbox that is not among these (any more) is not saved.

        Receipts are given to `tell` when they are stored.
        """
        self._store, self._head, self._mailboxes, self._tell = store, head, mailboxes, tell
        self._dirty: dict[str, Mailbox] = {}
        self._changed: dict[str, Mailbox] = {}
        self._events: list[Event] = []
        self._notes: list[Note] = []
        self._state: dict[str, bytes | None] = {}
        self._receipts: list[tuple[str, Kept]] = []
        self._failure: Exception | None = None
        self._done: asyncio.Future[None] | None = None  # of the next write
        self._running: asyncio.Task[None] | None = None

    def save(
        self,
        mailbox: Mailbox | None,
        events: Sequence[Event] = (),
        notes: Sequence[Note] = (),
        state: Mapping[str, bytes | None] = EMPTY,
        receipts: Sequence[tuple[str, Kept]] = (),
        *,
        whole: bool = False,
    ) -> asyncio.Future[None]:
        """Have a mailbox's place saved, with all the rest in the same commit; done when all of it is stored.

        `whole`: and who it is. What cannot be stored now is not given up, but goes with the next write. All that goes
        with one write has one future: to be waited for with a shield.
        """
        if mailbox is not None and mailbox.options.durable:
            self._dirty[mailbox.name] = mailbox
            if whole:
                self._changed[mailbox.name] = mailbox
        self._events += events
        self._notes += notes
        self._state |= state
        self._receipts += receipts
        loop = asyncio.get_running_loop()
        if not self._has_work:
            done: asyncio.Future[None] = loop.create_future()
            done.set_result(None)
            return done
        if self._done is None:
            self._done = loop.create_future()
        if self._running is None:
            self._running = loop.create_task(self._run())
        return self._done

    @property
    def _has_work(self) -> bool:
        return bool(self._dirty or self._changed or self._events or self._notes or self._state)

    def later(self, mailbox: Mailbox | None, state: Mapping[str, bytes | None] = EMPTY) -> None:
        """Have it saved with the next write, whenever that is."""
        if mailbox is not None and mailbox.options.durable:
            self._dirty[mailbox.name] = mailbox
        self._state |= state

    async def save_consumer(self, mailbox: Mailbox) -> None:
        """Save who the consumer is, and its place."""
        if mailbox.options.durable:
            place = dump_place(mailbox, self._head())
            await self._store(state={CONSUMER + mailbox.name: dump_consumer(mailbox), PLACE + mailbox.name: place})

    async def forget(self, name: str) -> None:
        """Remove what is stored of a consumer."""
        self._dirty.pop(name, None)
        self._changed.pop(name, None)
        await self._store(state={CONSUMER + name: None, PLACE + name: None})

    async def flush(self) -> None:
        """Save everything that is dirty, and wait for it. Raises what the journal says if that fails."""
        while self._running is not None or self._has_work:
            if self._running is None:
                self._running = asyncio.get_running_loop().create_task(self._run())
            self._failure = None
            await asyncio.wait([self._running])
            if self._failure is not None:
                raise self._failure

    async def _run(self) -> None:
        try:
            while self._has_work:
                dirty, events, notes, done = self._dirty, self._events, self._notes, self._done
                changed, self._changed = self._changed, {}
                more, self._state = self._state, {}
                receipts, self._receipts = self._receipts, []
                self._dirty, self._events, self._notes, self._done = {}, [], [], None
                head = self._head()
                state = more | {
                    PLACE + name: dump_place(mailbox, head)
                    for name, mailbox in dirty.items()
                    if self._mailboxes.get(name) is mailbox
                }
                state |= {
                    CONSUMER + name: dump_consumer(mailbox)
                    for name, mailbox in changed.items()
                    if self._mailboxes.get(name) is mailbox
                }
                crashpoints.reach("before-save")
                try:
                    await self._store(events=events, state=state, notes=notes)
                except Exception as error:
                    # Nothing is given up: all of it goes with the next write.
                    self._dirty, self._state = dirty | self._dirty, more | self._state
                    self._changed = changed | self._changed
                    self._events, self._notes = events + self._events, notes + self._notes
                    self._receipts = receipts + self._receipts
                    self._failure = error
                    more_done, self._done = self._done, None  # who came meanwhile would wait for a next write
                    for each in (done, more_done):
                        if each is not None and not each.done():
                            each.set_exception(error)
                            each.exception()  # not everybody waits for it, and that is no mistake
                    return
                self._tell(receipts)  # a publisher hears of it when it is stored, not before
                if done is not None and not done.done():
                    done.set_result(None)
        finally:
            self._running = None
