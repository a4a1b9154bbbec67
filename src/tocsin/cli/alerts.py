"""`tocsin alerts`, `status`, `cancel`, `consumers`: what became of events, and who listens."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Annotated, Any

import msgspec
import typer
from rich.text import Text

from tocsin import cloudevents
from tocsin.cli.output import AsJson, examples, plain, show, show_table, wants_json
from tocsin.cli.places import Name, Token, Url, ask, place_of, who
from tocsin.cli.shown import age, moment, priority_style
from tocsin.delivery.board import Alert, ConsumerInfo

__all__ = ["alerts", "cancel", "consumers", "forget", "register", "status"]

Id = Annotated[str, typer.Argument(help="The id of the event.", show_default=False)]
Source = Annotated[str | None, typer.Option(help="Its source, if several use the id.")]


def register(app: typer.Typer) -> None:
    """Add these verbs to the command."""
    app.command(epilog=examples("tocsin alerts", "tocsin alerts --json | jq -r '.alerts[].event.id'"))(alerts)
    app.command(epilog=examples("tocsin status 5d0c6a3f8e1b4c2f9a7d-1", "tocsin status fire-1 --audit"))(status)
    app.command(epilog=examples("tocsin cancel 5d0c6a3f8e1b4c2f9a7d-1", "tocsin cancel fire-1 --source hall/2"))(cancel)
    group = typer.Typer(invoke_without_command=True, epilog=examples("tocsin consumers", "tocsin consumers forget ops"))
    group.callback()(consumers)
    group.command(epilog=examples("tocsin consumers forget ops"))(forget)
    app.add_typer(group, name="consumers")


def alerts(context: typer.Context, url: Url = "", token: Token = "", as_json: AsJson = False) -> None:
    """Show live alerts, and who has acknowledged them.

    An alert is an event with a time to live, or that is to be acknowledged.
    """
    found = ask(place_of(url), lambda bus: bus.alerts(), token=token)
    now = datetime.now(UTC)
    show_table(
        {"alerts": [_as_dict(each, now) for each in found]},
        ("#pri", "type", "source", "#age", "#left", "acked by", "waits for", "=id"),
        [_row(each, now) for each in found],
        wants_json(context, as_json),
        empty="there are no live alerts",
    )


def _times(alert: Alert, now: datetime) -> tuple[float, float | None]:
    """Seconds since it arrived, and seconds left."""
    event = alert.event
    old = (now - event.arrived).total_seconds() if event.arrived is not None else 0.0
    return old, event.ttl - old if event.ttl is not None else None


def _as_dict(alert: Alert, now: datetime) -> dict[str, Any]:
    old, left = _times(alert, now)
    return {
        "event": msgspec.Raw(cloudevents.to_json(alert.event)),
        "offset": alert.event.offset,
        "age": round(old, 3),
        "left": round(left, 3) if left is not None else None,
        "acked": alert.acked,
        "pending": alert.pending,
    }


def _row(alert: Alert, now: datetime) -> list[str | Text]:
    event, (old, left) = alert.event, _times(alert, now)
    return [
        Text(str(event.priority), priority_style(event.priority)),
        plain(event.type),
        plain(event.source),
        age(old),
        "-" if left is None else age(left),
        _names(alert.acked),
        _names(alert.pending),
        plain(event.id),
    ]


def _names(names: Iterable[str]) -> str:
    return plain(", ".join(names)) or "-"


def status(
    context: typer.Context,
    id: Id,
    source: Source = None,
    audit: Annotated[bool, typer.Option("--audit", help="Every step of an alert, too.")] = False,
    url: Url = "",
    token: Token = "",
    as_json: AsJson = False,
) -> None:
    """Say what became of an event.

    It is live, settled, expired or cancelled; and by whom.
    """
    found, steps = ask(
        place_of(url), lambda bus: (bus.status(id, source), bus.audit(id, source) if audit else []), token=token
    )
    lines = [
        f"{plain(found.id)} of {plain(found.source)}, offset {found.offset:,}: {found.state}",
        *(f"  {what + ':':<11}{_names(getattr(found, what))}" for what in ("matched", "delivered", "acked", "pending")),
        *(f"  {moment(step.at)}  {step.step:<10} {plain(step.who)}".rstrip() for step in steps),
    ]
    value = msgspec.to_builtins(found) | ({"audit": msgspec.to_builtins(steps)} if audit else {})
    show(value, lines, wants_json(context, as_json))


def cancel(
    context: typer.Context,
    id: Id,
    source: Source = None,
    url: Url = "",
    token: Token = "",
    name: Name = "",
    as_json: AsJson = False,
) -> None:
    """Withdraw an event.

    Who has not got it does not get it, who has is told. Only who published it may cancel it, unless it says that
    anybody may (`tocsin pub --cancel any`).
    """
    ask(place_of(url), lambda bus: bus.cancel(id, source), token=token, name=who(name, token))
    show({"cancelled": id}, [f"{plain(id)} is cancelled"], wants_json(context, as_json))


def consumers(context: typer.Context, url: Url = "", token: Token = "", as_json: AsJson = False) -> None:
    """Show who listens: to what, and how far behind."""
    if context.invoked_subcommand is not None:
        for given in ("url", "token"):  # it would be passed over, and another node be meant
            if getattr(context.get_parameter_source(given), "name", "") == "COMMANDLINE":
                raise typer.BadParameter(f"give it behind {context.invoked_subcommand}", param_hint=f"--{given}")
        context.find_root().obj = wants_json(context, as_json)
        return
    found = ask(place_of(url), lambda bus: bus.consumers(), token=token)
    show_table(
        {"consumers": [msgspec.to_builtins(each) for each in found]},
        ("=consumer", "is", "#lag", "#in hand", "#settled", "#dead", "listens to"),
        [_listener(each) for each in found],
        wants_json(context, as_json),
        empty="there are no consumers",
    )


def _listener(info: ConsumerInfo) -> list[str | Text]:
    name = info.name if info.group is None else f"{info.name} (group {info.group})"
    state = Text("here", "green") if info.open else Text("away", "yellow")
    if info.halted is not None:
        state = Text("waits for Spark", "yellow")
    return [
        plain(name),
        state,
        f"{info.lag:,}",
        f"{info.in_flight:,}",
        f"{info.settled:,}",
        Text(f"{info.dead:,}", "red" if info.dead else ""),
        plain("; ".join(filter for _, filter in info.subscriptions)) or "-",
    ]


def forget(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="CONSUMER", help="Its name.", show_default=False)],
    url: Url = "",
    token: Token = "",
    as_json: AsJson = False,
) -> None:
    """Drop a consumer, with its place and what it has not settled."""
    ask(place_of(url), lambda bus: bus.forget(name), token=token)
    show({"forgotten": name}, [f"{plain(name)} is forgotten"], wants_json(context, as_json))
