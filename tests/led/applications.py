"""Applications for tests of joined agents."""

from __future__ import annotations

import asyncio
from typing import Any

import tocsin
from tocsin import testing
from tocsin.led import Agent, Occurrence

__all__ = ["Application", "journal_of", "quiet", "until"]


class Application:
    """An agent that joins a node under a name, and notes what its rules hear."""

    def __init__(self, name: str, clock: Any, host: str = "h") -> None:
        self.name, self.host = name, host
        self.agent = Agent("application", clock=clock)
        self.heard: list[Occurrence] = []
        self._more = asyncio.Event()

    def note(self, on: str, **options: Any) -> str:
        """Note what this is about; returns the rule's name."""
        name = f"note{len(self.agent.rules())}"

        @self.agent.rule(on=on, name=name, **options)
        async def note(happened: Occurrence) -> None:
            self.heard.append(happened)
            self._more.set()

        return name

    def remote(self, event: str, application: str, host: str = "h") -> str:
        return self.agent.remote(event, application=application, host=host, as_=f"{application}.{event}")

    async def join(self, bus: Any, **options: Any) -> None:
        await self.agent.join(bus, application=self.name, host=self.host, **options)

    async def reach(self, count: int) -> None:
        """Wait until so much was heard."""
        async with asyncio.timeout(20):
            while len(self.heard) < count:
                self._more.clear()
                await self._more.wait()

    @property
    def asked(self) -> dict[tuple[str, str], int]:
        """What others want: event and context, and how many requests say so."""
        assert self.agent._link is not None
        return {(each.of.event, each.context): count for each, count in self.agent._link.asked().items()}


async def journal_of(bus: Any) -> list[str]:
    """Types of all events in the node, in order."""
    async with await bus.subscribe("true", past=tocsin.retained(), order="journal") as sub:
        found = []
        while (delivery := sub.poll()) is not None:
            found.append(delivery.event.type)
        return found


async def quiet(bus: Any, *applications: Application) -> None:
    """Until everybody knows what everybody wants, and has said what there is to say."""
    for _ in range(3):
        for each in applications:
            await each.agent.flush()
        await testing.settled(bus)
        for _ in range(20):
            await asyncio.sleep(0)


async def until(condition: Any) -> None:
    """Wait for something that nobody signals."""
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.001)
