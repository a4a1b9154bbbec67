"""Looks back over the journal, each bounded in time: `GET /history`, and what `GET /filters/test` rests on.

    range ─▶ a thread, newest first, for `PATIENCE` seconds ─▶ counts; `complete` says whether that was all

At most `LOOKS` of them are under way, so that they take a share of the machine that others hardly notice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import pyarrow as pa
from starlette.responses import Response

from tocsin.clock import SECOND, as_datetime
from tocsin.errors import OverloadError
from tocsin.filters.filter import Filter
from tocsin.journal.contract import Journal
from tocsin.journal.history import kept_blocks
from tocsin.journal.segments import between
from tocsin.journal.survey import Survey, Times
from tocsin.model import time_text
from tocsin.net.http.answers import reply
from tocsin.net.http.contract import Ask
from tocsin.net.http.ranges import Edge, Range, edge, resolve, visible
from tocsin.node.through import seen_through

__all__ = ["BUCKETS", "PATIENCE", "arrived", "history", "look", "shown_time"]

BUCKETS: Final = 120
"""Stretches of time in an answer, if nobody says how many."""
PATIENCE: Final = 2.0
"""Seconds of work, after which it is told what was found by then."""


async def history(ask: Ask) -> Response:
    """How many events came when, and how many of them a filter matches."""
    ask.caller.spend_call()
    scope, query = visible(ask.caller), ask.query
    wanted = None
    if "filter" in query:
        wanted = await asyncio.to_thread(Filter, query["filter"], limits=ask.caller.filter_limits)
    edges = [edge(query[name], name) if name in query else None for name in ("from", "to")]
    node, count = ask.front.server.node, query.get("buckets", BUCKETS)
    span, start, end, oldest = await asyncio.to_thread(_span, node.journal, edges[0], edges[1], node.now())
    width = (max(end - start, 0) + count) // count  # the last moment is within the last stretch
    times = Times(start, width, count)
    survey = Survey(wanted, scope, times=times)
    before = await look(ask, survey, span.first, span.last)
    first = 0 if before is None else times.place(before) + 1  # the first that was looked at to its beginning
    blank = [None] * first
    return reply(
        {
            "from": shown_time(start),
            "to": shown_time(end),
            "seconds": width / SECOND,
            "counts": blank + times.seen[first:].tolist(),
            "matched": None if wanted is None else blank + times.matched[first:].tolist(),
            "complete": survey.complete,
            "first_offset": span.first,
            "last_offset": span.last,
            "oldest": shown_time(oldest),
        }
    )


async def look(ask: Ask, survey: Survey, first: int, last: int) -> int | None:
    """Look back for as long as one may; returns when the newest event came that was not looked at; None: all were.

    Raises:
        OverloadError: too many look back already.
    """
    front = ask.front
    try:
        async with asyncio.timeout(front.turn):
            await front.looks.acquire()
    except TimeoutError:
        raise OverloadError("too many look back over this journal", help="try again") from None
    try:
        return await seen_through(asyncio.to_thread(_looked, survey, front.server.node.journal, first, last, front.now))
    finally:
        front.looks.release()


def _looked(survey: Survey, journal: Journal, first: int, last: int, now: Callable[[], float]) -> int | None:
    due = now() + PATIENCE
    survey.run(journal, first, last, lambda: now() >= due)
    return None if survey.complete else arrived(journal, survey.first - 1)


def _span(journal: Journal, begin: Edge | None, end: Edge | None, now: int) -> tuple[Range, int, int, int | None]:
    """Offsets, the moments they begin and end with, and when the oldest event came."""
    span = resolve(journal, begin, end)
    oldest = arrived(journal, span.kept)
    stop: int | None = now
    if end is not None:
        stop = end.moment if end.moment is not None else arrived(journal, span.last)
    start = begin.moment if begin is not None and begin.moment is not None else arrived(journal, span.first)
    stop = now if stop is None else stop
    return span, stop if start is None else start, stop, oldest


def arrived(journal: Journal, offset: int) -> int | None:
    """When the event at an offset came; None: there is none."""
    if not journal.first <= offset <= journal.head:
        return None
    for block in kept_blocks(journal, offset, offset):
        batch = between(block.batch(("arrived",)), offset, offset)
        if batch.num_rows:
            moment: int = batch.column("arrived").cast(pa.int64())[0].as_py()
            return moment
    return None


def shown_time(moment: int | None) -> str | None:
    """A moment as text."""
    return None if moment is None else time_text(as_datetime(moment))
