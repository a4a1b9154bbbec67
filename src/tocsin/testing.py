"""For your tests: a clock turned by hand, a node on its own, and a crash on demand.

async with testing.node(clock=(clock := testing.ManualClock())) as bus: ...
"""

from __future__ import annotations

from typing import Any

from tocsin.client import Bus, connect
from tocsin.clock import Clock, ManualClock
from tocsin.crashpoints import POINTS, arm

__all__ = ["ManualClock", "crash", "crash_at", "crash_points", "node", "settled"]

crash_points = POINTS
"""Places at which `crash_at` can end the process."""
crash_at = arm


def node(url: str = "memory:", clock: Clock | None = None, name: str = "test", **options: Any) -> connect:
    """Open a node for a test."""
    return connect(url, name=name, clock=clock, **options)


async def settled(bus: Bus) -> None:
    """Wait until the node has done all it can do at this moment of its clock."""
    await bus._node.settled()


async def crash(bus: Bus) -> None:
    """End the node as `kill -9` would: nothing is saved, the file is left as it is, and can be opened again."""
    node = bus._node
    await node.stop()
    node.journal.abandon()
