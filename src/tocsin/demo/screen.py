"""How the demo looks: on a terminal a story that scrolls, over a foot that stays; elsewhere plain lines.

On the left is what happens, on the right why. Below 100 columns the reason stands under the line it belongs to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from textwrap import wrap
from typing import Final

from rich.box import SIMPLE_HEAD
from rich.columns import Columns
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.rule import Rule
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from tocsin.demo.promises import PROMISES, Promises
from tocsin.demo.story import Line, Tone
from tocsin.demo.supervision import State, Supervision
from tocsin.demo.warming import Warmth

__all__ = ["Screen", "foot", "summary"]

_WIDE: Final = 100
_SHARE: Final = 0.46  # of the width, for reasons
_TONES: Final[dict[Tone, tuple[str, str]]] = {
    "plain": ("·", ""),
    "good": ("✓", "green"),
    "warning": ("!", "yellow"),
    "alert": ("‼", "bold red"),
    "spark": ("✦", "magenta"),
    "node": ("▸", "bold cyan"),
}
_STATES: Final[dict[State, str]] = {"normal": "green", "possible stop": "bold yellow", "inactive": "dim"}


class Screen:
    """Where everything is shown."""

    def __init__(self, console: Console, *, headless: bool) -> None:
        """Show on a console; `headless`: in plain lines, whatever it is."""
        self._console = console
        self._is_live = console.is_terminal and not headless
        self.foot: Callable[[], RenderableType] = lambda: Text("")
        """What stays at the bottom."""

    @contextmanager
    def live(self) -> Iterator[None]:
        """Keep the foot at the bottom while the block runs."""
        if not self._is_live:
            yield
            return
        shown = Live(
            console=self._console,
            get_renderable=lambda: self.foot(),
            refresh_per_second=4,
            transient=True,
            vertical_overflow="crop",
        )
        with shown:
            yield

    def show(self, line: Line) -> None:
        """A line of the story."""
        if self._is_live:
            self._console.print(_drawn(line, self._console.width))
            return
        self._console.print(f"{line.at:6.1f} s  {line.what}", markup=False, highlight=False, soft_wrap=True)
        if line.why:
            self._console.print(f"{'':10}why: {line.why}", markup=False, highlight=False, soft_wrap=True)


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"


def _drawn(line: Line, width: int) -> RenderableType:
    mark, style = _TONES[line.tone]
    grid = Table.grid(padding=(0, 1, 0, 0), expand=True)
    grid.add_column(width=5, justify="right", style="dim")
    grid.add_column(width=1)
    grid.add_column(ratio=1)
    when, sign, what = _clock(line.at), Text(mark, style=style), Text(line.what, style=style)
    is_wide = width >= _WIDE
    room = int((width - 10) * _SHARE) if is_wide else width - 9
    reason = wrap(line.why, room)  # here and not by Rich, since each line has its bar
    bar, why = Text("\n".join("│" * len(reason)), style="dim"), Text("\n".join(reason), style="dim")
    if is_wide:
        grid.add_column(width=1)
        grid.add_column(width=room)
        grid.add_row(when, sign, what, bar, why)
    else:
        grid.add_row(when, sign, what)
        if reason:
            grid.add_row("", bar, why)
    return Padding(grid, (0, 0, 1 if line.why else 0, 0))


def foot(page: str, promises: Promises, overview: Supervision, warmth: Warmth | None) -> RenderableType:
    """What stays at the bottom: where to look, how the machines are, what was seen of what was promised."""
    head = Table.grid(padding=(0, 3, 0, 0))
    spark: RenderableType = Text("no Spark asked for", style="dim")
    if warmth is not None:
        spark = _spark(warmth, promises.elapsed)
    head.add_row(
        Text(page, style=f"bold cyan link {page}"),
        Text(_clock(promises.elapsed)),
        Text(f"{overview.offset:,} events"),
        spark,
    )
    machines = [
        Text.assemble(
            f"{name} ",
            (f"{overview.values[name]:.2f}", "green")
            if state == "normal" and name in overview.values
            else (state, _STATES[state]),
        )
        for name, state in sorted(overview.states.items())
    ]
    seen = [
        Text(f"✓ {PROMISES[key].short} {each.times}", style="green")
        if each.times
        else Text(f"○ {PROMISES[key].short}", style="dim")
        for key, each in promises.seen.items()
    ]
    return Group(
        Rule(style="dim"),
        Padding(head, (0, 0, 0, 1)),
        Padding(Columns(machines, padding=(0, 2, 0, 0)), (0, 0, 0, 1)),
        Padding(Columns(seen, padding=(0, 2, 0, 0)), (0, 0, 0, 1)),
        Padding(Text("Ctrl-C ends it and clears everything away", style="dim"), (0, 0, 0, 1)),
    )


def _spark(warmth: Warmth, elapsed: float) -> RenderableType:
    if warmth.state == "up":
        if not warmth.status.get("batches"):
            return Spinner("dots", Text("Spark is up; its first batch takes longest", style="magenta"))
        lag, took = warmth.status.get("lag"), warmth.status.get("batch_seconds")
        more = f", {lag} events behind" if lag is not None else ""
        more += f", {took * 1000:.0f} ms a batch" if took is not None else ""
        return Text(f"Spark up{more}", style="magenta")
    if warmth.is_lost:
        return Text("no Spark here", style="bold red")
    return Spinner("dots", Text(f"Spark warms up, {elapsed:.0f} s", style="magenta"))


def summary(console: Console, promises: Promises) -> None:
    """Each promised thing: how often, and first after how many seconds."""
    if not console.is_terminal:
        for key, each in promises.seen.items():
            first = f"first after {each.first:5.1f} s" if each.first is not None else "NOT SEEN"
            line = f"{PROMISES[key].title:52}{each.times:5} ×  {first}"
            console.print(line, markup=False, highlight=False, soft_wrap=True)
        return
    table = Table(box=SIMPLE_HEAD, title="What was promised, and seen", title_justify="left", title_style="bold")
    table.add_column("")
    table.add_column("seen", justify="right")
    table.add_column("first after", justify="right")
    for key, each in promises.seen.items():
        after = Text(f"{each.first:.1f} s") if each.first is not None else Text("not seen", style="bold red")
        table.add_row(Text(PROMISES[key].title), Text(str(each.times)), after)
    console.print(table)
