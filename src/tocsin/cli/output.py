"""What all verbs share: answers as text or JSON, errors, progress bars, examples in their help.

Answers go to stdout; errors and progress to stderr, the latter only if that is a terminal. So stdout can be piped.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import IO, Annotated, Any

import msgspec
import typer
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

__all__ = ["AsJson", "examples", "progress", "show", "show_error", "wants_json", "warn"]

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
