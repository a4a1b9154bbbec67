"""For your tests: a clock turned by hand, a node on its own, and a crash on demand.

async with testing.node(clock=(clock := testing.ManualClock())) as bus: ...
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from tocsin.client import Bus, connect
from tocsin.clock import Clock, ManualClock
from tocsin.crashpoints import POINTS, arm
from tocsin.node import Node

__all__ = ["ManualClock", "crash", "crash_at", "crash_points", "lose", "node", "settled"]

crash_points = POINTS
"""Places at which `crash_at` can end the process."""
crash_at = arm


_serving: dict[str, Bus] = {}
"""Nodes that `node` has put on the network, by their address."""
_servers: dict[str, Any] = {}


def node(
    url: str = "memory:", clock: Clock | None = None, name: str = "test", **options: Any
) -> AbstractAsyncContextManager[Bus]:
    """Open a node for a test. `ws:` is one in memory behind a real socket; its bus is a remote one."""
    if url == "ws:":
        return _served(name, clock, options)
    return connect(url, name=name, clock=clock, **options)


@asynccontextmanager
async def _served(name: str, clock: Clock | None, options: dict[str, Any]) -> AsyncIterator[Bus]:
    from tocsin.net import serve

    async with connect("memory:", name="node", clock=clock, **options) as bus, serve(bus) as server:
        _serving[server.url], _servers[server.url] = bus, server
        try:
            async with connect(server.url, name=name) as remote:
                yield remote
        finally:
            del _serving[server.url], _servers[server.url]


def _node_of(bus: Any) -> Node:
    """The node of a bus, also of a remote one that `node` has opened."""
    found: Node = bus._node if isinstance(bus, Bus) else _serving[bus._url]._node
    return found


async def settled(bus: Any) -> None:
    """Wait until the node has done all it can do at this moment of its clock, and remote faces have heard of it."""
    node, came = _node_of(bus), -1
    faces: list[Any] = [] if isinstance(bus, Bus) else list(bus._family.values())
    while True:
        for face in faces:
            await face._ping()  # what was said here is known there
        await node.settled()
        before, came = came, sum([await face._ping() for face in faces])
        if came == before or not faces:
            return


async def crash(bus: Bus) -> None:
    """End the node as `kill -9` would: nothing is saved, the file is left as it is, and can be opened again."""
    node = _node_of(bus)
    await node.stop()
    node.journal.abandon()


async def lose(bus: Any) -> None:
    """End a face of a node (`bus.as_user(…)`) as a lost connection would: what it had is withdrawn."""
    if isinstance(bus, Bus):
        await bus._session.end(crashed=True)
        return
    there = _servers[bus._url]._named.get(bus.name)
    await bus._abort()
    if there is not None:
        await there.ended()
