"""`LocalAgent`: events of a program, composites made of them, and rules. What is joined to a node is in `agent.py`.

    a method, raise_ ─▶ occurrence ─▶ detector ─▶ rules of it and of what it completed ─▶ the method goes on

Promised: what an event completes is detected before any rule runs, so no rule can disturb detection; an immediate rule
is done when the code that caused the event goes on; a rule that fails is reported as `rule.failed` and logged.
Concurrency: any thread may cause events. Detection is one at a time; rules run outside the lock, in the thread that
caused the event, so they may cause events themselves.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import msgspec

from tocsin.clock import Clock, SystemClock, as_datetime
from tocsin.composite.builder import Pattern, text_of
from tocsin.composite.expression import Definition, leaves
from tocsin.errors import RuleError
from tocsin.led.catalog import Catalog
from tocsin.led.link import Link
from tocsin.led.local import Local
from tocsin.led.methods import When, check_when, signalling
from tocsin.led.names import GlobalName, check_place
from tocsin.led.occurrence import Occurrence, fields
from tocsin.led.rulebook import Rulebook
from tocsin.led.timer import Timer
from tocsin.model import DEFAULT_PRIORITY, Event
from tocsin.rules.rule import FAILED, Condition, Coupling, Failure, Rule, check_name, rule
from tocsin.rules.schedule import MAX_DEPTH, Scheduler, Triggered

__all__ = ["LocalAgent"]

F = TypeVar("F", bound=Callable[..., Any])
_log = logging.getLogger("tocsin")


class LocalAgent:
    """A local event detector with its rules."""

    def __init__(
        self,
        name: str = "default",
        *,
        clock: Clock | None = None,
        scheduler: bool = False,
        max_depth: int = MAX_DEPTH,
        on_failure: Callable[[Failure], None] | None = None,
    ) -> None:
        """Begin with no events and no rules.

        Args:
            name: what it is called.
            clock: time to go by; the machine's if left out. With another one, call `advance` yourself.
            scheduler: see `scheduler`.
            max_depth: how many levels deep rules may trigger rules.
            on_failure: hears of every rule that fails; the log does, too.
        """
        self.name = check_name(name, "the name of an agent")
        self.on_failure = on_failure
        self.clock: Clock = clock if clock is not None else SystemClock()
        """Time it goes by."""
        self._minds_time = clock is None or isinstance(clock, SystemClock)
        self._lock = threading.RLock()
        self._local = Local()
        self._catalog = Catalog(lambda: self._local.detector)
        self._runner = Scheduler(self._report, on=scheduler, max_depth=max_depth)
        self._rules = Rulebook(self._catalog)
        self._timer: Timer | None = None
        self._link: Link | None = None  # to a node; see `agent.py`

    @property
    def scheduler(self) -> bool:
        """Off: rules run one after the other, as defined. On: by priority, equal ones at the same time."""
        return self._runner.on

    @scheduler.setter
    def scheduler(self, on: bool) -> None:
        self._runner.on = on

    # -- events

    def event(self, name: str, *, when: When = "end") -> Callable[[F], F]:
        """Decorate a function or method: its begin or its end is an event; see `docs/LED.md`."""
        self.declare(name, when=when)
        return lambda function: signalling(self, function, name, when)

    def declare(self, name: str, *, when: When) -> None:
        """Declare an event that a body signals itself, by `begin` and `end`.

        Raises:
            RuleError: there is another event of that name.
        """
        check_when(when)
        with self._lock:
            self._catalog.declare(name, when)

    def begin(self, *names: str, instance: object = None, **params: Any) -> None:
        """Signal the begin of a method: those of the events occur that were declared so."""
        self._signal("begin", names, params, instance)

    def end(self, *names: str, instance: object = None, **params: Any) -> None:
        """Signal the end of a method: those of the events occur that were declared so."""
        self._signal("end", names, params, instance)

    def _signal(self, when: When, names: tuple[str, ...], params: dict[str, Any], instance: object) -> None:
        for name in names:
            declared = self._catalog.declared.get(name)
            if declared is None:
                raise RuleError(f"no event {name} is declared", field="name", help="declare it, or use raise_")
            if declared == when:
                self.cause(name, params, instance)

    def raise_(self, name: str, /, *, instance: object = None, **params: Any) -> None:
        """Let an event happen; returns when its immediate rules are done.

        Raises:
            RuleError: such an event is not raised but detected, or comes from elsewhere.
            RuleDepthError: rules have triggered rules too deeply; it has happened, and its rules were not run.
        """
        self.cause(name, params, instance)

    async def raise_async(self, name: str, /, *, instance: object = None, **params: Any) -> None:
        """Do the same on an event loop: coroutine functions are awaited here."""
        await self.cause_async(name, params, instance)

    def cause(self, name: str, params: Mapping[str, Any], instance: object) -> None:
        """See `raise_`; parameters in a dictionary."""
        triggered = self._happen(name, params, instance)
        if (link := self._link) is not None:
            link.outbox.wait_for_room()
        self._runner.run(triggered)

    async def cause_async(self, name: str, params: Mapping[str, Any], instance: object) -> None:
        """See `raise_async`; parameters in a dictionary."""
        triggered = self._happen(name, params, instance)
        if (link := self._link) is not None:
            await link.outbox.room()
        await self._runner.run_async(triggered)

    def _happen(self, name: str, params: Mapping[str, Any], instance: object) -> list[Triggered]:
        check_name(name, "the name of an event")
        with self._lock:
            if name in self._catalog.composites or name in self._catalog.remotes:
                raise RuleError(f"{name} is not raised here", field="name", help="it is detected, or comes from a node")
            now = as_datetime(self.clock.now())
            event = Event(name, f"led/{self.name}", time=now, data=fields(params), offset=self._local.next_offset())
            return self._take(Occurrence(name, event, params, instance))

    def _take(self, occurrence: Occurrence) -> list[Triggered]:
        """Detect what it completes; returns all rules that are triggered, in order."""
        found = [self._detected(event) for event in self._local.feed(occurrence)]
        time = occurrence.event.arrived or occurrence.event.time
        assert time is not None
        before = [each for each in found if each.event.time is not None and each.event.time < time]  # by timers
        return self._triggered([*before, occurrence, *found[len(before) :]])

    def _detected(self, event: Event) -> Occurrence:
        name, context = self._catalog.detected[event.type]
        parts = self._local.parts(event)
        return Occurrence(name, msgspec.structs.replace(event, type=name), {}, None, parts, context)

    def _triggered(self, occurrences: Iterable[Occurrence]) -> list[Triggered]:
        found = []
        for each in occurrences:
            if self._link is not None and (each.context is None or self._own(each.name) == each.context):
                self._link.forward(each)
            found += [Triggered(rule, each.event, each) for rule in self._rules.of(each)]
        self._mind_time()
        return found

    def _mind_time(self) -> None:
        if self._minds_time and (due := self._local.detector.next_timer) is not None:
            if self._timer is None:
                self._timer = Timer(self.clock, self._next_timer, self.advance)
            self._timer.look(due)

    def _begin(self, definition: Definition) -> None:
        """Absolute times count from now on, also if no event has told the detector what time it is."""
        if any(leaf.at is not None for leaf in leaves(definition.expression)):
            self.advance()

    def _next_timer(self) -> int | None:
        with self._lock:
            return self._local.detector.next_timer

    def _own(self, name: str) -> str | None:
        composite = self._catalog.composites.get(name)
        return composite.context if composite is not None else None

    def advance(self) -> None:
        """Let timers fire that are due by the agent's clock, and run the rules they trigger."""
        self._runner.run(self._due())

    async def advance_async(self) -> None:
        """Do the same on an event loop."""
        await self._runner.run_async(self._due())

    def _due(self) -> list[Triggered]:
        with self._lock:
            found = self._local.detector.advance(self.clock.now())
            return self._triggered([self._detected(event) for event in found])

    # -- composites

    def define(self, name: str, text: str | Pattern, *, context: str = "recent") -> Definition:
        """Define a composite event of events by their names, of filters in brackets, and of other composites.

        If all its parts are remote, the node detects it, else this agent.

        Raises:
            DefinitionError: it cannot be read, or the name is taken.
            RuleError: a rule about an object is on that name.
        """
        with self._lock:
            self._rules.check_composite(name)
            composite = self._catalog.define(name, text_of(text), context)
            self._rules.has_become_composite(name)
        self._begin(composite.definition)
        self._changed()
        return composite.definition

    def undefine(self, name: str) -> None:
        """Remove a composite event, and what of it is half detected.

        Raises:
            DefinitionError: there is none, or others are made of it.
        """
        with self._lock:
            self._catalog.undefine(name)
        self._changed()

    def definitions(self) -> list[Definition]:
        """All composite events, in the order they were defined."""
        with self._lock:
            return [each.definition for each in self._catalog.composites.values() if not each.anonymous]

    def remote(self, event: str, *, application: str, host: str, as_: str | None = None) -> str:
        """Name an event of another application, primitive or composite there; returns its name here.

        Raises:
            RuleError: the name here is taken, or a rule about an object is on it.
        """
        of = GlobalName(
            check_name(event, "the name of an event"),
            check_place(application, "an application"),
            check_place(host, "a host"),
        )
        name = as_ if as_ is not None else event
        with self._lock:
            self._rules.check_remote(name)
            self._catalog.add_remote(name, of)
        self._changed()
        return name

    # -- rules

    def rule(
        self,
        on: str | Pattern,
        *,
        when: Condition = None,
        priority: int = DEFAULT_PRIORITY,
        coupling: Coupling = "immediate",
        context: str | None = None,
        instance: object = None,
        name: str | None = None,
    ) -> Callable[[Callable[[Any], Any]], Rule]:
        """Make a rule of a function, and add it; see `tocsin.rules.rule`. The function gets an `Occurrence`."""
        make = rule(on, when=when, priority=priority, coupling=coupling, context=context, instance=instance, name=name)
        return lambda action: self.add(make(action))

    def add(self, rule: Rule) -> Rule:
        """Add a rule.

        Raises:
            RuleError: there is one of that name; or it is about an object, and on a composite event.
        """
        with self._lock:
            self._rules.add(rule)
        if (definition := rule.trigger.definition) is not None:
            self._begin(definition)
        self._changed()
        return rule

    def remove(self, name: str) -> None:
        """Remove a rule, and a composite that was made for it alone.

        Raises:
            RuleError: there is no such rule.
        """
        with self._lock:
            self._rules.remove(name)
        self._changed()

    def rules(self) -> list[Rule]:
        """All rules, in the order they were added."""
        with self._lock:
            return self._rules.all()

    def commit(self) -> int:
        """Run deferred rules, of all threads, and what these defer; returns how many."""
        return self._runner.commit()

    async def commit_async(self) -> int:
        """Do the same on an event loop."""
        return await self._runner.commit_async()

    def rollback(self) -> int:
        """Drop deferred rules; returns how many. What was detected stays detected."""
        return self._runner.rollback()

    def drain(self) -> None:
        """Wait until no detached rule runs that code without an event loop has caused."""
        self._runner.drain()

    async def drain_async(self) -> None:
        """Wait until no detached rule runs."""
        await self._runner.drain_async()

    def _changed(self) -> None:
        if (link := self._link) is not None:
            link.look()

    def _report(self, failure: Failure) -> list[Triggered]:
        _log.warning("rule %s of agent %s failed: %s", failure.rule, self.name, failure.text)
        if self.on_failure is not None:
            try:
                self.on_failure(failure)
            except Exception:
                _log.exception("on_failure failed")
        if failure.event.type == FAILED:  # a rule about failures that fails is not told of again
            return []
        about = {"rule": failure.rule, "error": failure.text, "event": failure.event.id, "type": failure.event.type}
        return self._happen(FAILED, about, None)

    # -- state

    def snapshot(self) -> bytes:
        """What is half detected, as bytes. Objects that JSON cannot hold are left out; so are deferred rules."""
        with self._lock:
            return self._local.snapshot()

    def restore(self, stored: bytes) -> None:
        """Take up what `snapshot` gave, after events and rules were defined again.

        Raises:
            RuleError: these bytes are none of ours.
        """
        with self._lock:
            self._local.restore(stored)
            self._mind_time()

    def stats(self) -> dict[str, Any]:
        """Count what happened, and what is open; see `Detector.stats`."""
        with self._lock:
            return {**self._local.detector.stats(), "kept": self._local.kept, "deferred": self._runner.deferred}

    def close(self) -> None:
        """End timers, and wait for detached rules. An agent that has joined a node must leave it first."""
        with self._lock:
            timer, self._timer = self._timer, None
        if timer is not None:
            timer.end()
        self._runner.close()
