"""The table of all routes. Routes, what their queries may say, and the published description are made from it."""

from __future__ import annotations

from typing import Any, Final

from prometheus_client.exposition import CONTENT_TYPE_LATEST

from tocsin import cloudevents
from tocsin.net.http import about, asking, batches, graphs, history, page, peers, publishing, reading, streams, verbs
from tocsin.net.http.contract import ARROW, JSON, LINES, ROWS, SSE, Operation, Param

__all__ = ["OPERATIONS"]

_ANY: Final[dict[str, Any]] = {}
_TEXT: Final = {"type": "string"}
_OBJECT: Final = {"type": "object"}
_LIST: Final = {"type": "array", "items": _OBJECT}
_NAMES: Final = {"type": "array", "items": _TEXT}
_CLOUD: Final = {
    "type": "object",
    "required": ["specversion", "id", "source", "type"],
    "properties": {
        "specversion": {"const": "1.0"},
        "id": {"type": "string", "minLength": 1},
        "source": {"type": "string", "minLength": 1},
        "type": {"type": "string", "minLength": 1},
        "data": _ANY,
    },
}
_STORED: Final = {
    "type": "object",
    "required": ["id", "offset"],
    "properties": {"id": _TEXT, "offset": {"type": "integer", "minimum": 1}},
}
_STATUS: Final = {
    "type": "object",
    "required": ["id", "source", "offset", "state", "matched", "delivered", "acked", "pending"],
    "properties": {
        "state": {"enum": ["live", "settled", "expired", "cancelled"]},
        **dict.fromkeys(("matched", "delivered", "acked", "pending"), _NAMES),
    },
}
_DEFINITION: Final = {
    "type": "object",
    "required": ["text"],
    "additionalProperties": False,
    "properties": {
        "text": _TEXT,
        "context": {"enum": ["recent", "chronicle", "continuous", "cumulative"]},
        "placement": {"enum": ["auto", "node", "spark"]},
        "semantics": {"enum": ["detection", "interval"]},
        "past": {"type": ["string", "null"]},
        "replace": {"type": "boolean"},
        "max_open": {"type": ["integer", "null"], "minimum": 1},
    },
}

_WHOLE: Final = {"type": "integer", "minimum": 0, "maximum": 9223372036854775807}
_PART: Final = {
    "type": "object",
    "required": ["events", "size", "checksum"],
    "properties": dict.fromkeys(("events", "size", "checksum"), _WHOLE),
}
_COMMIT: Final = {
    "type": "object",
    "required": ["parts"],
    "additionalProperties": False,
    "properties": {
        "parts": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["id", "events", "size", "checksum"],
                "additionalProperties": False,
                "properties": {"id": _TEXT, **dict.fromkeys(("events", "size", "checksum"), _WHOLE)},
            },
        },
        "writer": {"type": ["string", "null"]},
        "batch": {"type": ["integer", "null"], "minimum": 0},
        "query": {"type": ["string", "null"]},
        "streaming": {"type": "boolean"},
    },
}

_TESTED: Final = {
    "type": "object",
    "required": ["filter", "matched", "looked", "from", "to", "first", "last", "examples", "complete"],
    "properties": {
        "filter": _TEXT,
        "matched": _WHOLE,
        "looked": _WHOLE,
        "examples": {"type": "array", "items": _CLOUD},
    },
}
_COUNTS: Final = {"type": "array", "items": {"type": ["integer", "null"]}}
_HISTORY: Final = {
    "type": "object",
    "required": ["from", "to", "seconds", "counts", "matched", "complete", "first_offset", "last_offset", "oldest"],
    "properties": {
        "counts": _COUNTS,
        "matched": {"oneOf": [_COUNTS, {"type": "null"}]},
        "complete": {"type": "boolean"},
    },
}

_WAITING: Final = {
    "type": "object",
    "required": ["placement", "known", "waiting", "total"],
    "properties": {"placement": {"enum": ["node", "spark"]}, "known": {"type": "boolean"}, "waiting": _LIST},
}

_SOURCE: Final = Param("source", "The source of the event, if several use its id.")
_SYSTEM: Final = Param("system", "The node's own records, too.", "boolean")
_FILTER: Final = Param("filter", "What is wanted, as SQL: value > 9. Everything if left out.")
_ASKED: Final = Param("filter", "The filter.", needed=True)

OPERATIONS: Final = (
    Operation(
        method="POST",
        path="/events",
        handle=publishing.publish,
        about="Publish CloudEvents: one (binary or structured) or a batch, all or none. Answered when they are stored.",
        takes={cloudevents.STRUCTURED: _CLOUD, cloudevents.BATCH: {"type": "array", "items": _CLOUD}},
        gives={202: {JSON: {"oneOf": [_STORED, {"type": "array", "items": _STORED}]}}},
    ),
    Operation(
        method="GET",
        path="/events",
        handle=reading.read,
        about="A range of the journal. The answer to HEAD says in its headers which range there is.",
        query=(
            Param("from", "The first offset, or a time; the oldest that is kept if left out."),
            Param("to", "The last offset, itself included, or a time; the newest if left out."),
            _FILTER,
            Param("limit", "At most so many events.", "integer", least=1),
            _SYSTEM,
            Param("columns", "Arrow: names of the columns that are wanted, with commas; all if left out."),
            Param("raw", "Arrow: attributes (MessagePack) and data (bytes) as the journal keeps them.", "boolean"),
        ),
        gives={200: {LINES: _TEXT, ARROW: {"type": "string", "contentMediaType": ARROW}}},
    ),
    Operation(
        method="GET",
        path="/subscribe",
        handle=streams.subscribe,
        about="Events as they come (Server-Sent Events); what is written is settled.",
        query=(
            _FILTER,
            Param("consumer", "Who; the same name goes on where it was. Left out, nothing is remembered."),
            Param("past", "What has happened already: 10, 5m, 10,5m, since:123, since:2026-01-31T12:00:00Z, retained."),
            Param("order", "Which comes first.", choices=("priority", "journal")),
            Param("group", "Consumers of one group share the events."),
            Param("durable", "Keep the consumer's place.", "boolean"),
            Param("ack_wait", "Seconds to take an event before it goes to others.", "number"),
            Param("max_in_flight", "Events on their way at a time.", "integer", least=1),
            Param("max_deliver", "Attempts before an event becomes a dead letter.", "integer", least=1),
            Param("fair", "Share kept for lower priorities.", "number"),
            Param("replay", "The past again, also what was settled.", "boolean"),
            _SYSTEM,
            Param("last_event_id", "As the header Last-Event-ID, for who cannot set it."),
        ),
        headers=(Param("Last-Event-ID", "The id of the last event that was seen: goes on behind it."),),
        gives={200: {SSE: _TEXT}},
        tells_token=True,
    ),
    Operation(
        method="GET",
        path="/events/{id:path}/status",
        handle=verbs.status,
        about="What became of an event, and who has it.",
        query=(_SOURCE,),
        gives={200: {JSON: _STATUS}},
    ),
    Operation(
        method="GET",
        path="/events/{id:path}/explanation",
        handle=graphs.explanation,
        about="Why a composite event is there: its parts, the rule, what was used up.",
        query=(_SOURCE,),
        gives={200: {JSON: _OBJECT}},
    ),
    Operation(
        method="DELETE",
        path="/events/{id:path}",
        handle=verbs.cancel,
        about="Withdraw an event: who has not got it does not, who has is told.",
        query=(_SOURCE,),
        gives={204: {}},
    ),
    Operation(
        method="PUT",
        path="/batches/{name}",
        handle=batches.begin,
        about="Open a batch, of which parts may be staged until it is stored or dropped.",
        gives={204: {}},
    ),
    Operation(
        method="PUT",
        path="/batches/{name}/{id}",
        handle=batches.stage,
        about="Stage a part of an open batch: a list of packed rows (MessagePack). The same name again replaces it.",
        takes={ROWS: {"type": "string", "format": "binary"}},
        gives={201: {JSON: _PART}},
    ),
    Operation(
        method="POST",
        path="/batches/{name}",
        handle=batches.store,
        about="Store the staged parts of a batch as one: all or none, and once.",
        takes={JSON: _COMMIT},
        gives={200: {JSON: {"type": "object", "required": ["events"], "properties": {"events": _WHOLE}}}},
    ),
    Operation(
        method="DELETE",
        path="/batches/{name}",
        handle=batches.discard,
        about="Drop what was staged of a batch.",
        gives={204: {}},
    ),
    Operation(
        method="GET",
        path="/alerts",
        handle=verbs.alerts,
        about="Live alerts, and who has acknowledged them. The header Tocsin-Total says how many there are.",
        query=(
            Param(
                "limit",
                "The most urgent only: highest priority, then newest. All, oldest first, if left out.",
                "integer",
                least=1,
            ),
        ),
        gives={200: {JSON: _LIST}},
    ),
    Operation(
        method="GET",
        path="/consumers",
        handle=verbs.consumers,
        about="Consumers: what they listen to, how far behind they are.",
        gives={200: {JSON: _LIST}},
    ),
    Operation(
        method="DELETE",
        path="/consumers/{name:path}",
        handle=verbs.forget,
        about="Drop a consumer with everything it has.",
        gives={204: {}},
    ),
    Operation(
        method="GET",
        path="/definitions",
        handle=verbs.definitions,
        about="Definitions of composite events, and what they have detected.",
        gives={200: {JSON: _LIST}},
    ),
    Operation(
        method="GET",
        path="/definitions/{name:path}/graph",
        handle=graphs.graph,
        about="The graph of a definition, with what each operation holds now.",
        query=(Param("format", "How it is drawn: svg if left out.", choices=tuple(graphs.DRAWINGS)),),
        gives={200: dict.fromkeys(graphs.DRAWINGS.values(), _TEXT)},
    ),
    Operation(
        method="GET",
        path="/definitions/{name:path}/waiting",
        handle=graphs.waiting,
        about="What a definition has half detected, and what that waits for.",
        query=(Param("limit", "At most so many: 50 if left out.", "integer", least=1, most=200),),
        gives={200: {JSON: _WAITING}},
    ),
    Operation(
        method="PUT",
        path="/definitions/{name:path}",
        handle=verbs.define,
        about="Define a composite event. The same again changes nothing.",
        takes={JSON: _DEFINITION},
        gives={200: {JSON: _OBJECT}},
    ),
    Operation(
        method="DELETE",
        path="/definitions/{name:path}",
        handle=verbs.undefine,
        about="Remove a definition.",
        gives={204: {}},
    ),
    Operation(
        method="POST",
        path="/requests/{resource:path}",
        handle=verbs.request,
        about="Ask who serves a resource. The body is the question, the answer is the reply: any JSON.",
        query=(
            Param("timeout", "Seconds to wait; 30 if left out.", "number"),
            Param("policy", "Whom to ask.", choices=("one", "first", "all")),
        ),
        takes={JSON: _ANY},
        needs_body=False,
        gives={200: {JSON: _ANY}},
    ),
    Operation(
        method="GET",
        path="/filters/check",
        handle=asking.check,
        about="Is this a filter? Gives it in its canonical form, or says what is wrong, and where.",
        query=(_ASKED,),
        gives={200: {JSON: {"type": "object", "required": ["filter"], "properties": {"filter": _TEXT}}}},
    ),
    Operation(
        method="GET",
        path="/filters/test",
        handle=asking.test,
        about="Which events of the past would a filter have matched? Newest first, for a few seconds at most.",
        query=(
            _ASKED,
            Param("past", "How far back: 1h if left out; as for /subscribe."),
            Param("limit", "Show so many examples: 20 if left out.", "integer", most=100),
        ),
        gives={200: {JSON: _TESTED}},
    ),
    Operation(
        method="GET",
        path="/history",
        handle=history.history,
        about="How many events came when, and how many of them a filter matches. Newest first, for a few seconds.",
        query=(
            Param("from", "The first offset, or a time; the oldest that is kept if left out."),
            Param("to", "The last offset, itself included, or a time; now if left out."),
            _FILTER,
            Param("buckets", "Into so many equal stretches of time: 120 if left out.", "integer", least=1, most=1_000),
        ),
        gives={200: {JSON: _HISTORY}},
    ),
    Operation(
        method="GET",
        path="/sessions",
        handle=peers.sessions,
        about="Who is connected, and what belongs to them.",
        gives={200: {JSON: _LIST}},
    ),
    Operation(
        method="GET",
        path="/resources",
        handle=peers.resources,
        about="What is advertised and served, and by whom.",
        gives={200: {JSON: _LIST}},
    ),
    Operation(
        method="GET",
        path="/figures",
        handle=about.figures,
        about="Figures for people: the node and its matcher.",
        gives={200: {JSON: _OBJECT}},
    ),
    Operation(
        method="GET",
        path="/metrics",
        handle=about.metrics,
        about="Figures for Prometheus.",
        gives={200: {CONTENT_TYPE_LATEST: _TEXT}},
    ),
    Operation(
        method="GET",
        path="/pipeline",
        handle=about.pipeline,
        about="How the Spark pipeline is: its state, how far behind, what went wrong last.",
        gives={200: {JSON: _OBJECT}},
    ),
    Operation(
        method="GET",
        path="/health",
        handle=about.health,
        about="Is it well? 503 while it drains. Needs no token.",
        gives={200: {JSON: _OBJECT}, 503: {JSON: _OBJECT}},
        is_open=True,
    ),
    Operation(
        method="GET",
        path="/openapi.json",
        handle=about.openapi,
        about="This description.",
        gives={200: {JSON: _OBJECT}},
    ),
    Operation(
        method="GET",
        path="/",
        handle=page.front_page,
        about="The page for people. Needs no token.",
        gives={200: {"text/html; charset=utf-8": _TEXT}, 304: {}},
        is_open=True,
    ),
    Operation(
        method="GET",
        path="/page/{path:path}",
        handle=page.file,
        about="A file of the page. Needs no token.",
        gives={200: {"text/css": _TEXT, "text/javascript": _TEXT, "*/*": _TEXT}, 304: {}},
        is_open=True,
    ),
)
