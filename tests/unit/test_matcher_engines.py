"""Two engines, two ways through a batch, one answer; and kernels that never write beyond their buffers."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.workloads import Content
from tests.strategies import events, filters
from tocsin import Event, Filter
from tocsin.filters.index import Matcher, batch, engine
from tocsin.filters.index.header import Header

SOURCE = Path(__file__).resolve().parents[2] / "src"
Key = str | int


@pytest.fixture(autouse=True)
def kernels() -> Iterator[Any]:
    """Wait for the kernels: a test that says Numba must not run on NumPy because the compiler was slow."""
    pytest.importorskip("numba")
    assert engine.wait(), engine.failure()
    yield engine.kernels()


def made(texts: dict[Key, str], name: str, patch: pytest.MonkeyPatch) -> Matcher:
    with patch.context() as inner:
        if name == "numpy":
            inner.setattr(engine, "_loaded", None)
        return Matcher(texts.items())


def ask(matcher: Matcher, asked: list[Event], name: str, patch: pytest.MonkeyPatch) -> list[list[Key]]:
    """Single and batch answers, which must agree."""
    with patch.context() as inner:
        if name == "numpy":
            inner.setattr(engine, "_loaded", None)
            matcher._live.view.pool.clear()  # those made with kernels
        assert matcher.stats()["engine"] == name
        found = [sorted(matcher.match(event), key=repr) for event in asked]
        assert [sorted(keys, key=repr) for keys in matcher.match_batch(asked)] == found
        return found


def linear(texts: dict[Key, str], asked: list[Event]) -> list[list[Key]]:
    known = {key: Filter(text) for key, text in texts.items()}
    return [sorted((key for key, each in known.items() if each.matches(event)), key=repr) for event in asked]


@given(st.lists(filters(), min_size=1, max_size=12), st.lists(events(), min_size=1, max_size=6), st.booleans())
def test_both_engines_agree_with_linear_evaluation(texts: list[str], asked: list[Event], built: bool) -> None:
    numbered: dict[Key, str] = dict(enumerate(texts))
    with pytest.MonkeyPatch.context() as patch:
        wanted = linear(numbered, asked)
        for name in ("numba", "numpy"):
            matcher = made(numbered, name, patch)
            if built:
                matcher.optimize()
            assert ask(matcher, asked, name, patch) == wanted


@pytest.mark.parametrize("in_delta", [0, 100])
def test_both_engines_agree_on_a_workload(in_delta: int, monkeypatch: pytest.MonkeyPatch) -> None:
    content = Content(0.01, seed=5)
    texts: dict[Key, str] = {i: content.filter() for i in range(2000)}
    texts |= {f"or{i}": f"({content.filter()}) OR ({content.filter()})" for i in range(100)}
    later: dict[Key, str] = {f"late{i}": content.filter() for i in range(in_delta)}
    asked = [content.event() for _ in range(60)]
    answers = []
    for name in ("numba", "numpy"):
        matcher = made(texts, name, monkeypatch)
        for key, text in later.items():
            matcher.add(key, text)
        assert (matcher.stats()["in_delta"] > 0) is (in_delta > 0)
        answers.append(ask(matcher, asked, name, monkeypatch))
    assert answers[0] == answers[1]
    assert answers[0][:15] == linear(texts | later, asked[:15])
    assert sum(map(len, answers[0])) > 100


def test_engines_count_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """NumPy leaves the upper ends of second tests to the whole test, so it may test more, and never matches more."""
    monkeypatch.setattr(batch, "BUCKET_MAJOR", 10**9)  # a sweep does not skip what a walk skips
    content = Content(0.01, seed=6)
    texts: dict[Key, str] = {i: content.filter() for i in range(1500)}
    asked = [content.event() for _ in range(50)]
    stats = {}
    for name in ("numba", "numpy"):
        matcher = made(texts, name, monkeypatch)
        ask(matcher, asked, name, monkeypatch)
        stats[name] = matcher.stats()
    for counter in ("events", "scanned", "matched"):
        assert stats["numba"][counter] == stats["numpy"][counter] > 0
    assert stats["numba"]["tested"] <= stats["numpy"]["tested"]


def test_a_matcher_changes_over_when_kernels_arrive(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as inner:
        inner.setattr(engine, "_loaded", None)
        matcher = Matcher([("a", "x > 1"), ("b", "s RLIKE 'a'")])
        event = Event("t", "s", data={"x": 2, "s": "a"})
        assert sorted(matcher.match(event)) == ["a", "b"]  # type: ignore[type-var]
        assert matcher.stats()["engine"] == "numpy"
    for _ in range(3):
        assert sorted(matcher.match(event)) == ["a", "b"]  # type: ignore[type-var]
    assert matcher.stats()["engine"] == "numba"
    assert all(scratch.ask is not None for scratch in matcher._live.view.pool)
    assert matcher.stats()["events"] == 4


# -- choosing an engine


def run(script: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script],
        env={**os.environ, "PYTHONPATH": str(SOURCE), **environment},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


USE = """
from tocsin import Event
from tocsin.filters.index import Matcher, engine
matcher = Matcher((i, f"x > {i} AND s LIKE 'a%' OR s RLIKE '^b'") for i in range(400))
event = Event("t", "s", data={"x": 3, "s": "abc"})
assert sorted(matcher.match(event)) == [0, 1, 2]
assert [sorted(keys) for keys in matcher.match_batch([event] * 3)] == [[0, 1, 2]] * 3
print(engine.wait(), matcher.stats()["engine"], engine.failure())
"""

WITHOUT_NUMBA = """
import sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("numba", "llvmlite"):
            raise ImportError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Blocked())
"""


def test_without_numba_matching_works_and_says_why() -> None:
    said = run(WITHOUT_NUMBA + USE, TOCSIN_KERNELS="")
    assert said.startswith("False numpy Numba is not installed (No module named 'numba'")
    assert "pip install 'tocsin[fast]'" in said


def test_the_environment_chooses_the_engine() -> None:
    assert run(USE, TOCSIN_KERNELS="numpy").split() == ["False", "numpy", "None"]
    assert run(USE, TOCSIN_KERNELS="numba").split() == ["True", "numba", "None"]
    assert run("import sys\n" + USE + "assert 'numba' not in sys.modules", TOCSIN_KERNELS="numpy")


# -- batches, bucket by bucket


def shapes(seed: int, count: int) -> dict[Key, str]:
    """Filters over few names: many meet, with OR (several alternatives), residues, sets, members and NULL."""
    draw = random.Random(seed)
    found: dict[Key, str] = {}
    for i in range(count):
        n, m = draw.randrange(20), draw.randrange(20)
        found[i] = draw.choice(
            [
                f"x > {n} AND s = 'v{m}'",
                f"x > {n} OR s = 'v{m}' OR y < {m}",
                f"(s = 'v{n}' AND x > {m}) OR (s = 'v{n}' AND y > {m}) OR (s = 'v{n}' AND x < {n})",
                f"s RLIKE '{n}$' AND x < {m}",
                f"s RLIKE '{n}' OR x = {m}",
                f"s LIKE 'v{n}%'",
                f"s NOT IN ('v{n}', 'v{m}') AND y IS NOT NULL",
                f"y IN ({n}, {m}, 3)",
                f"array_contains(tags, {n}) AND x >= 0",
                f"array_contains(tags, {n}) OR array_contains(tags, {m})",
                f"x < {n} OR (x > {n + 2} AND x < {n + 4})",
                "z IS NULL",
            ]
        )
    return found


def sample(seed: int, count: int) -> list[Event]:
    draw = random.Random(seed)
    found = []
    for _ in range(count):
        data: dict[str, Any] = {"x": draw.randrange(22), "y": draw.choice([None, draw.randrange(20)])}
        data["s"] = f"v{draw.randrange(25)}"
        if draw.random() < 0.4:
            data["tags"] = [draw.randrange(22) for _ in range(draw.randrange(6))]
        if draw.random() < 0.2:
            data = {"z": draw.choice([None, 1])}
        found.append(Event("t", "s", id="e", data=data))
    return found


@pytest.mark.parametrize("in_delta", [0, 60])
@pytest.mark.parametrize("events", [32, 300, 2100])
def test_bucket_by_bucket_is_row_by_row(in_delta: int, events: int, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = shapes(1, 500)
    matcher = Matcher(texts.items())
    later: dict[Key, str] = {f"late{i}": text for i, text in shapes(2, in_delta).items()}
    for key, text in later.items():
        matcher.add(key, text)
    assert (matcher.stats()["in_delta"] > 0) is (in_delta > 0)
    asked = sample(3, events)
    rows = [sorted(keys, key=repr) for keys in matcher.match_batch(asked)]
    monkeypatch.setattr(batch, "BUCKET_MAJOR", 0)
    called = []
    original = engine.batch_kernels().match_buckets
    monkeypatch.setattr(engine.batch_kernels(), "match_buckets", lambda *a: called.append(1) or original(*a))
    found = matcher.match_batch(asked)
    assert called
    assert all(len(keys) == len(set(keys)) for keys in found)
    assert [sorted(keys, key=repr) for keys in found] == rows
    assert rows[:25] == linear(texts | later, asked[:25])
    assert rows[:25] == [sorted(matcher.match(event), key=repr) for event in asked[:25]]
    assert sum(map(len, rows)) > 10 * events


@settings(max_examples=60)
@given(st.lists(filters(), min_size=1, max_size=12), st.lists(events(), min_size=1, max_size=4))
def test_bucket_by_bucket_on_any_filters(texts: list[str], asked: list[Event]) -> None:
    numbered: dict[Key, str] = dict(enumerate(texts))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batch, "BUCKET_MAJOR", 0)
        matcher = Matcher(numbered.items())
        matcher.optimize()
        found = matcher.match_batch(asked * 32)
        assert [sorted(keys, key=repr) for keys in found] == linear(numbered, asked) * 32


@pytest.mark.parametrize("way", ["rows", "buckets", "numpy"])
def test_results_larger_than_the_first_buffers(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    count, asked = (3000, 500) if way != "numpy" else (3000, 20)
    matcher = Matcher((i, f"x > {-1 - i} OR s = 'v{i}'" if i % 3 else f"x > {-1 - i}") for i in range(count))
    monkeypatch.setattr(batch, "BUCKET_MAJOR", 0 if way == "buckets" else 10**9)
    if way == "numpy":
        monkeypatch.setattr(engine, "_loaded", None)
        matcher._live.view.pool.clear()
    everything = list(range(count))
    events = [Event("t", "s", id="e", data={"x": 1, "s": f"v{i}"}) for i in range(asked)]
    assert matcher.match(events[0]) == everything or sorted(matcher.match(events[0])) == everything  # type: ignore[type-var]
    for _ in range(2):
        found = matcher.match_batch(events)
        assert len(found) == asked
        assert all(sorted(keys) == everything for keys in found)  # type: ignore[type-var]


def test_residues_larger_than_the_first_buffers(monkeypatch: pytest.MonkeyPatch) -> None:
    matcher = Matcher((i, f"s RLIKE '^v{i % 50}' AND x > {-i}") for i in range(400))
    events = [Event("t", "s", id="e", data={"x": 1, "s": f"v{i}"}) for i in range(70)]
    wanted = [sorted(matcher.match(event)) for event in events]  # type: ignore[type-var]
    assert sum(map(len, wanted)) > 500
    for threshold in (10**9, 0):
        monkeypatch.setattr(batch, "BUCKET_MAJOR", threshold)
        assert [sorted(keys) for keys in matcher.match_batch(events)] == wanted  # type: ignore[type-var]


# -- nothing is written beyond a buffer


class Fences:
    """Puts untouched ground behind every array a kernel writes to, and looks at it afterwards."""

    WRITTEN = ("orders_in", "row_codes", "row_keys", "out_entries", "out_residues", "entry_seen", "buckets", "heads")
    GROUND, MARK = 20_000, 0x5A5A5A5A

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._fenced: list[tuple[str, Any, int]] = []
        pin = Header.pin

        def fenced_pin(header: Header, name: str, array: Any) -> None:
            if name in self.WRITTEN:
                larger = np.full(len(array) + self.GROUND, self.MARK, array.dtype)
                larger[: len(array)] = array
                self._fenced.append((name, larger, len(array)))
                array = larger
            pin(header, name, array)

        patch.setattr(Header, "pin", fenced_pin)

    def broken(self) -> set[str]:
        """Names of arrays that were written beyond their end."""
        return {name for name, array, size in self._fenced if (array[size:] != self.MARK).any()}

    def __len__(self) -> int:
        return len(self._fenced)


@pytest.mark.parametrize("threshold", [0, 10**9])
def test_kernels_stay_inside_their_buffers(threshold: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch, "BUCKET_MAJOR", threshold)
    fences = Fences(monkeypatch)
    matcher = Matcher(shapes(7, 600).items())
    for key, text in shapes(8, 100).items():
        matcher.add(f"late{key}", text)
    # Results of one event are read from an array that is no longer the kernel's own, so look at batches only.
    matcher.match_batch(sample(9, 200))
    assert len(fences) >= len(Fences.WRITTEN)
    assert fences.broken() == set()


@pytest.mark.parametrize("built", [True, False])
@pytest.mark.parametrize("threshold", [0, 10**9])
def test_an_event_that_satisfies_many_alternatives_of_one_filter(
    built: bool, threshold: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hundreds of true alternatives in one bucket belong to one entry: there is room for entries, not alternatives."""
    monkeypatch.setattr(batch, "BUCKET_MAJOR", threshold)
    names = [f"a{i}" for i in range(200)]
    matcher = Matcher([("b", "x = 1"), *((i, f"x = {i}") for i in range(2, 10))])
    matcher.optimize()
    values = dict.fromkeys(names, 5)
    fences = Fences(monkeypatch)
    matcher.add("big", " OR ".join(f"(x = 1 AND {name} > 1)" for name in names))
    if built:
        for _ in range(2000):  # so that x = 1 is the rarest test of every alternative
            matcher.match(Event("t", "s", id="e", data={"x": 5, **values}))
        matcher.optimize()
    assert matcher.stats()["in_delta"] == (0 if built else 200)
    found = matcher.match_batch([Event("t", "s", id="e", data={"x": 1, **values})] * 40)
    assert fences.broken() == set()
    assert [sorted(keys) for keys in found] == [["b", "big"]] * 40  # type: ignore[type-var]
