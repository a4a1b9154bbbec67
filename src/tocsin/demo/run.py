"""The demo from its first line to its last: a real node with its Spark pipeline, a plant, people, and what they show.

    tocsin up ─▶ definitions ─▶ overview, foreman, operators ─▶ the plant ─▶ scenes, one after the other
         └─▶ Spark warms up beside all that

Everything shown is real: the node is a process of its own, events are stored before they are told, the worker that dies
is killed. It ends on Ctrl-C, or after some seconds; then no process and no folder is left, and what was promised is
compared with what was seen.
"""

from __future__ import annotations

import asyncio
import random
import signal
import webbrowser
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Final

from rich.console import Console

from tocsin.client import connect
from tocsin.demo import child, warming
from tocsin.demo.definitions import define, names
from tocsin.demo.plant import foreman, operators, quality, work
from tocsin.demo.plant import overview as overviews
from tocsin.demo.promises import PROMISES, Promises
from tocsin.demo.scenes import watching
from tocsin.demo.scenes.crash import crash
from tocsin.demo.scenes.expiring import expiring
from tocsin.demo.scenes.overtaking import overtaking
from tocsin.demo.scenes.past import late
from tocsin.demo.screen import Screen, foot, summary
from tocsin.demo.stage import Stage
from tocsin.demo.story import Story
from tocsin.demo.supervision import Supervision
from tocsin.demo.warming import Warmth

__all__ = ["Options", "run"]

_SCENES: Final[tuple[Callable[[Stage], Awaitable[None]], ...]] = (overtaking, late, expiring, crash)
_FIRST: Final = 3.0  # seconds of the plant alone
_PAUSE: Final = 3.0  # seconds between two scenes
_LOST: Final = 5.0  # seconds without a connection to a node on this machine: it is gone
_AFTER: Final = 12.0  # seconds between two rounds of them
_PATIENCE: Final = 120  # seconds more that a slow machine gets for what was not seen yet


@dataclass(frozen=True)
class Options:
    """What the demo is asked for."""

    seconds: float | None = None
    """How long; None: until Ctrl-C."""
    headless: bool = False
    """In plain lines."""
    spark: bool = True
    port: int = child.PORT
    """The port if it is free; else any."""
    browser: bool = False
    """Open the page."""
    seed: int = 7
    command: str = "tocsin"
    """How the command is typed here."""


def run(options: Options, console: Console) -> tuple[int, Promises]:
    """Run it; returns the exit code and what was seen.

    The exit code is 0 if all that was promised was seen, or if it was stopped before its time; else 1. It is 1, too, if
    Spark was wanted and cannot run here.

    Raises:
        TocsinError: the node does not come up, or has ended.
    """
    demo = _Demo(options, Screen(console, headless=options.headless))
    was_stopped = asyncio.run(_until_stopped(demo.play()))
    console.print()
    summary(console, demo.promises)
    missing = demo.promises.missing
    if not missing or (was_stopped and not demo.is_without_spark):
        return 0, demo.promises
    named = "; ".join(PROMISES[key].title for key in missing)
    console.print(f"Not seen: {named}.", style="bold red", markup=False, highlight=False, soft_wrap=True)
    return 1, demo.promises


async def _until_stopped(play: Coroutine[Any, Any, None]) -> bool:
    """Wait for it, or for somebody to stop it, which lets it clear up; stopped twice it hurries. Was it stopped?"""
    loop, task = asyncio.get_running_loop(), asyncio.ensure_future(play)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, task.cancel)
    try:
        await task
    except asyncio.CancelledError:
        return True
    return False


class _Demo:
    """One run."""

    def __init__(self, options: Options, shown: Screen) -> None:
        self._options, self._shown = options, shown
        self.promises = Promises(spark=options.spark)
        self._story = Story(lambda: self.promises.elapsed, shown.show)
        self._warmth = Warmth() if options.spark else None

    @property
    def is_without_spark(self) -> bool:
        """Was Spark wanted, and will never come?"""
        return self._warmth is not None and self._warmth.is_lost

    async def play(self) -> None:
        """From the first line to the last."""
        options, story = self._options, self._story
        with self._shown.live():
            port = child.free_port(options.port)
            story.tell(
                "$ tocsin up, in a folder of its own",
                "A node stores events durably, in one order, and tells them to whoever wants them."
                + ("" if port else f" Port {options.port} is taken, so it gets another one."),
                tone="node",
            )
            async with child.node(port=port, spark=options.spark) as node:
                try:
                    await self._with(node)
                finally:
                    also = ", and Spark with it" if options.spark else ""
                    story.tell(f"the plant is still; the node ends{also}", tone="node")

    async def _with(self, node: child.Child) -> None:
        """Everybody at work, until the time is over."""
        options, story, promises, warmth = self._options, self._story, self.promises, self._warmth
        overview = Supervision()
        self._shown.foot = lambda: foot(node.page, promises, overview, warmth)
        story.tell(
            f"it listens, after {promises.elapsed:.1f} s. The page: {node.page}",
            f'Open it beside this. Or in another terminal: {options.command} sub "priority >= 8" --past 10 '
            f"--url {node.url}",
            tone="node",
        )
        if options.browser:
            await asyncio.to_thread(webbrowser.open, node.page)
        async with connect(node.url, name="demo", patience=_LOST) as bus:
            stage = Stage(node.url, bus, story, promises, random.Random(options.seed), options.command)
            await define(bus, spark=options.spark)
            story.tell(
                f"composite events are defined: {names('node')} on the node"
                + (f"; {names('spark')} on Spark" if options.spark else ""),
                "A definition says which combination of events counts as an event of its own. Where it runs is a word, "
                "and changes nothing of what it means.",
                tone="node",
            )
            await _first_to_end(
                self._time(),
                node.fate(),
                overviews.watch(stage, overview),
                foreman.lead(stage),
                quality.control(stage),
                watching.watch(stage),
                *(operators.operate(stage, name, options.seed) for name in operators.OPERATORS),
                work.work(stage, options.seed),
                _scenes(stage),
                *([warming.watch(stage, warmth)] if warmth is not None else []),
            )

    async def _time(self) -> None:
        """Return when it is over: after so many seconds, and more if a slow machine has not shown everything yet."""
        seconds = self._options.seconds
        if seconds is None:
            await asyncio.Event().wait()
            return
        await asyncio.sleep(max(0.0, seconds - self.promises.elapsed))
        if self._awaited():
            awaited = ", ".join(PROMISES[key].short for key in self._awaited())
            self._story.tell(f"{seconds:.0f} s are over; this machine takes longer to show: {awaited}")
        for _ in range(_PATIENCE):
            if not self._awaited():
                return
            await asyncio.sleep(1)

    def _awaited(self) -> list[str]:
        """What is missing and may still come."""
        return [key for key in self.promises.missing if not (self.is_without_spark and PROMISES[key].is_spark)]


async def _first_to_end(*parts: Coroutine[Any, Any, None]) -> None:
    """Run all until one of them ends or fails, and end the others. Of several failures the first part's is raised."""
    tasks = [asyncio.ensure_future(part) for part in parts]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            if task in done:
                task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _scenes(stage: Stage) -> None:
    """One scene after the other, again and again."""
    await asyncio.sleep(_FIRST)
    while True:
        for scene in _SCENES:
            try:
                await scene(stage)
            except TimeoutError:
                stage.story.tell(f"{scene.__name__} took too long here, and is tried again later", tone="warning")
            await asyncio.sleep(_PAUSE)
        await asyncio.sleep(_AFTER)
