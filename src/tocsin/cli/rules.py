"""`tocsin rules`: runs the rules of a file until it is told to stop, by Ctrl-C or SIGTERM.

Of a journal's file it is the node while it runs; a node that is up may be anywhere. What it runs and what fails is
shown at once: as lines, or with --json as one JSON object for each, on stdout. Actions that run when it is told to stop
are waited for; told twice, it does not wait.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from tocsin import client
from tocsin.cli.output import AsJson, examples, show, wants_json, warn
from tocsin.cli.places import Token, Url, options_of, place_of, reached
from tocsin.errors import RuleError
from tocsin.rules import Failure, Rule, Rules, load

__all__ = ["register", "rules"]

Show = Callable[[dict[str, Any], str, bool], None]


def register(app: typer.Typer) -> None:
    """Add this verb to the command."""
    app.command(epilog=examples("tocsin rules rules.toml", "tocsin rules rules.toml --url plant.db"))(rules)


def rules(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(help="Rules in TOML; see docs/RULES.md.", show_default=False)],
    url: Url = "",
    token: Token = "",
    workers: Annotated[int, typer.Option(help="Actions that run at a time.")] = 16,
    max_deliver: Annotated[int, typer.Option(help="Attempts before an event is given up for a rule.")] = 5,
    as_json: AsJson = False,
) -> int:
    """Run the rules of a file until Ctrl-C.

    Each rule goes on where it was; a new one begins with what is published from now on. Failures are shown.
    """
    found = load(file)
    for each in found:
        if each.coupling == "deferred":
            help = "make it immediate or detached; a program can commit, see docs/RULES.md"
            raise RuleError(
                f"{file}: rule {each.name} is deferred, and nobody commits here", field="coupling", help=help
            )
    place, is_json = place_of(url), wants_json(context, as_json)

    def tell(value: dict[str, Any], line: str, is_bad: bool) -> None:
        if is_json or not is_bad:
            show(value, [line], is_json)
        else:
            warn(line)

    log, handler = logging.getLogger("tocsin"), _Shown(tell)
    log.addHandler(handler)
    try:
        with reached(place):
            return asyncio.run(
                _run(
                    client.connect(place, **options_of(token)),
                    found,
                    tell,
                    workers,
                    max_deliver,
                )
            )
    finally:
        log.removeHandler(handler)


async def _run(opening: client.connect, found: list[Rule], tell: Show, workers: int, max_deliver: int) -> int:
    def failed(failure: Failure) -> None:
        value = {
            "failed": failure.rule,
            "event": failure.event.id,
            "source": failure.event.source,
            "type": failure.event.type,
            "attempt": failure.attempt,
            "given_up": failure.attempt >= max_deliver,
            "error": failure.text,
        }
        end = "; given up" if failure.attempt >= max_deliver else ""
        about = f"{failure.event.type} event {failure.event.id}, attempt {failure.attempt}"
        tell(value, f"rule {failure.rule} failed on {about}: {failure.text}{end}", True)

    told, main = asyncio.Event(), asyncio.current_task()

    def stop() -> None:
        if told.is_set() and main is not None:
            main.cancel()
        told.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop)
    try:
        async with opening as bus:
            host = Rules(bus, workers=workers, max_deliver=max_deliver, on_failure=failed)
            for each in found:
                host.add(each)
            for each in found:  # before they begin, and with them what fails
                tell(_as_dict(each), _line(each), False)
            for name in await _forsaken(bus, found):
                text = f"events wait for rule {name}, which is not in the file; bus.forget('rule.{name}') ends that"
                tell({"warning": text}, text, True)
            async with host:
                tell({"running": len(found)}, f"{len(found)} running; Ctrl-C ends them", False)
                await told.wait()
    except asyncio.CancelledError:
        tell({"stopped": False}, "stopped while actions ran; their events come again", True)
        return 1
    tell({"stopped": True}, "stopped", False)
    return 0


async def _forsaken(bus: client.Bus, found: list[Rule]) -> list[str]:
    """Rules that have a place on the node and are not run."""
    names = [info.name.removeprefix("rule.") for info in await bus.consumers() if info.name.startswith("rule.")]
    return sorted(set(names) - {each.name for each in found})


class _Shown(logging.Handler):
    """Shows what is logged; failures of rules are told of otherwise."""

    def __init__(self, tell: Show) -> None:
        super().__init__(logging.WARNING)
        self._tell = tell

    def emit(self, record: logging.LogRecord) -> None:
        if not str(record.msg).startswith("rule %s failed"):
            text = record.getMessage()
            self._tell({"warning": text}, text, True)


def _as_dict(rule: Rule) -> dict[str, Any]:
    when = None if rule.when is None else str(rule.when)
    options = {"priority": rule.priority, "coupling": rule.coupling, "context": rule.context}
    return {"rule": rule.name, "on": rule.on, "when": when, **options, "action": str(rule.action)}


def _line(rule: Rule) -> str:
    when = "" if rule.when is None else f" when {rule.when}"
    return f"{rule.name}: on {rule.on}{when} → {rule.action}"
