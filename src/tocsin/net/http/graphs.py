"""Composite events for the eye: the graph of a definition, what waits in it now, and why an event is there.

    GET /definitions/{name}/graph       drawn with what each operation holds
    GET /definitions/{name}/waiting     what is half detected
    GET /events/{id}/explanation        why a composite event was detected

State is looked at on the loop, where it is changed, and only as much as is shown; drawing and explaining, which take
long, are done by other threads.

Promised: with a token one sees what is made of definitions one may read, and of events one may see. What a definition
on Spark has half detected is inside Spark, and not known here.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

import msgspec
from starlette.responses import Response

from tocsin.composite.detector import SOURCE, Detector
from tocsin.composite.drawing import FORMATS, draw
from tocsin.composite.explain import ExplainedPart, Explanation, Step
from tocsin.composite.waiting import Waiting
from tocsin.errors import DefinitionError, ForbiddenError, UnknownEventError
from tocsin.journal.survey import events_at
from tocsin.net.http.answers import Refused, as_json, reply
from tocsin.net.http.contract import Ask
from tocsin.node.definitions import DefinitionInfo
from tocsin.node.placement import NODE

__all__ = ["DRAWINGS", "explanation", "graph", "waiting"]

DRAWINGS: Final = dict(
    zip(FORMATS, ("text/plain; charset=utf-8", "text/vnd.graphviz; charset=utf-8", "image/svg+xml"), strict=True)
)
"""Content types by format."""
_SAFE: Final = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'",
    "X-Content-Type-Options": "nosniff",
}
_WAITING: Final = 50  # shown if nobody says how many
_PARTS: Final = 200  # of an explanation; the text has fewer
_CHECKED: Final = 1_000  # events that are looked at for who may not see all


async def graph(ask: Ask) -> Response:
    """Draw a definition and all it is made of."""
    _, detector, is_live = await _found(ask)
    form, name = ask.query.get("format", "svg"), ask.path("name")
    figures = detector.figures() if is_live else None
    drawn = await asyncio.to_thread(draw, detector.graph, form, [name], figures)
    return Response(drawn, 200, _SAFE, DRAWINGS[form])


async def waiting(ask: Ask) -> Response:
    """What a definition has half detected."""
    info, detector, is_live = await _found(ask)
    found = detector.waiting(info.name, ask.query.get("limit", _WAITING)) if is_live else []
    if ask.caller.scope is not None:
        found = await _visible(ask, found)
    told = {"placement": info.placement, "known": is_live, "waiting": found, "total": info.open}
    return reply(told, headers={"Cache-Control": "no-store"})


async def _found(ask: Ask) -> tuple[DefinitionInfo, Detector, bool]:
    """A definition, a detector that has it, and whether that is the one at work.

    Raises:
        DefinitionError: there is none of this name, or the caller may not read it.
    """
    name = ask.path("name")
    readable = {each.name: each for each in await ask.bus.definitions()}
    if name not in readable:
        missing = DefinitionError(f"there is no definition {name[:200]!r}", field="name", help="see /definitions")
        raise Refused(404, missing)
    watcher = ask.front.server.node.watcher
    whole, at_work = watcher.placements.whole, watcher.detector
    if any(each.name not in readable for each in whole.family(name)):
        error = ForbiddenError(f"{name} is made of definitions that you may not see", help="see /definitions")
        raise ask.caller.refused(error, "scope")
    is_live = at_work is not None and readable[name].placement == NODE
    return readable[name], at_work if at_work is not None and is_live else whole, is_live


async def _visible(ask: Ask, found: list[Waiting]) -> list[Waiting]:
    """Those of which the caller may see every event: keys tell what is in them."""
    offsets = sorted({offset for each in found for offset in each.offsets})[:_CHECKED]
    journal = ask.front.server.node.journal
    events = await asyncio.to_thread(lambda: list(events_at(journal, offsets)))
    seen = {event.offset for event in events if ask.caller.sees(event)}
    return [each for each in found if seen.issuperset(each.offsets)]


async def explanation(ask: Ask) -> Response:
    """Why a composite event is there."""
    id = ask.path("id")
    if ask.query.get("source", SOURCE) != SOURCE:
        raise UnknownEventError(f"composite events come from {SOURCE}", field="id", help="leave source out")
    found: Explanation = await ask.bus.explain(id)
    return Response(await asyncio.to_thread(_explained, found), 200, media_type="application/json")


def _explained(found: Explanation) -> bytes:
    made = found.definition
    return msgspec.json.encode(
        {
            "text": found.text,
            "name": made.name,
            "definition": made.text,
            "where": made.where,
            "context": made.context,
            "semantics": made.semantics,
            "rule": found.rule,
            "key": found.key,
            "time": found.time,
            "missing": found.missing,
            "certain": found.certain,
            "span": _seconds(found.span),
            "within": _seconds(found.within),
            "completed_by": None if found.completed_by is None else _part(found.completed_by),
            "steps": [_step(each) for each in found.steps[:_PARTS]],
            "parts": [_part(each) for each in found.parts[:_PARTS]],
            "total": len(found.parts),
        }
    )


def _part(part: ExplainedPart) -> dict[str, Any]:
    told = msgspec.structs.asdict(part)
    return {**told, "event": None if part.event is None else msgspec.Raw(as_json(part.event))}


def _step(step: Step) -> dict[str, Any]:
    told = msgspec.structs.asdict(step)
    return {**told, "within": _seconds(step.within), "span": _seconds(step.span)}


def _seconds(duration: Any) -> float | None:
    return None if duration is None else duration.total_seconds()
