"""Traces: one tree of spans for the way of an event, embedded and over a socket, and none where nobody is tracing."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tocsin
from tocsin import Event, cloudevents, testing, tracing
from tocsin.net import serve

pytest.importorskip("opentelemetry.sdk", reason="opentelemetry-sdk is not installed; `make setup` installs it")
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF

BREAK_IN = "SEQ([type = 'door.open'] AS o, [type = 'motion'] AS m) BY door"


@pytest.fixture
def exporter(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    """Somebody is tracing. A provider can be set once in a process, so here the one that is asked for is replaced."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    yield exporter
    provider.shutdown()


def spans(exporter: InMemorySpanExporter) -> dict[str, ReadableSpan]:
    found = exporter.get_finished_spans()
    assert len({span.name for span in found}) == len(found), "a name twice"
    return {span.name: span for span in found}


def parent_name(exporter: InMemorySpanExporter, span: ReadableSpan) -> str | None:
    ids = {each.context.span_id: each.name for each in exporter.get_finished_spans()}
    return ids.get(span.parent.span_id) if span.parent is not None else None


@pytest.mark.parametrize("url", ["memory:", "ws:"])
async def test_publish_match_deliver_ack_are_one_trace(exporter: InMemorySpanExporter, url: str) -> None:
    async with testing.node(url) as bus:
        sub = await bus.subscribe("value > 9", consumer="ops")
        published = await bus.publish(Event("machine.value", "line/7", id="e1", data={"value": 9.2}))
        delivery = await sub.next(timeout=5)
        await delivery.ack()
        await testing.settled(bus)
    found = spans(exporter)
    assert len({span.context.trace_id for span in found.values()}) == 1
    tree = {name: parent_name(exporter, span) for name, span in found.items()}
    assert tree == {
        "publish machine.value": None,
        "match": "publish machine.value",
        "deliver": "match",
        "ack": "deliver",
    }
    assert found["publish machine.value"].attributes["cloudevents.event_id"] == "e1"
    assert found["match"].attributes["tocsin.offset"] == published.offset
    assert found["match"].attributes["tocsin.matches"] == 1
    assert found["deliver"].attributes["messaging.consumer.group.name"] == "ops"
    assert found["ack"].attributes["tocsin.outcome"] == "ack"
    # The context is an extension attribute of the event, and the handler can go on from there.
    carried = found["publish machine.value"].context
    assert list(delivery.event.attributes) == ["traceparent"]
    assert delivery.event.attributes["traceparent"][:-2] == f"00-{carried.trace_id:032x}-{carried.span_id:016x}-"
    assert b'"traceparent":"00-' in cloudevents.to_json(delivery.event)
    here = trace.get_current_span(tracing.context_of(delivery.event)).get_span_context()
    assert (here.trace_id, here.span_id) == (carried.trace_id, carried.span_id)


async def test_an_applications_own_span_is_the_parent_and_an_events_own_context_is_kept(
    exporter: InMemorySpanExporter,
) -> None:
    own = f"00-{7:032x}-{8:016x}-01"
    async with testing.node() as bus:
        tracer = trace.get_tracer_provider().get_tracer("application")
        with tracer.start_as_current_span("request") as request:
            await bus.publish(Event("a", "s"))
            await bus.publish(Event("b", "s", attributes={"traceparent": own, "tracestate": "x=y"}))
        await bus.publish(Event("c", "s", attributes={"traceparent": own}))
        sub = await bus.subscribe("TRUE", past=3, order="journal")
        _, kept, last = [sub.poll().event.attributes for _ in range(3)]
    found = {span.name: span for span in exporter.get_finished_spans()}
    assert found["publish a"].parent.span_id == found["publish b"].parent.span_id == request.get_span_context().span_id
    assert [link.context.trace_id for link in found["publish b"].links] == [7]
    assert found["publish c"].parent.span_id == 8 and last == {"traceparent": own}
    assert kept == {"traceparent": own, "tracestate": "x=y"}


def test_a_program_without_an_event_loop_goes_on_in_its_own_trace(exporter: InMemorySpanExporter) -> None:
    with tocsin.sync.connect("memory:") as bus:
        with trace.get_tracer_provider().get_tracer("application").start_as_current_span("request") as request:
            bus.publish(Event("a", "s"))
        assert spans(exporter)["publish a"].parent.span_id == request.get_span_context().span_id


async def test_an_untraced_client_of_a_traced_node_has_no_spans(
    exporter: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with tocsin.connect("memory:", max_waiting=1) as bus, serve(bus, port=0) as server:
        monkeypatch.setattr(trace, "get_tracer_provider", lambda: trace.ProxyTracerProvider())
        async with tocsin.connect(server.url) as remote:
            sub = await remote.subscribe("TRUE", consumer="ops")
            many = [[Event("a", "s", id=f"{k}-{n}") for n in range(50)] for k in range(4)]
            await asyncio.gather(*map(remote.publish_many, many))  # more than there is room for: some must wait
            assert (await sub.next(timeout=5)).event.attributes == {}
    assert exporter.get_finished_spans() == ()


async def test_nak_term_and_a_second_attempt(exporter: InMemorySpanExporter) -> None:
    async with testing.node() as bus:
        sub = await bus.subscribe("TRUE", consumer="ops")
        await bus.publish(Event("a", "s"))
        await (await sub.next(timeout=5)).nak()
        await (await sub.next(timeout=5)).term("no use")
    found = exporter.get_finished_spans()
    assert [span.name for span in found][2:] == ["deliver", "nak", "deliver", "term"]
    assert [span.attributes["tocsin.attempt"] for span in found if span.name == "deliver"] == [1, 2]
    assert len({span.context.trace_id for span in found}) == 1


async def test_many_share_a_span_and_what_is_lent_over_a_socket_is_delivered_once(
    exporter: InMemorySpanExporter,
) -> None:
    async with testing.node("ws:") as bus:
        sub = await bus.subscribe("TRUE", consumer="ops")
        await bus.publish_many([Event("a", "s", id=str(n)) for n in range(20)])
        async for batch in sub.batches(20):
            await batch.ack()
            if batch[-1].event.id == "19":
                break
        await testing.settled(bus)
    found = exporter.get_finished_spans()
    [publish] = [span for span in found if span.name == "publish a"]
    assert publish.attributes["messaging.batch.message_count"] == 20
    for name in ("match", "deliver", "ack"):
        offsets = [span.attributes["tocsin.offset"] for span in found if span.name == name]
        assert sorted(offsets) == list(range(1, 21)), name
    assert {span.context.trace_id for span in found} == {publish.context.trace_id}


async def test_what_is_detected_goes_on_in_the_trace_of_what_completed_it(exporter: InMemorySpanExporter) -> None:
    async with testing.node() as bus:
        await bus.define("break_in", BREAK_IN)
        sub = await bus.subscribe("type = 'break_in'", consumer="guard")
        await bus.publish(Event("door.open", "house", data={"door": 7}))
        await bus.publish(Event("motion", "house", data={"door": 7}))
        delivery = await sub.next(timeout=5)
        await delivery.ack()
    found = {span.name: span for span in exporter.get_finished_spans() if span.name != "match"}
    detect = found["detect break_in"]
    assert detect.context.trace_id == found["publish motion"].context.trace_id
    assert detect.context.trace_id != found["publish door.open"].context.trace_id
    assert parent_name(exporter, detect) == "publish motion"
    assert [link.context.span_id for link in detect.links] == [found["publish door.open"].context.span_id]
    assert found["ack"].context.trace_id == detect.context.trace_id
    assert f"{detect.context.span_id:016x}" in delivery.event.attributes["traceparent"]


async def test_a_request_over_http_goes_on_in_the_callers_trace(exporter: InMemorySpanExporter) -> None:
    async with tocsin.connect("memory:") as bus, serve(bus, port=0) as server:
        url = server.url.replace("ws:", "http:") + "/events"
        headers = {"ce-id": "1", "ce-source": "curl", "ce-type": "a", "ce-specversion": "1.0"}
        await asyncio.to_thread(post, url, headers | {"traceparent": f"00-{7:032x}-{8:016x}-01"})
        await asyncio.to_thread(post, url, headers | {"ce-id": "2", "ce-traceparent": f"00-{9:032x}-{8:016x}-01"})
        sub = await bus.subscribe("TRUE", past=2, order="journal")
        first, second = [sub.poll().event.attributes["traceparent"] for _ in range(2)]
    by_header, by_event = (span for span in exporter.get_finished_spans() if span.name == "publish a")
    assert (by_header.context.trace_id, by_header.parent.span_id) == (7, 8)
    assert first.split("-")[1:3] == [f"{7:032x}", f"{by_header.context.span_id:016x}"]
    assert (by_event.context.trace_id, second) == (9, f"00-{9:032x}-{8:016x}-01")


def post(url: str, headers: dict[str, str]) -> None:
    from urllib.request import Request, urlopen

    with urlopen(Request(url, b"", headers, method="POST"), timeout=10) as answer:
        assert answer.status == 202


async def test_what_is_no_context_is_left_alone(exporter: InMemorySpanExporter) -> None:
    async with testing.node() as bus:
        sub = await bus.subscribe("TRUE", consumer="ops")
        for n, bad in enumerate([7, "nonsense", "00-" + "0" * 32 + "-" + "0" * 16 + "-01"]):
            await bus.publish(Event("a", "s", id=str(n), attributes={"traceparent": bad}))
            delivery = await sub.next(timeout=5)
            assert delivery.event.attributes == {"traceparent": bad}
            await delivery.ack()


async def test_a_trace_that_is_not_sampled_records_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    exporter, provider = InMemorySpanExporter(), TracerProvider(sampler=ALWAYS_OFF)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    async with testing.node() as bus:
        sub = await bus.subscribe("TRUE", consumer="ops")
        await bus.publish(Event("a", "s"))
        delivery = await sub.next(timeout=5)
        assert int(delivery.event.attributes["traceparent"][-2:], 16) & 1 == 0  # whoever comes next knows that
        await delivery.ack()
    assert exporter.get_finished_spans() == ()


QUIET = """
import asyncio, sys
import tocsin

async def main():
    async with tocsin.connect("memory:") as bus:
        sub = await bus.subscribe("TRUE", consumer="ops")
        await bus.publish(tocsin.Event("a", "s"))
        delivery = await sub.next(timeout=5)
        assert delivery.event.attributes == {}
        assert bus._node.traces is None

asyncio.run(main())
print([name for name in sys.modules if name.startswith("opentelemetry")])
"""


@pytest.mark.parametrize("before", ["", "import opentelemetry.trace\n"])
def test_where_nobody_is_tracing_nothing_is_loaded_and_nothing_is_done(before: str) -> None:
    source = Path(__file__).resolve().parents[2] / "src"
    done = subprocess.run(
        [sys.executable, "-c", before + QUIET],
        capture_output=True,
        text=True,
        timeout=60,
        env=os.environ | {"PYTHONPATH": str(source)},
    )
    assert done.returncode == 0, done.stderr
    if not before:
        assert done.stdout.strip() == "[]"


def test_a_failure_is_in_the_span_that_publishes(exporter: InMemorySpanExporter) -> None:
    async def play() -> Any:
        async with testing.node() as bus:
            with pytest.raises(tocsin.EventError):
                await bus.publish(Event("tocsin.mine", "s"))

    asyncio.run(play())
    [span] = exporter.get_finished_spans()
    assert not span.status.is_ok and span.events[0].attributes["exception.type"] == "tocsin.errors.EventError"
