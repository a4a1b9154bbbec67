"""A matcher as bytes: what was stored comes back, and damaged bytes are refused, never obeyed."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.workloads import Content
from tests import strategies
from tocsin import Event, Filter
from tocsin.errors import MatcherError
from tocsin.filters.index import Matcher

ROOT = Path(__file__).resolve().parents[2]
Key = str | int

KINDS: dict[Key, str] = {
    "equal": "s = 'a'",
    "same": "'a' = s",
    "number": "x = 5",
    "double": "x = 2.5",
    "boolean": "flag",
    "in": "s IN ('a', 'é', '')",
    "not in": "s NOT IN ('a', 'b') AND x <> 5",
    "range": "x > 1 AND x <= 80",
    "between": "x BETWEEN -3 AND 1e300",
    "cuts": "x < 0 OR (x > 2 AND x < 3) OR x > 70",
    "text range": "s >= 'a' AND s < 'b'",
    "prefix": "s LIKE 'ab%'",
    "suffix": "endswith(s, 'b')",
    "contains": "contains(s, 'X')",
    "regex": "s RLIKE '^a'",
    "regex and": "x = 5 AND s RLIKE 'b$'",
    "like": "s LIKE 'a_b'",
    "member": "array_contains(tags, 'a')",
    "member number": "array_contains(tags, 1) AND x IS NULL",
    "null": "y IS NULL",
    "not null": "y IS NOT NULL AND a.b = 1",
    "computed": "x + 1 > 6 AND lower(s) = 'a'",
    "time": "time > '2025-01-01T00:00:00Z'",
    "huge": "x = 9007199254740993",
    "infinite": "x = 1e999",
    "or": "s = 'a' OR x = 5 OR flag",
    "not": "NOT (s = 'a' OR x > 5)",
    "true": "TRUE",
    "false": "FALSE",
    "distance": "distance_km(x, y, 1, 1) < 2000",
    "odd": "`odd name` = 'it''s' OR data.`é` = 1",
    7: "s = 'a'",
    -1: "x = 5",
}


def sample(seed: int = 1, count: int = 120) -> list[Event]:
    """Events over the names of `KINDS`."""
    draw = random.Random(seed)
    texts, numbers = strategies.TEXTS, [*strategies.NUMBERS, float("nan")]
    events = []
    for _ in range(count):
        data: dict[str, object] = {}
        for name in ("s", "x", "y", "flag", "tags", "a", "odd name", "é"):
            if draw.random() < 0.7:
                data[name] = draw.choice([draw.choice(texts), draw.choice(numbers), 5, "a", True, 1, 2.5])
        if draw.random() < 0.6:
            data["tags"] = draw.choices(["a", 1, "1", None, 2.5], k=draw.randrange(4))
        if draw.random() < 0.4:
            data["a"] = {"b": draw.choice([1, "1", 2])}
        if draw.random() < 0.3:
            data |= {"x": draw.choice([5, 6, 7]), "s": draw.choice(["A", "aXb", "ab", "b"])}
        time = draw.choice([None, *strategies.TIMES])
        events.append(Event("t", "s", id="e", data=data, time=time))
    return events


def answers(matcher: Matcher, events: list[Event]) -> list[list[str]]:
    single = [sorted(map(repr, matcher.match(event))) for event in events]
    assert [sorted(map(repr, keys)) for keys in matcher.match_batch(events)] == single
    return single


def linear(filters: dict[Key, str], events: list[Event]) -> list[list[str]]:
    asked = {key: Filter(text) for key, text in filters.items()}
    return [sorted(repr(key) for key, each in asked.items() if each.matches(event)) for event in events]


def test_every_kind_of_filter_comes_back() -> None:
    events = sample()
    matcher = Matcher(KINDS.items())
    wanted = linear(KINDS, events)
    reached = {key for keys in wanted for key in keys}
    assert {repr(key) for key in KINDS} - reached <= {"'false'", "'huge'", "'infinite'"}
    again = Matcher.from_bytes(matcher.to_bytes())
    assert answers(again, events) == answers(matcher, events) == wanted
    assert len(again) == len(KINDS)
    assert all(key in again for key in KINDS)
    old, new = matcher.stats(), again.stats()
    for name in ("filters", "distinct", "conjunctions", "unindexed", "with_residue", "dimensions", "codes", "postings"):
        assert new[name] == old[name], name
    for key in KINDS:
        assert again.explain(key, events[0]) == matcher.explain(key, events[0])
    assert Matcher.from_bytes(again.to_bytes()).to_bytes() == again.to_bytes()


def test_a_restored_matcher_goes_on_living() -> None:
    events = sample(2, 60)
    filters = dict(KINDS)
    matcher = Matcher(filters.items())
    for key in ("equal", "cuts", "regex", "or", -1):
        assert matcher.remove(key)
        del filters[key]
    for _ in range(3):
        matcher = Matcher.from_bytes(matcher.to_bytes())
        assert answers(matcher, events) == linear(filters, events)
        assert matcher.add("same", filters["same"]) is False
        assert matcher.stats()["distinct"] == len({Filter(text).form.key() for text in filters.values()})
        more = {
            f"new {len(filters)}": "s LIKE 'a%' AND s <> 'abc' AND fresh = 'x' OR x > 3",
            f"new {len(filters) + 1}": "s RLIKE 'b' AND s >= 'aa'",
            f"shared {len(filters)}": filters["in"],
            "range": f"x > {len(filters)}",
        }
        for key, text in more.items():
            assert matcher.add(key, text)
        filters.update(more)
        assert matcher.remove("member number") is (filters.pop("member number", None) is not None)
        assert matcher.remove("gone") is False
        assert answers(matcher, events) == linear(filters, events)
        matcher.optimize()
        assert answers(matcher, events) == linear(filters, events)


def test_removed_filters_stay_removed() -> None:
    matcher = Matcher((i, f"x = {i % 300} OR s RLIKE '^{i % 300}$'") for i in range(900))
    matcher.optimize()
    for i in range(600):  # no rebuild in between: their records are still there, marked dead
        matcher.remove(i)
    again = Matcher.from_bytes(matcher.to_bytes())
    assert len(again) == 300
    event = Event("t", "s", data={"x": 7, "s": "7"})
    assert again.match(event) == [607]
    for i in range(600):
        again.add(i, f"y = {i}")
    assert again.match(event) == [607]
    assert sorted(again.match(Event("t", "s", data={"x": 7, "y": 599}))) == [599, 607]  # type: ignore[type-var]
    for i in range(600, 900):
        assert again.remove(i)
    assert again.match(event) == []


def test_labels_and_what_was_learnt_come_back() -> None:
    filters: dict[Key, str] = {i: f"p LIKE '{'a' * (i % 60)}z{i}%' AND n > {i}" for i in range(700)}
    matcher = Matcher(filters.items())
    events = [Event("t", "s", data={"p": "a" * (i % 60) + f"z{i}x", "n": 5 * i}) for i in range(0, 700, 7)]
    for event in events * 5:
        matcher.match(event)
    matcher.optimize()
    again = Matcher.from_bytes(matcher.to_bytes())
    assert answers(again, events) == answers(matcher, events) == linear(filters, events)
    assert sum(map(len, linear(filters, events))) > 50
    assert again._live.view.segment is not None
    assert again._live.view.segment.informed
    again.add("between", "p LIKE 'aaaz6%'")
    assert "between" in again.match(Event("t", "s", data={"p": "aaaz63"}))


def test_an_empty_matcher_comes_back() -> None:
    again = Matcher.from_bytes(Matcher().to_bytes())
    assert len(again) == 0
    again.add("a", "x = 1")
    assert again.match(Event("t", "s", data={"x": 1})) == ["a"]


def test_every_key_that_can_be_added_can_be_stored() -> None:
    keys: list[Key] = ["", "é😀", 0, -1, 2**63 - 1, -(2**63), 2**64 - 1, 2**64, 2**70, -(2**70)]
    matcher = Matcher((key, "x = 1") for key in keys)
    again = Matcher.from_bytes(matcher.to_bytes())
    assert set(again.match(Event("t", "s", data={"x": 1}))) == set(keys)


def test_stored_filters_are_compact() -> None:
    content = Content(0.001)
    matcher = Matcher((i, content.filter()) for i in range(10_000))
    stored = matcher.to_bytes()
    assert len(stored) / 10_000 < 150
    again = Matcher.from_bytes(stored)
    events = [content.event() for _ in range(50)]
    assert answers(again, events) == answers(matcher, events)


@pytest.mark.parametrize(
    "foreign", [b"", b"{}", b"tocsin", b"\x80\x04K\x01.", b"tocsin-matcher\x01", b"tocsin-matcher\x02abc", bytes(500)]
)
def test_foreign_bytes_are_refused(foreign: bytes) -> None:
    with pytest.raises(MatcherError):
        Matcher.from_bytes(foreign)


def test_truncated_and_extended_bytes_are_refused() -> None:
    stored = Matcher(KINDS.items()).to_bytes()
    assert len(Matcher.from_bytes(bytearray(stored))) == len(KINDS)
    for size in [*range(200), *range(200, len(stored), 23), len(stored) - 1]:
        with pytest.raises(MatcherError):
            Matcher.from_bytes(stored[:size])
    with pytest.raises(MatcherError):
        Matcher.from_bytes(stored + b"\0")


def damaged(stored: bytes, draw: random.Random, first: int, end: int) -> bytes:
    """Another text of bytes: one to eight of them changed between `first` and `end`."""
    found = bytearray(stored)
    while found == stored:
        for _ in range(draw.choice([1, 1, 1, 2, 8])):
            place = draw.randrange(first, end)
            found[place] = draw.choice([draw.randrange(256), found[place] ^ 1 << draw.randrange(8), 0, 255])
    return bytes(found)


def test_every_changed_byte_is_noticed() -> None:
    stored, draw = Matcher(KINDS.items()).to_bytes(), random.Random(3)
    for _ in range(400):
        with pytest.raises(MatcherError):
            Matcher.from_bytes(damaged(stored, draw, 0, len(stored)))


# Bytes whose checksum was made to fit again: refused, or served somehow, but no kernel may be led outside its arrays.
# A crash ends the script with a signal. What was learnt about events is left alone: the largest part, and harmless.
FORGED = """
import random, sys
sys.path[:0] = [{root!r}, {root!r} + "/src"]
from tests.unit.test_matcher_wire import KINDS, damaged, sample
from tocsin.filters.index import Matcher, wire

draw = random.Random({seed})
matcher = Matcher(KINDS.items())
events = sample(3, 40)
for event in events:
    matcher.match(event)
stored = matcher.to_bytes()
start = len(wire._MAGIC)
end = len(stored) - matcher._live.view.observed.key_samples.used.nbytes
answers = {{}}
for variant in range({variants}):
    body = damaged(stored, draw, start + 16, end)[start + 16 :]
    try:
        broken = Matcher.from_bytes(wire._MAGIC + wire._checksum(body) + body)
    except Exception as error:
        answer = "refused" if type(error).__name__ == "MatcherError" else f"from_bytes: {{error!r}}"
    else:
        try:
            for event in events[:10]:
                broken.match(event)
            broken.match_batch(events)
            broken.add("new", "s = 'a' AND x > 1")
            broken.remove("equal")
            broken.optimize()
            broken.match_batch(events)
            broken.to_bytes()
            answer = "served"
        except Exception as error:
            answer = "failed"
    answers[answer] = answers.get(answer, 0) + 1
print(answers)
"""


@pytest.mark.parametrize("engine", ["numba", "numpy"])
def test_forged_bytes_never_crash(engine: str) -> None:
    script = FORGED.format(root=str(ROOT), seed=4, variants=400 if engine == "numba" else 100)
    run = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "TOCSIN_KERNELS": engine},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert run.returncode == 0, f"return code {run.returncode}\n{run.stdout}\n{run.stderr[-2000:]}"
    assert "'refused'" in run.stdout
    assert "from_bytes" not in run.stdout, run.stdout
