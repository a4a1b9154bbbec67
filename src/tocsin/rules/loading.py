"""Rules in a TOML file, for operators who write no Python.

[[rule]]
name = "call_guard"
on = "[type = 'door.open']"            # the name of an event, a filter, or a composite text
when = "door = 7"                      # these may be left out: when, priority, coupling, context
priority = 8
webhook = { url = "https://guard/alarm", timeout = 5, headers = { Authorization = "Bearer abc" } }

[[rule]]
name = "log_it"
on = "door.open"
command = { run = ["logger", "-t", "doors"], timeout = 10 }
"""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import Any, Final

from tocsin.errors import RuleError, TextError, TocsinError
from tocsin.rules.actions import Command, Webhook
from tocsin.rules.rule import Rule

__all__ = ["load"]

_KEYS: Final = {"name", "on", "when", "priority", "coupling", "context", "webhook", "command"}
_TEXTS: Final = ("name", "on", "when", "coupling", "context")


def load(path: str | os.PathLike[str]) -> list[Rule]:
    """Read rules from a file: all of them, or none.

    Raises:
        RuleError: the file cannot be read, or a rule in it is wrong; it says which.
    """
    try:
        read = tomllib.loads(Path(path).read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:  # tomllib's and decoding errors are ValueErrors
        raise RuleError(f"{path} cannot be read: {error}", help="see docs/RULES.md for how it is written") from None
    tables = read.pop("rule", None)
    if read or not isinstance(tables, list):
        odd = f"{next(iter(read))!r} is not known" if read else "there is no [[rule]]"
        raise RuleError(f"{path}: {odd}", help="write each rule below a line [[rule]]")
    found: list[Rule] = []
    for place, table in enumerate(tables, 1):
        try:
            rule = _rule(table)
            if any(each.name == rule.name for each in found):
                raise RuleError(f"a rule {rule.name} stands above already", field="name", help="call one otherwise")
        except TocsinError as error:
            field, at = error.field, ""
            if isinstance(error, TextError) and field is None:
                field = "when" if error.text == table.get("when") else "on"
                at = f"{field}, at {error.position}: " if error.position is not None else f"{field}: "
            raise RuleError(
                f"{path}, rule {place}: {at}{error.message}", field=field, position=error.position, help=error.help
            ) from error
        found.append(rule)
    return found


def _rule(table: Any) -> Rule:
    if not isinstance(table, dict):
        raise RuleError("this is no table", help="write it below a line [[rule]]")
    _known(table, _KEYS, "a rule")
    for key in ("name", "on"):
        if key not in table:
            raise RuleError(f"it has no {key}", field=key, help="name and on are needed")
    for key in _TEXTS:
        if key in table and not isinstance(table[key], str):
            raise RuleError(f"{key} is {table[key]!r}", field=key, help="write it in quotes")
    if ("webhook" in table) == ("command" in table):
        raise RuleError("a rule has one action", field="action", help="give webhook or command, not both")
    options = {key: table[key] for key in ("when", "priority", "coupling", "context") if key in table}
    return Rule(table["name"], table["on"], _action(table), **options)


def _action(table: dict[str, Any]) -> Webhook | Command:
    kind = "webhook" if "webhook" in table else "command"
    given = table[kind]
    needed = "url" if kind == "webhook" else "run"
    if not isinstance(given, dict) or needed not in given:
        raise RuleError(f"{kind} has no {needed}", field=kind, help=f"write {kind} = {{ {needed} = … }}")
    if kind == "command":
        _known(given, {"run", "timeout"}, "command")
        return Command(given["run"], timeout=given.get("timeout", 60.0))
    _known(given, {"url", "timeout", "headers"}, "webhook")
    headers = given.get("headers", {})
    if not isinstance(headers, dict) or not all(isinstance(value, str) for value in headers.values()):
        raise RuleError("headers are no texts", field="headers", help='write headers = { Name = "value" }')
    return Webhook(str(given["url"]), timeout=given.get("timeout", 10.0), headers=headers)


def _known(table: dict[str, Any], keys: set[str], what: str) -> None:
    for key in table:
        if key not in keys:
            raise RuleError(f"{what} has no {key!r}", field=key, help=f"there are {', '.join(sorted(keys))}")
