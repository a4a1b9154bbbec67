"""`tocsin doctor`: what Spark needs on this machine, what of it is there, and how to mend the rest."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
import typer

from tocsin.cli.output import AsJson, progress, show, wants_json

__all__ = ["doctor"]

_INDENT = " " * 8


def doctor(
    context: typer.Context,
    spark: Annotated[bool, typer.Option("--spark/--no-spark", help="Start a Spark to see that it works.")] = True,
    as_json: AsJson = False,
) -> int:
    """Find out why Spark does not run here. Exit code 1 if something is broken.

    Looks at Python, packages, Java, memory, disk and compiled kernels, then starts a Spark and lets it work, which
    takes some seconds. Nothing is changed.
    """
    with progress("examining"):
        findings = _findings(spark)
    ok = all(finding["state"] != "broken" for finding in findings)
    lines = [line for finding in findings for line in _lines(finding)]
    lines.append("all is well" if ok else "not all is well: see what is broken, and its help")
    show({"ok": ok, "findings": findings}, lines, wants_json(context, as_json))
    return 0 if ok else 1


def _findings(start: bool) -> list[dict[str, Any]]:
    try:
        from tocsin.spark.doctor import examine
    except ImportError as error:  # PySpark is missing, and with it all that could look further
        help = "pip install 'tocsin[spark]'"
        return [{"name": "PySpark", "state": "broken", "told": str(error), "help": help}]
    return [msgspec.to_builtins(finding) for finding in examine(start=start)]


def _lines(finding: dict[str, Any]) -> list[str]:
    first, *others = finding["told"].splitlines()
    lines = [f"{finding['state']:<8}{finding['name']}: {first}", *(_INDENT + line for line in others)]
    return [*lines, f"{_INDENT}help: {finding['help']}"] if finding["help"] else lines
