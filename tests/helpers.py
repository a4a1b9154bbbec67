"""What tests of a bus say again and again: make an event, take what waits, settle it, live and die.

Nothing here sleeps. `testing.settled(bus)` lets the node do all it can do at this moment of the clock; after it `poll`
tells the whole truth. `soon` is a watchdog for waits that must end by themselves, not a pause.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Iterable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any, TypeVar

from tocsin import Bus, testing
from tocsin.model import Event
from tocsin.peers.groups import View

__all__ = [
    "START",
    "ack_all",
    "briefly",
    "event",
    "head",
    "heard",
    "ids",
    "life",
    "node_of",
    "notices",
    "numbered",
    "soon",
    "take",
    "testing",
]

T = TypeVar("T")
START = datetime(2026, 1, 1, tzinfo=UTC)
"""Where a ManualClock begins."""

_fresh = itertools.count(1)


def event(id: str, **fields: Any) -> Event:
    """An alarm from the plant."""
    return Event(**{"type": "alarm", "source": "plant", "id": id, **fields})


def numbered(count: int, first: int = 1, **fields: Any) -> list[Event]:
    """Events `1`, `2`, … whose data carries the number as `n`."""
    return [event(str(n), data={"n": n}, **fields) for n in range(first, first + count)]


def ids(deliveries: Iterable[Any]) -> list[str]:
    """Ids of the events delivered, notices left out."""
    return [d.event.id for d in deliveries if not d.notice]


def notices(deliveries: Iterable[Any]) -> list[tuple[str, str | None]]:
    """Kind and subject of each notice among these."""
    return [(d.event.type, d.event.correlation_id) for d in deliveries if d.notice]


async def take(bus: Any, sub: Any, count: int | None = None) -> list[Any]:
    """Up to `count` deliveries that are due now, none of them settled; or what is there for a member of a group."""
    got: list[Any] = []
    looks = 1 if isinstance(bus, Bus) else 2  # what lies in the buffer of another comes when the first look has told
    empty = 0
    while empty < looks:  # a long queue comes in parts: between them the node reads on
        await testing.settled(bus)
        part = list(itertools.islice(iter(sub.poll, None), None if count is None else count - len(got)))
        got += part
        empty = 0 if part else empty + 1
    return got


def briefly(items: Iterable[Any]) -> list[Any]:
    """What a member of a group heard: the members of a view, joined by +, and the data of messages."""
    return ["+".join(each.members) if isinstance(each, View) else each.data for each in items]


async def ack_all(deliveries: Iterable[Any]) -> None:
    """Settle these together, so that they share commits."""
    await asyncio.gather(*(d.ack() for d in deliveries if not d.notice))


async def heard(bus: Any, sub: Any) -> list[str]:
    """Take and settle until nothing is due; the ids, in the order they came."""
    everything: list[str] = []
    while got := await take(bus, sub):
        await ack_all(got)
        everything += ids(got)
    return everything


async def head(bus: Any) -> int:
    """The next free offset, by taking it: two probes in a row differ by 1 if nothing was stored between them."""
    published = await bus.publish(event(f"probe-{next(_fresh)}", type="probe", source="probe"))
    return int(published.offset)


def node_of(bus: Any) -> Any:
    """The node of a bus, also of a remote one."""
    return testing._node_of(bus)


async def soon(wait: Awaitable[T]) -> T:
    """A wait that ends by itself, or the test fails rather than hangs."""
    return await asyncio.wait_for(wait, 20)


@asynccontextmanager
async def life(url: str, clock: Any, end: str = "close") -> AsyncIterator[Any]:
    """One life of a node: it ends with a clean close, or as `kill -9` would end it."""
    async with testing.node(url=url, clock=clock) as bus:
        yield bus
        if end == "crash":
            await testing.crash(bus)
