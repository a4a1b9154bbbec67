"""DS3's tests of load in short (scenarios 41 and 42): the node is a process of its own, every instance a connection.

How much a machine can take is measured by `benchmarks/bench_ds3.py`. Here: at a normal load everybody hears everything
in time; under more than can be taken nothing is lost, memory is bounded, publishers wait, and afterwards all is well.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import tocsin
from benchmarks import ds3_load
from benchmarks.ds3_load import Load
from benchmarks.processes import Program, memory_of
from tocsin import Event, OverloadError

pytestmark = pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="memory is read from /proc")

MB = 1 << 20
LARGE = "x" * 50_000


@contextlib.contextmanager
def node(path: Path) -> Iterator[tuple[str, int]]:
    with Program("benchmarks.wire_programs", "serve", path) as program:
        yield program.said()["url"], program.pid


def test_at_a_normal_load_everybody_hears_everything_in_time(tmp_path: Path) -> None:
    """Scenario 41: 18 instances, 10 events a second each, 1000 bytes: the quotient is 1.00."""
    with node(tmp_path / "plant.db") as (url, _):
        found = asyncio.run(ds3_load.run(url, Load(instances=18, rate=10, seconds=2), grace=5))
    assert 18 * 10 <= found.published <= 18 * 10 * 2
    assert (found.lost, found.twice) == (0, 0)
    assert round(found.quotient, 2) == 1.00


def test_overload_loses_nothing_and_passes(tmp_path: Path) -> None:
    """Scenario 42: as much as publishers can, far more than can be heard; then the normal load again."""
    with node(tmp_path / "plant.db") as (url, pid):
        flood = asyncio.run(ds3_load.run(url, Load(instances=6, rate=2_000, seconds=2, size=200), "flood"))
        assert flood.published > 6 * 10 * 2, "no more than a normal load"
        assert (flood.lost, flood.twice) == (0, 0)
        after = asyncio.run(ds3_load.run(url, Load(instances=6, rate=10, seconds=1), "after", grace=5))
        assert (after.lost, after.twice, round(after.quotient, 2)) == (0, 0, 1.00)
        assert memory_of(pid) > 0, "it is the same process"


def test_memory_is_bounded_while_a_consumer_takes_nothing(tmp_path: Path) -> None:
    """Large events, one consumer that stands still: what is sent ahead and kept in memory has an end."""

    async def overload(url: str, pid: int) -> tuple[int, int]:
        async with tocsin.connect(url, name="stuck") as stuck, tocsin.connect(url, name="publisher") as bus:
            subscription = await stuck.subscribe("type = 'large'", consumer="stuck")
            await _publish(bus, 1_600)  # 80 MB: every buffer is full by now
            before = memory_of(pid)
            await _publish(bus, 4_000)
            grown = memory_of(pid) - before
            settled, until = 0, time.monotonic() + 60
            async for batch in subscription.batches(500):
                await batch.ack()
                settled += len(batch)
                if settled >= 5_600 or time.monotonic() > until:
                    break
            return grown, settled

    with node(tmp_path / "plant.db") as (url, pid):
        grown, settled = asyncio.run(overload(url, pid))
    assert grown < 110 * MB, f"200 MB more were published, and memory has grown by {grown / MB:.0f} MB"
    assert settled == 5_600


async def _publish(bus: tocsin.Bus, count: int) -> None:
    """Publish, 40 at a time; wait when the node says that it has no room."""
    for _ in range(count // 40):
        events = [Event("large", "plant", data=LARGE) for _ in range(40)]
        while True:
            with contextlib.suppress(OverloadError):
                await bus.publish_many(events)
                break
