"""`RemoteBus`: the verbs of `tocsin.client.Bus`, for a node elsewhere.

What a verb means and raises is said there. Beside that, every verb may raise `ConnectionLostError`: there was no
connection for `patience` seconds, or it was lost and the verb is one that cannot be repeated. Arguments are checked by
the node, as embedded; only what cannot be sent at all is refused here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any, TypeVar

from msgspec import UNSET, Raw, UnsetType

from tocsin import tracing
from tocsin.composite.builder import Pattern, text_of
from tocsin.composite.explain import Explanation
from tocsin.delivery.board import Alert, ConsumerInfo, Status, Step
from tocsin.delivery.owners import Options
from tocsin.errors import EventError, TextError, TocsinError
from tocsin.filters.filter import Filter
from tocsin.journal import bounds
from tocsin.journal.bounds import Past
from tocsin.model import Event
from tocsin.net import frames
from tocsin.net.events import to_packed
from tocsin.net.protocol import MSGPACK
from tocsin.net.verbs import WireAlert
from tocsin.node import Published
from tocsin.node.admission import check_publishable
from tocsin.node.definitions import DefinitionInfo
from tocsin.remote.credentials import NONE, Credentials
from tocsin.remote.desk import Desk
from tocsin.remote.forward import Forwarder
from tocsin.remote.link import Link, Lost
from tocsin.remote.peers import RemotePeers
from tocsin.remote.receipts import RemoteReceipts
from tocsin.remote.spool import Spool
from tocsin.remote.subscription import AHEAD, RemoteSubscription
from tocsin.remote.values import WireExplained, written
from tocsin.remote.verbs import PeerVerbs, text_of_filter

__all__ = ["RemoteBus"]

T = TypeVar("T")


class RemoteBus(PeerVerbs):
    """One face of a node elsewhere."""

    def __init__(
        self,
        url: str,
        name: str | None,
        patience: float,
        *,
        strict: bool = False,
        credentials: Credentials = NONE,
        spool: Spool | None = None,
        family: dict[str, RemoteBus] | None = None,
    ) -> None:
        """Prepare; it connects when it is opened, or first used.

        Args:
            url: `ws://host:port`.
            name: who you are; None: the node says.
            patience: seconds without a connection after which a verb fails.
            strict: refuse to publish what was not advertised.
            credentials: what to show, and whom to trust.
            spool: where publications wait while the node cannot be reached.
            family: faces of the same node by name, if this is not the first.
        """
        self._url, self._patience, self._strict, self._credentials = url, patience, strict, credentials
        self._is_head = family is None
        self._desk = Desk()
        self._peers = RemotePeers(self._desk.number)
        self._link = self._desk.link = self._peers.link = Link(
            url,
            name,
            patience,
            resume=self._resume,
            hear=self._hear,
            before=self._desk.flush,
            lost=self._lose,
            over=self._over,
            options={"strict_advertise": True} if strict else {},
            credentials=credentials,
        )
        self._traces = tracing.begin()
        self._spool = spool
        self._forwarder: Forwarder | None = None
        self._receipts: RemoteReceipts | None = None
        self._opening: asyncio.Task[None] | None = None
        self._closing = False
        self._family = family if family is not None else {}
        if name is not None:
            self._family[name] = self

    @property
    def name(self) -> str:
        """Who you are."""
        return self._link.name or ""

    async def open(self) -> None:
        """Connect.

        Raises:
            NetworkError: nobody is there, or one who does not let you in. With a spool, the first is no error.
        """
        if self._spool is None:
            await self._link.open()
        else:
            self._forwarder = Forwarder(self._link, self._spool)
            await self._link.begin()
            if self._link.error is not None:
                raise self._link.error
        self._family[self.name] = self

    @property
    def spooled(self) -> int:
        """Events that wait in the spool until the node can be reached."""
        return self._forwarder.spooled if self._forwarder is not None else 0

    def as_user(self, name: str) -> RemoteBus:
        """Another face of the same node, under another name: a connection of its own, opened when it is used."""
        known = self._family.get(name)
        return known or RemoteBus(
            self._url,
            name,
            self._patience,
            strict=self._strict,
            credentials=self._credentials,
            family=self._family,
        )

    # -- the connection

    async def _resume(self) -> None:
        """On a new connection: be what was lost with the old one."""
        await self._peers.resume()
        await self._desk.resume()
        if self._receipts is not None and self._receipts.is_open:  # else who opens them asks
            await self._receipts.resume()

    def _hear(self, frame: frames.ServerFrame) -> None:
        if self._peers.hear(frame) or self._desk.hear(frame):
            return
        if isinstance(frame, frames.Seen) and self._receipts is not None:
            self._receipts.receive(frame)

    def _lose(self) -> None:
        self._desk.lose()
        self._peers.lose()

    def _over(self, error: TocsinError) -> None:
        self._peers.end(error)
        self._desk.end(None if self._closing else error)
        if self._receipts is not None:
            self._receipts.end(error)

    async def _ping(self) -> int:
        """Wait until what was said was heard, and what the node has to say has come; returns how much ever came."""
        if self._opening is not None:
            await self._opening
        await self._peers.opened()
        while self._link.generation and self._link.error is None:  # else nothing was ever said, or will be
            self._desk.flush()
            try:
                await self._link.ready()
                await self._link.ping()
                break
            except Lost:
                continue
            except TocsinError:
                if self._link.error is None:
                    raise
        return self._link.received

    async def _call(self, verb: str, kind: type[T] | Any, *, repeat: bool = True, **arguments: Any) -> T:
        args = written(arguments)
        raw = await self._link.ask(lambda n: frames.Call(n, verb, args), repeat=repeat)
        value: T = MSGPACK.read(raw, kind)
        return value

    # -- publishing

    async def publish(self, event: Event) -> Published:
        """Publish an event; returns its id and offset when it is durable."""
        return (await self.publish_many((event,)))[0]

    async def publish_many(self, events: Iterable[Event]) -> list[Published]:
        """Publish events together: all or none, one answer for all, in order."""
        given = [_event(each) for each in events]
        if self._traces is None:
            return await self._send(given)
        with self._traces.publish(given) as marked:
            return await self._send(marked)

    async def _send(self, events: Sequence[Event]) -> list[Published]:
        largest = round(self._link.limits["max_event"])
        parts = [Raw(to_packed(each, largest)) for each in events]
        if self._forwarder is not None:
            check_publishable(events)  # the node would say so, but maybe not before they are spooled
            return await self._forwarder.publish([each.id for each in events], parts)
        raw = await self._link.ask(lambda n: frames.Publish(n, parts))
        answers: list[Published] = MSGPACK.read(raw, list[Published])
        return answers

    # -- subscribing

    async def subscribe(
        self,
        filter: str | Filter,
        consumer: str | None = None,
        past: Past = None,
        *,
        order: str | UnsetType = UNSET,
        group: str | None = None,
        durable: bool | UnsetType = UNSET,
        ack_wait: float | UnsetType = UNSET,
        max_in_flight: int | UnsetType = UNSET,
        max_deliver: int | None | UnsetType = UNSET,
        auto_ack: bool | UnsetType = UNSET,
        fair: float | UnsetType = UNSET,
        replay: bool = False,
        system: bool = False,
        placement: str | UnsetType = UNSET,
    ) -> RemoteSubscription:
        """Say what you want to hear of; see `tocsin.client.Bus.subscribe`."""
        options = Options.given(
            order=order,
            group=group,
            durable=durable,
            ack_wait=ack_wait,
            max_in_flight=max_in_flight,
            max_deliver=max_deliver,
            auto_ack=auto_ack,
            fair=fair,
            placement=placement,
        )
        written({"consumer": consumer, **options})
        bound = bounds.coerce(past)
        text = text_of_filter(filter)
        window = max_in_flight if isinstance(max_in_flight, int) and max_in_flight > 0 else AHEAD
        asked = frames.Subscribe(
            0,
            self._desk.number(),
            text,
            consumer,
            str(bound) if bound is not None else None,
            options,
            bool(replay),
            bool(system),
            min(AHEAD, window),
            True,
        )
        return await self._desk.subscribe(asked, text)

    async def unsubscribe(self, consumer: str, subscription: str) -> None:
        """Drop one subscription of a consumer."""
        await self._call("unsubscribe", None, consumer=consumer, subscription=subscription)

    async def forget(self, consumer: str) -> None:
        """Drop a consumer with everything it has."""
        await self._call("forget", None, repeat=False, consumer=consumer)

    async def consumers(self) -> list[ConsumerInfo]:
        """Every consumer: what it listens to, how far behind it is."""
        return await self._call("consumers", list[ConsumerInfo])

    # -- composite events

    async def define(
        self,
        name: str,
        text: str | Pattern,
        context: str = "recent",
        placement: str = "auto",
        past: Past = None,
        *,
        semantics: str = "detection",
        replace: bool = False,
        max_open: int | None = None,
    ) -> DefinitionInfo:
        """Have a combination of events looked for."""
        bound, written = bounds.coerce(past), text_of(text)
        try:
            return await self._call(
                "define",
                DefinitionInfo,
                name=name,
                text=written,
                context=context,
                placement=placement,
                past=str(bound) if bound is not None else None,
                semantics=semantics,
                replace=replace,
                max_open=max_open,
            )
        except TextError as error:
            error.text = written
            raise

    async def undefine(self, name: str) -> None:
        """Remove a definition, and what it alone has half detected."""
        await self._call("undefine", None, repeat=False, name=name)

    async def definitions(self) -> list[DefinitionInfo]:
        """Every definition: what it says, what it has detected, and what is open."""
        return await self._call("definitions", list[DefinitionInfo])

    async def explain(self, id: str) -> Explanation:
        """Why an event that a definition made is there."""
        sent: WireExplained = await self._call("explain", WireExplained, id=id)
        return sent.explanation()

    # -- alerts

    async def cancel(self, id: str, source: str | None = None) -> None:
        """Withdraw an event: who has not got it does not, who has is told."""
        await self._call("cancel", None, id=id, source=source)

    async def status(self, id: str, source: str | None = None) -> Status:
        """What became of an event: live, settled, expired or cancelled, and by whom."""
        return await self._call("status", Status, id=id, source=source)

    async def alerts(self) -> list[Alert]:
        """Live alerts (events with ttl or ack), and who has acknowledged them."""
        sent: list[WireAlert] = await self._call("alerts", list[WireAlert])
        return [
            Alert(MSGPACK.read_event(each.event, each.offset, each.arrived), each.acked, each.pending) for each in sent
        ]

    async def audit(self, id: str, source: str | None = None) -> list[Step]:
        """Every step of an event that is tracked."""
        return await self._call("audit", list[Step], id=id, source=source)

    async def trim(
        self,
        *,
        older_than: timedelta | None = None,
        larger_than: int | None = None,
        archived: bool = False,
        hard: bool = False,
    ) -> int:
        """Drop old events from the journal; returns the lowest offset that is kept."""
        age: Any = older_than
        if isinstance(age, timedelta):
            age = {"seconds": age.total_seconds()}
        return await self._call("trim", int, older_than=age, larger_than=larger_than, archived=archived, hard=hard)

    def receipts(self) -> RemoteReceipts:
        """Receipts for what this name has published; however often they are asked for, they come once."""
        if self._receipts is None:
            self._receipts = RemoteReceipts(self._link, self._desk.number())
            self._opening = asyncio.get_running_loop().create_task(self._receipts.open())
        return self._receipts

    async def _abort(self) -> None:
        """End as a crash would."""
        self._closing = True
        await self._link.abort()
        self._family.pop(self.name, None)

    async def close(self) -> None:
        """Withdraw what you advertise, and end the connection; durable consumers stay.

        Faces made with `as_user` end with the bus they were made of.
        """
        self._closing = True
        if self._opening is not None:
            self._opening.cancel()
        await self._link.close()
        if self._forwarder is not None:
            forwarder, self._forwarder = self._forwarder, None
            await forwarder.close()
        if not self._is_head:
            self._family.pop(self.name, None)
            return
        for other in list(self._family.values()):
            if other is not self:
                await other.close()


def _event(event: object) -> Event:
    if not isinstance(event, Event):
        raise EventError(f"an event is expected, not {type(event).__name__}", help="make one: Event(type, source)")
    return event
