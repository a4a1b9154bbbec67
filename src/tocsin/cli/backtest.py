"""`tocsin backtest`: what would this filter or composite event have fired on?

The text, the place and the period are looked at before Spark is started, so that what is wrong with them is said at
once. Of a file and a lake it may run while a node is writing; a node's events are read over the network.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from tocsin.cli.output import AsJson, examples, progress, show, wants_json, warn
from tocsin.cli.places import Token, Url, is_remote, journal_path, options_of, place_of, reached
from tocsin.cli.up import JOURNAL
from tocsin.errors import TocsinError
from tocsin.filters.filter import Filter

__all__ = ["backtest", "register"]


def register(app: typer.Typer) -> None:
    """Add this verb to the command."""
    app.command(
        epilog=examples(
            "tocsin backtest \"SEQ([type = 'door.open'], [type = 'motion']) WITHIN 2 MINUTES BY door\" --since 30d",
            "tocsin backtest break_in --since 30d",
            'tocsin backtest "value > 9" --url file:plant.db --since 2026-01-01T00:00:00Z --png high.png',
            "tocsin backtest \"PLUS([type = 'machine.value'], 30 SECONDS) BY machine\" --url lake --json",
        )
    )(backtest)


def backtest(
    context: typer.Context,
    text: Annotated[
        str,
        typer.Argument(
            help="A filter, a composite event (see docs/COMPOSITE.md), or the name of a definition.", show_default=False
        ),
    ],
    url: Url = "",
    token: Token = "",
    since: Annotated[
        str | None, typer.Option(metavar="WHEN", help="From when on: 30d, 12h, an ISO time or an offset; else all.")
    ] = None,
    until: Annotated[str | None, typer.Option(metavar="WHEN", help="Up to when; else up to now.")] = None,
    parameter_context: Annotated[
        str, typer.Option("--context", help="Which occurrences go together: recent, chronicle, continuous, cumulative.")
    ] = "recent",
    semantics: Annotated[str, typer.Option(help="detection, or interval.")] = "detection",
    shown: Annotated[int, typer.Option("--examples", min=0, max=100, metavar="N", help="How many examples.")] = 3,
    png: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the plot as a picture, too.")] = None,
    master: Annotated[str, typer.Option(metavar="M", help="Where Spark runs.")] = "local[*]",
    as_json: AsJson = False,
) -> None:
    """Show what a filter or a composite event would have fired on.

    Looks at the events of a node, of a journal (--url file:plant.db) or of a lake (--url DIRECTORY). Nothing is stored.
    """
    try:
        from tocsin import spark as ts
        from tocsin.spark.backtest import answered
        from tocsin.spark.questions import asked
        from tocsin.spark.reporting import check_png
    except ImportError as error:
        raise TocsinError(f"Spark is not installed: {error}", help="pip install 'tocsin[spark]'") from None
    if png is not None:
        check_png(png)
    place = _place(url)
    with reached(place_of(url)):
        given = {"since": since, "until": until, "context": parameter_context, "semantics": semantics}
        question = asked(place, text, **(given | options_of(token)))
    if is_taken_for_a_filter(text, question.wanted):
        warn(f"nothing is defined there as {text}; it is taken for a filter: events in which a field {text} is true")
    with progress("starting Spark"):
        session = ts.session(master, app="tocsin backtest")
    try:
        with progress("looking", unit="tasks") as told:
            found = answered(session, question, shown, told)
    finally:
        session.stop()
    if png is not None:
        found.png(png)
    if wants_json(context, as_json):
        show(found.as_dict(), [], True)
    else:
        found.show()


def is_taken_for_a_filter(text: str, wanted: object) -> bool:
    """Is it but a word, which may have been meant as the name of a definition?"""
    word = text.strip()
    is_word = word.replace(".", "_").isidentifier() and word.upper() not in ("TRUE", "FALSE")
    return is_word and isinstance(wanted, Filter)


def _place(url: str) -> str:
    """Where events are read: a node over http, a journal's file, or the directory of a lake or of a node."""
    place = place_of(url)
    if is_remote(place):
        return f"http{place[2:]}"
    path = journal_path(place, "--url")
    journal = os.path.join(path, JOURNAL)
    return f"file:{journal if os.path.isfile(journal) else path}"
