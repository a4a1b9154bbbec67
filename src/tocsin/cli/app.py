"""The command `tocsin`: its verbs, its own options, and what becomes of errors.

Exit codes: 0 all is well · 1 it failed, or damage was found · 2 the command was not understood · 3 `tocsin sub` got
less than was asked for in time · 130 stopped by Ctrl-C (`tocsin up` and `tocsin rules` end well that way: 0).
An error of ours is a message and what helps, never a traceback; with --json it is one JSON object. Both go to stderr.
"""

from __future__ import annotations

import platform
from collections.abc import Sequence
from typing import Annotated

import typer
from typer.main import get_command

from tocsin import __version__
from tocsin.cli import (
    alerts,
    backtest,
    bench,
    completion,
    definitions,
    demo,
    doctor,
    journal,
    pipeline,
    pub,
    req,
    rules,
    sub,
    tokens,
    up,
)
from tocsin.cli.output import AsJson, examples, show, show_error
from tocsin.errors import TextError, TocsinError

__all__ = ["app", "run"]

app = typer.Typer(
    name="tocsin",
    add_completion=False,  # its options write to files of the shell; `tocsin completion` prints
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",  # joins the lines of a paragraph
    context_settings={"help_option_names": ["--help", "-h"]},
)
for _verbs in (up, pub, sub, req, alerts, definitions, backtest, rules):
    _verbs.register(app)
app.add_typer(journal.app, name="journal")
app.add_typer(pipeline.app, name="pipeline")
for _verbs in (tokens, demo, bench, doctor, completion):
    _verbs.register(app)


@app.callback(
    invoke_without_command=True,
    help="Tocsin: event notification for Python, whose data pipeline runs on Spark.",
    epilog=examples("tocsin up", 'tocsin sub "value > 9" --past 10', """tocsin pub machine.value '{"value": 9.2}'"""),
)
def _root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Show the version, and end.")] = False,
    as_json: AsJson = False,
) -> None:
    context.obj = as_json
    if version:
        show(
            {"version": __version__, "python": platform.python_version()},
            [f"tocsin {__version__} (Python {platform.python_version()})"],
            as_json,
        )
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit(2)


def run(arguments: Sequence[str]) -> int:
    """Run a command; returns its exit code."""
    as_json = "--json" in arguments  # also where the arguments cannot be read
    try:
        code = get_command(app).main(list(arguments), prog_name="tocsin", standalone_mode=False)
    except typer.TyperException as error:
        context = getattr(error, "ctx", None)
        help = f"see {context.command_path} --help" if context is not None else "see tocsin --help"
        if message := error.format_message():  # empty: a group was named without a verb, and its help was shown
            show_error("UsageError", message, help, as_json)
        return 2
    except TocsinError as error:
        place = error.place() if isinstance(error, TextError) else ""
        show_error(
            type(error).__name__,
            error.message,
            error.help,
            as_json,
            field=error.field,
            position=error.position,
            place=place,
        )
        return 1
    except OSError as error:
        name = f"{error.filename}: " if error.filename is not None else ""
        show_error(type(error).__name__, f"{name}{error.strerror or error}", None, as_json)
        return 1
    return code if isinstance(code, int) else 0
