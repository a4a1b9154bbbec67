"""Routes that are one verb of the bus each: events by id, alerts, consumers, definitions, requests."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import msgspec
from starlette.responses import Response

from tocsin.clock import as_datetime
from tocsin.delivery.board import Alert
from tocsin.errors import ConsumerError, DefinitionError, ProtocolError
from tocsin.journal import bounds
from tocsin.journal.rows import expires
from tocsin.model import time_text
from tocsin.net.http.answers import Refused, as_json, reply
from tocsin.net.http.bodies import Gone
from tocsin.net.http.contract import JSON, Ask
from tocsin.net.http.wire import left
from tocsin.node.requests import TIMEOUT

__all__ = [
    "Definition",
    "alerts",
    "cancel",
    "consumers",
    "define",
    "definitions",
    "forget",
    "json_body",
    "request",
    "status",
]

_SMALL: Final = 1024 * 1024
"""Bytes of a definition."""
_LARGE: Final = 64 * 1024  # bytes from which on another thread reads them


class Definition(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The body of a definition; its fields are the arguments of `Bus.define`."""

    text: str
    context: str = "recent"
    placement: str = "auto"
    semantics: str = "detection"
    past: str | None = None
    replace: bool = False
    max_open: int | None = None


async def cancel(ask: Ask) -> Response:
    """Withdraw an event."""
    await ask.bus.cancel(ask.path("id"), ask.query.get("source"))
    return Response(status_code=204)


async def status(ask: Ask) -> Response:
    """What became of an event."""
    return reply(await ask.bus.status(ask.path("id"), ask.query.get("source")))


async def alerts(ask: Ask) -> Response:
    """Live alerts."""
    live = await ask.bus._alerts(ask.query.get("limit"))
    body = await asyncio.to_thread(_told, live.alerts)  # there may be thousands
    return Response(body, 200, {"Tocsin-Total": str(live.total)}, JSON)


def _told(alerts: list[Alert]) -> bytes:
    return msgspec.json.encode([_alert(each) for each in alerts])


def _alert(alert: Alert) -> dict[str, Any]:
    end = expires(alert.event)
    return {
        "event": msgspec.Raw(as_json(alert.event)),
        "acked": alert.acked,
        "pending": alert.pending,
        "expires": None if end is None else time_text(as_datetime(end)),
    }


async def consumers(ask: Ask) -> Response:
    """Every consumer."""
    return reply(await ask.bus.consumers())


async def forget(ask: Ask) -> Response:
    """Drop a consumer."""
    try:
        await ask.bus.forget(ask.path("name"))
    except ConsumerError as error:
        raise Refused(404, error) from None
    return Response(status_code=204)


async def definitions(ask: Ask) -> Response:
    """Every definition."""
    return reply(await ask.bus.definitions())


async def define(ask: Ask) -> Response:
    """Define a composite event."""
    name = ask.path("name")
    wanted = await json_body(ask, _SMALL, Definition)
    given = {each: getattr(wanted, each) for each in ("text", "context", "placement", "semantics", "max_open")}
    past = bounds.parse(wanted.past) if wanted.past is not None else None
    try:
        return reply(await ask.bus.define(name, past=past, replace=wanted.replace, **given))
    except DefinitionError as error:
        if error.field == "name" and not wanted.replace and await _is_defined(ask, name):
            raise Refused(409, error) from None
        raise


async def undefine(ask: Ask) -> Response:
    """Remove a definition."""
    name = ask.path("name")
    try:
        await ask.bus.undefine(name)
    except DefinitionError as error:
        raise Refused(409 if await _is_defined(ask, name) else 404, error) from None
    return Response(status_code=204)


async def _is_defined(ask: Ask, name: str) -> bool:
    return any(each.name == name for each in await ask.bus.definitions())


async def request(ask: Ask) -> Response:
    """Ask who serves a resource. Whoever leaves does not want the answer any more."""
    data = await json_body(ask, ask.front.limits.max_event, Any)
    seconds, policy = ask.query.get("timeout", TIMEOUT), ask.query.get("policy", "one")
    asking = asyncio.ensure_future(ask.bus.request(ask.path("resource"), data, timeout=seconds, policy=policy))
    leaving = asyncio.ensure_future(left(ask.request.receive))
    try:
        await asyncio.wait([asking, leaving], return_when=asyncio.FIRST_COMPLETED)
        if not asking.done():
            raise Gone
        ask.caller.check_welcome()
        return reply(asking.result())
    finally:
        for task in (asking, leaving):
            task.cancel()
        await asyncio.gather(asking, leaving, return_exceptions=True)


async def json_body(ask: Ask, largest: int, kind: Any) -> Any:
    """The body as JSON; an empty one is null."""
    body = await ask.body(largest) or b"null"
    if len(body) < _LARGE:
        return _decoded(body, kind)
    return await asyncio.to_thread(_decoded, body, kind)


def _decoded(body: bytes, kind: Any) -> Any:
    try:
        return msgspec.json.decode(body, type=kind)
    except RecursionError:
        raise ProtocolError("the body is nested too deeply", help="nest less") from None
    except (msgspec.MsgspecError, ValueError) as error:
        raise ProtocolError(f"the body is not what it should be: {str(error)[:200]}", help="send JSON") from None
