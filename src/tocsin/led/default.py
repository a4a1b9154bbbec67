"""Agents by name, and the verbs of the default agent as functions: `led.raise_("door.open", door=7)`."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from tocsin.clock import Clock
from tocsin.composite.builder import Pattern
from tocsin.composite.expression import Definition
from tocsin.errors import RuleError
from tocsin.led.agent import Agent
from tocsin.led.methods import When
from tocsin.model import DEFAULT_PRIORITY
from tocsin.rules.contract import BusLike
from tocsin.rules.rule import Condition, Coupling, Rule

__all__ = [
    "add",
    "agent",
    "begin",
    "commit",
    "declare",
    "define",
    "drop",
    "end",
    "event",
    "join",
    "leave",
    "raise_",
    "raise_async",
    "remote",
    "rollback",
    "rule",
]

F = TypeVar("F", bound=Callable[..., Any])
_DEFAULT: Final = "default"
_agents: dict[str, Agent] = {}
_lock = threading.Lock()


def agent(name: str = _DEFAULT, *, clock: Clock | None = None, scheduler: bool | None = None) -> Agent:
    """The agent of a name, made when first asked for; without a name, the default one.

    Raises:
        RuleError: it is there, with another clock.
    """
    with _lock:
        found = _agents.get(name)
        if found is None:
            found = _agents[name] = Agent(name, clock=clock)
        elif clock is not None and clock is not found.clock:
            raise RuleError(f"agent {name} has another clock", field="clock", help="give it when the agent is made")
    if scheduler is not None:
        found.scheduler = scheduler
    return found


def drop(name: str = _DEFAULT) -> None:
    """Close an agent and forget it: the next one of that name begins anew."""
    with _lock:
        found = _agents.pop(name, None)
    if found is not None:
        found.close()


def event(name: str, *, when: When = "end") -> Callable[[F], F]:
    """See `Agent.event`."""
    return agent().event(name, when=when)


def declare(name: str, *, when: When) -> None:
    """See `Agent.declare`."""
    agent().declare(name, when=when)


def begin(*names: str, instance: object = None, **params: Any) -> None:
    """See `Agent.begin`."""
    agent().begin(*names, instance=instance, **params)


def end(*names: str, instance: object = None, **params: Any) -> None:
    """See `Agent.end`."""
    agent().end(*names, instance=instance, **params)


def raise_(name: str, /, *, instance: object = None, **params: Any) -> None:
    """See `Agent.raise_`."""
    agent().cause(name, params, instance)


async def raise_async(name: str, /, *, instance: object = None, **params: Any) -> None:
    """See `Agent.raise_async`."""
    await agent().cause_async(name, params, instance)


def define(name: str, text: str | Pattern, *, context: str = "recent") -> Definition:
    """See `Agent.define`."""
    return agent().define(name, text, context=context)


def remote(event: str, *, application: str, host: str, as_: str | None = None) -> str:
    """See `Agent.remote`."""
    return agent().remote(event, application=application, host=host, as_=as_)


def rule(
    on: str | Pattern,
    *,
    when: Condition = None,
    priority: int = DEFAULT_PRIORITY,
    coupling: Coupling = "immediate",
    context: str | None = None,
    instance: object = None,
    name: str | None = None,
) -> Callable[[Callable[[Any], Any]], Rule]:
    """See `Agent.rule`."""
    return agent().rule(
        on, when=when, priority=priority, coupling=coupling, context=context, instance=instance, name=name
    )


def add(rule: Rule) -> Rule:
    """See `Agent.add`."""
    return agent().add(rule)


def commit() -> int:
    """See `Agent.commit`."""
    return agent().commit()


def rollback() -> int:
    """See `Agent.rollback`."""
    return agent().rollback()


async def join(
    bus: BusLike,
    *,
    application: str,
    host: str | None = None,
    moved: Mapping[tuple[str, str], tuple[str, str]] | None = None,
) -> None:
    """See `Agent.join`."""
    await agent().join(bus, application=application, host=host, moved=moved)


async def leave(*, keep: bool = False) -> None:
    """See `Agent.leave`."""
    await agent().leave(keep=keep)
