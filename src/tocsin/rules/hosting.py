"""`Rules`: rules on a bus. Each is a durable consumer, so nothing it waits for is lost, whatever dies.

    node ─▶ consumer `rule.<name>` ─▶ condition, action ─▶ ack
                                          └ raises ─▶ nak, later again ─▶ … ─▶ `rule.failed`, dead letter

Promised: an action runs at least once for every event its rule is triggered by from its first start on, also if the
process dies in the middle; a failing one is tried again, at last reported, and holds up no other rule.
Not promised: that an action runs only once (the process may die between action and ack), or any order between rules.
Attempts are counted while the node is up, so an event that kills its process comes again and again.

`immediate` rules take one event at a time, `detached` ones several at once, `deferred` ones none until `commit`. At
most `workers` actions run at a time; the rule with the highest priority goes first.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final, TypeVar

from tocsin.composite.builder import Pattern
from tocsin.composite.expression import Definition
from tocsin.errors import DeliveryError, RuleError, TocsinError
from tocsin.filters.filter import Filter
from tocsin.model import DEFAULT_PRIORITY, Event
from tocsin.rules import loading
from tocsin.rules.contract import (
    BusLike,
    DeliveryLike,
    SubscriptionLike,
    composite_name,
    composites_in,
    forsake,
    named,
)
from tocsin.rules.gate import Gate
from tocsin.rules.rule import FAILED, Condition, Coupling, Failure, Rule, rule
from tocsin.rules.schedule import Awaiting, Triggered, fire

__all__ = ["Rules"]

SOURCE: Final = "rules"
"""The source of `rule.failed` events."""
_LONGEST_PAUSE: Final = 300.0
_WINDOW: Final = 256
"""Deliveries a consumer may have in hand, unless somebody has said otherwise."""
_log = logging.getLogger("tocsin")
_R = TypeVar("_R", bound="Rules")


class Rules:
    """Rules on a bus: `async with Rules(bus) as rules`. Belongs to the event loop of its bus."""

    def __init__(
        self,
        bus: BusLike,
        *,
        workers: int = 16,
        max_deliver: int = 5,
        ack_wait: float = 30.0,
        retry: float = 1.0,
        on_failure: Callable[[Failure], None] | None = None,
    ) -> None:
        """Begin with no rules.

        Args:
            bus: where events come from.
            workers: actions that run at a time.
            max_deliver: attempts before an event is given up for a rule and `rule.failed` is published.
            ack_wait: seconds after which an event comes again if this process has died.
            retry: seconds until the second attempt; each further pause is twice as long, up to five minutes.
            on_failure: hears of every failing attempt; the log does, too.

        Raises:
            RuleError: one of the numbers means nothing.
        """
        for field, value in (("workers", workers), ("max_deliver", max_deliver), ("ack_wait", ack_wait)):
            if not value > 0:
                raise RuleError(f"{field} is {value!r}", field=field, help="give a number above 0")
        if not retry >= 0:
            raise RuleError(f"retry is {retry!r}", field="retry", help="give seconds, 0 or more")
        self._bus, self._max_deliver, self._ack_wait, self._retry = bus, max_deliver, ack_wait, retry
        self._on_failure = on_failure
        self._gate = Gate(workers)
        self._way = Awaiting(threads=max(1, int(workers)))
        self._rules: dict[str, Rule] = {}
        self._open: dict[str, SubscriptionLike] = {}
        self._pumps: dict[str, asyncio.Task[None]] = {}
        self._busy: dict[str, set[asyncio.Task[None]]] = {}  # by the name of the rule

    # -- which rules

    def rule(
        self,
        on: str | Pattern,
        *,
        when: Condition = None,
        priority: int = DEFAULT_PRIORITY,
        coupling: Coupling = "immediate",
        context: str | None = None,
        name: str | None = None,
    ) -> Callable[[Callable[[Any], Any]], Rule]:
        """Make a rule of a function, and add it; see `tocsin.rules.rule`. The function gets the event."""
        make = rule(on, when=when, priority=priority, coupling=coupling, context=context, name=name)
        return lambda action: self.add(make(action))

    def add(self, rule: Rule) -> Rule:
        """Add a rule; `start` lets it begin.

        Raises:
            RuleError: there is one of that name, or it is about an object of a program.
        """
        if rule.name in self._rules:
            raise RuleError(f"there is a rule {rule.name} already", field="name", help="call it otherwise")
        if rule.instance is not None:
            raise RuleError(
                f"rule {rule.name} is about an object, which a node does not know",
                field="instance",
                help="give it to an agent (tocsin.led), or use when=",
            )
        self._rules[rule.name] = rule
        return rule

    def load(self, path: str | os.PathLike[str]) -> list[Rule]:
        """Add the rules of a TOML file: all of them, or none.

        Raises:
            RuleError: the file cannot be read, a rule in it is wrong, or one of that name is there.
        """
        found = loading.load(path)
        for each in found:
            if each.name in self._rules:
                raise RuleError(f"{path}: there is a rule {each.name} already", field="name", help="call it otherwise")
        return [self.add(each) for each in found]

    def rules(self) -> list[Rule]:
        """All rules, in the order they were added."""
        return list(self._rules.values())

    # -- life

    async def start(self) -> None:
        """Let every rule begin that has not: where it was, or for a new one with what is published from now on.

        Raises:
            DefinitionError: the node cannot define a rule's composite.
        """
        for each in self.rules():
            if each.name not in self._open:
                await self._start(each)

    async def _start(self, rule: Rule) -> None:
        filter = _filter(rule)
        consumer = _consumer(rule.name)
        await self._define(rule.trigger.definition)
        subscription = await self._bus.subscribe(filter, consumer, ack_wait=self._ack_wait)
        self._open[rule.name] = subscription
        await self._define(rule.trigger.definition)  # should another host have removed it meanwhile
        for info in await self._bus.consumers():  # what it was triggered by in an earlier life is over
            for id, text in info.subscriptions if info.name == consumer else ():
                if text != filter:
                    await self._bus.unsubscribe(consumer, id)
                    for name in composites_in(text):
                        await forsake(self._bus, name)
        if rule.coupling != "deferred":
            self._pumps[rule.name] = asyncio.create_task(self._pump(rule, subscription), name=consumer)

    async def remove(self, name: str) -> None:
        """Drop a rule for good, with its place, and its composite if no other consumer hears that.

        Raises:
            RuleError: there is no such rule.
        """
        rule = self._rules.pop(name, None)
        if rule is None:
            raise RuleError(f"there is no rule {name}", field="name", help="see rules()")
        if name in self._open:
            await self._stop([name])
        if any(info.name == _consumer(name) for info in await self._bus.consumers()):  # perhaps of an earlier life
            await self._bus.forget(_consumer(name))
        if rule.trigger.definition is not None:
            await forsake(self._bus, _derived(rule.trigger.definition))

    async def _define(self, definition: Definition | None) -> None:
        if definition is not None:
            await self._bus.define(_derived(definition), definition.text, context=definition.context)

    async def close(self) -> None:
        """Stop: what runs is waited for, what waits stays for the next start."""
        await self._stop(list(self._open))
        self._way.close()

    async def _stop(self, names: list[str]) -> None:
        pumps = [self._pumps.pop(name) for name in names if name in self._pumps]
        for pump in pumps:
            pump.cancel()
        busy = {task for name in names for task in self._busy.pop(name, ())}
        busy.discard(asyncio.current_task())  # an action may remove its own rule
        await asyncio.gather(*pumps, *busy, return_exceptions=True)
        for name in names:
            await self._open.pop(name).close()

    async def __aenter__(self: _R) -> _R:
        """Start all, or none."""
        try:
            await self.start()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop."""
        await self.close()

    # -- deferred

    async def commit(self) -> int:
        """Run deferred rules for all that has come for them, the highest priority first; returns how often.

        What their actions publish waits for the next commit.
        """
        return await self._waiting(self._handle)

    async def rollback(self) -> int:
        """Settle what has come for deferred rules without running them; returns how much that was."""

        async def drop(rule: Rule, delivery: DeliveryLike) -> None:
            await delivery.ack()

        return await self._waiting(drop)

    async def _waiting(self, act: Callable[[Rule, DeliveryLike], Any]) -> int:
        count = 0
        deferred = [each for each in self._rules.values() if each.coupling == "deferred" and each.name in self._open]
        for each in sorted(deferred, key=lambda each: -each.priority):
            while each.name in self._open and (taken := _taken(self._open[each.name])):
                beat = asyncio.create_task(self._beat(taken))
                try:
                    for delivery in taken:
                        await act(each, delivery)
                finally:
                    beat.cancel()
                count += len(taken)
                if len(taken) < _WINDOW:  # what has come since is for the next time
                    break
        return count

    # -- running

    async def _pump(self, rule: Rule, subscription: SubscriptionLike) -> None:
        try:
            while True:
                delivery = await subscription.next()
                if delivery.notice:
                    continue
                task = asyncio.create_task(self._handle(rule, delivery))
                busy = self._busy.setdefault(rule.name, set())
                busy.add(task)
                task.add_done_callback(busy.discard)
                if rule.coupling == "immediate":
                    await asyncio.shield(task)  # stopping lets it end
        except DeliveryError:  # the subscription was closed
            return
        except TocsinError:
            _log.exception("rule %s has stopped", rule.name)

    async def _handle(self, rule: Rule, delivery: DeliveryLike) -> None:
        beat = asyncio.create_task(self._beat([delivery]))
        failure = None
        try:
            async with self._gate.place(rule.priority):
                await fire(Triggered(rule, delivery.event, delivery.event), self._way)
        except Exception as error:
            failure = Failure(rule.name, delivery.event, error, delivery.attempt)
        finally:
            beat.cancel()
        try:
            await (delivery.ack() if failure is None else self._failed(failure, delivery))
        except Exception as error:  # it comes again
            _log.warning("rule %s could not settle event %s: %s", rule.name, delivery.event.id, error)

    async def _beat(self, deliveries: list[DeliveryLike]) -> None:
        """Say that the work goes on, as long as it does."""
        while True:
            await asyncio.sleep(self._ack_wait / 3)
            for delivery in deliveries:
                try:
                    await delivery.in_progress()
                except TocsinError:  # settled, cancelled, or nobody is there: settling it will tell
                    continue

    async def _failed(self, failure: Failure, delivery: DeliveryLike) -> None:
        event = failure.event
        _log.warning(
            "rule %s failed on event %s, attempt %d: %s", failure.rule, event.id, failure.attempt, failure.text
        )
        if self._on_failure is not None:
            try:
                self._on_failure(failure)
            except Exception:
                _log.exception("on_failure failed")
        if failure.attempt < self._max_deliver:
            await delivery.nak(min(self._retry * 2 ** (failure.attempt - 1), _LONGEST_PAUSE))
            return
        if event.type != FAILED:  # a rule about failures that fails is not told of again
            await self._bus.publish(_report(failure))
        await delivery.term(f"rule {failure.rule}: {failure.text}")


def _taken(subscription: SubscriptionLike) -> list[DeliveryLike]:
    """All that waits, as much as a consumer may have in hand."""
    found = []
    while (delivery := subscription.poll()) is not None:
        if not delivery.notice:
            found.append(delivery)
    return found


def _report(failure: Failure) -> Event:
    event = failure.event
    about = f"{failure.rule}\n{event.source}\n{event.id}"  # told once, also if we die before the event is given up
    return Event(
        FAILED,
        SOURCE,
        id=hashlib.blake2b(about.encode(), digest_size=16).hexdigest(),
        correlation_id=event.id,
        classification=event.classification,
        data={
            "rule": failure.rule,
            "error": failure.text,
            "event": event.id,
            "source": event.source,
            "type": event.type,
            "attempts": failure.attempt,
        },
    )


def _derived(definition: Definition) -> str:
    """What a rule's composite is called on the node."""
    return composite_name(definition.text, definition.context)


def _filter(rule: Rule) -> str:
    """What a rule subscribes to, in canonical form. A condition that is a filter is asked by the node."""
    kind, text, definition = rule.trigger
    if definition is not None:
        text = named(_derived(definition))
    elif kind == "event":
        text = named(text)
    return str(Filter(f"({text}) AND ({rule.when})" if isinstance(rule.when, Filter) else text))


def _consumer(rule: str) -> str:
    return f"rule.{rule}"
