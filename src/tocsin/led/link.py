"""An agent and a node: what is wanted of others, what others want, and how both go over ordinary verbs of a bus.

    consumer                        node                          producer
    led.request (an alert)  ─▶  retained until withdrawn  ─▶  from now on, events of that name are published
    bus.define, if all parts are remote: the node detects, and the consumer hears nothing but the composite
    one durable consumer `led.…` in journal order          ◀─ events, with `application` and `host` as attributes

A request is an alert: it waits for a producer that has not joined, and a producer that comes later finds it. There is
one for each event and context, whoever wants it: who wants what somebody else has asked for asks nothing. Withdrawing
is cancelling it, by the last who wants it. So a producer publishes what somebody wants, and nothing else.

Promised: what is published is heard by every consumer that wanted it then, at least once, in the order of the node.
Not promised: anything about events that happened before the producer heard of the request. One agent goes by the name
of an application on a host; two would share what is heard.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol
from urllib.parse import quote

from tocsin.errors import DefinitionError, DeliveryError, RuleError, UnknownEventError
from tocsin.journal.bounds import retained
from tocsin.led.names import REQUEST, GlobalName, Request, check_place
from tocsin.led.occurrence import Occurrence, fields
from tocsin.led.outbox import Outbox
from tocsin.model import MAX_TTL, Event
from tocsin.rules.contract import BusLike, SubscriptionLike, composites_in, forsake, named

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tocsin.led.catalog import Wants

__all__ = ["Link"]

_PAUSE: Final = 1.0
_CANCELLED: Final = "tocsin.cancelled"
_PREFIX: Final = "led."
_log = logging.getLogger("tocsin")


class _Agent(Protocol):
    heard: int

    def wants(self, asked: Iterable[str]) -> Wants: ...

    async def hear(self, name: str, event: Event, context: str | None) -> None: ...


class Link:
    """The bond between an agent and a node. Belongs to the event loop on which it was opened."""

    def __init__(
        self,
        agent: _Agent,
        bus: BusLike,
        application: str,
        host: str | None,
        moved: Mapping[tuple[str, str], tuple[str, str]],
    ) -> None:
        """Prepare; `open` does it."""
        self._agent, self._bus = agent, bus
        self.application = check_place(application, "an application")
        self.host = check_place(host if host is not None else socket.gethostname(), "a host")
        _check(moved)
        self._moved = dict(moved)
        self._consumer = f"{_PREFIX}{quote(self.application, safe='')}@{quote(self.host, safe='')}"
        self._loop = asyncio.get_running_loop()
        self._asked: dict[str, Request] = {}  # of us, by the request's id
        self._published: dict[str, set[GlobalName]] = {}  # by names of events, what others call them
        self._asks: set[Request] = set()  # by us, or shared with others
        self._wants: Wants | None = None  # as the node knows it; None: it may not
        self._hears: Wants | None = None  # as it is subscribed to
        self._defined: dict[str, None] = {}  # by us, each after what it is made of
        self._heard: SubscriptionLike | None = None
        self._requests: SubscriptionLike | None = None
        self.outbox = Outbox(bus)
        self._tasks: list[asyncio.Task[None]] = []
        self._pump: asyncio.Task[None] | None = None
        self._stale, self._fresh = asyncio.Event(), asyncio.Event()
        self._changes, self._done = 0, 0  # of what is wanted: seen, and known to the node
        self._failure: Exception | None = None

    @property
    def _me(self) -> GlobalName:
        return GlobalName("", self.application, self.host)

    def resolve(self, name: GlobalName) -> GlobalName:
        """Where an event is found now, if its application has moved."""
        place, seen = (name.application, name.host), set()
        while place in self._moved and place not in seen:
            seen.add(place)
            place = self._moved[place]
        return GlobalName(name.event, *place)

    def _places(self) -> list[tuple[str, str]]:
        """Where others may think that this application is."""
        here = (self.application, self.host)
        return [here, *(old for old in self._moved if old != here and self.resolve(GlobalName("", *old)) == self._me)]

    # -- life

    async def open(self) -> None:
        """Hear what others want, and say what is wanted here."""
        places = [GlobalName(REQUEST, *place).filter for place in self._places()]
        wanted = " OR ".join(f"({each})" for each in places)
        self._requests = await self._bus.subscribe(wanted, past=retained(), order="journal")
        while (delivery := self._requests.poll()) is not None:
            self._read(delivery.event)
            await delivery.ack()
        await self._reconcile(self._agent.wants(self._published), first=True)
        works = (self._read_requests(), self.outbox.run(), self._keep_up())
        self._tasks = [self._loop.create_task(work) for work in works]

    async def close(self, *, keep: bool) -> None:
        """Send what is on its way, withdraw what was wanted, and stop.

        Raises:
            TocsinError: the node has not taken all that was sent or wanted. It is left all the same.
        """
        failure = None
        try:
            await self.flush()
        except Exception as error:  # all the same we leave
            failure = error
        finally:
            self.outbox.close()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            await self._stop_hearing()
        if self._heard is not None:
            await self._heard.close()
        if self._requests is not None:
            await self._requests.close()
        if not keep:
            await self._withdraw_all()
        if failure is not None:
            raise failure

    async def flush(self) -> None:
        """Wait until the node knows what is wanted here, and has what was sent.

        Raises:
            TocsinError: the node does not take it; it is tried again.
        """
        if not self._tasks:
            return
        target = self._changes
        while self._done < target:
            self._fresh.clear()
            await self._fresh.wait()
        if self._failure is not None:
            raise self._failure
        await self.outbox.flush()

    # -- what others want

    def _read(self, event: Event) -> None:
        if event.type == _CANCELLED:
            self._asked.pop(event.correlation_id or "", None)
        elif (request := Request.read(event)) is not None:
            self._asked[event.id] = request
        published: dict[str, set[GlobalName]] = {}
        for request in self._asked.values():
            published.setdefault(request.of.event, set()).add(request.of)
        self._published = published
        self.look()

    async def _read_requests(self) -> None:
        assert self._requests is not None
        with contextlib.suppress(DeliveryError):  # closed
            while True:
                delivery = await self._requests.next()
                self._read(delivery.event)
                await delivery.ack()

    def asked(self) -> dict[Request, int]:
        """What others want of this application, and how many requests say so."""
        found: dict[Request, int] = {}
        for request in self._asked.values():
            found[request] = found.get(request, 0) + 1
        return found

    def forward(self, occurrence: Occurrence) -> None:
        """Publish it if somebody wants it. May be called from any thread."""
        names = self._published.get(occurrence.name)
        if names:
            self.outbox.put(_published(name, occurrence) for name in names)

    # -- what is wanted of others

    def look(self) -> None:
        """Something else may be wanted now. May be called from any thread."""
        self._changes += 1
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._stale.set)

    async def _keep_up(self) -> None:
        while True:
            await self._stale.wait()
            self._stale.clear()
            target = self._changes
            try:
                await self._reconcile(self._agent.wants(self._published))
                self._failure = None
            except Exception as error:  # also what is no error of ours: nobody else would say what is wanted
                _log.warning("%s cannot say what it wants: %s", self._consumer, error)
                self._failure = error
                if not isinstance(error, DefinitionError):
                    self._wants = None
                    self._loop.call_later(_PAUSE, self._stale.set)
            self._done = target
            self._fresh.set()

    async def _reconcile(self, wants: Wants, *, first: bool = False) -> None:
        """Have the node know what is wanted.

        Raises:
            DefinitionError: it cannot define one of the composites. All else is done.
        """
        if wants == self._wants or (first and not wants.requests):
            return
        # In this order: who withdraws looks afterwards who listens, so nothing is gone that we rely on.
        if self._hears is None or (wants.events, wants.composites) != (self._hears.events, self._hears.composites):
            await self._listen(wants)
        refused = await self._define(wants)
        alerts = await self._alerts()
        known = {request for _, request in alerts}
        await self._ask(request for request in sorted(wants.requests) if request not in known)
        mine = {request for event, request in alerts if event.source == self._me.source}
        await self._withdraw((self._asks | mine) - wants.requests)
        self._asks = set(wants.requests)
        await self._forsake([name for name in self._defined if name not in wants.definitions])
        self._wants = wants
        if refused is not None:
            raise refused

    async def _define(self, wants: Wants) -> DefinitionError | None:
        refused = None
        for each in wants.definitions.values():
            try:
                await self._bus.define(each.name, each.text, context=each.context)
                self._defined[each.name] = None
            except DefinitionError as error:
                refused = error
        return refused

    async def _ask(self, requests: Iterable[Request]) -> None:
        source = self._me.source
        events = [Event(REQUEST, source, attributes=each.attributes, ttl=MAX_TTL, cancel="any") for each in requests]
        if events:
            await self._bus.publish_many(events)

    async def _alerts(self) -> list[tuple[Event, Request]]:
        found = [(alert.event, Request.read(alert.event)) for alert in await self._bus.alerts()]
        return [(event, request) for event, request in found if request is not None]

    async def _listen(self, wants: Wants) -> None:
        """Hear what is wanted, through one subscription; what waits in an older one goes over."""
        await self._stop_hearing()
        filters = [*(name.filter for name in wants.events), *map(named, wants.composites)]
        old, self._heard = self._heard, None
        if filters:
            wanted = " OR ".join(f"({each})" for each in filters)
            self._heard = await self._bus.subscribe(wanted, self._consumer, order="journal")
        if old is not None:
            await old.close()
        for info in await self._bus.consumers():
            if info.name == self._consumer and self._heard is None:
                await self._bus.forget(self._consumer)
            elif info.name == self._consumer and self._heard is not None:
                for id, text in info.subscriptions:
                    if id != self._heard.id:
                        await self._bus.unsubscribe(self._consumer, id)
                        self._defined |= dict.fromkeys(composites_in(text))  # perhaps of an earlier life
        self._hears = wants
        if self._heard is not None:
            self._pump = self._loop.create_task(self._hear(self._heard))

    async def _stop_hearing(self) -> None:
        if self._pump is not None:
            self._pump.cancel()
            await asyncio.gather(self._pump, return_exceptions=True)
            self._pump = None

    async def _hear(self, subscription: SubscriptionLike) -> None:
        try:
            while True:
                delivery = await subscription.next()
                if delivery.notice:
                    continue
                work = self._loop.create_task(self._pass_on(delivery))
                try:
                    await asyncio.shield(work)
                except asyncio.CancelledError:
                    await asyncio.gather(work, return_exceptions=True)
                    raise
        except DeliveryError:  # closed
            return
        except Exception:
            _log.exception("%s does not hear any more; it comes again when the agent joins", self._consumer)

    async def _pass_on(self, delivery: Any) -> None:
        event: Event = delivery.event
        assert self._hears is not None
        if (event.offset or 0) > self._agent.heard:
            self._agent.heard = event.offset or 0
            for name, context in self._hears.composites.get(event.type, ()):
                await self._agent.hear(name, event, context)
            place = [str(event.attributes.get(key)) for key in ("application", "host")]
            for name in self._hears.events.get(GlobalName(event.type, place[0], place[1]), ()):
                await self._agent.hear(name, event, None)
        await delivery.ack()

    # -- withdrawing

    async def _withdraw_all(self) -> None:
        if self._heard is not None:
            await self._bus.forget(self._consumer)
        await self._withdraw(self._asks)
        await self._forsake(list(self._defined))

    async def _forsake(self, names: list[str]) -> None:
        for name in reversed(names):
            del self._defined[name]
            await forsake(self._bus, name)

    async def _withdraw(self, requests: set[Request]) -> None:
        """Withdraw requests for events that nobody wants any more, in whatever context."""
        for name in {request.of for request in requests}:
            if await self._is_wanted(name):
                continue
            cancelled = [(event, request) for event, request in await self._alerts() if request.of == name]
            for event, _ in cancelled:
                with contextlib.suppress(UnknownEventError):
                    await self._bus.cancel(event.id, event.source)
            if await self._is_wanted(name):  # somebody came at this moment, and has found what we cancelled
                await self._ask(request for _, request in cancelled)

    async def _is_wanted(self, name: GlobalName) -> bool:
        """Does any application hear it, or a composite made of it?"""
        heard = [
            text
            for info in await self._bus.consumers()
            if info.name.startswith(_PREFIX)
            for _, text in info.subscriptions
        ]
        wanted = [name.filter]
        for each in await self._bus.definitions():  # each comes after what it is made of
            if any(part in each.text for part in wanted):
                wanted += [named(each.name), each.name]
        return any(part in text for part in wanted for text in heard)


def _published(name: GlobalName, occurrence: Occurrence) -> Event:
    """An occurrence as others hear of it."""
    event = occurrence.event
    data = event.data
    if occurrence.parts:
        parts = [
            {**part.about, **({} if part.of is None else {"data": fields(part.of.params)})} for part in occurrence.parts
        ]
        data = {**data, "parts": parts}
    return Event(
        name.event,
        name.source,
        id=event.id,
        time=event.time,
        data=data,
        attributes={"application": name.application, "host": name.host},
    )


def _check(moved: Mapping[Any, Any]) -> None:
    for place in (*moved, *moved.values()):
        if not isinstance(place, tuple) or len(place) != 2:
            raise RuleError(f"{place!r} is no application on a host", field="moved", help="give (application, host)")
