"""How the demo looks: who hears what and why, and the two sides with their figures."""

from __future__ import annotations

from collections import deque
from typing import Any

from rich.console import Group
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from tocsin.demo.sides import NodeSide, SparkSide
from tocsin.model import Event

__all__ = ["Screen"]


class Screen:
    """What the demo shows."""

    def __init__(self, node: NodeSide, spark: SparkSide) -> None:
        """Show two sides."""
        self._node, self._spark = node, spark
        self._last: deque[tuple[Event, list[Any]]] = deque(maxlen=8)
        self._why = ""

    def heard(self, events: list[Event], found: list[list[Any]]) -> None:
        """Take note of some events and who hears of them."""
        for event, keys in zip(events, found, strict=True):
            if keys:
                self._last.appendleft((event, keys))
        if self._last:
            event, keys = self._last[0]
            self._why = str(self._node.matcher.explain(keys[0], event))

    def line(self) -> str:
        """The newest event that somebody hears of."""
        if not self._last:
            return "nobody has heard of anything yet"
        event, keys = self._last[0]
        return f"{event.type} {event.data} → {_names(keys, 4)}"

    @property
    def why(self) -> str:
        """Why the first of them hears it."""
        return self._why

    def figures(self) -> list[str]:
        """Both sides in a line each, and whether they agree."""
        node, spark = self._node, self._spark
        offset, totals = spark.progress()
        stored = len(node.at) - 1
        lines = [
            f"in this process  {stored:>8,} events  {node.at[-1].pairs:>9,} notices  {node.rate:>9,.0f} events/s",
            f"on Spark         {offset:>8,} events  {totals.pairs:>9,} notices  {spark.batches:>6,} micro-batches, "
            f"{stored - offset:,} events behind",
        ]
        if offset:
            agree = totals == node.at[offset]
            lines.append(f"{'they agree' if agree else 'THEY DIFFER'} on everything up to event {offset:,}")
        return lines

    def drawn(self) -> Group:
        """The whole screen."""
        table = Table(expand=True, box=None, header_style="bold")
        for column in ("event", "payload", "who hears it"):
            table.add_column(column, no_wrap=True, overflow="ellipsis")
        for event, keys in self._last:
            payload = ", ".join(f"{name}={value}" for name, value in event.data.items())
            style = "bold red" if event.priority >= 9 else ""
            table.add_row(Text(event.type, style=style), payload, _names(keys, 3))
        count = len(self._node.matcher)
        return Group(
            Panel(Text("\n".join(self.figures())), title=f"{count:,} filters, one journal", border_style="cyan"),
            table,
            Panel(Text(self._why), title="why?", border_style="green"),
        )


def _names(keys: list[Any], most: int) -> str:
    return ", ".join(map(str, keys[:most])) + (f" and {len(keys) - most} more" if len(keys) > most else "")
