"""What a node says of itself: its health, its figures, and the description of all this."""

from __future__ import annotations

import asyncio
import functools
from typing import Any, Final

import msgspec
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from starlette.responses import Response

from tocsin.clock import SECOND
from tocsin.journal.contract import Journal
from tocsin.net.http.answers import reply
from tocsin.net.http.contract import JSON, Ask
from tocsin.net.metrics import exposition, totals

__all__ = ["figures", "health", "metrics", "openapi", "pipeline"]

_LATELY: Final = 10  # seconds over which a rate is taken


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


async def figures(ask: Ask) -> Response:
    """The same few for people: what happens on this node, and what its matcher does."""
    ask.caller.check("metrics")
    node = ask.front.server.node
    stored, lately = await asyncio.to_thread(_of_journal, node.journal, node.now() - _LATELY * SECOND)
    counted, matcher = totals(node), node.lanes.stats()
    about = {
        "head": node.head,
        "oldest_offset": node.journal.first,
        "bytes_on_disk": stored["bytes"],
        "events_per_second": lately / _LATELY,
        "waiting_to_commit": stored["queued"],
        **{name: counted[name] for name in ("published", "delivered", "settled", "redelivered")},
    }
    lanes = {"lanes": len(node.lanes.handles), "on_spark": node.lanes.on_spark, "mailboxes": len(node.mailboxes)}
    return reply({"node": about, "matcher": matcher, **lanes})


def _of_journal(journal: Journal, moment: int) -> tuple[dict[str, Any], int]:
    """Its own figures, and how many events have come since a moment, without a counter on their way."""
    return journal.stats(), journal.head + 1 - journal.offset_at(moment)


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
