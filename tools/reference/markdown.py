"""Small pieces of Markdown: tables, headings, and docstrings (Google style) as prose."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Sequence

__all__ = ["arguments", "cell", "docstring", "summary", "table"]

_SECTION = re.compile(r"^(Args|Returns|Raises|Yields|Attributes|Example|Examples)( \([^)]*\))?:$")
_ENTRY = re.compile(r"^(?P<name>[\w*.`, ]+?)(?: \([^)]*\))?: (?P<text>.*)$")


def cell(text: str) -> str:
    """A text that may stand in a cell of a table."""
    return " ".join(text.split()).replace("|", "\\|")


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; empty if it has no rows."""
    lines = ["| " + " | ".join(map(cell, row)) + " |" for row in rows]
    if not lines:
        return ""
    return "\n".join(["| " + " | ".join(head) + " |", "|" + "---|" * len(head), *lines]) + "\n"


def _sections(text: str) -> list[tuple[str, list[str]]]:
    """A docstring cut at its section heads; the first has no name."""
    found: list[tuple[str, list[str]]] = [("", [])]
    for line in inspect.cleandoc(text).splitlines():
        if _SECTION.match(line):
            found.append((line.rstrip(":"), []))
        else:
            found[-1][1].append(line)
    return found


def _entries(lines: Sequence[str]) -> list[tuple[str, str]]:
    """The `name: text` entries of a section; what is indented further belongs to the one before."""
    entries: list[tuple[str, str]] = []
    for line in inspect.cleandoc("\n".join(["", *lines])).splitlines():
        match = None if line.startswith(" ") else _ENTRY.match(line)
        if match is not None:
            entries.append((match["name"], match["text"]))
        elif entries:
            entries[-1] = (entries[-1][0], f"{entries[-1][1]} {line.strip()}")
        else:
            entries.append(("", line.strip()))
    return entries


def docstring(text: str | None) -> str:
    """A docstring as Markdown: prose as it is, its sections as tables or paragraphs."""
    written: list[str] = []
    for name, lines in _sections(text or ""):
        if not name:
            written.append("\n".join(lines).strip())
        elif name.startswith(("Args", "Attributes")):
            written.append(table(["argument", ""], [(f"`{each}`", about) for each, about in _entries(lines)]))
        elif name.startswith("Raises"):
            head = "raises" + name.removeprefix("Raises")
            written.append(table([head, "when"], [(f"`{each}`", about) for each, about in _entries(lines)]))
        else:
            written.append(f"{name}: " + " ".join(line.strip() for line in lines if line.strip()))
    return "\n\n".join(part for part in written if part) + "\n"


def arguments(text: str | None) -> dict[str, str]:
    """What a docstring says of each argument."""
    return {
        each.strip(): about
        for name, lines in _sections(text or "")
        if name.startswith("Args")
        for names, about in _entries(lines)
        for each in names.split(",")
    }


def summary(text: str | None) -> str:
    """The first paragraph of a docstring, in one line."""
    return " ".join(inspect.cleandoc(text or "").split("\n\n")[0].split())
