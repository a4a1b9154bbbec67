"""The way of an event as OpenTelemetry spans.

    publish ─▶ match ─▶ deliver ─▶ ack, nak or term     one trace, through however many processes
       └─▶ detect ─▶ match ─▶ …                         what was detected goes on in the trace of what completed it,
                                                        with links to its other parts and to Spark's batch

The context travels in the event, as the distributed tracing extension of CloudEvents has it: the attributes
`traceparent` and `tracestate`. An event that has none gets that of the span that publishes it; one that has its own
keeps it. The node makes spans for events that carry a context, and leaves the others alone.

Promised: no payload and no token is in a span. Not promised: that a parent is the nearest one. What a node has
forgotten (it was opened again, or has seen very many events since) is a child of what the event carries.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Final

from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, NoOpTracerProvider, ProxyTracerProvider, Span, SpanContext, SpanKind, Tracer
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from tocsin.model import Event

__all__ = ["Context", "Traces", "context_in", "traces"]

TRACEPARENT: Final = "traceparent"
_FIELDS: Final = (TRACEPARENT, "tracestate")
_REMEMBERED: Final = 10_000
"""Spans whose children may still come."""
_propagator = TraceContextTextMapPropagator()


def traces() -> Traces | None:
    """What makes spans for the provider that was set; None: none was."""
    provider = trace.get_tracer_provider()
    return (
        None
        if isinstance(provider, ProxyTracerProvider | NoOpTracerProvider)
        else Traces(provider.get_tracer("tocsin"))
    )


def context_in(carrier: Mapping[str, Any]) -> Context:
    """The context in an event's attributes, or in headers; an empty one if there is none."""
    found = {name: value for name in _FIELDS if isinstance(value := carrier.get(name), str)}
    return _propagator.extract(found, Context())


class Traces:
    """Makes spans. One for each node and each client; used by one thread."""

    def __init__(self, tracer: Tracer) -> None:
        """Make spans by a tracer."""
        self._tracer = tracer
        self._known: dict[tuple[int, str], SpanContext] = {}  # by offset and consumer; of a match, without one

    # -- who publishes

    @contextmanager
    def publish(self, events: Sequence[Event]) -> Iterator[Sequence[Event]]:
        """A span around publishing; gives the events to be published, with their contexts."""
        if not events or type(events) not in (list, tuple):  # from the network, or packed: their publisher's affair
            yield events
            return
        first = events[0]
        mine = _about(first) if len(events) == 1 else {"cloudevents.event_type": first.type}
        about = {"messaging.operation.type": "send", "messaging.batch.message_count": len(events), **mine}
        is_inside = trace.get_current_span().get_span_context().is_valid
        parent = None if is_inside else context_in(first.attributes)
        carried = [each for each in map(_carried, events) if each is not None] if is_inside else []
        with self._tracer.start_as_current_span(
            f"publish {first.type}", parent, SpanKind.PRODUCER, {**_SYSTEM, **about}, [Link(each) for each in carried]
        ) as span:
            yield [each if TRACEPARENT in each.attributes else _marked(each, span) for each in events]

    def within(self, headers: Mapping[str, str]) -> AbstractContextManager[None]:
        """Go on in the trace that a request's headers tell of, unless there is one already."""
        if trace.get_current_span().get_span_context().is_valid or TRACEPARENT not in headers:
            return nullcontext()
        return _attached(context_in(headers))

    # -- the node

    @staticmethod
    def now() -> int:
        """When something began, for `matched`."""
        return time.time_ns()

    def matched(self, events: Sequence[Event], found: Sequence[Sequence[object]], began: int) -> None:
        """Events were matched together, each with what wants it."""
        for event, keys in zip(events, found, strict=True):
            if TRACEPARENT in event.attributes:
                about: dict[str, str | int] = {"tocsin.offset": event.offset or 0, "tocsin.matches": len(keys)}
                self._span("match", event, "", SpanKind.INTERNAL, about, "", began)

    def delivered(self, event: Event, consumer: str, attempt: int) -> None:
        """A consumer has an event in its hands."""
        if TRACEPARENT in event.attributes:
            about = _of(consumer, event) | {"messaging.operation.type": "receive", "tocsin.attempt": attempt}
            self._span("deliver", event, "", SpanKind.CONSUMER, about, consumer)

    def settled(self, event: Event, consumer: str, how: str) -> None:
        """A consumer has settled an event: ack, nak or term."""
        if TRACEPARENT in event.attributes:
            about = _of(consumer, event) | {"messaging.operation.type": "settle", "tocsin.outcome": how}
            self._span(how, event, consumer, SpanKind.INTERNAL, about)
            self._known.pop((event.offset or 0, consumer), None)

    def detected(
        self, found: Sequence[Event], at: Callable[[int], Event | None], batch: str | None = None
    ) -> list[Event]:
        """Definitions have found these; gives them with their contexts.

        Args:
            found: derived events, about to be stored.
            at: the event at an offset, if it is at hand.
            batch: the context of the batch that found them on Spark.
        """
        of_batch = _context_of({TRACEPARENT: batch}) if batch is not None else None
        return [self._detected(each, at, of_batch) for each in found]

    def _detected(self, event: Event, at: Callable[[int], Event | None], batch: SpanContext | None) -> Event:
        parts = [at(part["offset"]) for part in event.data["parts"] if "offset" in part]
        carried = [found for part in parts if part is not None and (found := _carried(part)) is not None]
        if not carried:
            return event
        links = [Link(each) for each in (*carried[:-1], *((batch,) if batch is not None else ()))]
        about = _SYSTEM | _about(event) | {"tocsin.parts": len(event.data["parts"])}
        parent = _as_parent(carried[-1])
        span = self._tracer.start_span(f"detect {event.type}", parent, SpanKind.INTERNAL, about, links)
        span.end()
        return _marked(event, span)

    def _span(
        self,
        name: str,
        event: Event,
        below: str,
        kind: SpanKind,
        about: Mapping[str, str | int],
        keep: str | None = None,
        began: int | None = None,
    ) -> None:
        """Make a span that is over: a child of what is known of this event and `below`, to be known as `keep`."""
        offset = event.offset or 0
        known = self._known.get((offset, below)) or self._known.get((offset, ""))
        parent = _as_parent(known) if known is not None else context_in(event.attributes)
        span = self._tracer.start_span(name, parent, kind, {**_SYSTEM, **about}, start_time=began)
        span.end()
        if keep is not None:
            self._known[offset, keep] = span.get_span_context()
            if len(self._known) > _REMEMBERED:
                del self._known[next(iter(self._known))]

    # -- Spark

    @contextmanager
    def batch(self, query: str, number: int) -> Iterator[str | None]:
        """A span around a batch; gives its context, as `detected` wants it."""
        about = {**_SYSTEM, "tocsin.query": query, "tocsin.batch": number}
        # One that is given up, since other definitions have come, has not failed.
        with self._tracer.start_as_current_span(
            f"batch {query}", kind=SpanKind.CONSUMER, attributes=about, set_status_on_exception=False
        ) as span:
            yield _carrier(span).get(TRACEPARENT)

    @staticmethod
    def note(**about: int) -> None:
        """Say more of the batch that runs."""
        for name, value in about.items():
            trace.get_current_span().set_attribute(f"tocsin.{name}", value)


_SYSTEM: Final[dict[str, str | int]] = {"messaging.system": "tocsin"}


def _about(event: Event) -> dict[str, str | int]:
    return {
        "cloudevents.event_id": event.id,
        "cloudevents.event_source": event.source,
        "cloudevents.event_type": event.type,
    }


def _of(consumer: str, event: Event) -> dict[str, str | int]:
    return {"messaging.consumer.group.name": consumer, "tocsin.offset": event.offset or 0}


def _carrier(span: Span) -> dict[str, str]:
    found: dict[str, str] = {}
    _propagator.inject(found, trace.set_span_in_context(span, Context()))
    return found


def _marked(event: Event, span: Span) -> Event:
    """An event that carries a span's context."""
    return event.replace(attributes={**event.attributes, **_carrier(span)})


def _context_of(carrier: Mapping[str, Any]) -> SpanContext | None:
    found = trace.get_current_span(context_in(carrier)).get_span_context()
    return found if found.is_valid else None


def _carried(event: Event) -> SpanContext | None:
    return _context_of(event.attributes) if TRACEPARENT in event.attributes else None


def _as_parent(found: SpanContext) -> Context:
    return trace.set_span_in_context(trace.NonRecordingSpan(found), Context())


@contextmanager
def _attached(context: Context) -> Iterator[None]:
    token = contexts.attach(context)
    try:
        yield
    finally:
        contexts.detach(token)
