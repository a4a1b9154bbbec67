"""What all verbs share: answers as text, tables or JSON, errors, progress bars, examples in their help.

Answers go to stdout; errors and progress to stderr, the latter only if that is a terminal. So stdout can be piped.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import IO, Annotated, Any, Literal

import msgspec
import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

__all__ = ["AsJson", "examples", "plain", "progress", "show", "show_error", "show_table", "wants_json", "warn"]

AsJson = Annotated[bool, typer.Option("--json", help="Answer in JSON.")]
"""The option that every verb has."""


def examples(*commands: str) -> str:
    """The last paragraph of a help text."""
    return f"{'Example' if len(commands) == 1 else 'Examples'}:\n\n" + "\n\n".join(commands)


def wants_json(context: typer.Context, as_json: bool) -> bool:
    """Was JSON asked for, before the verb or behind it?"""
    return as_json or bool(context.find_root().obj)


def show(value: Mapping[str, Any], lines: Iterable[str], as_json: bool, *, target: IO[str] | None = None) -> None:
    """Print an answer: `value` as one line of JSON, else `lines`; to stdout unless `target` is another."""
    text = msgspec.json.encode(value).decode() if as_json else "\n".join(lines)
    print(text, file=target if target is not None else sys.stdout, flush=True)


def show_table(
    value: Mapping[str, Any],
    columns: Sequence[str],
    rows: Sequence[Sequence[str | Text]],
    as_json: bool,
    *,
    empty: str,
) -> None:
    """Print an answer: `value` as one line of JSON, else a table.

    On a terminal it fits the width, and long cells are folded; elsewhere every row is one line, and nothing is cut.

    Args:
        value: the answer.
        columns: headings; one that begins with `#` is of numbers, one with `=` is not folded: it will be copied.
        rows: a text for each column; of a `Text` the style counts on terminals.
        as_json: which of the two.
        empty: what to say if there are no rows.
    """
    if as_json or not rows:
        show(value, [empty], as_json)
        return
    console = Console(highlight=False)
    heads = [column.lstrip("#=") for column in columns]
    if console.is_terminal:
        table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
        for column, head in zip(columns, heads, strict=True):
            side: Literal["left", "right"] = "right" if column.startswith("#") else "left"
            table.add_column(head, justify=side, overflow="fold", no_wrap=column.startswith(("#", "=")))
        for row in rows:
            table.add_row(*(cell if isinstance(cell, Text) else Text(cell) for cell in row))
        console.print(table)
        return
    texts = [heads, *([str(cell) for cell in row] for row in rows)]
    widths = [max(len(text[i]) for text in texts) for i in range(len(heads))]
    for text in texts:
        cells = (
            cell.rjust(width) if column.startswith("#") else cell.ljust(width)
            for cell, width, column in zip(text, widths, columns, strict=True)
        )
        print("  ".join(cells).rstrip())
    sys.stdout.flush()


def plain(text: str) -> str:
    """A text that does to a terminal nothing but be shown: what is not printable is escaped."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def show_error(
    kind: str,
    message: str,
    help: str | None,
    as_json: bool,
    *,
    field: str | None = None,
    position: int | None = None,
    place: str = "",
) -> None:
    """Print an error, with the `place` in a text; in JSON it has the form of `TocsinError.as_dict`."""
    if as_json:
        wire = {"error": kind, "message": message, "field": field, "position": position, "help": help}
        print(msgspec.json.encode(wire).decode(), file=sys.stderr)
        return
    console = Console(stderr=True, soft_wrap=True, highlight=False)
    console.print(Text.assemble(("error: ", "bold red"), message))
    if place:
        console.print(Text(place))
    if help:
        console.print(Text.assemble((" help: ", "bold"), help))


def warn(message: str) -> None:
    """Print a warning to stderr."""
    Console(stderr=True, soft_wrap=True, highlight=False).print(Text.assemble(("warning: ", "bold yellow"), message))


@contextmanager
def progress(label: str, *, unit: str = "", visible: bool = True) -> Iterator[Callable[[int, int | None], None] | None]:
    """Show a bar while the block runs; gives a function to be told how much is done, of how much.

    Gives None, and shows nothing, if stderr is not a terminal or `visible` is false.

    Args:
        label: what is being done.
        unit: `bytes`, or the name of what is counted; empty: how much there is cannot be known, and nothing is counted.
        visible: whether there is room for it: not if stdout, on the same terminal, is being written to.
    """
    console = Console(stderr=True)
    if not (visible and console.is_terminal):
        yield None
        return
    counted = [DownloadColumn()] if unit == "bytes" else [MofNCompleteColumn(), TextColumn(unit)] if unit else []
    columns = (TextColumn("{task.description}"), BarColumn(), *counted, TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(label, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
