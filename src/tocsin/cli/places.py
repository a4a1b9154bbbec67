"""Where a verb looks: a node, by default the one that `tocsin up` starts here, or a journal's file.

A place is `ws://host:port` (`http:` is taken for it), `host:port`, `file:path`, or a path; `--url` or TOCSIN_URL says
it. A file is opened by the verb itself, which needs its lock where something is written.

Who asks: a verb that publishes or cancels is `user@host` unless `--name` says otherwise, so that what one command has
published another may cancel. Of two sessions of a name the node keeps the newer; so a verb that was replaced by another
of the same name asks again (`ask`). All other verbs have a name of their own. With a token the name is one behind the
token's, which may cancel what any of them has published.
"""

from __future__ import annotations

import getpass
import os
import random
import re
import shlex
import shutil
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

import typer

from tocsin import sync
from tocsin.errors import JournalError, NetworkError, ReplacedError
from tocsin.journal.opening import file_path
from tocsin.journal.reader import Reader, open_reader

__all__ = [
    "NODE",
    "Name",
    "Token",
    "Url",
    "ask",
    "check_there",
    "command",
    "is_remote",
    "journal_path",
    "options_of",
    "place_of",
    "reached",
    "reader_of",
    "who",
]

T = TypeVar("T")
NODE: Final = "ws://127.0.0.1:8420"
"""Where `tocsin up` listens if it is told nothing else."""

Url = Annotated[
    str,
    typer.Option(
        "--url",
        envvar="TOCSIN_URL",
        metavar="URL",
        show_default=False,
        help=f"The node, {NODE} if left out; or a journal: file:path.",
    ),
]
Token = Annotated[
    str,
    typer.Option("--token", envvar="TOCSIN_TOKEN", metavar="T", show_default=False, help="The token that lets you in."),
]
Name = Annotated[
    str,
    typer.Option(
        "--name", envvar="TOCSIN_NAME", metavar="NAME", show_default=False, help="Who you are; user@host if left out."
    ),
]
_URL = re.compile(r"[a-z][a-z0-9+.-]*:(//|$)")
_HOST_AND_PORT = re.compile(r"(\[[0-9a-f:]+\]|[\w.-]+):[0-9]{1,5}")
_REMOTE = ("ws:", "wss:")
_ATTEMPTS = 20


def command() -> str:
    """How this command is typed here: `tocsin` where a shell finds it, else by its place beside this Python.

    So that what a newcomer is told to type works also before `.venv` is activated.
    """
    if shutil.which("tocsin") is not None:
        return "tocsin"
    beside, here = Path(sys.executable).with_name("tocsin"), Path.cwd()
    if not beside.exists():
        return f"{shlex.quote(sys.executable)} -m tocsin.cli"
    return shlex.quote(str(beside.relative_to(here) if here in beside.parents[1:] else beside))


def place_of(given: str) -> str:
    """The url that is meant: of a node, or `file:`."""
    if not given:
        return NODE
    if given.startswith("http"):
        given = re.sub("^http(s?):", r"ws\1:", given)
    if given.startswith(_REMOTE):
        return given
    if _HOST_AND_PORT.fullmatch(given):  # a journal of such a name is file:name
        return f"ws://{given}"
    return f"file:{journal_path(given, '--url')}"


def is_remote(place: str) -> bool:
    """Is it a node elsewhere?"""
    return place.startswith(_REMOTE)


def who(name: str, token: str = "") -> str | None:
    """The name to publish under; None: the token says it."""
    if name or token:
        return name or None
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container may know no users
        user = "somebody"
    return f"{user}@{socket.gethostname()}"


def options_of(token: str) -> dict[str, Any]:
    """What `connect` is told beside place and name."""
    given = {"token": token, "ca": os.environ.get("TOCSIN_CA")}
    return {name: value for name, value in given.items() if value}


@contextmanager
def reached(place: str) -> Iterator[None]:
    """Say what to do if nobody is there."""
    try:
        yield
    except NetworkError as error:
        if type(error) is not NetworkError or error.field != "url":
            raise
        nobody = "Connect call failed" in error.message
        message = f"nobody listens at {place}" if nobody else error.message
        help = "start one: tocsin up; or say where it is: --url ws://host:8420"
        if "CERTIFICATE_VERIFY_FAILED" in message:
            help = "if the node has a certificate of its own, say where a copy is: TOCSIN_CA=node.pem"
        elif "valid HTTP response" in message and place.startswith("ws:"):
            help = "if it speaks TLS, say wss:// instead of ws://"
        raise NetworkError(message, field="url", help=help) from None


def ask(
    place: str, work: Callable[[sync.Bus], T], *, token: str = "", name: str | None = None, makes: bool = False
) -> T:
    """Open a place and do something there; returns what `work` returns.

    Args:
        place: a url, as `place_of` gives it.
        work: what to do; it is repeated if another command of this name came between.
        token: shown to the node.
        name: who you are; None: nobody in particular.
        makes: is a journal that is not there made? It would answer a slip of the pen with nothing.
    """
    if not makes:
        check_there(place)
    for attempt in range(_ATTEMPTS):
        try:
            with reached(place), sync.connect(place, name=name, **options_of(token)) as bus:
                return work(bus)
        except ReplacedError:
            if attempt == _ATTEMPTS - 1:
                raise
            time.sleep(random.uniform(0, 0.05 * (attempt + 1)))
    raise AssertionError("not reached")


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


def check_there(place: str) -> None:
    """Is there a journal, if that is what the place names?

    Raises:
        JournalError: no.
    """
    if not is_remote(place):
        reader_of(place).close()


def reader_of(place: str) -> Reader:
    """The journal at a place, open for reading."""
    return open_reader(journal_path(place, "--url"))
