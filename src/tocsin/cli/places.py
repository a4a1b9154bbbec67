"""Where a verb looks: a journal, named by a path, by `file:path`, or by TOCSIN_URL."""

from __future__ import annotations

import re
from typing import Annotated

import typer

from tocsin.errors import JournalError
from tocsin.journal.opening import file_path
from tocsin.journal.reader import Reader, open_reader

__all__ = ["Url", "journal_path", "journal_url", "reader_of"]

Url = Annotated[
    str,
    typer.Option(
        "--url", envvar="TOCSIN_URL", metavar="FILE", show_default=False, help="The journal: a path, or file:path."
    ),
]
_URL = re.compile(r"[a-z][a-z0-9+.-]*:(//|$)")


def journal_path(place: str, hint: str = "FILE") -> str:
    """The path that a place names: a url, or itself."""
    if not place:
        raise typer.BadParameter("name a journal, or set TOCSIN_URL", param_hint=hint)
    if not place.startswith("file:") and not _URL.match(place):
        return place
    try:
        return file_path(place)
    except JournalError as error:
        raise typer.BadParameter(f"{error.message}; give a path or file:path", param_hint=hint) from None


def journal_url(place: str) -> str:
    """The url that a place names."""
    return f"file:{journal_path(place, '--url')}"


def reader_of(place: str) -> Reader:
    """The journal at a place, open for reading."""
    return open_reader(journal_path(place, "--url"))
