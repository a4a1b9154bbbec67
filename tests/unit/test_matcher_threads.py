"""Matching while others add, remove and rebuild: every answer is one that some moment of the call would have given."""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from tocsin import Event, Filter
from tocsin.filters.index import Matcher, batch, engine, live
from tocsin.filters.index.registry import Registry
from tocsin.filters.index.view import View

Key = str | int
SECONDS = 1.5

PERMANENT: dict[Key, str] = {
    **{f"x{i}": f"x > {i} AND s = 'v{i % 5}'" for i in range(100)},
    **{f"or{i}": f"x = {i} OR y = {i}" for i in range(20)},
    **{f"re{i}": f"s RLIKE '{i}$' AND x > 3" for i in range(5)},
    **{f"pre{i}": f"s LIKE 'v{i}%'" for i in range(10)},
    "all": "TRUE",
    "twin a": "x > 50 AND y IS NOT NULL",
    "twin b": "y IS NOT NULL AND x > 50",
}


def sample(count: int, seed: int) -> list[Event]:
    draw = random.Random(seed)
    return [
        Event("t", "s", id="e", data={"x": draw.randrange(110), "y": draw.randrange(30), "s": f"v{draw.randrange(12)}"})
        for _ in range(count)
    ]


class Churn:
    """Filters that come and go. The writer notes, on one clock, when each change began and when it was finished."""

    def __init__(self, matcher: Matcher) -> None:
        self.matcher = matcher
        self._ticks = itertools.count(1)
        self.texts: dict[Key, str] = {}
        self.add_began: dict[Key, int] = {}
        self.add_done: dict[Key, int] = {}
        self.remove_began: dict[Key, int] = {}
        self.remove_done: dict[Key, int] = {}

    def tick(self) -> int:
        return next(self._ticks)  # one C call: no two threads get the same number

    def add(self, key: Key, text: str) -> None:
        self.texts[key] = text
        self.add_began[key] = self.tick()
        self.matcher.add(key, text)
        self.add_done[key] = self.tick()

    def remove(self, key: Key) -> None:
        self.remove_began[key] = self.tick()
        assert self.matcher.remove(key)
        self.remove_done[key] = self.tick()

    def check(self, found: list[Key], event: Event, began: int, ended: int, keep: Callable[[str, Event], bool]) -> None:
        """Hold an answer against the notes; to be called when all threads have ended."""
        assert len(found) == len(set(found)), "a key is reported once"
        there = set(found)
        for key in there - PERMANENT.keys():
            assert key in self.texts, f"{key!r} was never a key"
            assert self.add_began[key] < ended, "reported before it was added"
            assert self.remove_done.get(key, ended) >= began, "reported though it was removed before the call began"
            assert keep(self.texts[key], event), f"{self.texts[key]} is not true for {event.data}"
        for key, done in self.add_done.items():
            if done < began and self.remove_began.get(key, ended) >= ended and keep(self.texts[key], event):
                assert key in there, f"{self.texts[key]} was there all the time and is true for {event.data}"


@pytest.mark.parametrize("name", ["numba", "numpy"])
def test_matching_while_filters_come_and_go(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if name == "numpy":
        monkeypatch.setattr(engine, "_loaded", None)
    else:
        assert engine.wait()
    monkeypatch.setattr(batch, "BUCKET_MAJOR", 300)  # both ways through a batch: the number of postings changes
    matcher = Matcher(PERMANENT.items())
    churn = Churn(matcher)
    events = sample(60, 1)
    permanent = [frozenset(key for key, text in PERMANENT.items() if Filter(text).matches(event)) for event in events]
    stop = threading.Event()
    answers: list[tuple[int, int, int, list[Key]]] = []
    failures: list[BaseException] = []

    def guarded(work: Callable[[], None]) -> Callable[[], None]:
        def run() -> None:
            try:
                while not stop.is_set():
                    work()
            except BaseException as error:
                failures.append(error)
                stop.set()

        return run

    numbers = itertools.count()
    draw = random.Random(2)

    def write() -> None:
        made: list[Key] = []
        for _ in range(40):
            i = next(numbers)
            key: Key = i if i % 2 else f"churn{i}"
            shape = draw.randrange(7)
            churn.add(
                key,
                [
                    f"x > {i % 100}",
                    f"s = 'v{i % 12}' AND new{i} > 1",  # a dimension nobody has
                    f"s = 'v{i % 12}' AND new{i} IS NULL AND x > {i % 90}",
                    f"s LIKE 'v{i % 12}%' AND s <> 'v{i}'",
                    f"y = {i % 30} OR s = 'text{i}' OR x < {i % 20}",
                    f"s RLIKE '[{i % 10}]'",
                    PERMANENT[f"x{i % 100}"],  # identical to a permanent one
                ][shape],
            )
            made.append(key)
        draw.shuffle(made)
        for key in made[:35]:
            churn.remove(key)

    def rebuild() -> None:
        matcher.optimize()
        time.sleep(0.01)

    def single(seed: int) -> Callable[[], None]:
        pick = random.Random(seed)

        def work() -> None:
            number = pick.randrange(len(events))
            began = churn.tick()
            found = matcher.match(events[number])
            answers.append((number, began, churn.tick(), found))

        return work

    def batched() -> None:
        began = churn.tick()
        found = matcher.match_batch(events)
        ended = churn.tick()
        answers.extend((number, began, ended, keys) for number, keys in enumerate(found))

    workers = [write, rebuild, single(3), single(4), batched]
    threads = [threading.Thread(target=guarded(work)) for work in workers]
    for thread in threads:
        thread.start()
    stop.wait(SECONDS)
    patience = 10 * SECONDS
    while len(answers) <= 100 and patience > 0 and not stop.wait(SECONDS):  # a slow machine
        patience -= SECONDS
    stop.set()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    matcher._live.settle()

    known: dict[tuple[str, int], bool] = {}
    compiled = {text: Filter(text) for text in churn.texts.values()}

    def true(text: str, event: Event) -> bool:
        pair = (text, id(event))
        if pair not in known:
            known[pair] = compiled[text].matches(event)
        return known[pair]

    churned = 0
    step = max(1, len(answers) // 400)  # the notes grow long: look at an even sample of the answers in full
    for place, (number, began, ended, found) in enumerate(answers):
        assert permanent[number] == {key for key in found if key in PERMANENT}
        assert len(found) == len(set(found))
        if place % step == 0:
            churn.check(found, events[number], began, ended, true)
            churned += len(set(found) - PERMANENT.keys())
    assert len(answers) > 100
    assert churned > 100
    assert len(churn.remove_done) > 50
    assert matcher.stats()["rebuilds"] > 3
    left = {key: text for key, text in churn.texts.items() if key not in churn.remove_done}
    assert len(matcher) == len(PERMANENT) + len(left)
    for event, always in zip(events, permanent, strict=True):
        assert set(matcher.match(event)) == always | {key for key, text in left.items() if true(text, event)}


def test_several_threads_may_add_and_remove() -> None:
    matcher = Matcher()
    failures: list[BaseException] = []

    def work(mine: int) -> None:
        try:
            for i in range(300):
                assert matcher.add(f"{mine}/{i}", f"x = {i} AND y{mine} > {i % 7}")
                assert matcher.add(f"{mine}+{i}", f"x = {i}")  # the others add it too
                if i % 3 == 0:
                    assert matcher.remove(f"{mine}/{i}")
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(mine,)) for mine in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    matcher._live.settle()
    assert not failures
    assert len(matcher) == 4 * 500
    assert matcher.stats()["distinct"] == 4 * 200 + 300
    found = matcher.match(Event("t", "s", data={"x": 7, "y2": 9}))
    assert sorted(found) == ["0+7", "1+7", "2+7", "2/7", "3+7"]  # type: ignore[type-var]


# -- moments that threads rarely hit, brought about on purpose: a change at one place within a match, or the reverse


def at(patch: pytest.MonkeyPatch, owner: Any, name: str, action: Callable[[], None]) -> None:
    """Do something once, just before `owner.name` is called next."""
    original = getattr(owner, name)

    def wrapper(*arguments: Any) -> Any:
        patch.setattr(owner, name, original)
        action()
        return original(*arguments)

    patch.setattr(owner, name, wrapper)


def event(**data: Any) -> Event:
    return Event("t", "s", id="e", data=data)


@pytest.mark.parametrize("count", [3, 60])
def test_a_match_just_before_a_new_key_is_known(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    assert engine.wait()
    keys = [f"k{i}" for i in range(count)]
    matcher = Matcher((key, f"x > {-i}") for i, key in enumerate(keys, 1))
    seen: list[list[Key]] = [matcher.match(event(x=1))]
    at(
        monkeypatch,
        Registry,
        "attach",
        lambda: seen.extend([matcher.match(event(x=1)), *matcher.match_batch([event(x=1)])]),
    )
    matcher.add("new", "x > -1000")
    seen.append(matcher.match(event(x=1)))
    assert [sorted(map(str, found)) for found in seen] == [sorted(keys)] * 3 + [sorted([*keys, "new"])]


def test_a_match_just_before_a_filter_is_marked_as_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    assert engine.wait()
    matcher = Matcher([("a", "x > 1")])
    seen: list[list[Key]] = []
    at(
        monkeypatch,
        View,
        "mark_shared",
        lambda: seen.extend([matcher.match(event(x=5)), *matcher.match_batch([event(x=5)])]),
    )
    matcher.add("b", "x > 1")
    assert len(seen) == 2
    for found in seen:
        assert set(found) <= {"a", "b"}
        assert "a" in found


@pytest.mark.parametrize("name", ["numba", "numpy"])
@pytest.mark.parametrize("text", ["s = 'a' AND y BETWEEN 4 AND 8", "s = 'a' AND z <> 'q'", "s = 'a' AND data.y > 1"])
def test_a_new_dimension_while_a_batch_is_matched(name: str, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows were made for the dimensions there were; a filter added now asks for one behind their end."""
    if name == "numpy":
        monkeypatch.setattr(engine, "_loaded", None)
    else:
        assert engine.wait()
    matcher = Matcher([("a", "s = 'a'"), ("b", "x > 1"), ("c", "s <> 'b'")])
    asked = [event(s="a", x=5), event(s="a", x=7), event(s="a", x=6), event(s="b", x=1)]
    at(monkeypatch, batch, "_match", lambda: matcher.add("new", text))
    assert [sorted(keys) for keys in matcher.match_batch(asked)] == [["a", "b", "c"]] * 3 + [[]]  # type: ignore[type-var]


def test_a_new_dimension_while_numpy_matches_one_event(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "_loaded", None)
    matcher = Matcher([("a", "s = 'a'"), ("b", "x > 1")])
    at(monkeypatch, batch, "plain_pairs", lambda: matcher.add("new", "s = 'a' AND y BETWEEN 4 AND 8"))
    assert sorted(matcher.match(event(s="a", x=5))) == ["a", "b"]  # type: ignore[type-var]


def test_a_rebuild_while_an_event_is_matched(monkeypatch: pytest.MonkeyPatch) -> None:
    """An entry's number gets another owner: the answer must not name it."""
    assert engine.wait()
    matcher = Matcher([("old", "x = 1 AND s RLIKE 'a'"), ("stay", "x = 1")])

    def change() -> None:
        matcher.remove("old")
        matcher.optimize()
        matcher.add("other", "y = 1")

    at(monkeypatch, Matcher, "_finish", change)
    assert matcher.match(event(x=1, s="a")) == ["stay"]


@pytest.mark.parametrize("filters", [1, 400])
def test_a_second_key_while_the_index_is_rebuilt(filters: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The build works on a copy of the records: one that became shared meanwhile must be marked in the new segment."""
    matcher = Matcher([("first", "x > 1"), *((i, f"y = {i}") for i in range(filters - 1))])
    original = live.build

    def build(*arguments: Any) -> Any:
        segment = original(*arguments)
        matcher.add("second", "x > 1")
        return segment

    event = Event("t", "s", data={"x": 2})
    monkeypatch.setattr(live, "build", build)
    matcher.optimize()
    assert sorted(matcher.match(event), key=str) == ["first", "second"]
    assert [sorted(keys, key=str) for keys in matcher.match_batch([event] * 3)] == [["first", "second"]] * 3
    matcher.remove("first")
    assert matcher.match(event) == ["second"]


def test_a_number_with_a_new_owner_while_a_batch_asks_its_residues(monkeypatch: pytest.MonkeyPatch) -> None:
    """The key of a conjunction that was found must not be looked up after its number went to another filter."""
    matcher = Matcher([("old", "s RLIKE 'a'")])
    original, changed = Matcher._true_residues, []

    def change(*arguments: Any) -> list[int]:
        entries = original(*arguments)
        if not changed:
            changed.append(matcher.remove("old"))
            matcher.optimize()
            matcher.add("new", "s = 'none of these'")
        return entries

    monkeypatch.setattr(Matcher, "_true_residues", change)
    assert matcher.match_batch([Event("t", "s", data={"s": "a"})]) == [[]]
    assert changed == [True]
