"""`match_pairs` says what `match_batch` says, in columns: through any life of a matcher, and while others change it."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.strategies import conjunctions, events, filters
from tocsin import Event, Matcher, MatcherError
from tocsin.filters.index import batch, engine

Key = str | int
TEXTS = st.one_of(filters(), conjunctions())
KEYS: dict[str, st.SearchStrategy[Any]] = {
    "text": st.text("abé", max_size=2),
    "number": st.sampled_from([*range(6), 2**63 - 1, -(2**63)]),
}
ARROW = {"text": pa.string(), "number": pa.int64()}


@pytest.fixture(params=["numba", "numpy"], autouse=True)
def engines(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    assert engine.wait()
    if request.param == "numpy":
        monkeypatch.setattr(engine, "_loaded", None)
    monkeypatch.setattr(batch, "CHUNK", 3)  # several chunks in every answer
    yield request.param


def pairs_of(matcher: Matcher, asked: Any) -> list[tuple[int, Key]]:
    rows, keys = matcher.match_pairs(asked)
    assert rows.dtype == np.int64
    assert (np.diff(rows) >= 0).all()
    return sorted(zip(rows.tolist(), keys.to_pylist(), strict=True), key=repr)


def expected(matcher: Matcher, asked: Any) -> list[tuple[int, Key]]:
    lists = matcher.match_batch(asked)
    return sorted(((row, key) for row, keys in enumerate(lists) for key in keys), key=repr)


@pytest.mark.parametrize("kind", KEYS)
def test_same_answer_through_any_life(kind: str) -> None:
    compared = 0

    @settings(max_examples=60)
    @given(
        st.lists(TEXTS, min_size=3, max_size=6),
        st.lists(
            st.tuples(st.sampled_from(["add", "add", "remove", "optimize", "store"]), KEYS[kind], st.integers(0, 5)),
            min_size=4,
            max_size=14,
        ),
        st.lists(events(), min_size=4, max_size=8),
    )
    def live(texts: list[str], steps: list[tuple[str, Key, int]], asked: list[Event]) -> None:
        nonlocal compared
        matcher = Matcher()
        texts = ["TRUE", "x IS NULL", *texts]  # few, so that keys share them
        for step, key, number in steps:
            if step == "add":
                matcher.add(key, texts[number % len(texts)])
            elif step == "remove":
                matcher.remove(key)
            elif step == "optimize":
                matcher.optimize()
            elif step == "store":
                matcher = Matcher.from_bytes(matcher.to_bytes())
            found = pairs_of(matcher, asked)
            assert found == expected(matcher, asked)
            compared += len(found)
        assert not len(matcher) or matcher.match_pairs(asked)[1].type == ARROW[kind]

    live()
    assert compared > 500


def test_residues_and_shared_keys_stand_in_the_order_of_rows() -> None:
    texts = {
        "re": "s RLIKE 'a$'",
        "re too": "s RLIKE 'a$'",
        "x": "x > 1",
        "x too": "x > 1",
        "or": "x = 2 OR s LIKE 'b%'",
    }
    matcher = Matcher(texts.items())
    asked = [Event("t", "s", data={"x": n % 4, "s": "ba" if n % 2 else "b"}) for n in range(20)]
    rows, keys = matcher.match_pairs(asked)
    assert (np.diff(rows) >= 0).all()
    assert set(keys.to_pylist()) == set(texts)
    assert pairs_of(matcher, asked) == expected(matcher, asked)
    matcher.remove("re")
    matcher.remove("x too")
    assert pairs_of(matcher, asked) == expected(matcher, asked)
    assert set(matcher.match_pairs(asked)[1].to_pylist()) == {"re too", "x", "or"}


def test_keys_of_two_kinds_are_refused() -> None:
    matcher = Matcher([("a", "x > 1"), (1, "x > 2")])
    with pytest.raises(MatcherError, match="some keys are text and some are whole numbers"):
        matcher.match_pairs([Event("t", "s")])
    matcher.remove("a")
    assert matcher.match_pairs([Event("t", "s", data={"x": 3})])[1].to_pylist() == [1]


def test_a_key_beyond_64_bits_is_refused() -> None:
    with pytest.raises(MatcherError, match="more than 64 bits"):
        Matcher([(2**63, "x > 1")]).match_pairs([])


def test_nothing_in_nothing_out() -> None:
    rows, keys = Matcher().match_pairs([Event("t", "s")])
    assert (len(rows), len(keys), keys.type) == (0, 0, pa.string())
    rows, keys = Matcher([(1, "x > 1")]).match_pairs([])
    assert (len(rows), len(keys), keys.type) == (0, 0, pa.int64())


@pytest.mark.parametrize("wrong", [Event("t", "s"), "x", b"x", 7, None])
def test_what_is_no_list_of_events_is_refused(wrong: Any) -> None:
    with pytest.raises(MatcherError, match="a list of events or Arrow data is expected"):
        Matcher([("a", "x > 1")]).match_pairs(wrong)


def test_fields_are_what_filters_look_at() -> None:
    matcher = Matcher([(1, "x > 1 AND data.a.b = 'c'"), (2, "lower(s) = 'a' OR contains(`odd name`, type)")])
    assert matcher.fields() == {("x",), ("data", "a", "b"), ("s",), ("odd name",), ("type",)}


def test_matching_while_filters_come_and_go() -> None:
    """Keys name their own filter, so a key that got another's number would be seen at once."""
    permanent = {f"= {n}": f"x = {n}" for n in range(20)}
    matcher = Matcher(permanent.items())
    asked = [Event("t", "s", data={"x": n % 20, "y": n % 7}) for n in range(40)]
    stop, failures = threading.Event(), []

    def change() -> None:
        draw = random.Random(1)
        try:
            turn = 0
            while not stop.is_set():
                turn += 1
                names = [f"y {draw.randrange(7)} {turn} {place}" for place in range(30)]
                for name in names:
                    matcher.add(name, f"y = {name.split()[1]}" + (f" AND z{turn % 9} IS NULL" if turn % 2 else ""))
                if turn % 40 == 0:
                    matcher.optimize()
                for name in names:
                    matcher.remove(name)
        except BaseException as error:
            failures.append(error)

    writer = threading.Thread(target=change)
    writer.start()
    try:
        seen = 0
        for _ in range(20):
            found = pairs_of(matcher, asked)
            assert {pair for pair in found if pair[1] in permanent} == {(n, f"= {n % 20}") for n in range(40)}
            others = [(row, str(key).split()) for row, key in found if key not in permanent]
            assert all(int(words[1]) == row % 7 for row, words in others)
            seen += len(others)
    finally:
        stop.set()
        writer.join()
    assert not failures
    assert seen
    assert pairs_of(matcher, asked) == expected(matcher, asked)
