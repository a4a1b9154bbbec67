"""`tocsin demo`: a plant at work on a real node with its Spark pipeline, told as it happens; `make demo` is the same.

Exit code 0: all that was promised was seen, or Ctrl-C ended it · 1: something was not seen; it is named.
"""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console

from tocsin.cli.output import AsJson, examples, show, wants_json
from tocsin.cli.places import command
from tocsin.errors import TocsinError

__all__ = ["demo", "register"]

_HEADLESS = 60.0  # seconds, if nothing is said


def register(app: typer.Typer) -> None:
    """Add this verb to the command."""
    app.command(epilog=examples("tocsin demo", "tocsin demo --no-spark", "tocsin demo --headless --seconds 60"))(demo)


def demo(
    context: typer.Context,
    seconds: Annotated[
        float | None,
        typer.Option(
            min=1, show_default="until Ctrl-C; 60 if headless", help="How long; on a slow machine up to 2 minutes more."
        ),
    ] = None,
    headless: Annotated[bool, typer.Option("--headless", help="Print plain lines, and end by itself.")] = False,
    no_spark: Annotated[
        bool, typer.Option("--no-spark", envvar="TOCSIN_NO_SPARK", help="Show only what the node does.")
    ] = False,
    port: Annotated[int, typer.Option(min=0, max=65535, help="The node's port; if it is taken, another.")] = 8420,
    browser: Annotated[bool, typer.Option("--open", help="Open the node's page in a browser.")] = False,
    seed: Annotated[int, typer.Option(help="What chance begins with: the same number, the same plant.")] = 7,
    as_json: AsJson = False,
) -> int:
    """Watch a plant at work, and read what happens and why.

    Starts a node with its Spark pipeline as `tocsin up` does, in a folder of its own: events, alerts, the past, a
    crash, and composite events found by the node and by Spark. Ctrl-C ends it; nothing is left behind.
    """
    try:
        from tocsin.demo.run import Options, run
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("tocsin"):
            raise  # not an extra that is missing, but a defect
        raise TocsinError(f"{error.name} is not installed", help="pip install 'tocsin[server,spark]'") from None
    is_json = wants_json(context, as_json)
    headless = headless or is_json
    if seconds is None and headless:
        seconds = _HEADLESS
    options = Options(seconds, headless, not no_spark, port, browser, seed, command())
    code, promises = run(options, Console(stderr=is_json, highlight=False))
    if is_json:
        seen = {key: {"count": each.times, "first": each.first} for key, each in promises.seen.items()}
        show({"seen": seen, "missing": promises.missing}, [], True)
    return code
