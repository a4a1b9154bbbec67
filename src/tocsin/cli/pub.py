"""`tocsin pub`: publishes one event, or a stream of lines.

Lines are read as they come: what is there is one batch, so a slow stream is published line by line and a quick one in
batches. A line that cannot be read ends it; all lines before it are published, and the error says how many.
"""

from __future__ import annotations

import os
import queue
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Annotated, Any, BinaryIO

import typer

from tocsin import cloudevents, sync
from tocsin.cli import given
from tocsin.cli.output import AsJson, examples, progress, show, wants_json
from tocsin.cli.places import Name, Token, Url, ask, place_of, who
from tocsin.errors import EventError, TocsinError
from tocsin.model import Event

__all__ = ["pub", "register"]

BATCH = 500


def register(app: typer.Typer) -> None:
    """Add this verb to the command."""
    app.command(
        epilog=examples(
            """tocsin pub machine.value '{"machine": "m7", "value": 9.2}' --priority 8""",
            "tocsin pub smoke --source hall/2 --priority 10 --ttl 600 --ack client",
            "tocsin pub report @report.xml --content-type application/xml",
            "tail -f values.jsonl | tocsin pub machine.value --lines",
            """tocsin sub "value > 9" --json | tocsin pub --lines --url other:8420""",
        )
    )(pub)


def pub(
    context: typer.Context,
    type: Annotated[
        str | None, typer.Argument(help="What happened, such as machine.value.", show_default=False)
    ] = None,
    data: Annotated[
        str | None, typer.Argument(help="JSON; @file: what is in a file; -: stdin.", show_default=False)
    ] = None,
    source: Annotated[str, typer.Option(help="Who says so; your name if left out.", show_default=False)] = "",
    subject: Annotated[str | None, typer.Option(help="What it is about, within the source.")] = None,
    priority: Annotated[int, typer.Option(help="1 to 10; 10 is delivered first.")] = 5,
    ttl: Annotated[float | None, typer.Option(metavar="SECONDS", help="How long it is of interest.")] = None,
    ack: Annotated[str, typer.Option(help="none, client or receipt: is it to be acknowledged?")] = "none",
    cancel: Annotated[str, typer.Option(help="originator or any: who may cancel it.")] = "originator",
    attribute: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="Something for filters, beside the data; repeatable.")
    ] = None,
    id: Annotated[str | None, typer.Option(help="Unique for the source; fresh if left out.")] = None,
    correlation_id: Annotated[str | None, typer.Option(metavar="ID", help="What this one answers.")] = None,
    classification: Annotated[
        str, typer.Option(help="unclassified, confidential, secret or top-secret.")
    ] = "unclassified",
    destination: Annotated[str | None, typer.Option(help="TAG:x, USER:x or PROFILE:x; several with ;")] = None,
    content_type: Annotated[str | None, typer.Option(metavar="TYPE", help="Of the data; JSON if left out.")] = None,
    lines: Annotated[
        bool,
        typer.Option("--lines", help="Publish every line of stdin: data of a TYPE, or without one whole CloudEvents."),
    ] = False,
    url: Url = "",
    token: Token = "",
    name: Name = "",
    as_json: AsJson = False,
) -> None:
    """Publish an event.

    Says its id and offset when it is on the disk. The same id of the same source again is the same event: it is stored
    once.
    """
    place, me = place_of(url), who(name, token)
    options: dict[str, Any] = {
        "source": source or me or "command-line",
        "subject": subject,
        "priority": priority,
        "ttl": ttl,
        "ack": ack,
        "cancel": cancel,
        "attributes": given.attributes(attribute or ()),
        "correlation_id": correlation_id,
        "classification": classification,
        "destination": destination,
        "datacontenttype": content_type,
    }
    is_json = wants_json(context, as_json)
    if lines:
        if data is not None or id is not None:
            raise typer.BadParameter("every line has its own", param_hint="DATA" if data is not None else "--id")
        stream = _Stream(_reader(type, options))
        with progress("publishing", unit="events", visible=not sys.stdin.isatty()) as stream.told:
            ask(place, stream.publish, token=token, name=me, makes=True)
        show(
            {"events": stream.done, "offset": stream.offset},
            [f"{stream.done:,} events published" + (f", the last at offset {stream.offset:,}" if stream.done else "")],
            is_json,
        )
        if stream.error is not None:
            raise stream.error
        return
    if type is None:
        raise typer.BadParameter("say what happened, such as machine.value", param_hint="TYPE")
    if id is not None:
        options["id"] = id
    event = Event(type, data=given.data(data, content_type), **options)
    stored = ask(place, lambda bus: bus.publish(event), token=token, name=me, makes=True)
    answer = {"id": stored.id, "offset": stored.offset, "type": event.type, "source": event.source}
    show(answer, [f"{event.type} published: id {stored.id}, offset {stored.offset:,}"], is_json)


def _reader(type: str | None, options: dict[str, Any]) -> Callable[[bytes], Event]:
    """Makes an event of a line."""
    if type is None:
        return cloudevents.from_json
    return lambda line: Event(type, data=given.json_value(line.decode("utf-8", "surrogateescape")), **options)


class _Stream:
    """Lines of stdin on their way; goes on where it was if the connection was another's for a moment."""

    def __init__(self, read: Callable[[bytes], Event]) -> None:
        self._read, self._batches = read, _batches()
        self._batch: list[Event] = []
        self._line = 0
        self.done, self.offset = 0, None
        self.error: TocsinError | None = None
        self.told: Callable[[int, int | None], None] | None = None

    done: int
    """Events that are stored."""
    offset: int | None
    """Of the last of them."""

    def publish(self, bus: sync.Bus) -> None:
        """Publish everything up to the end, or the first line that cannot be read (`error`)."""
        while True:
            if self._batch:
                self.offset = bus.publish_many(self._batch)[-1].offset
                self.done += len(self._batch)
                self._batch = []
                if self.told is not None:
                    self.told(self.done, None)
            if self.error is not None:
                return
            lines = next(self._batches, None)
            if lines is None:
                return
            self._take(lines)

    def _take(self, lines: list[bytes]) -> None:
        for line in lines:
            self._line += 1
            if not (text := line.strip()):
                continue
            try:
                self._batch.append(self._read(text))
            except TocsinError as error:
                error.message = f"line {self._line:,} of stdin: {error.message}"
                self.error = error
                return
            except UnicodeError:
                self.error = EventError(f"line {self._line:,} of stdin is not UTF-8", field="data", help="give UTF-8")
                return


def _stdin() -> BinaryIO:
    """Stdin, under a name of our own: Python aborts if at its end a thread still waits for `sys.stdin` itself."""
    try:
        return os.fdopen(sys.stdin.fileno(), "rb", closefd=False)
    except OSError:  # it is none of the system's
        return sys.stdin.buffer


def _batches() -> Iterator[list[bytes]]:
    """Lines of stdin: those that are there, at least one, at most `BATCH`."""
    waiting: queue.Queue[bytes | None] = queue.Queue(4 * BATCH)
    stdin = _stdin()

    def read() -> None:
        for line in stdin:
            waiting.put(line)
        waiting.put(None)

    threading.Thread(target=read, name="tocsin-stdin", daemon=True).start()
    line = waiting.get()
    while line is not None:
        lines = [line]
        while len(lines) < BATCH and not waiting.empty() and (line := waiting.get()) is not None:
            lines.append(line)
        yield lines
        if line is not None:
            line = waiting.get()
