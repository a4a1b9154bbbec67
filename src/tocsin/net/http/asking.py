"""Questions about a filter before anybody subscribes with it.

    GET /filters/check    is it one?
    GET /filters/test     what of the past would it have matched?

Promised: the second counts what may be seen, exactly, as far back as it had time to look (`history.look`).
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
from starlette.responses import Response

from tocsin.filters.filter import Filter
from tocsin.journal import bounds
from tocsin.journal.bounds import Bound, Last, Retained
from tocsin.journal.history import first_of, moment_of, not_expired
from tocsin.journal.sieve import Flags
from tocsin.journal.survey import Survey, events_at
from tocsin.net.http.answers import as_json, reply
from tocsin.net.http.contract import Ask
from tocsin.net.http.history import arrived, look, shown_time
from tocsin.net.http.ranges import visible
from tocsin.node.pipeline import Node

__all__ = ["EXAMPLES", "check", "test"]

EXAMPLES: Final = 20
"""Events that are shown, if nobody says how many."""
_PAST: Final = "1h"
_BYTES: Final = 4 << 20  # of all of them; one may have a megabyte


async def check(ask: Ask) -> Response:
    """Read a filter; what is wrong with it is said as everywhere."""
    ask.caller.spend_call()
    return reply({"filter": str(await _asked(ask))})


async def test(ask: Ask) -> Response:
    """Ask the past: how many events would have matched, when, and the newest of them."""
    ask.caller.spend_call()
    scope, wanted = visible(ask.caller), await _asked(ask)
    bound, node = bounds.parse(ask.query.get("past", _PAST)), ask.front.server.node
    now, head = node.now(), node.head
    most = ask.query.get("limit", EXAMPLES)
    enough = bound.n if isinstance(bound, Last) else None
    alive = _Alive(node, now) if isinstance(bound, Retained) else None
    survey = Survey(wanted, scope, examples=most, enough=enough, alive=alive)
    first = max(await asyncio.to_thread(first_of, node.journal, bound, now), node.journal.first)
    await look(ask, survey, first, head)
    examples, since = await asyncio.to_thread(_found, node, survey, bound, now)
    return reply(
        {
            "filter": str(wanted),
            "matched": survey.matched,
            "looked": survey.seen,
            "from": shown_time(since),
            "to": shown_time(now),
            "first": shown_time(survey.oldest),
            "last": shown_time(survey.newest),
            "examples": examples,
            "complete": survey.complete,
        }
    )


async def _asked(ask: Ask) -> Filter:
    """The filter that a query names; a long one takes milliseconds to read."""
    return await asyncio.to_thread(Filter, ask.query["filter"], limits=ask.caller.filter_limits)


class _Alive:
    """Which events of a batch have neither expired nor been cancelled."""

    def __init__(self, node: Node, now: int) -> None:
        self._now, self._cancelled = now, np.array(sorted(node.cancelled), np.int64)

    def __call__(self, batch: pa.RecordBatch) -> Flags:
        gone = np.isin(batch.column("offset").to_numpy(), self._cancelled)
        return not_expired(batch, self._now) & ~gone


def _found(node: Node, survey: Survey, bound: Bound, now: int) -> tuple[list[Any], int | None]:
    """The newest that match, and since when was looked."""
    examples, size = list[Any](), 0
    for event in events_at(node.journal, survey.examples):
        text = as_json(event)
        size += len(text)
        if examples and size > _BYTES:
            break
        examples.append(msgspec.Raw(text))
    moment = moment_of(bound, now)
    if moment is None or not survey.complete or isinstance(bound, Last) and survey.matched == bound.n:
        moment = arrived(node.journal, survey.first)
    return examples, moment
