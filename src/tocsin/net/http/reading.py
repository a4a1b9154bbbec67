"""`GET /events`: a range of the journal, as Arrow or as JSON lines.

    blocks ─ statistics: may anything in it be wanted? ─▶ gathered ─ sieve ─▶ columns | lines ─▶ pieces ─▶ socket

Blocks are read and written by other threads, one chunk at a time, and only as the client takes them: memory is bounded,
and the node's loop is free. Events are not made unless the filter or the form asks for them.

Promised: exactly the wanted events of the range, in order. Columns are those of the Spark source, or (`raw`) those of
the journal, which cost the node least: Spark makes its own of them. What cannot be read any more (it was trimmed
meanwhile, or is damaged) ends the connection before its end, so that nobody takes a part for the whole.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import pyarrow as pa
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from tocsin.errors import OverloadError, ProtocolError, TocsinError
from tocsin.filters.filter import Filter
from tocsin.journal import rows
from tocsin.journal.columns import SOURCE_ARROW, Columns
from tocsin.journal.contract import Journal
from tocsin.journal.gather import Gathering, sized
from tocsin.journal.segments import between
from tocsin.journal.sieve import Report, Sieve, Sieves
from tocsin.model import MAX_INT
from tocsin.net.http.answers import Refused, as_json, bare
from tocsin.net.http.contract import ARROW, LINES, Ask
from tocsin.net.http.ranges import Range, edge, resolve, visible
from tocsin.net.http.wire import left, wire_of
from tocsin.node.through import seen_through

__all__ = ["read"]

_ROWS: Final = {ARROW: 8_192, LINES: 512}
_BYTES: Final = 4 << 20
"""The most of one chunk: a few milliseconds of work, and what a client that does not read costs."""
_PIECE: Final = 128 * 1024  # bytes given to the socket at a time, each of which may take `stuck` seconds
_WAIT: Final = 30.0  # seconds for a turn
_log = logging.getLogger("tocsin.net")


async def read(ask: Ask) -> Response:
    """Send a range of the journal; to HEAD, only which range it would be."""
    ask.caller.spend_call()
    scope = visible(ask.caller)
    form = _form(ask.request.headers.get("accept", "*/*"))
    shape = _Shape.asked(ask.query, form)
    journal = ask.front.server.node.journal
    query = ask.query
    wanted = Filter(query["filter"], limits=ask.caller.filter_limits) if "filter" in query else None
    sieves = Sieves(
        Sieve(wanted, system=query.get("system", False)),
        Sieve(scope, system=True) if scope is not None else None,
    )
    begin, end = (edge(query[name], name) if name in query else None for name in ("from", "to"))
    span = await asyncio.to_thread(resolve, journal, begin, end)
    headers = _told(span)
    if ask.request.method == "HEAD":
        return bare(headers, form)
    names = {*shape.needs, *sieves.columns} if form == ARROW else None
    batches = _limited(
        _batches(journal, span.first, span.last, sieves, names, _ROWS[form]), query.get("limit", MAX_INT)
    )
    return await _Download.begun(ask, _arrow(batches, shape) if form == ARROW else _lines(batches), headers, form)


class _Shape:
    """Which columns an Arrow stream has, and how they look."""

    def __init__(self, names: list[str] | None, *, raw: bool) -> None:
        kept = rows.wanted(names)
        source = rows.SCHEMA if raw else SOURCE_ARROW
        self.schema = pa.schema([source.field(name) for name in kept])
        columns = None if raw else Columns(self.schema)
        self.needs = tuple(kept) if columns is None else columns.needs
        self._columns = columns

    def of(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """A batch of the journal in this shape."""
        return batch.select(self.schema.names) if self._columns is None else self._columns.of_journal(batch)

    @classmethod
    def asked(cls, query: Mapping[str, Any], form: str) -> _Shape:
        """The shape that a query asks for."""
        if form != ARROW and (said := query.keys() & {"columns", "raw"}):
            raise ProtocolError("lines have no columns", field=min(said), help=f"accept {ARROW}, or leave it out")
        names = [each.strip() for each in query["columns"].split(",")] if "columns" in query else None
        for name in names or ():
            if name not in rows.SCHEMA.names:
                help = f"there are {', '.join(rows.SCHEMA.names)}"
                raise ProtocolError(f"there is no column {name[:64]!r}", field="columns", help=help)
        return cls(names, raw=query.get("raw", False))


def _form(accept: str) -> str:
    """The form that is wanted: the first of those named that we have; JSON lines if any will do."""
    for each in accept.split(","):
        name = each.partition(";")[0].strip().lower()
        if name in (ARROW, LINES):
            return name
        if name in ("*/*", "application/*", ""):
            return LINES
    error = ProtocolError(f"{accept[:64]!r} is not to be had", field="accept", help=f"accept {ARROW} or {LINES}")
    raise Refused(406, error)


def _told(span: Range) -> dict[str, str]:
    """What headers say of a range."""
    told = {"first": span.kept, "head": span.head, "from": span.first, "to": span.last}
    return {f"Tocsin-{name.title()}": str(value) for name, value in told.items()}


def _batches(
    journal: Journal, first: int, last: int, sieves: Sieves, names: set[str] | None, most: int
) -> Iterator[pa.RecordBatch]:
    """The wanted rows, as the journal has them, up to `most` together."""
    report, gathering = Report(), Gathering(names)

    def gathered() -> Iterator[pa.RecordBatch]:
        for block in journal.blocks(first, last) if first <= last else ():
            if sieves.may_match(block.statistics):
                yield from gathering.add(block)
        yield from gathering.rest()

    for batch in sized((between(each, first, last) for each in gathered()), most, _BYTES):
        found = sieves.passed(batch, report)
        if found.num_rows:
            yield found


def _limited(batches: Iterator[pa.RecordBatch], most: int) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        if batch.num_rows >= most:
            yield batch.slice(0, most)
            return
        most -= batch.num_rows
        yield batch


def _arrow(batches: Iterator[pa.RecordBatch], shape: _Shape) -> Iterator[bytes]:
    """An IPC stream: the schema first, also if there is nothing else."""
    sink = _Sink()
    with pa.ipc.new_stream(pa.PythonFile(sink, "w"), shape.schema) as writer:
        for batch in batches:
            writer.write_batch(shape.of(batch))
            yield sink.taken()
    yield sink.taken()


def _lines(batches: Iterator[pa.RecordBatch]) -> Iterator[bytes]:
    for batch in batches:
        yield b"".join(part for event in rows.from_arrow(batch) for part in (as_json(event), b"\n"))


class _Sink:
    """A file that gives back what was written to it."""

    closed = False

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def write(self, data: Any) -> int:
        self._parts.append(bytes(data))
        return len(self._parts[-1])

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass

    def taken(self) -> bytes:
        parts, self._parts = self._parts, []
        return b"".join(parts)


class _Download(Response):
    """A body that is made while it is sent."""

    def __init__(self, ask: Ask, chunks: Iterator[bytes], close: Callable[[], None], headers: Any, form: str) -> None:
        super().__init__(None, 200, headers, form)
        del self.headers["content-length"]
        self._ask, self._chunks, self._close = ask, chunks, close

    @classmethod
    async def begun(cls, ask: Ask, chunks: Iterator[bytes], headers: Any, form: str) -> _Download:
        """Read the first chunk before anything is said: what cannot be read at all is an answer of its own.

        Raises:
            OverloadError: too many read already.
        """
        reads = ask.front.reads
        try:
            async with asyncio.timeout(_WAIT):
                await reads.acquire()
        except TimeoutError:
            raise OverloadError("too many read from this node", help="try again") from None
        close: Callable[[], None] = chunks.close  # type: ignore[attr-defined]
        try:
            first = await seen_through(asyncio.to_thread(next, chunks, b""))
        except BaseException:
            reads.release()
            raise
        return cls(ask, itertools.chain([first], chunks), close, headers, form)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        wire, leaving = wire_of(scope), asyncio.ensure_future(left(receive))
        self._ask.caller.watch(lambda _: leaving.cancel())
        try:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            while (chunk := await seen_through(asyncio.to_thread(next, self._chunks, None))) is not None:
                for start in range(0, len(chunk), _PIECE):
                    piece = chunk[start : start + _PIECE]
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
                if leaving.done() or wire.lost:
                    wire.abort()
                    return
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        except TocsinError as error:
            _log.warning("a part of the journal cannot be sent: %s", error)
            wire.abort()
        finally:
            leaving.cancel()
            self._ask.front.reads.release()
            await seen_through(asyncio.to_thread(self._close))
