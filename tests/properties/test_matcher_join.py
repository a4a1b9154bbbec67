"""Several stored matchers joined are one matcher over all their filters, and live on like one."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.workloads import Content
from tests.strategies import conjunctions, events, filters
from tests.unit.test_matcher_wire import KINDS, sample
from tocsin import Event, Filter, Matcher, MatcherError

Key = str | int


def joined(texts: dict[Key, str], parts: int, seed: int = 1) -> Matcher:
    """Each filter in one of so many stored matchers, some of them maybe empty."""
    draw = random.Random(seed)
    divided: list[dict[Key, str]] = [{} for _ in range(parts)]
    for key, text in texts.items():
        draw.choice(divided)[key] = text
    return Matcher.from_bytes(*(Matcher(part.items()).to_bytes() for part in divided))


def check(matcher: Matcher, texts: dict[Key, str], asked: list[Event]) -> int:
    known = {key: Filter(text) for key, text in texts.items()}
    wanted = [sorted((key for key, each in known.items() if each.matches(event)), key=repr) for event in asked]
    assert [sorted(keys, key=repr) for keys in matcher.match_batch(asked)] == wanted
    assert [sorted(matcher.match(event), key=repr) for event in asked] == wanted
    assert len(matcher) == len(texts)
    return sum(map(len, wanted))


@settings(max_examples=60)
@given(
    st.lists(st.one_of(filters(), conjunctions()), min_size=2, max_size=16),
    st.lists(events(), min_size=1, max_size=6),
    st.integers(2, 5),
)
def test_joined_is_one(texts: list[str], asked: list[Event], parts: int) -> None:
    named: dict[Key, str] = dict(enumerate(texts))
    matcher = joined(named, parts)
    check(matcher, named, asked)
    named |= {f"late {key}": text for key, text in enumerate(texts[:3])}  # identical to some that are there
    matcher.add_many((key, text) for key, text in named.items() if isinstance(key, str))
    for key in (0, "late 0"):
        assert matcher.remove(key)
        del named[key]
    check(matcher, named, asked)
    check(Matcher.from_bytes(matcher.to_bytes()), named, asked)


@pytest.mark.parametrize("parts", [2, 3, 7])
def test_every_kind_of_test_survives(parts: int) -> None:
    asked = sample()
    assert check(joined(KINDS, parts), KINDS, asked) > 500
    matcher = joined(KINDS, parts)
    for key, text in KINDS.items():
        assert matcher.explain(key, asked[0]).matches is Filter(text).matches(asked[0])


def test_many_filters() -> None:
    content = Content(1e-2)
    texts: dict[Key, str] = {f"k{number}": content.filter() for number in range(3_000)}
    asked = [content.event() for _ in range(200)]
    assert check(joined(texts, 4), texts, asked) > 2_000


def test_the_same_key_in_two_parts_is_refused() -> None:
    one, other = Matcher([("a", "x > 1")]).to_bytes(), Matcher([("b", "x > 1"), ("a", "x > 2")]).to_bytes()
    with pytest.raises(MatcherError, match="the same key"):
        Matcher.from_bytes(one, other)


def test_what_is_no_stored_matcher_is_refused() -> None:
    good = Matcher([("a", "x > 1")]).to_bytes()
    with pytest.raises(MatcherError, match="not a stored matcher"):
        Matcher.from_bytes(good, b"other")
    with pytest.raises(MatcherError, match="bytes are expected"):
        Matcher.from_bytes(good, "text")  # type: ignore[arg-type]
