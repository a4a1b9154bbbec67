"""`Agent`: a local event detector that can join a node, hear events of other applications, and let them hear its own.

a method, raise_ ─▶ occurrence ─┬─▶ detector, rules (`local_agent.py`)
node ─▶ `hear`   ─▶ occurrence ─┘
                         └─ wanted by others (`link.py`) ─▶ node
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from tocsin.clock import as_datetime
from tocsin.errors import RuleError
from tocsin.led.catalog import Wants
from tocsin.led.link import Link
from tocsin.led.local_agent import LocalAgent
from tocsin.led.occurrence import Occurrence, Part
from tocsin.model import Event
from tocsin.rules.contract import BusLike

__all__ = ["Agent"]


class Agent(LocalAgent):
    """A local event detector with its rules. `tocsin.led.agent(name)` gives the one of a name."""

    async def join(
        self,
        bus: BusLike,
        *,
        application: str,
        host: str | None = None,
        moved: Mapping[tuple[str, str], tuple[str, str]] | None = None,
    ) -> None:
        """Join a node; returns when it knows what this agent wants, and this agent what others want of it.

        Define events and rules first: what waits on the node for an earlier life of this application is taken up by
        what is wanted at this moment.

        Args:
            bus: the node, on this event loop.
            application: what this application is called there.
            host: where it runs; this machine's name if left out.
            moved: applications that run elsewhere now: (application, host) → (application, host).

        Raises:
            RuleError: it has joined already, or a name means nothing.
        """
        if self._link is not None:
            raise RuleError(f"agent {self.name} has joined a node already", help="leave it first")
        link = Link(self, bus, application, host, moved or {})
        with self._lock:
            self._catalog.resolve, self._link = link.resolve, link
        try:
            await link.open()
        except BaseException:
            await self.leave(keep=True)
            raise

    async def leave(self, *, keep: bool = False) -> None:
        """Leave the node: what others wanted is sent, and what was wanted of others is withdrawn.

        With `keep` nothing is withdrawn: events go on to wait on the node, for the next `join` under that name.
        """
        if self._link is not None:
            try:
                await self._link.close(keep=keep)
            finally:
                self._part()

    def _part(self) -> None:
        with self._lock:
            self._link, self._local.heard = None, 0
            self._catalog.resolve = lambda name: name

    async def flush(self) -> None:
        """Wait until the node knows what this agent wants, and has got what others want of it."""
        if self._link is not None:
            await self._link.flush()

    def wants(self, asked: Iterable[str]) -> Wants:
        """What is wanted of a node: for rules here, and for events of these names, which others have asked for."""
        with self._lock:
            others = [(name, None) for name in asked if name in self._catalog.composites]
            return self._catalog.wants([*self._rules.events(), *others])

    async def hear(self, name: str, event: Event, context: str | None) -> None:
        """Take an event from the node, under its name here; returns when its rules are done."""
        with self._lock:
            data = event.data if isinstance(event.data, dict) else {}
            now = as_datetime(self.clock.now())
            here = msgspec.structs.replace(
                event, type=name, source=f"led/{self.name}", offset=self._local.next_offset(), arrived=now
            )
            told = [each for each in data.get("parts") or () if isinstance(each, dict)] if context else []
            parts = tuple(Part(str(each.get("name")), None, each) for each in told)
            heard = Occurrence(name, here, data, None, parts, context)
            triggered = self._take(heard) if context in (None, self._own(name)) else self._triggered([heard])
        await self._runner.run_async(triggered, threads=True)

    @property
    def heard(self) -> int:
        """The offset on the node of the last event that was taken from there."""
        return self._local.heard

    @heard.setter
    def heard(self, offset: int) -> None:
        self._local.heard = offset
