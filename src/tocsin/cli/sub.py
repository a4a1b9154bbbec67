"""`tocsin sub`: prints events as they come.

Every event is written and flushed before it is settled, so none is lost on the way to whoever reads: one that was
printed but not settled comes again. Ctrl-C ends it with 130; a reader that has gone (`| head -1`) ends it with 0; if
nothing comes for `--timeout` seconds it ends with 0, or with 3 if fewer came than were asked for (one, without
`--count`). If the connection is lost it says so on stderr and waits for the node to come back.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import select
import sys
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any

import typer
from rich.console import Console

from tocsin import client, cloudevents
from tocsin.cli.output import AsJson, examples, wants_json, warn
from tocsin.cli.places import Token, Url, check_there, options_of, place_of, reached
from tocsin.cli.shown import event_data, event_line, event_text
from tocsin.delivery.handles import ClosedError, Delivery
from tocsin.errors import DeliveryError, NetworkError, TocsinError
from tocsin.journal import bounds

__all__ = ["register", "sub"]

TOO_FEW = 3
"""The exit code if less came than was asked for."""
_TOGETHER = 100  # deliveries that are settled together
_PATIENCE = 5  # seconds for settling after Ctrl-C
_LOOK = 0.5  # seconds between looks whether anybody reads


class Format(StrEnum):
    """How an event is written."""

    LINE = "line"
    JSON = "json"
    DATA = "data"


def register(app: typer.Typer) -> None:
    """Add this verb to the command."""
    app.command(
        epilog=examples(
            'tocsin sub "value > 9" --past 10',
            "tocsin sub \"type = 'machine.value' AND machine = 'm7'\" --consumer ops",
            'tocsin sub "priority >= 8" --count 1 --timeout 60 --json | jq .data',
            "tocsin sub TAG:fire --past retained",
        )
    )(sub)


def sub(
    context: typer.Context,
    filter: Annotated[
        str, typer.Argument(help="What to hear of, as SQL; see docs/FILTERS.md. TRUE: everything.", show_default=False)
    ],
    past: Annotated[
        str | None,
        typer.Option(metavar="BOUND", help="What was before: 10, 5m, 10,5m, since:4711, since:TIME, retained."),
    ] = None,
    consumer: Annotated[
        str | None, typer.Option(metavar="NAME", help="Who listens: the same name goes on where it was.")
    ] = None,
    order: Annotated[str | None, typer.Option(help="priority: urgent first (usual); journal: as it happened.")] = None,
    group: Annotated[str | None, typer.Option(metavar="NAME", help="Share events with others of this group.")] = None,
    count: Annotated[int | None, typer.Option(min=1, metavar="N", help="End after so many.")] = None,
    timeout: Annotated[
        float | None, typer.Option(min=0, metavar="SECONDS", help="End after so long without any.")
    ] = None,
    ack: Annotated[bool, typer.Option("--ack/--no-ack", help="Settle what was printed; else it comes again.")] = True,
    system: Annotated[bool, typer.Option("--system", help="The node's own records too.")] = False,
    replay: Annotated[bool, typer.Option("--replay", help="The past again, also what was settled.")] = False,
    format: Annotated[
        Format, typer.Option(help="line: for people; json: CloudEvents, one a line; data: only their data.")
    ] = Format.LINE,
    url: Url = "",
    token: Token = "",
    as_json: AsJson = False,
) -> int:
    """Print events as they come, until Ctrl-C.

    With --consumer the node remembers what was printed, also while nobody listens.
    """
    options = {"order": order, "group": group}
    asked = {
        "filter": filter,
        "consumer": consumer,
        "past": bounds.parse(past) if past is not None else None,
        "replay": replay,
        "system": system,
        **{name: value for name, value in options.items() if value is not None},
    }
    write = _writer(Format.JSON if wants_json(context, as_json) else format)
    place = place_of(url)
    check_there(place)
    quiet = not sys.stderr.isatty() or not sys.stdout.isatty()
    greeting = None if quiet else f"listening at {place}; Ctrl-C ends it"
    _tell_of_losses()
    credentials = options_of(token)
    try:
        return asyncio.run(_listen(_Wish(place, credentials, asked, write, count, timeout, ack, greeting)))
    except BrokenPipeError:  # who reads has enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python complains when it ends
        return 0


class _Told(logging.Handler):
    """Shows what becomes of the connection."""

    def emit(self, record: logging.LogRecord) -> None:
        warn(record.getMessage())


def _tell_of_losses() -> None:
    log = logging.getLogger("tocsin.remote")
    if not any(isinstance(handler, _Told) for handler in log.handlers):
        log.addHandler(_Told(logging.INFO))
        log.setLevel(logging.INFO)


def _writer(format: Format) -> Callable[[Delivery], None]:
    """Writes an event to stdout, and flushes it."""
    console = Console(highlight=False, soft_wrap=True)
    if format is Format.LINE and console.is_terminal:
        return lambda delivery: console.print(event_text(delivery.event, delivery.notice))

    def write(delivery: Delivery) -> None:
        if format is Format.LINE:
            text = event_line(delivery.event, delivery.notice)
        elif format is Format.JSON:
            text = cloudevents.to_json(delivery.event).decode()
        else:
            text = event_data(delivery.event)
        print(text, flush=True)

    return write


@dataclass(frozen=True)
class _Wish:
    """What is wanted, how it is written, and when it is enough."""

    place: str
    credentials: dict[str, Any]
    asked: dict[str, Any]
    write: Callable[[Delivery], None]
    count: int | None
    silence: float | None
    ack: bool
    greeting: str | None


async def _listen(wish: _Wish) -> int:
    """Print until it is enough; returns the exit code."""
    opening, came = client.connect(wish.place, **wish.credentials), 0
    with reached(wish.place):
        bus = await opening.__aenter__()
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_exit(opening.__aexit__)
        subscription = await bus.subscribe(**wish.asked)
        if wish.greeting is not None:
            print(wish.greeting, file=sys.stderr)
        reading = asyncio.create_task(_reader_gone())
        stack.callback(reading.cancel)
        while wish.count is None or came < wish.count:
            try:
                first = await _next(subscription, wish.silence, reading)
            except TimeoutError:
                return 0 if wish.count is None and came else TOO_FEW
            came += await _print(wish, subscription, first, None if wish.count is None else wish.count - came)
    return 0


async def _next(subscription: Any, silence: float | None, reading: asyncio.Task[None]) -> Delivery:
    """Wait for a delivery, or until nobody reads any more."""
    waiting: asyncio.Task[Delivery] = asyncio.create_task(subscription.next(silence))
    try:
        await asyncio.wait([waiting, reading], return_when=asyncio.FIRST_COMPLETED)
        if reading.done():
            raise BrokenPipeError
        return await waiting
    except ClosedError:
        raise _ended(subscription) from None
    finally:
        if not waiting.done():
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)


async def _print(wish: _Wish, subscription: Any, first: Delivery, most: int | None) -> int:
    """Print a delivery and those that are there behind it, then settle them; returns how many events they were."""
    printed: list[Delivery] = []
    came = 0
    delivery: Delivery | None = first
    try:
        while delivery is not None:
            wish.write(delivery)
            printed.append(delivery)
            came += not delivery.notice
            is_enough = len(printed) == _TOGETHER or came == most
            delivery = None if is_enough else subscription.poll()
    finally:
        if wish.ack:
            settling = asyncio.create_task(_settle(printed))
            try:
                await asyncio.shield(settling)
            except asyncio.CancelledError:  # Ctrl-C: what was printed is settled all the same
                await asyncio.wait([settling], timeout=_PATIENCE)
                raise
    return came


async def _settle(printed: list[Delivery]) -> None:
    with contextlib.suppress(DeliveryError):  # taken away meanwhile: it comes again
        await asyncio.gather(*(each.ack() for each in printed))


def _ended(subscription: Any) -> TocsinError:
    """Why a subscription ended that nobody here has closed."""
    error: TocsinError | None = getattr(subscription, "error", None)
    return error or NetworkError("the node has ended the subscription", help="run it again")


async def _reader_gone() -> None:
    """Wait until nobody reads what is written to a pipe; else that would be noticed only with the next event."""
    look = select.poll()
    try:
        look.register(sys.stdout.fileno(), 0)
    except (OSError, ValueError):  # no real file
        await asyncio.Event().wait()
    while True:
        if look.poll(0):
            return
        await asyncio.sleep(_LOOK)
