"""`tocsin req`: asks who serves a resource."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer

from tocsin.cli import given
from tocsin.cli.output import AsJson, examples, show, wants_json
from tocsin.cli.places import Token, Url, ask, place_of

__all__ = ["register", "req"]


def register(app: typer.Typer) -> None:
    """Add this verb to the command."""
    app.command(
        epilog=examples(
            """tocsin req params/m7 '{"limit": 9.1}' --timeout 2""", "tocsin req who/is/there --policy all --json"
        )
    )(req)


def req(
    context: typer.Context,
    resource: Annotated[str, typer.Argument(help="What is asked, such as params/m7.", show_default=False)],
    data: Annotated[
        str | None, typer.Argument(help="JSON; @file: what is in a file; -: stdin.", show_default=False)
    ] = None,
    timeout: Annotated[float, typer.Option(metavar="SECONDS", help="How long to wait for the answer.")] = 5.0,
    policy: Annotated[
        str, typer.Option(help="one: one server; first: the first reply of all; all: every reply.")
    ] = "one",
    url: Url = "",
    token: Token = "",
    as_json: AsJson = False,
) -> None:
    """Ask who serves a resource, and print the reply.

    The reply is the JSON that the server gave; nobody serves it: exit code 1.
    """
    value = given.data(data, None)
    reply = ask(place_of(url), lambda bus: bus.request(resource, value, timeout=timeout, policy=policy), token=token)
    text = msgspec.json.format(msgspec.json.encode(reply), indent=2).decode()
    show({"reply": reply}, [text], wants_json(context, as_json))
