"""`RemoteBus`: the verbs of `tocsin.client.Bus`, for a node elsewhere.

What a verb means and raises is said there. Beside that, every verb may raise `ConnectionLostError`: there was no
connection for `patience` seconds, or it was lost and the verb is one that cannot be repeated. Arguments are checked by
the node, as embedded; only what cannot be sent at all is refused here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar

import msgspec
from msgspec import UNSET, Raw, UnsetType

from tocsin.composite.builder import Pattern, text_of
from tocsin.composite.explain import ExplainedPart, Explanation
from tocsin.composite.explain import Step as Operation
from tocsin.composite.language import parse
from tocsin.delivery.board import Alert, ConsumerInfo, Status, Step
from tocsin.errors import ConsumerError, EventError, ProtocolError, TextError, TocsinError
from tocsin.filters.filter import Filter
from tocsin.journal import bounds
from tocsin.journal.bounds import Past
from tocsin.model import Event
from tocsin.net import frames
from tocsin.net.events import to_packed
from tocsin.net.protocol import MSGPACK
from tocsin.net.verbs import About, WireAlert
from tocsin.node import Published
from tocsin.node.definitions import DefinitionInfo
from tocsin.remote.desk import AHEAD, Desk, RemoteSubscription
from tocsin.remote.link import Link, Lost
from tocsin.remote.receipts import RemoteReceipts

__all__ = ["RemoteBus"]

T = TypeVar("T")


class RemoteBus:
    """One face of a node elsewhere."""

    def __init__(
        self,
        url: str,
        name: str | None,
        patience: float,
        *,
        strict: bool = False,
        family: dict[str, RemoteBus] | None = None,
    ) -> None:
        """Prepare; it connects when it is opened, or first used.

        Args:
            url: `ws://host:port`.
            name: who you are; None: the node says.
            patience: seconds without a connection after which a verb fails.
            strict: refuse to publish what was not advertised.
            family: faces of the same node by name, if this is not the first.
        """
        self._url, self._patience, self._strict = url, patience, strict
        self._advertised: dict[str, None] = {}
        self._is_head = family is None
        self._desk = Desk()
        self._link = self._desk.link = Link(
            url,
            name,
            patience,
            resume=self._resume,
            hear=self._hear,
            before=self._desk.flush,
            lost=self._desk.lose,
            over=self._over,
            options={"strict_advertise": True} if strict else {},
        )
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
            NetworkError: nobody is there, or one who does not let you in.
        """
        await self._link.open()
        self._family[self.name] = self

    def as_user(self, name: str) -> RemoteBus:
        """Another face of the same node, under another name: a connection of its own, opened when it is used."""
        known = self._family.get(name)
        return known or RemoteBus(self._url, name, self._patience, strict=self._strict, family=self._family)

    # -- the connection

    async def _resume(self) -> None:
        """On a new connection: be what was lost with the old one."""
        for text in self._advertised:
            again = partial(frames.Call, verb="advertise", args=_written({"filter": text}))
            await self._link.ask_now(again)
        await self._desk.resume()
        if self._receipts is not None:
            await self._receipts.open(again=True)

    def _hear(self, frame: frames.ServerFrame) -> None:
        if self._desk.hear(frame):
            return
        if isinstance(frame, frames.Seen) and self._receipts is not None:
            self._receipts.receive(frame)

    def _over(self, error: TocsinError) -> None:
        self._desk.end(None if self._closing else error)
        if self._receipts is not None:
            self._receipts.end(error)

    async def _ping(self) -> int:
        """Wait until what was said was heard, and what the node has to say has come; returns how much ever came."""
        if self._opening is not None:
            await self._opening
        while self._link.generation:  # else nothing was ever said
            self._desk.flush()
            await self._link.ready()
            try:
                await self._link.ping()
                break
            except Lost:
                continue
        return self._link.received

    async def _call(self, verb: str, kind: type[T] | Any, *, repeat: bool = True, **arguments: Any) -> T:
        args = _written(arguments)
        raw = await self._link.ask(lambda n: frames.Call(n, verb, args), repeat=repeat)
        value: T = MSGPACK.read(raw, kind)
        return value

    # -- publishing

    async def publish(self, event: Event) -> Published:
        """Publish an event; returns its id and offset when it is durable."""
        return (await self.publish_many((event,)))[0]

    async def publish_many(self, events: Iterable[Event]) -> list[Published]:
        """Publish events together: all or none, one answer for all, in order."""
        largest = round(self._link.limits["max_event"])
        parts = [Raw(to_packed(_event(each), largest)) for each in events]
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
        placement: str = "node",
    ) -> RemoteSubscription:
        """Say what you want to hear of; see `tocsin.client.Bus.subscribe`."""
        given = {
            "order": order,
            "group": group,
            "durable": durable,
            "ack_wait": ack_wait,
            "max_in_flight": max_in_flight,
            "max_deliver": max_deliver,
            "auto_ack": auto_ack,
            "fair": fair,
            "placement": placement,
        }
        options = {name: value for name, value in given.items() if value is not UNSET}
        _written({"consumer": consumer, **options})
        bound = bounds.coerce(past)
        text = _text(filter)
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
            1 if group is not None else min(AHEAD, window),
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
        sent: _Explained = await self._call("explain", _Explained, id=id)
        made = sent.definition
        definition = parse(made.name, made.text, made.context, made.semantics)
        definition = msgspec.structs.replace(definition, max_open=made.max_open)
        return Explanation(definition, *msgspec.structs.astuple(sent.rest))

    # -- who is there

    async def advertise(self, filter: str | Filter) -> None:
        """Say that you will publish events like this; it is withdrawn when the bus closes or is lost."""
        await self._call("advertise", None, filter=(text := _text(filter)))
        self._advertised[text] = None

    async def unadvertise(self, filter: str | Filter) -> None:
        """Withdraw what you have advertised."""
        self._advertised.pop(text := _text(filter), None)
        await self._call("unadvertise", None, filter=text)

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

    async def close(self) -> None:
        """Withdraw what you advertise, and end the connection; durable consumers stay.

        Faces made with `as_user` end with the bus they were made of.
        """
        self._closing = True
        if self._opening is not None:
            self._opening.cancel()
        await self._link.close()
        if not self._is_head:
            self._family.pop(self.name, None)
            return
        for other in list(self._family.values()):
            if other is not self:
                await other.close()


class _Rest(msgspec.Struct):
    """All of an explanation but its definition, in the same order."""

    key: dict[str, Any]
    time: Any
    parts: tuple[ExplainedPart, ...]
    steps: tuple[Operation, ...]
    completed_by: ExplainedPart | None
    missing: str
    span: timedelta | None
    within: timedelta | None
    certain: bool


class _Explained(msgspec.Struct):
    definition: About
    rest: _Rest


def _written(arguments: dict[str, Any]) -> Raw:
    """Arguments as they are sent.

    Raises:
        ConsumerError: one of them cannot be; it is named.
    """
    for name, value in arguments.items():
        try:
            MSGPACK.value(value)
        except ProtocolError as error:
            raise ConsumerError(f"{name} is {value!r}", field=name, help=error.help) from None
    return MSGPACK.value(arguments)


def _text(filter: object) -> str:
    """The text of a filter; what is neither text nor a filter is refused as embedded."""
    return filter if isinstance(filter, str) else str(filter if isinstance(filter, Filter) else Filter(filter))  # type: ignore[arg-type]


def _event(event: object) -> Event:
    if not isinstance(event, Event):
        raise EventError(f"an event is expected, not {type(event).__name__}", help="make one: Event(type, source)")
    return event
