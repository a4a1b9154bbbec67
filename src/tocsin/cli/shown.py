"""How an event, a time and a duration look to people.

    12:03:04  8  machine.value  line/7  {"machine":"m7","value":9.2}

Time of arrival here and now (with the date, if that is another), priority, type, source, data. Only on a terminal there
are colours: red from 8 up. What is not printable is escaped, so that nobody's data can take over a terminal.
"""

from __future__ import annotations

from datetime import datetime

import msgspec
from rich.text import Text

from tocsin.cli.output import plain
from tocsin.model import Event

__all__ = ["age", "event_data", "event_line", "event_text", "moment", "priority_style"]

_STYLES = ((10, "bold white on red"), (8, "bold red"), (6, "yellow"), (4, "green"), (1, "dim"))


def priority_style(priority: int) -> str:
    """The colour of a priority."""
    return next(style for least, style in _STYLES if priority >= least)


def moment(at: datetime | None) -> str:
    """A time on this machine's clock; with the date if that is not today."""
    if at is None:
        return "--:--:--"
    local = at.astimezone()
    return local.strftime("%H:%M:%S" if local.date() == datetime.now().date() else "%Y-%m-%d %H:%M:%S")


def age(seconds: float) -> str:
    """A duration in few characters: `12s`, `5m`, `3h`, `2d`."""
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "m")):
        if seconds >= size:
            return f"{int(seconds // size)}{unit}"
    return f"{max(0, int(seconds))}s"


def event_data(event: Event) -> str:
    """The data in one line, as it is; JSON as JSON."""
    data = event.data
    if data is None:
        return ""
    if isinstance(data, bytes):
        return f"({len(data):,} bytes of {event.datacontenttype})"
    return data if isinstance(data, str) and event.datacontenttype else msgspec.json.encode(data).decode()


def event_text(event: Event, notice: bool = False) -> Text:
    """An event in one line, with colours."""
    head = f"{moment(event.arrived or event.time)} "
    if notice:
        about = f"  {event.correlation_id}" if event.correlation_id else ""
        return Text.assemble((head, "dim"), (f" !  {event.type}{plain(about)}  {plain(event_data(event))}", "magenta"))
    parts: list[tuple[str, str]] = [
        (head, "dim"),
        (f"{event.priority:>2}", priority_style(event.priority)),
        (f"  {plain(event.type)}", "bold"),
        (f"  {plain(event.source)}", "cyan"),
    ]
    if event.subject:
        parts.append((f"  {plain(event.subject)}", "cyan"))
    if event.attributes:
        parts.append(("  " + " ".join(f"{k}={plain(str(v))}" for k, v in event.attributes.items()), "dim"))
    parts.append((f"  {plain(event_data(event))}", ""))
    return Text.assemble(*parts)


def event_line(event: Event, notice: bool = False) -> str:
    """The same without colours."""
    return event_text(event, notice).plain.rstrip()
