"""`/batches`: many events stored as one, however many: parts are staged, then all of them are stored or none.

    PUT    /batches/{name}          a batch is open
    PUT    /batches/{name}/{id}     a part: rows, checked one by one, kept as a file; any number, from anywhere
    POST   /batches/{name}          which parts, in which order ─▶ ONE request to the journal ─▶ parts are removed
    DELETE /batches/{name}          parts are removed

Every question may be repeated when its answer was lost: a part replaces itself, and a batch that was stored under a
writer's number is answered from what is stored, though its parts are gone. So may the node, or who asks it, be killed
between any two of them.

Promised: nothing of a part is believed. Each row is made an event and a row again, its type must be one that the caller
may publish, when it is staged and when it is stored; what a token may spend is counted when it is staged.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

import msgspec
from starlette.responses import Response

from tocsin.errors import EventError, ProtocolError, WriterError
from tocsin.journal.blocks import BLOCK_EVENTS
from tocsin.journal.contract import CLIENT
from tocsin.journal.owners import check_known, claim, too_late
from tocsin.journal.packed import PackedEvents
from tocsin.journal.rows import check_size
from tocsin.model import MAX_INT
from tocsin.net.http.answers import Refused, reply
from tocsin.net.http.contract import ROWS, Ask
from tocsin.net.http.staged import About
from tocsin.net.http.verbs import json_body
from tocsin.net.protocol import MSGPACK
from tocsin.node.admission import is_reserved, refused
from tocsin.node.pipeline import Batch

__all__ = ["Commit", "Part", "begin", "discard", "stage", "store"]

_LONGEST: Final = 256  # characters of a writer's name
_OWN: Final = "tocsin/"  # before the names of the node's own writers
_list = msgspec.msgpack.Decoder(list[msgspec.Raw]).decode
_encode_into = msgspec.msgpack.Encoder().encode_into


class Part(msgspec.Struct, forbid_unknown_fields=True):
    """A part as it was answered when it was staged, with its name."""

    id: str
    events: int
    size: int
    checksum: int


class Commit(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The body that stores a batch."""

    parts: list[Part]
    """Those that count, in the order in which they are stored."""
    writer: str | None = None
    """Under whose number it is stored; None: the name of the batch is its number, and must be new."""
    batch: int | None = None
    """The number, from 0 on."""
    query: str | None = None
    """The query that the writer belongs to; None: batch writes."""
    streaming: bool = False
    """Does the query itself write?"""


async def begin(ask: Ask) -> Response:
    """Open a batch."""
    ask.caller.check_any("publish")
    ask.caller.spend_call()
    await asyncio.to_thread(ask.front.staged.begin, ask.caller.who, ask.path("name"))
    return Response(status_code=204)


async def stage(ask: Ask) -> Response:
    """Check a part and keep it."""
    ask.caller.check_any("publish")
    kind = ask.request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != ROWS:
        error = ProtocolError(f"{kind[:64]!r} are no rows", field="content-type", help=f"send {ROWS}; see docs/HTTP.md")
        raise Refused(415, error)
    body = await ask.body(ask.front.limits.max_frame)
    rows = await asyncio.to_thread(_listed, body)
    ask.caller.spend(len(rows), len(body))
    packed, types = await asyncio.to_thread(_checked, ask, rows, ask.front.server.node.now())
    for each in types:
        ask.caller.check("publish", each)
    name = ask.path("name")
    try:
        about = await asyncio.to_thread(
            ask.front.staged.put, ask.caller.who, name, ask.path("id"), packed, len(rows), types
        )
    except FileNotFoundError:
        error = ProtocolError(f"the batch {name[:64]!r} is not open", field="name", help="open it: PUT /batches/{name}")
        raise Refused(409, error) from None
    return reply({"events": about.events, "size": about.size, "checksum": about.checksum}, 201)


def _listed(body: bytes) -> list[msgspec.Raw]:
    count = _count(body)
    if count > BLOCK_EVENTS:  # told before the list is made, since empty rows are many times larger in memory
        raise EventError(f"a part has {count:,} rows", help=f"up to {BLOCK_EVENTS:,} in a part; send more parts")
    try:
        return _list(body)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise EventError(f"this is no list of rows: {str(error)[:200]}", help="see docs/HTTP.md") from None


def _count(body: bytes) -> int:
    """How many rows a list of MessagePack says it has; 0: it is none, or empty."""
    kind = body[0] if body else 0
    if kind & 0xF0 == 0x90:
        return kind & 0x0F
    return int.from_bytes(body[1 : {0xDC: 3, 0xDD: 5}.get(kind, 1)], "big")


def _checked(ask: Ask, parts: Sequence[msgspec.Raw], now: int) -> tuple[bytearray, list[str]]:
    """Rows written anew, and the types in them."""
    found = MSGPACK.read_events(parts)
    largest = min(ask.front.limits.max_event, ask.caller.event_size or MAX_INT)
    packed, types = bytearray(), set[str]()
    ask.caller.bus._session.check_promised(found)
    for event, row in zip(found, found.rows, strict=True):  # type: ignore[attr-defined]
        if is_reserved(event.type, event.source):
            raise refused(event)
        check_size(row.data, row.attributes, largest)
        if row.time is None:
            row.time = now
        types.add(event.type)
        _encode_into(row, packed, -1)
    return packed, sorted(types)


async def store(ask: Ask) -> Response:
    """Store what was staged: all of it, once."""
    ask.caller.check_any("publish")
    wanted: Commit = await json_body(ask, ask.front.limits.max_frame, Commit)
    ask.caller.spend_call()
    name, whose, staged = ask.path("name"), ask.caller.who, ask.front.staged
    if len({part.id for part in wanted.parts}) < len(wanted.parts):
        raise ProtocolError("a part is named twice", field="parts", help="name each once")
    types = await asyncio.to_thread(staged.types, whose, name, [part.id for part in wanted.parts])
    for each in types:
        ask.caller.check("publish", each)
    chunks = [staged.chunk(whose, name, part.id, About(part.events, part.size, part.checksum)) for part in wanted.parts]
    events = PackedEvents(chunks)
    if events.chunks:
        async with ask.front.storing:  # nobody else may claim the writer between the question and the batch
            ask.caller.check_welcome()
            await _store(ask, wanted, events)
    await asyncio.to_thread(staged.clear, whose, name)
    return reply({"events": len(events)})


async def _store(ask: Ask, wanted: Commit, events: PackedEvents) -> None:
    node, caller = ask.front.server.node, ask.caller
    if wanted.writer is None:
        place = f"{CLIENT}batches/{caller.who}/{ask.path('name')}"
        await node.store(events=events, by=caller.name, batch=Batch(place, 1))
        return
    writer, number = _numbered(wanted, caller.who)
    state = await asyncio.to_thread(claim, node.journal, writer, wanted.query, streaming=wanted.streaming)
    try:
        await node.store(events=events, by=caller.name, batch=Batch(writer, number), state={**state})
    except WriterError as error:
        raise too_late(error) from None
    await asyncio.to_thread(check_known, node.journal, writer)


def _numbered(wanted: Commit, who: str) -> tuple[str, int]:
    """The writer's name in the journal, where everybody has names of their own; and the position of the batch."""
    writer, batch = wanted.writer or "", wanted.batch
    if not 0 < len(writer) <= _LONGEST or not writer.isprintable() or writer.startswith((CLIENT, _OWN)):
        help = f"use 1 to {_LONGEST} printable characters, and neither {CLIENT} nor {_OWN} before them"
        raise ProtocolError(f"{writer[:64]!r} is no writer", field="writer", help=help)
    if batch is None or not 0 <= batch < MAX_INT:
        raise ProtocolError(f"batch is {batch}", field="batch", help="number the writer's batches from 0 on")
    return f"{writer}/{who}" if who else writer, batch + 1


async def discard(ask: Ask) -> Response:
    """Drop what was staged."""
    ask.caller.check_any("publish")
    ask.caller.spend_call()
    await asyncio.to_thread(ask.front.staged.clear, ask.caller.who, ask.path("name"))
    return Response(status_code=204)
