"""`POST /events`: CloudEvents in binary, structured and batch mode. Answered when they are durable; all or none."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from typing import Any, Final

import msgspec
from starlette.responses import Response

from tocsin import cloudevents
from tocsin.errors import EventError, ProtocolError
from tocsin.model import Event
from tocsin.net.http.answers import Refused, reply
from tocsin.net.http.contract import Ask

__all__ = ["publish"]

_LARGE: Final = 64 * 1024  # bytes from which on another thread reads them: the node has other things to do


async def publish(ask: Ask) -> Response:
    """Store what is in the body."""
    limits, headers = ask.front.limits, ask.request.headers
    mode = headers.get("content-type", "").partition(";")[0].strip().lower()
    is_binary = any(name.startswith("ce-") for name in headers) and mode not in (
        cloudevents.STRUCTURED,
        cloudevents.BATCH,
    )
    if headers.get("content-encoding", "identity") != "identity":
        raise Refused(415, ProtocolError("the body is compressed", field="content-encoding", help="send it plain"))
    if mode.startswith("application/cloudevents") or not is_binary:
        _check_mode(mode)
    body = await ask.body(limits.max_event if is_binary else limits.max_frame)
    if len(body) < _LARGE:
        found = _read(ask, body)
    else:
        found = await asyncio.to_thread(_read, ask, body)
    events = found if isinstance(found, list) else [found]
    ask.caller.spend(len(events), len(body))
    traces = ask.front.server.node.traces
    with traces.within(headers) if traces is not None else nullcontext():
        published = await ask.bus.publish_many(events)
    answer = [{"id": each.id, "offset": each.offset} for each in published]
    return reply(answer if isinstance(found, list) else answer[0], 202)


def _check_mode(mode: str) -> None:
    if mode not in (cloudevents.STRUCTURED, cloudevents.BATCH):
        known = f"{cloudevents.STRUCTURED}, {cloudevents.BATCH}, or headers ce-id, ce-source, ce-type, ce-specversion"
        raise Refused(415, ProtocolError(f"{mode[:64]!r} is no CloudEvent", field="content-type", help=f"use {known}"))


def _read(ask: Ask, body: bytes) -> Event | list[Event]:
    try:
        found = cloudevents.from_http(ask.request.headers.items(), body)
    except RecursionError:
        raise EventError("this is nested too deeply", help="nest less") from None
    largest = ask.front.limits.max_event
    for place, event in enumerate(found if isinstance(found, list) else [found]):
        if len(body) > largest and (size := _size(event)) > largest:
            name = f"[{place}].data" if isinstance(found, list) else "data"
            error = EventError(f"{name} has {size:,} bytes", field=name, help=f"at most {largest:,} for one event")
            raise Refused(413, error)
        # A place in the journal that an event claims is passed over.
        msgspec.structs.force_setattr(event, "offset", None)
        msgspec.structs.force_setattr(event, "arrived", None)
    return found


def _size(event: Event) -> int:
    """Bytes of a payload as the journal keeps it."""
    data: Any = event.data
    if data is None or isinstance(data, bytes):
        return len(data or b"")
    is_text = isinstance(data, str) and event.datacontenttype is not None
    return len(data.encode() if is_text else cloudevents.encode_json(data, "data"))
