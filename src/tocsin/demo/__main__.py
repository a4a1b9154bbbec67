"""`make demo`: a plant publishes into a journal; a few thousand filters meet it, in this process and on Spark.

Everything shown is real: events are stored durably before they are matched, the filters are texts anyone could have
written, both sides run the same index, and their answers are compared all the time. It ends by itself after --seconds
of publishing, or on Ctrl-C, with a summary; the exit code is 0 if both sides agree on everything.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.live import Live

from tocsin.client import Bus, connect
from tocsin.demo.plant import events, subscriptions
from tocsin.demo.screen import Screen
from tocsin.demo.sides import NodeSide, SparkSide
from tocsin.errors import TocsinError
from tocsin.model import Event

__all__ = ["main"]

_BURST = 200
_PAUSE = 0.1  # seconds between bursts: 2,000 events/s at most, which people can still watch


def main(arguments: list[str] | None = None) -> int:
    """Run the demo; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="tocsin.demo", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--filters", type=int, default=4000, help="how many subscriptions (4000)")
    parser.add_argument("--seconds", type=float, default=20, help="how long the plant publishes (20)")
    parser.add_argument("--headless", action="store_true", help="print lines instead of drawing")
    options = parser.parse_args(arguments)
    console = Console()
    try:
        return asyncio.run(_run(console, options.filters, options.seconds, options.headless))
    except TocsinError as error:
        console.print(f"[bold red]{error.message}[/]\n{error.help or ''}")
        return 1


async def _run(console: Console, count: int, seconds: float, headless: bool) -> int:
    draw = random.Random(7)
    filters = dict(subscriptions(draw, count))
    with tempfile.TemporaryDirectory(prefix="tocsin-demo-") as directory:
        url = f"file:{Path(directory) / 'plant.db'}"
        async with connect(url, name="plant") as bus:
            console.print(f"compiling {count:,} filters, starting Spark …")
            node = NodeSide(filters)
            spark = await asyncio.to_thread(SparkSide, url, filters, str(Path(directory) / "checkpoint"))
            try:
                screen = Screen(node, spark)
                try:
                    await _publish(console, bus, screen, node, events(draw), seconds, headless)
                except asyncio.CancelledError:  # Ctrl-C: end as if the time were over
                    asyncio.current_task().uncancel()  # type: ignore[union-attr]
                return await asyncio.to_thread(_end, console, screen, node, spark)
            finally:
                await asyncio.to_thread(spark.stop)


async def _publish(
    console: Console, bus: Bus, screen: Screen, node: NodeSide, stream: Iterator[Event], seconds: float, headless: bool
) -> None:
    """Publish and match, and show what happens, until the time is over."""
    until = time.monotonic() + seconds
    live = None if headless or not console.is_terminal else Live(console=console, refresh_per_second=8)
    shown = 0.0
    if live is not None:
        live.start()
    try:
        while True:
            burst = [next(stream) for _ in range(_BURST)]
            answers = await bus.publish_many(burst)
            stored = [event.replace(offset=answer.offset) for event, answer in zip(burst, answers, strict=True)]
            screen.heard(stored, node.ask(stored))
            if live is not None:
                live.update(screen.drawn())
            elif time.monotonic() - shown > 1:
                shown = time.monotonic()
                console.print(screen.line(), markup=False, highlight=False)
                console.print("\n".join(screen.figures()), markup=False, highlight=False)
            if time.monotonic() >= until:
                return
            await asyncio.sleep(_PAUSE)
    finally:
        if live is not None:
            live.stop()


def _end(console: Console, screen: Screen, node: NodeSide, spark: SparkSide) -> int:
    """Let Spark catch up, run it all once more as a batch, and say what came of it."""
    console.print("the plant is still; Spark catches up …")
    offset, totals = spark.finish()
    whole, seconds = spark.again()
    count = len(node.at) - 1
    agree = offset == count and totals == whole == node.at[-1]
    console.print("\n".join(screen.figures()), markup=False, highlight=False)
    console.print(
        f"{len(node.matcher):,} filters, {count:,} events, {node.at[-1].pairs:,} notices: "
        f"in this process {node.rate:,.0f} events/s of matching, "
        f"the whole journal again as a batch on Spark {count / seconds:,.0f} events/s, reading included.",
        highlight=False,
    )
    if screen.why:
        console.print(screen.why, markup=False, highlight=False)
    console.print("[bold green]Both sides agree.[/]" if agree else "[bold red]The two sides differ.[/]")
    return 0 if agree else 1


if __name__ == "__main__":
    sys.exit(main())
