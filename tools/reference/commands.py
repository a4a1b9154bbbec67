"""The command line, from what Typer knows of it: every verb with its arguments, options, variables and examples."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from typer.main import get_command

from tocsin.cli import app as application
from tools.reference.markdown import table

__all__ = ["page", "parameters", "variables", "walk"]

_EXITS = re.compile(r"Exit codes: (.*?)\n(?:An error|\n)", re.DOTALL)


def page() -> str:
    """The page of the command line."""
    exits = _EXITS.search(application.__doc__ or "")
    if exits is None:
        raise LookupError(f"{application.__name__} no longer says its exit codes")
    said = " ".join(exits[1].split())
    written = [
        "# Command line\n",
        "Every verb as `--help` shows it. `--json` may stand before or behind a verb; "
        "[Quick start](../QUICKSTART.md) shows the verbs at work.\n",
        f"Exit codes: {said}\n",
    ]
    written += [_verb(name, command) for name, command in walk()]
    return "\n".join(written)


def walk() -> Iterator[tuple[str, Any]]:
    """All verbs with their full names, groups left out."""
    yield from _below("tocsin", get_command(application.app))


def _below(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    children = getattr(command, "commands", None)
    if children is None:
        yield name, command
        return
    for each, child in children.items():
        if not child.hidden:
            yield from _below(f"{name} {each}", child)


def _verb(name: str, command: Any) -> str:
    arguments = " ".join(_place(each) for each in command.params if each.param_type_name == "argument")
    usage = f"{name} [OPTIONS]{' ' + arguments if arguments else ''}"
    written = [f"## {name}\n", f"```text\n{usage}\n```\n", _paragraphs(command.help or "")]
    written.append(table(["argument or option", "", "default", "variable"], parameters(command)))
    if command.epilog:
        lines = [line.strip().strip("`") for line in command.epilog.splitlines()]
        shown = [line for line in lines if line.startswith("tocsin")]
        written.append("```sh\n" + "\n".join(shown) + "\n```\n")
    return "\n".join(written)


def _paragraphs(help: str) -> str:
    return "\n\n".join(" ".join(part.split()) for part in help.replace("\f", "").split("\n\n")) + "\n"


def parameters(command: Any) -> Iterator[tuple[str, str, str, str]]:
    """What a verb takes: names, explanation, default, environment variable."""
    for each in command.params:
        if getattr(each, "hidden", False) or "--help" in each.opts:
            continue
        is_option = each.param_type_name == "option"
        names = ", ".join(f"`{name}`" for name in each.opts) if is_option else f"`{_place(each)}`"
        if is_option and not each.is_flag:
            names += f" `{each.metavar or each.name.upper()}`"
        yield names, each.help or "", _default(each), f"`{each.envvar}`" if each.envvar else ""


def _place(each: Any) -> str:
    """An argument as the line of usage shows it."""
    name = each.metavar or each.name.upper()
    shown = name + ("…" if each.nargs != 1 else "")
    return shown if each.required else f"[{shown.strip('[]')}]"


def _default(each: Any) -> str:
    value = each.default
    shown = getattr(each, "show_default", True)
    if value in (None, "", False) or callable(value) or not shown:
        return "required" if each.required else ""
    return f"`{value}`" if isinstance(value, str | int | float) or hasattr(value, "__fspath__") else ""


def variables() -> dict[str, list[tuple[str, str, str]]]:
    """Environment variables that verbs read: for each the verb, the option and what it is for."""
    found: dict[str, list[tuple[str, str, str]]] = {}
    for name, command in walk():
        for option, about, _, variable in parameters(command):
            if variable:
                found.setdefault(variable.strip("`"), []).append((name, option, about))
    return found
