"""`tocsin token`: whom a node lets in. It changes one file in the node's data directory; a running node follows.

The text of a token is shown once, by `add`, and kept nowhere.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from tocsin.cli.output import AsJson, examples, show, show_table, wants_json, warn
from tocsin.cli.up import DATA, Data
from tocsin.clock import as_micros
from tocsin.errors import BoundError, EventError, TokenError
from tocsin.journal.bounds import parse_duration
from tocsin.model import parse_time, time_text
from tocsin.security.limits import Allowance
from tocsin.security.tokens import FILE, Token, TokenStore

__all__ = ["app", "register"]

app = typer.Typer(
    name="token",
    help="Whom a node lets in, and what they may.\n\nSee docs/SECURITY.md.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    epilog=examples("tocsin token add line-7 --right publish:machine."),
)


def register(root: typer.Typer) -> None:
    """Add these verbs to the command."""
    root.add_typer(app, name="token")


@app.command(
    "add",
    epilog=examples(
        "tocsin token add line-7 --right publish:machine. --expires 90d",
        "tocsin token add ops --right 'subscribe:*' --right request:params/ --clearance confidential",
        "tocsin token add boss --right admin --clearance top-secret --json | jq -r .token",
    ),
)
def add(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="Whose it is: who publishes, cancels and gets receipts.")],
    rights: Annotated[
        list[str],
        typer.Option(
            "--right",
            metavar="RIGHT",
            show_default=False,
            help="publish:, subscribe:, define:, serve:, request: or join: with a prefix or *; metrics; admin. "
            "May be repeated.",
        ),
    ],
    clearance: Annotated[str, typer.Option(help="The highest classification it may see.")] = "unclassified",
    expires: Annotated[
        str | None, typer.Option(metavar="WHEN", help="A duration from now, as 30d, or a time. Else it does not.")
    ] = None,
    rate: Annotated[float | None, typer.Option(help="Events a second it may publish.")] = None,
    byte_rate: Annotated[float | None, typer.Option(help="Bytes a second it may publish.")] = None,
    calls: Annotated[float | None, typer.Option(help="Other verbs a second.")] = None,
    connections: Annotated[int | None, typer.Option(help="Connections at a time.")] = None,
    subscriptions: Annotated[int | None, typer.Option(help="Subscriptions open at a time.")] = None,
    event_size: Annotated[int | None, typer.Option(help="Bytes in an event's payload.")] = None,
    predicates: Annotated[int | None, typer.Option(help="Tests in a filter.")] = None,
    data: Data = Path(DATA),
    as_json: AsJson = False,
) -> int:
    """Make a token, and show it: once, for it is kept nowhere.

    From the first token on, a node needs one of everybody, on loopback too.
    """
    now = datetime.now(UTC)
    given = {
        "events": rate,
        "bytes": byte_rate,
        "calls": calls,
        "connections": connections,
        "subscriptions": subscriptions,
        "event_size": event_size,
        "predicates": predicates,
    }
    limits = Allowance(**{each: value for each, value in given.items() if value is not None})  # type: ignore[arg-type]
    data.mkdir(mode=0o700, parents=True, exist_ok=True)
    store = _store(data)
    is_first = not store.is_used
    text, token = store.add(name, rights, clearance=clearance, limits=limits, expires=_moment(expires, now), now=now)
    is_json = wants_json(context, as_json)
    show({"token": text, **_about(token, as_micros(now))}, [text], is_json)
    if not is_json:
        warn("keep it now: it is not kept here, and not shown again")
        if is_first:
            warn(f"this is the first: a node on {data} needs a token of everybody from now on")
    return 0


@app.command("list", epilog=examples("tocsin token list", "tocsin token list --data /var/lib/tocsin --json"))
def listed(context: typer.Context, data: Data = Path(DATA), as_json: AsJson = False) -> int:
    """Show all tokens, not their texts: those are kept nowhere."""
    now = as_micros(datetime.now(UTC))
    found = [_about(token, now) for token in _store(data).all()]
    rows = [
        [each["id"], each["name"], each["state"], " ".join(each["rights"]), each["clearance"], each["expires"] or ""]
        for each in found
    ]
    columns = ["=id", "name", "state", "rights", "clearance", "expires"]
    empty = f"There is no token in {data}: a node on it lets in every program of this machine."
    show_table({"tokens": found}, columns, rows, wants_json(context, as_json), empty=empty)
    return 0


@app.command("revoke", epilog=examples("tocsin token revoke line-7", "tocsin token revoke 3f9a0c21b5de"))
def revoke(
    context: typer.Context,
    who: Annotated[str, typer.Argument(help="The id of a token, or a name: all of its tokens.", show_default=False)],
    data: Data = Path(DATA),
    as_json: AsJson = False,
) -> int:
    """Let a token not hold any more. Who is connected with it is shown out within a second."""
    now = datetime.now(UTC)
    found = _store(data).revoke(who, now=now)
    lines = [f"revoked: {each.id} of {each.name}" for each in found] or [f"{who} was revoked before"]
    show({"revoked": [_about(each, as_micros(now)) for each in found]}, lines, wants_json(context, as_json))
    return 0


def _store(data: Path) -> TokenStore:
    return TokenStore(data / FILE)


def _moment(text: str | None, now: datetime) -> datetime | None:
    """When a token expires: a duration from now, or a time."""
    if text is None:
        return None
    try:
        return now + parse_duration(text)
    except (BoundError, OverflowError):
        pass
    try:
        return parse_time(text, "expires")
    except EventError:
        raise TokenError(
            f"{text[:80]!r} is neither a duration nor a time",
            field="expires",
            help="give 30d, 12h, or 2027-01-31T12:00:00Z",
        ) from None


def _about(token: Token, now: int) -> dict[str, Any]:
    return {
        "id": token.id,
        "name": token.name,
        "state": token.state(now),
        "rights": token.rights,
        "clearance": token.clearance,
        "limits": {name: value for name, value in msgspec.structs.asdict(token.limits).items() if value is not None},
        "created": time_text(token.created),
        "expires": time_text(token.expires) if token.expires is not None else None,
        "revoked": time_text(token.revoked) if token.revoked is not None else None,
    }
