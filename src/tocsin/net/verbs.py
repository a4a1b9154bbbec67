"""The verbs of `call`: a new one is a line in `VERBS`.

Arguments are checked by the bus itself, as embedded, so that errors are the same; here only their names are. What a
verb gives goes over the wire as it is, but for events, which are written as in deliveries.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import Raw, Struct

from tocsin.clock import as_micros
from tocsin.composite.explain import Explanation
from tocsin.delivery.board import Alert
from tocsin.errors import ProtocolError
from tocsin.journal import bounds
from tocsin.net.protocol import Codec
from tocsin.node.demand import Demand

__all__ = ["VERBS", "About", "WireAlert", "WireExplanation", "call"]


class WireAlert(Struct):
    """An alert on the wire."""

    event: Raw
    offset: int
    arrived: int
    acked: list[str]
    pending: list[str]


class About(Struct, frozen=True):
    """A definition on the wire: what it is made of again."""

    name: str
    text: str
    context: str
    semantics: str
    max_open: int | None = None


class WireExplanation(Struct):
    """An explanation on the wire: its definition as text, the rest as it is."""

    definition: About
    rest: dict[str, Any]


class _Nothing(Struct, forbid_unknown_fields=True):
    pass


class _Consumer(Struct, forbid_unknown_fields=True):
    consumer: Any


class _Subscription(_Consumer, forbid_unknown_fields=True):
    subscription: Any


class _Named(Struct, forbid_unknown_fields=True):
    name: Any


class _Define(_Named, forbid_unknown_fields=True):
    text: Any
    context: Any = "recent"
    placement: Any = "auto"
    past: str | None = None
    semantics: Any = "detection"
    replace: Any = False
    max_open: Any = None


class _Id(Struct, forbid_unknown_fields=True):
    id: Any


class _Event(_Id, forbid_unknown_fields=True):
    source: Any = None


class _Trim(Struct, forbid_unknown_fields=True):
    older_than: Any = None
    """{"seconds": …}"""
    larger_than: Any = None
    archived: Any = False
    hard: Any = False


class _Filter(Struct, forbid_unknown_fields=True):
    filter: Any


class Verb(NamedTuple):
    """Its arguments, and what it does with the bus of a session."""

    arguments: type[Struct]
    run: Callable[[Any, Any], Awaitable[Any]]


def _plain(name: str) -> Callable[[Any, Struct], Awaitable[Any]]:
    """A verb whose arguments go to the bus as they are."""

    def run(bus: Any, arguments: Struct) -> Awaitable[Any]:
        answer: Awaitable[Any] = getattr(bus, name)(**msgspec.structs.asdict(arguments))
        return answer

    return run


def _define(bus: Any, given: _Define) -> Awaitable[Any]:
    arguments = msgspec.structs.asdict(given)
    arguments["past"] = bounds.parse(given.past) if given.past is not None else None
    answer: Awaitable[Any] = bus.define(**arguments)
    return answer


def _trim(bus: Any, given: _Trim) -> Awaitable[Any]:
    arguments = msgspec.structs.asdict(given)
    if isinstance(given.older_than, dict):
        seconds = given.older_than.get("seconds")
        arguments["older_than"] = timedelta(seconds=seconds) if isinstance(seconds, int | float) else seconds
    answer: Awaitable[Any] = bus.trim(**arguments)
    return answer


VERBS: Final = {
    "unsubscribe": Verb(_Subscription, _plain("unsubscribe")),
    "forget": Verb(_Consumer, _plain("forget")),
    "consumers": Verb(_Nothing, _plain("consumers")),
    "define": Verb(_Define, _define),
    "undefine": Verb(_Named, _plain("undefine")),
    "definitions": Verb(_Nothing, _plain("definitions")),
    "explain": Verb(_Id, _plain("explain")),
    "advertise": Verb(_Filter, _plain("advertise")),
    "unadvertise": Verb(_Filter, _plain("unadvertise")),
    "demand": Verb(_Filter, _plain("demand")),
    "cancel": Verb(_Event, _plain("cancel")),
    "status": Verb(_Event, _plain("status")),
    "alerts": Verb(_Nothing, _plain("alerts")),
    "audit": Verb(_Event, _plain("audit")),
    "trim": Verb(_Trim, _trim),
}
"""By name."""


async def call(bus: Any, verb: str, arguments: Raw, codec: Codec) -> Raw:
    """Carry out a verb; returns what it gives, ready to be sent.

    Raises:
        ProtocolError: there is no such verb, or its arguments have other names.
        TocsinError: what the verb raises.
    """
    known = VERBS.get(verb)
    if known is None:
        raise ProtocolError(f"there is no verb {verb[:64]!r}", field="verb", help=f"use one of {', '.join(VERBS)}")
    try:
        answer = known.run(bus, codec.read(arguments, known.arguments))
    except (OverflowError, ValueError):
        raise ProtocolError("a number means nothing", field="args", help="give a smaller one") from None
    return codec.value(_sent(await answer, codec))


def _sent(value: Any, codec: Codec) -> Any:
    if isinstance(value, list):
        return [_sent(each, codec) for each in value]
    if isinstance(value, Alert):
        event = value.event
        arrived = as_micros(event.arrived) if event.arrived is not None else 0
        return WireAlert(codec.event(event), event.offset or 0, arrived, value.acked, value.pending)
    if isinstance(value, Demand):
        return {"consumers": value.consumers, "definitions": value.definitions}
    if isinstance(value, Explanation):
        rest = {name: getattr(value, name) for name in value.__struct_fields__ if name != "definition"}
        made = value.definition
        return WireExplanation(About(made.name, made.text, made.context, made.semantics, made.max_open), rest)
    return value
