"""The local event detector: events of a program's own methods, composites of them, and rules; alone or with a node."""

from tocsin.led.agent import Agent
from tocsin.led.default import (
    add,
    agent,
    begin,
    commit,
    declare,
    define,
    drop,
    end,
    event,
    join,
    leave,
    raise_,
    raise_async,
    remote,
    rollback,
    rule,
)
from tocsin.led.occurrence import Occurrence, Part

__all__ = [
    "Agent",
    "Occurrence",
    "Part",
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
