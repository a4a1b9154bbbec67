"""What a back-test tells: a value, and how it looks in a terminal, as a picture and as JSON.

    Backtest ─ text(), show() ─▶ lines for people, with a plot of counts over time
             ─ png(path) ─▶ the same plot as a picture, with matplotlib
             ─ as_dict() ─▶ what JSON can carry

Nothing here reads events or knows of Spark.
"""

from __future__ import annotations

import errno
import importlib.util
import os
import sys
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import IO, Any, Literal

import msgspec

from tocsin.composite.printer import print_duration
from tocsin.errors import TocsinError
from tocsin.model import time_text

__all__ = ["Backtest", "Bar", "Constituent", "Example", "check_png", "plot", "step_for"]

_SECOND, _MINUTE, _HOUR, _DAY = 1_000_000, 60_000_000, 3_600_000_000, 86_400_000_000
_STEPS = (
    *(size * scale for scale in (1_000, 10_000, 100_000) for size in (1, 2, 5)),
    *(size * _SECOND for size in (1, 2, 5, 10, 15, 30)),
    *(size * _MINUTE for size in (1, 2, 5, 10, 15, 30)),
    *(size * _HOUR for size in (1, 2, 3, 6, 12)),
    *(size * _DAY for size in (1, 2, 7, 14, 28, 91, 364)),
)
"""How long a bar may be, in microseconds."""
_BARS = 60
"""The most bars of a plot: they fit a terminal of 80 columns."""
_HEIGHT = 8
_EIGHTHS = " ▁▂▃▄▅▆▇█"
_SHOWN = 12
"""Constituents of an example that the text shows."""
_DATA = 60
"""Characters of a payload that the text shows."""


class Bar(msgspec.Struct, frozen=True):
    """How often in one stretch of time."""

    begin: datetime
    count: int


class Constituent(msgspec.Struct, frozen=True):
    """An event that took part, or a timer's tick."""

    name: str
    time: datetime | None
    """Journal time; None: the event is not kept any more."""
    offset: int | None = None
    """None: a tick."""
    type: str | None = None
    source: str | None = None
    id: str | None = None
    data: Any = None


class Example(msgspec.Struct, frozen=True):
    """One time that it would have fired."""

    time: datetime
    id: str
    """Of the derived event, or of the event that matches."""
    key: dict[str, Any]
    """The fields of BY and their values."""
    constituents: tuple[Constituent, ...]
    explanation: str
    """Why, for people; of a filter nothing is to be explained."""


class Backtest(msgspec.Struct, frozen=True, kw_only=True):
    """What a filter or a composite event would have fired on. `str()` is for people."""

    text: str
    """In its canonical form."""
    kind: Literal["composite", "filter"]
    context: str | None
    """Of a composite event."""
    place: str
    first_offset: int
    last_offset: int
    begin: datetime
    """Journal time of the first event that was looked at."""
    end: datetime
    """And up to when time was let pass."""
    count: int
    """How often it fired."""
    first: datetime | None
    """The first time; None: never."""
    last: datetime | None
    step: timedelta
    """How long a bar lasts."""
    bars: tuple[Bar, ...]
    """Counts over time, those of nothing included."""
    grouped: str
    """What `groups` tells apart: the fields of BY, or `type` for a filter; empty: nothing."""
    groups: int
    """How many different keys, or types, there were."""
    largest: dict[str, int]
    """Those with the most, and how many each."""
    examples: tuple[Example, ...]
    leaves: dict[str, int] = {}
    """If it never fired: how many events each of its filters matches."""
    seconds: float
    """What it took."""
    way: str
    """How it was run."""

    @property
    def events(self) -> int:
        """How many events were looked at, system records included."""
        return self.last_offset - self.first_offset + 1

    @property
    def rate(self) -> float:
        """Events looked at, each second."""
        return self.events / self.seconds if self.seconds else 0.0

    def as_dict(self) -> dict[str, Any]:
        """Everything as JSON can carry it."""
        found: dict[str, Any] = msgspec.to_builtins(self)
        step = self.step // timedelta(microseconds=1)
        return found | {"step": step / _SECOND, "events": self.events, "rate": round(self.rate)}

    def lines(self, width: int = 80) -> Iterator[tuple[str, str]]:
        """The report line by line, each with its style as Rich names it; the style may be empty."""
        for line in _head(self):
            yield "", line
        yield "bold", _verdict(self)
        if self.count:
            yield "", ""
            for line in plot(self.bars, self.step, width):
                yield "cyan", line
        for line in (*_groups(self), *_why_not(self)):
            yield "", line
        for place, example in enumerate(self.examples, 1):
            yield "", ""
            head, *rest = _example(example, place)
            yield "bold", head
            for line in rest:
                yield "", line
        yield "", ""
        yield "dim", f"{self.seconds:,.1f} s, {self.rate:,.0f} events/s, by {self.way}"

    def __str__(self) -> str:
        """Return the report as text."""
        return "\n".join(line for _, line in self.lines())

    def show(self, file: IO[str] | None = None) -> None:
        """Print the report; on a terminal as wide as that is, with colours if Rich is installed."""
        target = file if file is not None else sys.stdout
        try:
            from rich.console import Console
            from rich.text import Text
        except ImportError:
            print(self, file=target, flush=True)
            return
        console = Console(file=target, highlight=False, soft_wrap=True)
        for style, line in self.lines(console.width if console.is_terminal else 80):
            console.print(Text(line, style=style))

    def png(self, path: str | os.PathLike[str]) -> None:
        """Write the plot as a picture.

        Raises:
            TocsinError: matplotlib is not installed.
            OSError: the file cannot be written.
        """
        check_png(path)
        from matplotlib.figure import Figure

        figure = Figure(figsize=(10, 4), layout="constrained")
        axes = figure.subplots()
        begins: Any = [bar.begin for bar in self.bars]
        axes.bar(begins, [bar.count for bar in self.bars], width=self.step, align="edge")  # type: ignore[arg-type]
        axes.set_title(self.text if len(self.text) <= 100 else f"{self.text[:97]}…", fontsize=9, parse_math=False)
        axes.set_ylabel(f"fired in {_duration(self.step)}")
        axes.set_xlabel("journal time, UTC")
        figure.savefig(os.fspath(path), format="png", dpi=120)


def check_png(path: str | os.PathLike[str]) -> None:
    """Could a picture be written there? Who is going to ask for one after long work asks this before it.

    Raises:
        TocsinError: matplotlib is not installed.
        FileNotFoundError: there is no such directory.
    """
    if importlib.util.find_spec("matplotlib") is None:
        raise TocsinError(
            "a picture needs matplotlib, which is not installed", field="png", help="pip install 'tocsin[plot]'"
        )
    directory = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(directory):
        raise FileNotFoundError(errno.ENOENT, "there is no such directory", directory)


def step_for(begin: int, end: int, most: int = _BARS) -> int:
    """How long a bar lasts, in microseconds, so that there are few enough from `begin` to `end`."""
    for step in _STEPS:
        if end // step - begin // step < most:
            return step
    return _STEPS[-1] * -(-(end - begin) // (_STEPS[-1] * (most - 1)))


def plot(bars: Sequence[Bar], step: timedelta, width: int = 80, height: int = _HEIGHT) -> Iterator[str]:
    """Counts over time as columns of block characters."""
    highest = max(bar.count for bar in bars)
    margin = len(f"{highest:,}") + 1
    wide = max(1, min(6, (width - margin - 1) // len(bars)))
    for row in range(height, 0, -1):
        label = f"{highest:,}" if row == height else "0" if row == 1 else ""
        cells = []
        for bar in bars:
            eighths = -(-bar.count * height * 8 // highest) - (row - 1) * 8
            cells.append(_EIGHTHS[max(0, min(8, eighths))] * wide)
        yield f"{label:>{margin - 1}} ┤{''.join(cells)}".rstrip()
    length = len(bars) * wide
    first, last = _moment(bars[0].begin, step), _moment(bars[-1].begin, step)
    gap = length - len(first) - len(last)
    below = f"{first}{' ' * gap}{last}" if gap > 0 else first
    yield f"{'':>{margin - 1}} └{'─' * length}"
    yield f"{'':>{margin - 1}}  {below}   (a column is {_duration(step)})"


def _head(report: Backtest) -> Iterator[str]:
    yield report.text + (f"   ({report.context})" if report.context else "")
    yield f"{report.place}: {report.events:,} events, offsets {report.first_offset:,} to {report.last_offset:,}"
    yield f"from {time_text(report.begin)} to {time_text(report.end)}"
    yield ""


def _verdict(report: Backtest) -> str:
    verb = "would have fired" if report.kind == "composite" else "would have matched"
    if report.first is None or report.last is None:
        return f"{verb} never"
    if report.count == 1:
        return f"{verb} once, at {time_text(report.first)}"
    times = f"{report.count:,} {'times' if report.kind == 'composite' else 'events'}"
    return f"{verb} {times}; first at {time_text(report.first)}, last at {time_text(report.last)}"


def _groups(report: Backtest) -> Iterator[str]:
    if report.groups < 2:
        return
    yield ""
    few = len(report.largest) < report.groups
    yield f"{report.groups:,} different {report.grouped}" + ("; most often" if few else "")
    longest = max(map(len, report.largest))
    for key, count in report.largest.items():
        yield f"  {key.ljust(min(longest, 60))}  {count:,}"


def _why_not(report: Backtest) -> Iterator[str]:
    if report.leaves:
        yield ""
        yield "Its filters alone match"
        longest = max(map(len, report.leaves))
        for text, count in report.leaves.items():
            yield f"  {text.ljust(min(longest, 70))}  {count:,} events"


def _example(example: Example, place: int) -> Iterator[str]:
    key = "".join(f"  {field} = {value!r}" for field, value in example.key.items())
    yield f"Example {place}: {time_text(example.time)}{key}"
    for each in example.constituents[:_SHOWN]:
        when = "" if each.time is None else time_text(each.time)
        if each.offset is None:
            yield f"  {each.name:<10} {when}  (a timer)"
            continue
        data = "" if each.data is None else _short(each.data)
        what = f"{each.type or ''}  {each.source or ''}  {data}"
        yield f"  {each.name:<10} {when}  offset {each.offset:,}  {what}".rstrip()
    if len(example.constituents) > _SHOWN:
        yield f"  and {len(example.constituents) - _SHOWN:,} more"
    if example.explanation:
        yield f"  {example.explanation}"


def _short(data: Any) -> str:
    text = repr(data) if isinstance(data, bytes) else msgspec.json.encode(data).decode()
    text = "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)
    return text if len(text) <= _DATA else f"{text[: _DATA - 1]}…"


def _duration(step: timedelta) -> str:
    return print_duration(step // timedelta(microseconds=1)).lower()


def _moment(moment: datetime, step: timedelta) -> str:
    """A time as exact as a bar is long."""
    if step >= timedelta(days=1):
        return moment.strftime("%Y-%m-%d")
    if step >= timedelta(minutes=1):
        return moment.strftime("%Y-%m-%d %H:%M")
    return moment.strftime("%Y-%m-%d %H:%M:%S")
