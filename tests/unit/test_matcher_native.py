"""The kernel that reads events writes what `Encoder` writes, defers what it must, and leaks nothing."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.strategies import events, filters
from tocsin import Event, Matcher
from tocsin.filters.index import engine
from tocsin.filters.index.builtin import builtin, supported
from tocsin.filters.index.encoder import Buffers, Encoder
from tocsin.filters.index.labels import NO_KEY
from tocsin.filters.index.plan import DEFER, Lookups, Plan


@pytest.fixture(autouse=True, scope="module")
def native() -> Iterator[Any]:
    pytest.importorskip("numba")
    assert engine.wait(), engine.failure()
    assert supported(), "this interpreter should be one the kernels can read"
    yield engine.native()


def written(texts: list[str], event: Event) -> tuple[Any, Any]:
    """What the encoder writes and what the kernel writes (None where it defers): codes in any order, bits of keys."""
    view = Matcher(enumerate(texts))._live.view
    encoder = Encoder(view.space)
    answers: list[Any] = []
    for way in ("encoder", "kernel"):
        codes, keys = np.zeros(view.codes_per_event, np.int32), np.full(encoder.width, NO_KEY, np.int64)
        buffers, plan = Buffers(codes, keys), Plan(Lookups(encoder), codes, keys)
        if way == "encoder":
            count = encoder.encode(event, buffers)
        else:
            count = builtin(engine.native().read_event, plan.address)(event, 0, 0)
            if count == DEFER:
                answers.append(None)
                continue
            count = encoder.compute(event, buffers, count, 0)
        answers.append((sorted(codes[:count].tolist()), keys.tolist()))
    return answers[0], answers[1]


@given(st.lists(filters(), min_size=1, max_size=10), events())
def test_kernel_writes_what_the_encoder_writes(texts: list[str], event: Event) -> None:
    slow, quick = written(texts, event)
    assert quick is None or quick == slow


ASKED = [
    "type = 'door' AND priority >= 3",
    "a = 'x' OR a LIKE 'ab%' OR endswith(a, 'é€')",
    "a < 'm' AND b NOT IN ('q', 'r')",
    "n = 3 OR n > 7.5 OR n NOT IN (1, 2)",
    "flag = true",
    "array_contains(tags, 'red') OR array_contains(tags, 5)",
    "data.deep.er = 'x' OR deep.er > 3",
    "attributes.site IS NULL OR site = 'north'",
    "data IS NULL",
    "n + 1 > 5 AND upper(a) = 'X'",
]
READ = [
    Event("door", "s"),
    Event("door", "s", priority=7, data={"a": "x", "b": "z", "n": 3, "flag": True, "tags": ["red", "red", 5, 5.0]}),
    Event("t", "s", data={"a": "abc", "b": "q", "n": 9.5, "flag": False, "tags": []}),
    Event("t", "s", data={"a": "xyé€", "n": float("nan"), "deep": {"er": "x"}}),
    Event("t", "s", data={"a": "", "n": -0.0, "deep": {"er": 4}, "tags": ["blue", None, True]}),
    Event("t", "s", data={"a": "m", "n": 2**53 - 1, "deep": {"er": {}}}, attributes={"site": "north", "a": "hides"}),
    Event("t", "s", data={"a": "\U0001f600é€", "n": float("inf"), "deep": 3}, attributes={"site": "south"}),
    Event("t", "s", data=["a", "x"]),
    Event("t", "s", data="a", datacontenttype="text/plain"),
    Event("t", "s", data=b"a", datacontenttype="application/octet-stream"),
    Event("t", "s", data={"a": None, "n": None, "tags": None}),
]


@pytest.mark.parametrize("event", READ)
def test_usual_events_are_read_by_the_kernel(event: Event) -> None:
    slow, quick = written(ASKED, event)
    assert quick is not None
    assert quick == slow


@pytest.mark.parametrize(
    "data",
    [
        {"n": 2**53},
        {"n": -(2**80)},
        {"tags": [2**64]},
        {"tags": ["red"] * 300},
    ],
)
def test_unusual_values_are_left_to_the_encoder_and_found(data: dict[str, Any]) -> None:
    event = Event("t", "s", data=data)
    assert written(ASKED, event)[1] is None
    matcher = Matcher([("n", "n IS NOT NULL AND n <> 1"), ("t", "array_contains(tags, 'red')")])
    wanted = {"n": ["n"], "tags": [] if data.get("tags") == [2**64] else ["t"]}
    assert matcher.match(event) == wanted[next(iter(data))]


def test_timestamps_are_left_to_the_encoder() -> None:
    asked = ["time > TIMESTAMP '2026-01-01T00:00:00Z'"]
    event = Event("t", "s", time=datetime(2026, 5, 1, tzinfo=UTC))
    slow, quick = written(asked, event)
    assert quick is None and slow[1] != [NO_KEY]


def test_other_objects_are_not_read() -> None:
    matcher = Matcher([("a", "a = 1")])
    for other in (None, {"a": 1}, "event", object()):
        with pytest.raises(Exception, match="event"):
            matcher.match(other)  # type: ignore[arg-type]


def test_nothing_is_leaked_and_nothing_is_released_too_often() -> None:
    key, text, name = "key-" + str(id(ASKED)), "value-" + str(id(READ)), "name_" + str(id(ASKED))
    data, site = {name: text, "tags": [text]}, "site-" + str(id(ASKED))
    event = Event("type-" + site, "s", data=data, attributes={"site": site})
    matcher = Matcher(
        [(key, f"{name} = '{text}' AND site IS NOT NULL AND type LIKE 'type-%' AND array_contains(tags, '{text}')")]
    )
    watched = (key, text, name, data, site, event, event.attributes, event.type)
    assert matcher.match(event) == [key]
    before = [sys.getrefcount(each) for each in watched]
    for _ in range(1000):
        matcher.match(event)
        matcher.match_batch([event, event])
    assert [sys.getrefcount(each) for each in watched] == before


def test_without_the_reading_kernel_answers_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    with_kernel = Matcher(enumerate(ASKED))
    monkeypatch.setattr(engine, "_native", None)
    without = Matcher(enumerate(ASKED))
    answers = [sorted(without.match(event)) for event in READ]
    assert any(answers)
    assert [sorted(with_kernel.match(event)) for event in READ] == answers
    assert [sorted(keys) for keys in without.match_batch(READ)] == answers
