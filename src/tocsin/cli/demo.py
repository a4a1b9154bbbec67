"""`tocsin demo`: a plant, a few thousand filters, and Spark beside it; the same as `make demo`."""

from __future__ import annotations

import contextlib
import sys
from typing import Annotated

import typer

from tocsin.cli.output import AsJson, examples, show, wants_json
from tocsin.errors import TocsinError

__all__ = ["demo", "register"]


def register(app: typer.Typer) -> None:
    """Add this verb to the command."""
    app.command(epilog=examples("tocsin demo", "tocsin demo --filters 10000 --seconds 60"))(demo)


def demo(
    context: typer.Context,
    filters: Annotated[int, typer.Option(min=1, help="How many subscriptions.")] = 4000,
    seconds: Annotated[float, typer.Option(min=0, help="How long the plant publishes.")] = 20.0,
    headless: Annotated[bool, typer.Option("--headless", help="Print lines instead of drawing.")] = False,
    as_json: AsJson = False,
) -> int:
    """Watch a stream of events meet thousands of filters.

    In this process and on Spark, whose answers are compared: exit code 1 if they differ. Nothing is left behind.
    """
    try:
        from tocsin.demo.__main__ import main
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("tocsin"):
            raise  # not an extra that is missing, but a defect
        raise TocsinError(f"{error.name} is not installed", help="pip install 'tocsin[server,spark]'") from None
    is_json = wants_json(context, as_json)
    options = ["--filters", str(filters), "--seconds", str(seconds), *(["--headless"] if headless or is_json else [])]
    with contextlib.redirect_stdout(sys.stderr) if is_json else contextlib.nullcontext():
        code = main(options)
    if is_json:
        show({"agree": code == 0, "filters": filters}, [], True)
    return code
