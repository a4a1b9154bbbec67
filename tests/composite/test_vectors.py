"""The worked vectors of `ged.md`, section 9: every operator in every context, in every way of feeding.

A stream is written `a1@1 b1@2`; a detection `3:(a1,b1)`; ticks in parts `t5`. Every vector also runs with a snapshot
between any two events, and with the stream cut into batches at random.
"""

from __future__ import annotations

import random
from datetime import timedelta

import pytest

from tocsin.clock import as_datetime
from tocsin.composite import Detector
from tocsin.model import Event, parse_time

CONTEXTS = ("recent", "chronicle", "continuous", "cumulative")
SECOND = 1_000_000
EPOCH = as_datetime(0)

S1 = "a1@1 a2@2 b1@3 b2@4 a3@5 b3@6"
S2 = "a1@1 a2@2 c1@3 a3@4 b1@5 c2@6 a4@7 a5@8 c3@9 c4@10"
S3 = "a1@1 b1@2 a2@3 b2@4 c1@5 b3@6 a3@7 b4@8 c2@9"
S4 = "a1@0 a2@7 c1@21 c2@33"
S5 = "a1@1 a2@3 a3@10"

VECTORS = {
    "SEQ([type='a'], [type='b'])": (
        S1,
        "3:(a2,b1) 4:(a2,b2) 6:(a3,b3)",
        "3:(a1,b1) 4:(a2,b2) 6:(a3,b3)",
        "3:(a1,b1) 3:(a2,b1) 6:(a3,b3)",
        "3:(a1,a2,b1) 6:(a3,b3)",
    ),
    "AND([type='a'], [type='b'])": (
        S1,
        "3:(a2,b1) 4:(a2,b2) 5:(b2,a3) 6:(a3,b3)",
        "3:(a1,b1) 4:(a2,b2) 6:(a3,b3)",
        "3:(a1,b1) 3:(a2,b1) 5:(b2,a3)",
        "3:(a1,a2,b1) 5:(b2,a3)",
    ),
    "NOT([type='a'], [type='b'], [type='c'])": (
        S2,
        "3:(a2,c1) 9:(a5,c3) 10:(a5,c4)",
        "3:(a1,c1) 9:(a4,c3) 10:(a5,c4)",
        "3:(a1,c1) 3:(a2,c1) 9:(a4,c3) 9:(a5,c3)",
        "3:(a1,a2,c1) 9:(a4,a5,c3)",
    ),
    "A([type='a'], [type='b'], [type='c'])": (
        S3,
        "2:(a1,b1) 4:(a2,b2) 8:(a3,b4)",
        "2:(a1,b1) 4:(a1,b2) 6:(a2,b3) 8:(a2,b4)",
        "2:(a1,b1) 4:(a1,b2) 4:(a2,b2) 8:(a3,b4)",
        "2:(a1,b1) 4:(a2,b2) 8:(a3,b4)",
    ),
    "A*([type='a'], [type='b'], [type='c'])": (
        S3,
        "5:(a2,b2,c1) 9:(a3,b4,c2)",
        "5:(a1,b1,b2,c1) 9:(a2,b2,b3,b4,c2)",
        "5:(a1,b1,b2,c1) 5:(a2,b2,c1) 9:(a3,b4,c2)",
        "5:(a1,a2,b1,b2,c1) 9:(a3,b4,c2)",
    ),
    "P([type='a'], 5 SECONDS, [type='c'])": (
        S4,
        "5:(a1) 12:(a2) 17:(a2)",
        "5:(a1) 10:(a1) 12:(a2) 15:(a1) 17:(a2) 20:(a1) 22:(a2) 27:(a2) 32:(a2)",
        "5:(a1) 10:(a1) 12:(a2) 15:(a1) 17:(a2) 20:(a1)",
        "5:(a1) 10:(a1,a2) 15:(a1,a2) 20:(a1,a2)",
    ),
    "P*([type='a'], 5 SECONDS, [type='c'])": (
        S4,
        "21:(a2,t12,t17,c1)",
        "21:(a1,t5,t10,t15,t20,c1) 33:(a2,t12,t17,t22,t27,t32,c2)",
        "21:(a1,t5,t10,t15,t20,c1) 21:(a2,t12,t17,c1)",
        "21:(a1,a2,t5,t10,t15,t20,c1)",
    ),
    "PLUS([type='a'], 4 SECONDS)": (
        S5,
        "7:(a2) 14:(a3)",
        "5:(a1) 7:(a2) 14:(a3)",
        "5:(a1) 7:(a2) 14:(a3)",
        "5:(a1,a2) 14:(a3)",
    ),
    "SEQ([type='a'], [type='a'])": ("a1@1 a2@2 a3@3", "2:(a1,a2) 3:(a2,a3)", "2:(a1,a2)", "2:(a1,a2)", "2:(a1,a2)"),
    "OR([type='a'], [type='b'])": ("a1@1 b1@2", *["1:(a1) 2:(b1)"] * 4),
}
CASES = [(text, context) for text in VECTORS for context in CONTEXTS]


def stream(text: str) -> list[Event]:
    events = []
    for offset, word in enumerate(text.split(), 1):
        name, _, second = word.partition("@")
        arrived = EPOCH + timedelta(seconds=int(second))
        events.append(Event(name[0], "/test", id=name, offset=offset, arrived=arrived))
    return events


def shown(event: Event) -> str:
    assert event.time is not None
    parts = [
        part["id"] if "id" in part else f"t{(parse_time(part['time'], 'time') - EPOCH).seconds}"
        for part in event.data["parts"]
    ]
    return f"{(event.time - EPOCH).seconds}:({','.join(parts)})"


def wanted(text: str, context: str) -> list[str]:
    return VECTORS[text][1 + CONTEXTS.index(context)].split()


@pytest.mark.parametrize(("text", "context"), CASES)
def test_vector(text: str, context: str) -> None:
    detector = Detector()
    detector.define("found", text, context)
    found = [event for each in stream(VECTORS[text][0]) for event in detector.feed(each)]
    found += detector.advance(60 * SECOND if "P(" not in text else 34 * SECOND)
    assert [shown(event) for event in found] == wanted(text, context)
    assert all(event.type == "found" for event in found)
    assert len({event.id for event in found}) == len(found)


@pytest.mark.parametrize(("text", "context"), CASES)
def test_vector_with_a_snapshot_between_any_two_events(text: str, context: str) -> None:
    detector = Detector()
    detector.define("found", text, context)
    found = []
    for event in stream(VECTORS[text][0]):
        detector = Detector.restore(detector.snapshot())
        found += detector.feed(event)
    found += Detector.restore(detector.snapshot()).advance(34 * SECOND)
    assert [shown(event) for event in found] == wanted(text, context)


@pytest.mark.parametrize(("text", "context"), CASES)
def test_vector_in_any_batches(text: str, context: str) -> None:
    draw = random.Random(f"{text} {context}")
    events = stream(VECTORS[text][0])
    for _ in range(5):
        detector = Detector()
        detector.define("found", text, context)
        found, rest = [], list(events)
        while rest:
            size = draw.randint(1, len(rest))
            found += detector.feed_batch(rest[:size])
            rest = rest[size:]
        found += detector.advance(34 * SECOND)
        assert [shown(event) for event in found] == wanted(text, context)


def test_all_contexts_at_once_do_not_disturb_each_other() -> None:
    detector = Detector()
    for text, context in CASES:
        detector.define(f"d{CASES.index((text, context))}", text, context)
    for text, (events, *_) in VECTORS.items():
        fresh = Detector.restore(detector.snapshot())
        found = fresh.feed_batch(stream(events)) + fresh.advance(34 * SECOND)
        for context in CONTEXTS:
            name = f"d{CASES.index((text, context))}"
            assert [shown(event) for event in found if event.type == name] == wanted(text, context)


def test_interval_semantics() -> None:
    text = "SEQ([type='a'], SEQ([type='b'], [type='c']))"
    for semantics, count in (("detection", 1), ("interval", 0)):
        detector = Detector()
        detector.define("found", text, "recent", semantics)
        assert len(detector.feed_batch(stream("b1@1 a1@2 c1@3"))) == count
