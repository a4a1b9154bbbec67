"""The blocking face: the same verbs as `tocsin.connect`, for programs without an event loop.

    with tocsin.sync.connect("file:plant.db") as bus:
        bus.publish(tocsin.Event("door.open", "gate/1"))
        for delivery in bus.subscribe("type = 'door.open'", consumer="guard", past=10, timeout=1.0):
            delivery.ack()

The node runs on a thread of its own; every call waits for its answer. A bus may be used from several threads.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Coroutine, Iterable, Iterator
from types import TracebackType
from typing import Any, TypeVar

from tocsin import client
from tocsin.clock import Clock
from tocsin.composite.builder import Pattern
from tocsin.composite.explain import Explanation
from tocsin.delivery import handles
from tocsin.delivery.board import Alert, ConsumerInfo, Receipt, Status, Step
from tocsin.errors import JournalError
from tocsin.filters.filter import Filter
from tocsin.journal.bounds import Past
from tocsin.model import Event
from tocsin.node import Published
from tocsin.node.definitions import DefinitionInfo
from tocsin.node.discovery import Changes as AsyncChanges
from tocsin.node.serving import Handler
from tocsin.sync_peers import Changes, Demand, Group, Serving

__all__ = ["Batch", "Bus", "Delivery", "Receipts", "Subscription", "connect"]

T = TypeVar("T")


class _Runner:
    """An event loop on a thread."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.stopped = False
        self._stopping = threading.Lock()
        self._thread = threading.Thread(target=self.loop.run_forever, name="tocsin-node", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run on the loop and wait for it; an interrupted wait cancels the work.

        Raises:
            JournalError: the loop has stopped, or stops before the work is done.
        """
        with self._stopping:
            if self.stopped:
                work.close()
                raise JournalError("the bus is closed", help="connect again")
            future = asyncio.run_coroutine_threadsafe(work, self.loop)
        try:
            return future.result()
        except concurrent.futures.CancelledError:
            raise JournalError("the bus was closed meanwhile", help="connect again") from None
        except BaseException:
            future.cancel()
            raise

    def stop(self) -> None:
        with self._stopping:
            self.stopped = True
        asyncio.run_coroutine_threadsafe(self._cancel_all(), self.loop).result()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()

    async def _cancel_all(self) -> None:
        """Nobody may wait for ever for what this loop will not do any more."""
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class Delivery:
    """An event in your hands; see `tocsin.delivery.handles.Delivery`."""

    def __init__(self, runner: _Runner, inner: handles.Delivery) -> None:
        """Wrap a delivery."""
        self._runner, self._inner = runner, inner
        self.event, self.offset, self.attempt = inner.event, inner.offset, inner.attempt
        self.replayed, self.notice = inner.replayed, inner.notice

    def ack(self) -> None:
        """Settle it; stored when this returns."""
        self._runner.run(self._inner.ack())

    def nak(self, delay: float = 0) -> None:
        """Give it back: it comes again, after `delay` seconds."""
        self._runner.run(self._inner.nak(delay))

    def term(self, reason: str = "") -> None:
        """Give it up: a dead letter says why."""
        self._runner.run(self._inner.term(reason))

    def in_progress(self) -> None:
        """Ask for more time."""
        self._runner.run(self._inner.in_progress())

    def __repr__(self) -> str:
        """Show what it is."""
        return repr(self._inner)


class Batch(list[Delivery]):
    """Deliveries that are settled together."""

    def __init__(self, runner: _Runner, inner: handles.Batch) -> None:
        """Wrap a batch."""
        super().__init__(Delivery(runner, each) for each in inner)
        self._runner, self._inner = runner, inner

    def ack(self) -> None:
        """Settle all with one commit."""
        self._runner.run(self._inner.ack())


class Subscription:
    """An open subscription: iterate over it. With a timeout, iteration ends after so many seconds of silence."""

    def __init__(self, runner: _Runner, inner: handles.Subscription, timeout: float | None) -> None:
        """Wrap a subscription."""
        self._runner, self._inner, self.timeout = runner, inner, timeout
        self.id = inner.id

    def next(self, timeout: float | None = None) -> Delivery:
        """Wait for the next delivery.

        Raises:
            TimeoutError: none came in time; none is lost.
        """
        return Delivery(self._runner, self._runner.run(self._inner.next(timeout)))

    def poll(self) -> Delivery | None:
        """The next delivery if there is one at this moment."""

        async def ask() -> handles.Delivery | None:
            return self._inner.poll()

        found = self._runner.run(ask())
        return Delivery(self._runner, found) if found is not None else None

    def __iter__(self) -> Iterator[Delivery]:
        """Deliveries as they come, until the subscription is closed or nothing came for `timeout` seconds."""
        while True:
            try:
                yield self.next(self.timeout)
            except (TimeoutError, handles.ClosedError):
                return

    def batches(self, size: int) -> Iterator[Batch]:
        """Deliveries in batches of up to `size`, as long as iteration would go on."""
        source = self._inner.batches(size)

        async def following() -> handles.Batch:
            async with asyncio.timeout(self.timeout):
                return await anext(source, handles.Batch())

        while True:
            try:
                batch = self._runner.run(following())
            except TimeoutError:
                return
            if not batch:  # closed
                return
            yield Batch(self._runner, batch)

    def close(self) -> None:
        """Stop receiving; a durable consumer keeps its place."""
        if not self._runner.stopped:
            self._runner.run(self._inner.close())

    def __enter__(self) -> Subscription:
        """Use it in `with`: it is closed at the end."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        self.close()


class Receipts:
    """Receipts for what a bus has published."""

    def __init__(self, runner: _Runner, inner: client.Receipts) -> None:
        """Wrap receipts."""
        self._runner, self._inner = runner, inner

    def next(self, timeout: float | None = None) -> Receipt:
        """Wait for the next receipt; raises TimeoutError."""
        return self._runner.run(self._inner.next(timeout))

    def poll(self) -> Receipt | None:
        """The next receipt if there is one at this moment."""

        async def ask() -> Receipt | None:
            return self._inner.poll()

        return self._runner.run(ask())

    def __iter__(self) -> Iterator[Receipt]:
        """Receipts as they come, without end."""
        while True:
            yield self.next()


class Bus:
    """A bus whose verbs wait; see `tocsin.client.Bus` for what they mean."""

    def __init__(self, runner: _Runner, inner: client.Bus) -> None:
        """Wrap a bus."""
        self._runner, self._inner, self.name = runner, inner, inner.name

    def as_user(self, name: str) -> Bus:
        """Another face of the same node, under another name."""
        return Bus(self._runner, self._inner.as_user(name))

    def publish(self, event: Event) -> Published:
        """Publish an event; returns when it is durable."""
        return self._runner.run(self._inner.publish(event))

    def publish_many(self, events: Iterable[Event]) -> list[Published]:
        """Publish events together."""
        return self._runner.run(self._inner.publish_many(events))

    @property
    def spooled(self) -> int:
        """Events that wait in the spool until the node can be reached."""
        return self._inner.spooled

    def subscribe(
        self,
        filter: str | Filter,
        consumer: str | None = None,
        past: Past = None,
        *,
        timeout: float | None = None,
        **options: Any,
    ) -> Subscription:
        """Say what you want to hear of; `timeout` ends iteration after so many seconds of silence."""
        inner = self._runner.run(self._inner.subscribe(filter, consumer, past, **options))
        return Subscription(self._runner, inner, timeout)

    def unsubscribe(self, consumer: str, subscription: str) -> None:
        """Drop one subscription of a consumer."""
        self._runner.run(self._inner.unsubscribe(consumer, subscription))

    def forget(self, consumer: str) -> None:
        """Drop a consumer with everything it has."""
        self._runner.run(self._inner.forget(consumer))

    def consumers(self) -> list[ConsumerInfo]:
        """Every consumer."""
        return self._runner.run(self._inner.consumers())

    def define(
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
        return self._runner.run(
            self._inner.define(
                name, text, context, placement, past, semantics=semantics, replace=replace, max_open=max_open
            )
        )

    def undefine(self, name: str) -> None:
        """Remove a definition."""
        self._runner.run(self._inner.undefine(name))

    def definitions(self) -> list[DefinitionInfo]:
        """Every definition."""
        return self._runner.run(self._inner.definitions())

    def explain(self, id: str) -> Explanation:
        """Why an event that a definition made is there."""
        return self._runner.run(self._inner.explain(id))

    def advertise(self, filter: str | Filter) -> None:
        """Say that you will publish events like this."""
        self._runner.run(self._inner.advertise(filter))

    def unadvertise(self, filter: str | Filter) -> None:
        """Withdraw what you have advertised."""
        self._runner.run(self._inner.unadvertise(filter))

    def resources(self, filter: str | Filter | None = None, *, timeout: float | None = None) -> Changes:
        """What is advertised and served; `timeout` ends iteration after so many seconds of silence."""

        async def watch() -> AsyncChanges:
            return self._inner.resources(filter)

        return Changes(self._runner, self._runner.run(watch()), timeout)

    def demand(self, filter: str | Filter) -> Demand:
        """Does anybody want events like this?"""
        return Demand(self._runner, self._runner.run(self._inner.demand(filter)))

    def serve(self, resource: str, handler: Handler) -> Serving:
        """Answer requests for a resource: `with bus.serve("params/m7", handler)`."""
        return Serving(self._runner, self._inner.serve(resource, handler))

    def request(self, resource: str, data: Any = None, **options: Any) -> Any:
        """Ask who serves a resource; see `tocsin.client.Bus.request` for `timeout` and `policy`."""
        return self._runner.run(self._inner.request(resource, data, **options))

    def join(self, group: str, *, timeout: float | None = None) -> Group:
        """Be a member of a group: `with bus.join("line-7") as group`; `timeout` ends iteration after silence."""
        return Group(self._runner, self._inner.join(group), timeout)

    def cancel(self, id: str, source: str | None = None) -> None:
        """Withdraw an event."""
        self._runner.run(self._inner.cancel(id, source))

    def status(self, id: str, source: str | None = None) -> Status:
        """What became of an event."""
        return self._runner.run(self._inner.status(id, source))

    def alerts(self) -> list[Alert]:
        """Live alerts."""
        return self._runner.run(self._inner.alerts())

    def audit(self, id: str, source: str | None = None) -> list[Step]:
        """Every step of an event that is tracked."""
        return self._runner.run(self._inner.audit(id, source))

    def trim(self, **limits: Any) -> int:
        """Drop old events from the journal; see `tocsin.client.Bus.trim`."""
        return self._runner.run(self._inner.trim(**limits))

    def receipts(self) -> Receipts:
        """Receipts for what this name has published."""

        async def make() -> client.Receipts:
            return self._inner.receipts()

        return Receipts(self._runner, self._runner.run(make()))

    def close(self) -> None:
        """Withdraw what you advertise, serve and are a member of; if the node is yours, close it."""
        if not self._runner.stopped:
            self._runner.run(self._inner.close())


class connect:
    """Open a node: `with tocsin.sync.connect("file:plant.db") as bus`. Takes what `tocsin.connect` takes."""

    def __init__(self, url: str, *, name: str | None = None, clock: Clock | None = None, **options: Any) -> None:
        """Say where; nothing is opened yet."""
        self._outer = client.connect(url, name=name, clock=clock, **options)
        self._runner: _Runner | None = None

    def __enter__(self) -> Bus:
        """Open it."""
        self._runner = _Runner()
        try:
            return Bus(self._runner, self._runner.run(self._outer.__aenter__()))
        except BaseException:
            self._runner.stop()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        assert self._runner is not None
        try:
            self._runner.run(self._outer.__aexit__(kind, error, trace))
        finally:  # whatever the disk says
            self._runner.stop()
