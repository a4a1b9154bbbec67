"""`tocsin bench`: a quick look at how fast this machine is. No more than that: `benchmarks/` measures with care.

A temporary node gets the same seeded events each time: in memory, on a file, and over a socket of this machine. One
subscriber takes and settles them. First as much as goes through in batches, then one by one for the time from publish
to delivery. Every event is counted; a wrong count is an error, not a figure.
"""

from __future__ import annotations

import asyncio
import random
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from tocsin import client
from tocsin.cli.output import AsJson, examples, progress, show_table, wants_json
from tocsin.errors import TocsinError
from tocsin.model import Event

__all__ = ["bench", "register"]

PLACES = ("memory", "file", "network")
BATCH, SINGLE = 200, 200
_WAITING = 20 * BATCH  # events under way at most


def register(app: typer.Typer) -> None:
    """Add this verb to the command."""
    app.command(epilog=examples("tocsin bench", "tocsin bench --seconds 5 --data /var/lib/tocsin --json"))(bench)


def bench(
    context: typer.Context,
    seconds: Annotated[float, typer.Option(min=0.1, help="For each of the three.")] = 2.0,
    seed: Annotated[int, typer.Option(help="Which events are made.")] = 7,
    data: Annotated[
        Path | None, typer.Option("--data", metavar="DIR", help="Whose disk to measure; temporary files if left out.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Take a quick look at how fast this machine is.

    Publishes, delivers and settles events in memory, on disk and over a socket; everything is temporary. For figures
    to rely on see `make bench` and benchmarks/.
    """
    rows: list[dict[str, Any]] = []
    with progress("measuring", unit="of 3") as told:
        for place in PLACES:
            if told is not None:
                told(len(rows), len(PLACES))
            rows.append({"place": place, **asyncio.run(_measure(place, seconds, seed, data))})
    is_json = wants_json(context, as_json)
    note = "a quick look, not a benchmark: see benchmarks/ and `make bench`"
    show_table(
        {"results": rows, "seed": seed, "note": note},
        ("node", "#events/s", "#median", "#99 %", "#events"),
        [
            [row["place"], f"{row['events_per_s']:,}", _ms(row["median_ms"]), _ms(row["p99_ms"]), f"{row['events']:,}"]
            for row in rows
        ],
        is_json,
        empty="nothing was measured",
    )
    if not is_json:
        print(
            "events/s: published in batches, delivered and settled.\n"
            "median, 99 %: from publish to delivery, one by one.\n"
            f"This is {note}."
        )


def _ms(value: float) -> str:
    return f"{value:.1f} ms"


@asynccontextmanager
async def _node(place: str, directory: str) -> AsyncIterator[Any]:
    """A bus of a temporary node."""
    url = "memory:" if place == "memory" else f"file:{directory}/bench.db"
    async with AsyncExitStack() as stack:
        bus: Any = await stack.enter_async_context(client.connect(url))
        if place == "network":
            from tocsin.net import serve

            server = await stack.enter_async_context(serve(bus))
            bus = await stack.enter_async_context(client.connect(server.url))
        yield bus


def _maker(seed: int) -> Callable[[], Event]:
    draw = random.Random(seed)

    def make() -> Event:
        value = {"machine": f"m{draw.randrange(100)}", "value": round(draw.uniform(0, 10), 3), "note": "x" * 100}
        return Event("machine.value", "bench", data=value, priority=draw.randint(1, 10))

    return make


async def _measure(place: str, seconds: float, seed: int, data: Path | None) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="tocsin-bench-", dir=data) as directory:
        async with _node(place, directory) as bus:
            make = _maker(seed)
            subscription = await bus.subscribe("value >= 0", consumer="bench", max_in_flight=_WAITING)
            count, took = await _stream(bus, subscription, make, seconds)
            delays = await _one_by_one(bus, subscription, make, seconds)
    ranked = sorted(delays)
    return {
        "events": count + len(delays),
        "events_per_s": round(count / took),
        "median_ms": round(statistics.median(ranked) * 1000, 3),
        "p99_ms": round(ranked[int(len(ranked) * 0.99)] * 1000, 3),
    }


async def _stream(bus: Any, subscription: Any, make: Callable[[], Event], seconds: float) -> tuple[int, float]:
    """Events that were published, delivered and settled, and the seconds that took."""
    published = settled = 0
    is_over = False
    progress = asyncio.Event()

    async def settle() -> None:
        nonlocal settled
        async for batch in subscription.batches(BATCH):
            await batch.ack()
            settled += len(batch)
            progress.set()
            if is_over and settled >= published:
                return

    begun = time.perf_counter()
    async with asyncio.timeout(seconds + 60):
        settling = asyncio.create_task(settle())
        while time.perf_counter() - begun < seconds:
            while published - settled >= _WAITING:
                progress.clear()
                await progress.wait()
            await bus.publish_many([make() for _ in range(BATCH)])
            published += BATCH
        is_over = True
        while settled < published and not settling.done():
            progress.clear()
            await asyncio.wait([settling, asyncio.create_task(progress.wait())], return_when=asyncio.FIRST_COMPLETED)
        took = time.perf_counter() - begun
        settling.cancel()
        await asyncio.gather(settling, return_exceptions=True)
    if settled != published:
        raise TocsinError(f"{published:,} events were published, {settled:,} were settled", help="report this")
    return published, took


async def _one_by_one(bus: Any, subscription: Any, make: Callable[[], Event], seconds: float) -> list[float]:
    """Seconds from publish to delivery of events that nothing waits behind."""
    delays: list[float] = []
    end = time.perf_counter() + seconds
    while len(delays) < SINGLE and (not delays or time.perf_counter() < end):
        event, begun = make(), time.perf_counter()
        publishing = asyncio.ensure_future(bus.publish(event))
        delivery = await subscription.next(60)
        delays.append(time.perf_counter() - begun)
        await asyncio.gather(publishing, delivery.ack())
        if delivery.event.id != event.id:
            raise TocsinError(f"{delivery.event.id} came instead of {event.id}", help="report this")
    return delays
