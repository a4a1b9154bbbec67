"""`tocsin doctor`: what a node and Spark need on this machine, what of it is there, and how to mend the rest."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from tocsin.cli.output import AsJson, examples, progress, show, wants_json
from tocsin.cli.surroundings import examine as look_around
from tocsin.cli.up import DATA, Data

__all__ = ["doctor", "register"]

_INDENT = " " * 8


def register(app: typer.Typer) -> None:
    """Add this verb to the command."""
    app.command(epilog=examples("tocsin doctor", "tocsin doctor --no-spark --data /var/lib/tocsin --json"))(doctor)


def doctor(
    context: typer.Context,
    spark: Annotated[bool, typer.Option("--spark/--no-spark", help="Start a Spark to see that it works.")] = True,
    host: Annotated[str, typer.Option(help="Where a node listens, or shall.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="Its port.")] = 8420,
    data: Data = Path(DATA),
    as_json: AsJson = False,
) -> int:
    """Find out what is wrong here, and how to mend it.

    Looks at Python, packages, Java, memory, compiled kernels, the port, the disk and the clock; then starts a Spark and
    lets it work, which takes some seconds. Nothing is changed. Exit code 1 if something is broken.
    """
    with progress("examining"):
        findings = [*_packages(spark), *look_around(host, port, data)]
    ok = all(finding["state"] != "broken" for finding in findings)
    lines = [line for finding in findings for line in _lines(finding)]
    lines.append("all is well" if ok else "not all is well: see what is broken, and its help")
    show({"ok": ok, "findings": findings}, lines, wants_json(context, as_json))
    return 0 if ok else 1


def _packages(start: bool) -> list[dict[str, Any]]:
    """What Python and Spark need."""
    try:
        from tocsin.spark.doctor import examine
    except ImportError as error:  # PySpark is missing, and with it all that could look further
        state, help = "broken" if start else "note", "pip install 'tocsin[spark]'"
        return [{"name": "PySpark", "state": state, "told": f"{error}; a node runs without it", "help": help}]
    return [msgspec.to_builtins(finding) for finding in examine(start=start)]


def _lines(finding: dict[str, Any]) -> list[str]:
    first, *others = finding["told"].splitlines()
    lines = [f"{finding['state']:<8}{finding['name']}: {first}", *(_INDENT + line for line in others)]
    return [*lines, f"{_INDENT}help: {finding['help']}"] if finding["help"] else lines
