"""What a node says of itself: a page, its health, its figures, and the description of all this."""

from __future__ import annotations

import functools
from typing import Any, Final

import msgspec
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from starlette.responses import HTMLResponse, Response

from tocsin.net.http.answers import reply
from tocsin.net.http.contract import JSON, Ask
from tocsin.net.metrics import exposition

__all__ = ["health", "metrics", "openapi", "page", "pipeline"]

_PAGE: Final = """<!doctype html>
<meta charset="utf-8"><title>Tocsin</title>
<h1>Tocsin</h1>
<p>An event notification node. Its newest event has offset {head}.</p>
<ul>
<li><a href="/openapi.json">/openapi.json</a> every route, for programs
<li><a href="/events?limit=20">/events</a> what has happened
<li><a href="/alerts">/alerts</a>, <a href="/consumers">/consumers</a>, <a href="/definitions">/definitions</a>
<li><a href="/metrics">/metrics</a>, <a href="/health">/health</a>
</ul>
<p>docs/HTTP.md explains the routes, docs/CLIENTS.md has clients to begin with.</p>
"""


async def page(ask: Ask) -> Response:
    """Where to go from here."""
    return HTMLResponse(_PAGE.format(head=ask.front.server.node.head))


async def health(ask: Ask) -> Response:
    """Is it well? 200, or 503 while it drains."""
    server = ask.front.server
    is_well = not server.draining and not server.node.closed
    about: dict[str, Any] = {"status": "ok" if is_well else "draining"}
    if not server.gate.is_guarded:  # how much happens here is nothing for strangers
        about |= {"head": server.node.head, "sessions": len(server.sessions)}
    return reply(about, 200 if is_well else 503)


async def metrics(ask: Ask) -> Response:
    """Figures for Prometheus."""
    ask.caller.check("metrics")
    return Response(await exposition(ask.front), 200, media_type=CONTENT_TYPE_LATEST)


async def pipeline(ask: Ask) -> Response:
    """How the Spark pipeline is."""
    ask.caller.check("metrics")
    supervisor = ask.front.server.pipeline
    return reply({"state": "none"} if supervisor is None else supervisor.status())


async def openapi(ask: Ask) -> Response:
    """Every route, for programs."""
    return Response(_described(), 200, media_type=JSON)


@functools.cache
def _described() -> bytes:
    from tocsin.net.http.openapi import describe
    from tocsin.net.http.table import OPERATIONS  # the table names this function

    description: dict[str, Any] = describe(OPERATIONS)
    return msgspec.json.encode(description)
