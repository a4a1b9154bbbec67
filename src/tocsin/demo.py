"""`make demo`: a few thousand filters meet a stream of events; see who hears what, and why.

Everything shown is real: the filters are texts anyone could have written, the matching is `tocsin.Matcher`, the reasons
come from `explain`. Nothing leaves the process. On a terminal it is drawn live; otherwise (or with --headless) a few
lines are printed. It ends by itself after --seconds, or on Ctrl-C, with a summary and exit code 0.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import deque
from collections.abc import Iterator

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from tocsin.filters.index import Explanation, Matcher
from tocsin.model import Event

__all__ = ["main"]

_SITES = ("zagreb", "graz", "brno", "gdansk", "porto")
_PEOPLE = ("ana", "ben", "chloe", "dario", "emil", "fatima", "goran", "hana", "igor", "jana")


def subscriptions(draw: random.Random, count: int) -> Iterator[tuple[str, str]]:
    """People and programs saying what they want to hear of: name and filter text."""
    for number in range(count):
        who = f"{draw.choice(_PEOPLE)}-{number}"
        machine, site = f"m{draw.randrange(400)}", draw.choice(_SITES)
        yield (
            who,
            draw.choice(
                (
                    f"type = 'machine.value' AND machine = '{machine}' AND value > {draw.uniform(8, 12):.2f}",
                    f"type = 'machine.value' AND site = '{site}' AND NOT value < {draw.uniform(9, 12):.1f}",
                    f"type = 'machine.value' AND machine IN ('{machine}', 'm{draw.randrange(400)}') AND temp >= 78",
                    f"type LIKE 'door.%' AND site = '{site}' AND badge IS NULL",
                    f"type = 'door.opened' AND door = '{site}/{draw.randrange(40)}' AND hour NOT BETWEEN 6 AND 19",
                    f"priority >= 9 AND site = '{site}'",
                    f"type = 'alarm' AND text RLIKE '(?i)(fire|smoke)' AND distance_km(lat, lon, "
                    f"{draw.uniform(45, 48):.3f}, {draw.uniform(14, 17):.3f}) < {draw.uniform(5, 25):.0f}",
                )
            ),
        )


def events(draw: random.Random) -> Iterator[Event]:
    """A plant at work: readings mostly, doors now and then, an alarm once in a while."""
    while True:
        site = draw.choice(_SITES)
        kind = draw.random()
        if kind < 0.85:
            reading = {
                "machine": f"m{draw.randrange(400)}",
                "site": site,
                "value": round(draw.gauss(9, 1), 3),
                "temp": round(draw.gauss(70, 4), 1),
            }
            yield Event("machine.value", f"plant/{site}", data=reading)
        elif kind < 0.99:
            door = {"door": f"{site}/{draw.randrange(40)}", "site": site, "hour": draw.randrange(24)}
            if draw.random() < 0.7:
                door["badge"] = draw.randrange(1000)
            yield Event("door.opened", f"gate/{site}", data=door)
        else:
            alarm = {
                "site": site,
                "text": draw.choice(("Smoke in hall 2", "fire door blocked", "pressure low")),
                "lat": round(draw.uniform(45, 48), 4),
                "lon": round(draw.uniform(14, 17), 4),
            }
            yield Event("alarm", f"safety/{site}", data=alarm, priority=9)


class Show:
    """What the demo has seen so far, and how it is drawn."""

    def __init__(self, matcher: Matcher) -> None:
        """Begin with nothing seen."""
        self.matcher = matcher
        self.seen = self.heard = 0
        self.busy = 0.0
        self.last: deque[tuple[Event, list[str]]] = deque(maxlen=10)
        self.why: Explanation | None = None

    def ask(self, event: Event) -> None:
        """Match one event and remember it if anyone hears of it."""
        started = time.perf_counter()
        names = [str(key) for key in self.matcher.match(event)]
        self.busy += time.perf_counter() - started
        self.seen += 1
        self.heard += len(names)
        if names:
            self.last.appendleft((event, names))

    def explain(self) -> None:
        """Take the newest event that somebody heard of, and ask why."""
        if self.last:
            event, names = self.last[0]
            self.why = self.matcher.explain(names[0], event)

    def drawn(self) -> Group:
        """The screen."""
        table = Table(expand=True, box=None, header_style="bold")
        for column in ("event", "payload", "who hears it"):
            table.add_column(column, no_wrap=True, overflow="ellipsis")
        for event, names in self.last:
            style = "bold red" if event.priority >= 9 else ""
            payload = ", ".join(f"{name}={value}" for name, value in event.data.items())
            shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
            table.add_row(Text(event.type, style=style), payload, shown)
        return Group(
            Panel(Text(self.summary()), title="tocsin demo", border_style="cyan"),
            table,
            Panel(Text(str(self.why)) if self.why else "", title="why?", border_style="green"),
        )

    def summary(self) -> str:
        """One line of figures."""
        stats = self.matcher.stats()
        scanned = stats["scanned"] / max(1, stats["events"])
        return (
            f"{stats['filters']:,} filters, {self.seen:,} events, {self.heard:,} notices; "
            f"{self.seen / max(self.busy, 1e-9):,.0f} events/s of matching; "
            f"{scanned:.0f} of {stats['conjunctions']:,} tests looked at per event ({stats['engine']})"
        )


def main(arguments: list[str] | None = None) -> int:
    """Run the demo; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="tocsin.demo", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--filters", type=int, default=4000, help="how many subscriptions (4000)")
    parser.add_argument("--seconds", type=float, default=20, help="how long to run (20)")
    parser.add_argument("--headless", action="store_true", help="print lines instead of drawing")
    options = parser.parse_args(arguments)
    draw = random.Random(7)
    console = Console()
    console.print(f"adding {options.filters:,} filters …")
    show = Show(Matcher(subscriptions(draw, options.filters)))
    stream = events(draw)
    until = time.monotonic() + options.seconds
    try:
        if options.headless or not sys.stdout.isatty():
            _print_lines(console, show, stream, until)
        else:
            _draw_live(console, show, stream, until)
    except KeyboardInterrupt:
        pass
    show.explain()
    console.print(Text(show.summary()))
    if show.why is not None:
        console.print(Text(str(show.why)))
    return 0


def _draw_live(console: Console, show: Show, stream: Iterator[Event], until: float) -> None:
    with Live(show.drawn(), console=console, refresh_per_second=8) as live:
        turn = 0
        while time.monotonic() < until:
            for _ in range(200):  # a burst, then a look: people cannot read ten thousand lines a second
                show.ask(next(stream))
            if turn % 16 == 0:
                show.explain()
            turn += 1
            live.update(show.drawn())
            time.sleep(0.1)


def _print_lines(console: Console, show: Show, stream: Iterator[Event], until: float) -> None:
    while True:
        for _ in range(2000):
            show.ask(next(stream))
        event, names = show.last[0]
        heard = ", ".join(names[:4]) + (" …" if len(names) > 4 else "")
        console.print(Text(f"{event.type} {event.data} → {heard}"))
        if time.monotonic() >= until:
            return
        time.sleep(0.2)


if __name__ == "__main__":
    sys.exit(main())
