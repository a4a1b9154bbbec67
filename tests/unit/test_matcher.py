"""The matcher's promises, one by one; every answer is checked against asking each filter in turn."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from benchmarks.workloads import Content
from tests import strategies
from tocsin import Event, Filter
from tocsin.errors import FilterError, FilterLimitError, MatcherError
from tocsin.filters.index import Matcher
from tocsin.filters.index.header import WATCH
from tocsin.filters.index.space import MAX_COMPUTED_TERMS
from tocsin.filters.limits import Limits

Key = str | int


def event(attributes: Mapping[str, Any] | None = None, **data: Any) -> Event:
    return Event("t", "s", id="e", data=data, attributes=attributes or {})


def expected(filters: Mapping[Key, str], asked: Event) -> set[Key]:
    return {key for key, text in filters.items() if Filter(text).matches(asked)}


def check(matcher: Matcher, filters: Mapping[Key, str], events: Iterable[Event]) -> int:
    """Compare all three ways of asking with linear evaluation; returns how many matches there were."""
    events = list(events)
    matches = 0
    for asked, from_batch in zip(events, matcher.match_batch(events), strict=True):
        found, wanted = matcher.match(asked), expected(filters, asked)
        assert len(found) == len(set(found)), "a key is reported once"
        assert set(found) == wanted
        assert sorted(from_batch, key=str) == sorted(found, key=str)
        matches += len(wanted)
    return matches


# -- adding and removing


def test_add_says_whether_anything_changed() -> None:
    matcher = Matcher()
    assert matcher.add("a", "x > 1") is True
    assert matcher.add("a", "x > 1") is False
    assert matcher.add("a", "1 < x") is False, "the same filter in other words"
    assert matcher.add("a", Filter("x > 2")) is True
    assert matcher.match(event(x=2)) == []
    assert matcher.match(event(x=3)) == ["a"]


def test_remove_says_whether_there_was_one() -> None:
    matcher = Matcher([("a", "x = 1"), (7, "x = 1"), ("b", "y = 1")])
    assert matcher.remove("a") is True
    assert matcher.remove("a") is False
    assert matcher.remove("never") is False
    assert matcher.match(event(x=1, y=1)) in ([7, "b"], ["b", 7])


def test_length_and_membership_follow_changes() -> None:
    matcher = Matcher([("a", "x = 1"), ("b", "x = 1")])
    assert len(matcher) == 2
    assert "a" in matcher
    assert 1 not in matcher
    assert "c" not in matcher
    matcher.add("a", "x = 2")
    assert len(matcher) == 2
    matcher.remove("a")
    assert len(matcher) == 1
    assert "a" not in matcher


def test_add_many_counts_what_changed() -> None:
    matcher = Matcher()
    assert matcher.add_many([("a", "x = 1"), ("b", Filter("x = 1")), ("a", "x = 1"), ("a", "x = 2")]) == 3
    assert matcher.add_many([]) == 0
    assert matcher.match(event(x=1)) == ["b"]
    assert matcher.match(event(x=2)) == ["a"]


def test_text_and_number_keys_are_told_apart() -> None:
    matcher = Matcher([("1", "x = 1"), (1, "x > 0"), (-5, "x < 2"), (2**70, "x = 1"), ("", "x = 1"), ("é😀", "x = 1")])
    assert set(matcher.match(event(x=1))) == {"1", 1, -5, 2**70, "", "é😀"}
    assert matcher.remove(1) is True
    assert "1" in matcher


@pytest.mark.parametrize("key", [True, False, 1.0, None, b"a", ("a",), object()])
def test_other_keys_are_refused(key: Any) -> None:
    matcher = Matcher()
    with pytest.raises(MatcherError, match="text or a whole number"):
        matcher.add(key, "x = 1")
    assert len(matcher) == 0
    assert matcher.stats()["distinct"] == 0


def test_a_bad_filter_text_changes_nothing() -> None:
    matcher = Matcher([("a", "x = 1")])
    before = matcher.stats()
    for text in ("x > > 1", "", "x =", "nosuch(x) = 1", "x RLIKE '('"):
        with pytest.raises(FilterError):
            matcher.add("a", text)
        with pytest.raises(FilterError):
            matcher.add("b", text)
    assert matcher.stats() == before
    assert len(matcher) == 1
    assert matcher.match(event(x=1)) == ["a"]


def test_limits_of_filters_reach_the_caller() -> None:
    matcher = Matcher([("a", "x = 1")])
    with pytest.raises(FilterLimitError) as raised:
        matcher.add("a", "x = 1 OR " * 40_000 + "x = 2")
    assert raised.value.limit == "length"
    with pytest.raises(FilterLimitError):
        matcher.add("b", " AND ".join(f"(a{i} = 1 OR b{i} = 1)" for i in range(11)))
    with pytest.raises(FilterLimitError):
        Filter("x = 1 AND y = 2", limits=Limits(length=5))
    assert matcher.match(event(x=1)) == ["a"]
    assert len(matcher) == 1


# -- identical filters


def test_identical_filters_share_one_entry() -> None:
    matcher = Matcher([("a", "x = 1 AND y > 2"), ("b", "y > 2 AND x = 1"), (3, "2 < y AND 1 = x"), ("d", "x = 1")])
    stats = matcher.stats()
    assert (stats["filters"], stats["distinct"]) == (4, 2)
    asked = event(x=1, y=3)
    for _ in range(2):
        assert sorted(map(str, matcher.match(asked))) == ["3", "a", "b", "d"]
        assert sorted(map(str, matcher.match_batch([asked])[0])) == ["3", "a", "b", "d"]
        matcher.optimize()
    assert matcher.remove("a")
    assert sorted(map(str, matcher.match(asked))) == ["3", "b", "d"]
    assert matcher.remove(3)
    assert sorted(matcher.match(asked)) == ["b", "d"]  # type: ignore[type-var]
    assert matcher.stats()["distinct"] == 2
    assert matcher.remove("b")
    assert matcher.match(asked) == ["d"]
    assert matcher.stats()["distinct"] == 1


@pytest.mark.parametrize("text", ["x = 1 OR y = 1", "s RLIKE '^a'", "x = 1 AND s RLIKE 'a'", "TRUE"])
def test_sharing_works_for_every_kind_of_filter(text: str) -> None:
    matcher = Matcher([("a", text), ("b", text)])
    asked = event(x=1, y=1, s="a")
    for _ in range(2):
        assert sorted(matcher.match(asked)) == ["a", "b"]  # type: ignore[type-var]
        assert sorted(matcher.match_batch([asked])[0]) == ["a", "b"]  # type: ignore[type-var]
        matcher.optimize()
    assert matcher.stats()["distinct"] == 1
    matcher.remove("a")
    assert matcher.match(asked) == ["b"]
    assert matcher.match_batch([asked]) == [["b"]]


def test_a_filter_added_again_after_its_removal_is_found() -> None:
    matcher = Matcher((i, f"x = {i}") for i in range(600))
    for _ in range(3):
        for i in range(0, 600, 3):
            assert matcher.remove(i)
        for i in range(0, 600, 3):
            assert matcher.match(event(x=i)) == []
            assert matcher.add(i, f"x = {i}")
        assert matcher.stats()["distinct"] == 600
        assert all(matcher.match(event(x=i)) == [i] for i in range(600))
        matcher.optimize()


def test_identical_filters_still_share_after_numbers_were_used_again() -> None:
    matcher = Matcher((i, f"x = {i}") for i in range(1000))
    for i in range(0, 1000, 2):
        matcher.remove(i)
    matcher.optimize()  # the numbers of removed entries are free now
    for i in range(200):
        matcher.add(10_000 + i, f"y = {i}")
    for i in range(1, 1000, 2):
        matcher.add(20_000 + i, f"x = {i}")
    assert len(matcher) == 1200
    assert matcher.stats()["distinct"] == 700
    assert sorted(matcher.match(event(x=1, y=1))) == [1, 10_001, 20_001]  # type: ignore[type-var]


# -- filters that cannot be narrowed


def test_filters_that_are_always_or_never_true() -> None:
    texts: dict[Key, str] = {"all": "TRUE", "none": "FALSE", "null": "NULL", "never": "x > 5 AND x < 3", "x": "x = 1"}
    matcher = Matcher(texts.items())
    for _ in range(2):
        assert check(matcher, texts, [event(x=1), event(), Event("t", "s", data="text")]) == 4
        matcher.optimize()
    assert len(matcher) == 5
    assert matcher.remove("never")
    assert matcher.remove("all")
    assert matcher.match(event(x=1)) == ["x"]
    assert matcher.add("never", "x = 1")
    assert sorted(matcher.match(event(x=1))) == ["never", "x"]  # type: ignore[type-var]


def test_a_matcher_of_nothing_matches_nothing() -> None:
    matcher = Matcher()
    assert matcher.match(event(x=1)) == []
    assert matcher.match_batch([event(x=1)] * 3) == [[], [], []]
    assert matcher.match_batch([]) == []
    matcher.optimize()
    assert matcher.match(event(x=1)) == []
    assert len(matcher) == matcher.stats()["filters"] == 0


def test_conditions_only_python_can_test_are_counted_and_right() -> None:
    texts: dict[Key, str] = {i: f"s RLIKE '^{chr(97 + i)}'" for i in range(5)}
    texts |= {"mixed": "x = 1 AND s RLIKE 'b'", "or": "s RLIKE '^zz' OR x = 2"}
    matcher = Matcher(texts.items())
    for _ in range(2):
        stats = matcher.stats()
        assert stats["unindexed"] == 6  # five, and an alternative of "or"
        assert stats["with_residue"] == 7
        assert check(matcher, texts, [event(s="b", x=1), event(s="zz"), event(x=2), event(s="cc", x=2), event()]) == 6
        matcher.optimize()
    assert matcher.stats()["residue_tests"] > 0


# -- explaining


def test_explain_names_the_test_that_failed_and_the_value() -> None:
    matcher = Matcher([("hot", "type = 't' AND temp > 80 AND region IN ('eu', 'us') AND name LIKE 'a%'")])
    for _ in range(2):
        told = matcher.explain("hot", event(temp=79.5, region="eu", name="abc"))
        assert told.matches is False
        assert [(test.text, test.verdict, test.value) for test in told.failed] == [("temp > 80", False, 79.5)]
        assert "79.5" in str(told)
        told = matcher.explain("hot", event(temp=81, region="asia"))
        assert {(test.text, test.verdict, test.value) for test in told.failed} == {
            ("region IN ('eu', 'us')", False, "asia"),
            ("startswith(name, 'a')", None, None),
        }
        assert "missing" in str(told)
        assert "'asia'" in str(told)
        told = matcher.explain("hot", event(temp=81, region="us", name="a"))
        assert told.matches
        assert told.failed == []
        assert len(told.alternatives[0]) == 4
        assert str(told).startswith("hot: matches")
        matcher.optimize()


def test_explain_shows_every_alternative() -> None:
    matcher = Matcher([("or", "x = 1 OR (y > 5 AND s RLIKE 'a')"), ("no", "FALSE"), ("yes", "TRUE")])
    told = matcher.explain("or", event(x=2, y=6, s="b"))
    assert not told.matches
    assert len(told.alternatives) == 2
    assert sorted(test.text for test in told.failed) == ["s RLIKE 'a'", "x = 1"]
    assert "alternative 2 of 2" in str(told)
    assert matcher.explain("or", event(x=1)).matches
    assert not matcher.explain("no", event()).matches
    assert "no event can match" in str(matcher.explain("no", event()))
    assert matcher.explain("yes", event()).matches


def test_explain_refuses_an_unknown_key() -> None:
    matcher = Matcher([("a", "x = 1")])
    matcher.remove("a")
    for key in ("a", "b", 1):
        with pytest.raises(MatcherError, match="no filter has the key"):
            matcher.explain(key, event())


def test_explain_agrees_with_matching_on_a_workload() -> None:
    content = Content(0.01, seed=3)
    texts: dict[Key, str] = {i: content.filter() for i in range(400)}
    matcher = Matcher(texts.items())
    verdicts = [
        (matcher.explain(key, asked).matches, key in found)
        for asked in (content.event() for _ in range(10))
        for found in [set(matcher.match(asked))]
        for key in texts
    ]
    assert all(told is found for told, found in verdicts)
    assert any(told for told, _ in verdicts)


# -- cost


def test_an_event_is_compared_with_few_of_many_filters() -> None:
    content = Content(0.001)
    texts: dict[Key, str] = {i: content.filter() for i in range(5000)}
    matcher = Matcher(texts.items())
    events = [content.event() for _ in range(300)]
    for asked in events:
        matcher.match(asked)
    stats = matcher.stats()
    assert stats["events"] == 300
    assert stats["scanned"] / 300 < 0.05 * 5000
    assert stats["tested"] <= stats["scanned"]
    assert stats["matched"] > 0
    assert check(matcher, texts, events[:40]) > 0

    matcher.optimize()  # now it knows the events
    before = matcher.stats()
    matcher.match_batch(events)
    after = matcher.stats()
    assert after["events"] - before["events"] == 300
    assert (after["scanned"] - before["scanned"]) / 300 < 0.05 * 5000
    assert after["unindexed"] == 0


def test_stats_count_what_is_there() -> None:
    matcher = Matcher([("a", "x = 1 OR y = 2"), ("b", "s > 'a'"), ("c", "s RLIKE 'x'"), ("d", "s RLIKE 'x'")])
    stats = matcher.stats()
    assert stats["filters"] == 4
    assert stats["distinct"] == 3
    assert stats["conjunctions"] == stats["in_delta"] == 4
    assert stats["unindexed"] == 1
    assert stats["with_residue"] == 1
    assert stats["dimensions"] == 3
    assert stats["codes"] == 2
    assert stats["rebuilds"] == 0
    matcher.optimize()
    stats = matcher.stats()
    assert stats["in_delta"] == 0
    assert stats["conjunctions"] == stats["postings"] == 4
    assert stats["unindexed"] == 1
    assert stats["rebuilds"] == 1
    assert stats["bytes"] > 0
    matcher.remove("a")
    assert matcher.stats()["conjunctions"] == 2


# -- special shapes


def test_a_list_of_ten_thousand_values() -> None:
    items = ", ".join(f"'v{i}'" for i in range(10_000))
    numbers = ", ".join(str(3 * i) for i in range(10_000))
    texts: dict[Key, str] = {
        "in": f"s IN ({items})",
        "not": f"s NOT IN ({items})",
        "numbers": f"n IN ({numbers})",
        "and": f"s IN ({items}) AND n > 5",
    }
    matcher = Matcher(texts.items())
    asked = [event(s="v0", n=6), event(s="v9999", n=5), event(s="w", n=29_997), event(n=1), event(s="", n=30_000)]
    for _ in range(2):
        assert check(matcher, texts, asked) == 7
        matcher.optimize()
    assert matcher.explain("in", event(s="w")).matches is False
    for key in texts:
        assert matcher.remove(key)
    assert all(matcher.match(each) == [] for each in asked)


def test_more_computed_terms_than_are_computed_for_every_event() -> None:
    count = MAX_COMPUTED_TERMS + 80
    texts: dict[Key, str] = {i: f"x + {i} > {i + 5} AND y = 1" for i in range(count)}
    texts |= {f"path{i}": f"data.a{i}.b = {i}" for i in range(40)}
    texts |= {f"member{i}": f"array_contains(data.t{i}, {i})" for i in range(10)}
    texts |= {f"null{i}": f"data.q{i}.r IS NULL" for i in range(5)}
    matcher = Matcher(texts.items())
    asked = [event(x=6, y=1, **{f"a{i}": {"b": i} for i in range(40)}), event(x=5, y=1, t3=[3], t9=[9, 9]), event()]
    asked += [event(x=2, y=1, q1={"r": 1}, q4={"r": None})]
    for _ in range(2):
        assert check(matcher, texts, asked) > count
        matcher.optimize()
    assert matcher.stats()["with_residue"] >= 80


def test_members_of_arrays() -> None:
    texts: dict[Key, str] = {
        "text": "array_contains(tags, '1')",
        "number": "array_contains(tags, 1)",
        "double": "array_contains(tags, 1.0)",
        "true": "array_contains(tags, TRUE)",
        "huge": "array_contains(tags, 9007199254740993)",
        "round": "array_contains(tags, 9007199254740992.0)",
        "inf": "array_contains(tags, 1e999)",
        "two": "array_contains(tags, 'a') AND array_contains(tags, 'b')",
        "not": "NOT array_contains(tags, 'a')",
        "either": "array_contains(tags, 'a') OR array_contains(tags, 'b')",
        "path": "array_contains(data.tags, 'a')",
        "equal": "tags = 'a'",
        "empty": "array_contains(tags, '')",
    }
    matcher = Matcher(texts.items())
    arrays: list[Any] = [
        *(["1"], [1], [1.0, 1, 1, "1", "1"], [True], [2**53 + 1], [2**53], [float("inf")], [10**400]),
        *(
            ["a", "b", "a", "b"],
            ["a"],
            ["b", None],
            [None],
            [],
            ["a", ["b"]],
            [{"a": 1}],
            "a",
            1,
            None,
            ["", float("nan")],
        ),
    ]
    asked = [event(tags=array) for array in arrays]
    for _ in range(2):
        assert check(matcher, texts, asked) > 20
        matcher.optimize()


def test_an_attribute_hides_an_array_of_the_payload() -> None:
    matcher = Matcher([("m", "array_contains(tags, 'a')"), ("n", "array_contains(data.tags, 'a')")])
    assert matcher.match(event({"tags": "a"}, tags=["a"])) == ["n"]


# -- labels


def prefixes(count: int, seed: int) -> list[str]:
    draw = random.Random(seed)
    found: set[str] = set()
    while len(found) < count:
        found.add("".join(draw.choice("abcé😀") for _ in range(draw.randint(1, 8))))
    return sorted(found)


@pytest.mark.parametrize("order", ["sorted", "reverse", "random"])
def test_thousands_of_prefixes_in_any_order(order: str) -> None:
    bounds = prefixes(3000, 5)
    texts: dict[Key, str] = {i: f"p LIKE '{bound}%'" for i, bound in enumerate(bounds)}
    keys = list(texts)
    if order == "reverse":
        keys.reverse()
    elif order == "random":
        random.Random(6).shuffle(keys)
    matcher = Matcher()
    for key in keys:
        matcher.add(key, texts[key])
    draw = random.Random(7)
    values = [*draw.sample(bounds, 30), *(bound + "c" for bound in draw.sample(bounds, 30)), "", "zz", "\U0010ffff"]
    for _ in range(2):
        matches = 0
        for value in values:
            wanted = {i for i, bound in enumerate(bounds) if value.startswith(bound)}
            assert set(matcher.match(event(p=value))) == wanted
            matches += len(wanted)
        assert matches > 100
        matcher.optimize()


@pytest.mark.parametrize("step", ["deeper", "between"])
def test_crowded_labels_get_new_numbers(step: str) -> None:
    """Each bound falls between the two before it: the room between labels is halved until there is none."""
    texts: dict[Key, str] = {"low": "p >= 'a'", "high": "p >= 'b'", "cuts": "p < 'aa' OR (p > 'ab' AND p < 'az')"}
    for i in range(150):
        texts[i] = f"p LIKE '{'az' + 'z' * i}%'" if step == "deeper" else f"p BETWEEN '{'a' * (i + 1)}' AND 'b{i}'"
    matcher = Matcher()
    for key, text in texts.items():
        matcher.add(key, text)
    values = [
        "a",
        "aa",
        "aaa",
        "aab",
        "ab",
        "abc",
        "az",
        "azz",
        "az" + "z" * 75,
        "b",
        "b7",
        "b70",
        "",
        "c",
        "ay",
        "axz",
    ]
    before = matcher.stats()["rebuilds"]
    assert before > 0, "labels were crowded"
    assert check(matcher, texts, [event(p=value) for value in values]) > 100
    matcher.optimize()
    assert check(matcher, texts, [event(p=value) for value in values]) > 100


def test_crowded_labels_while_the_same_filter_brings_new_texts() -> None:
    texts: dict[Key, str] = {"low": "p LIKE 'a%'", "high": "p LIKE 'b%'"}
    texts |= {i: f"n = 'new{i}' AND p LIKE '{'a' + 'z' * i}%'" for i in range(100)}
    matcher = Matcher()
    for key, text in texts.items():
        matcher.add(key, text)
    assert check(matcher, texts, [event(n=f"new{i}", p="a" + "z" * 60) for i in (0, 30, 60, 61, 99)]) == 8


# -- a long life


def test_codes_of_removed_filters_are_forgotten() -> None:
    matcher = Matcher([("stay", "s = 'stay'"), ("not", "s <> 'v7' AND t IN ('v1', 'v2')"), ("null", "u IS NULL")])
    for round_ in range(3):
        names = [f"r{round_}v{i}" for i in range(1500 * (round_ + 1))]
        matcher.add_many((name, f"s = '{name}' AND x > 1") for name in names)
        assert matcher.match(event(s=names[1000], x=2, u=1)) == [names[1000]]
        for name in names:
            matcher.remove(name)
    assert matcher.stats()["codes"] > 4000
    matcher.optimize()
    stats = matcher.stats()
    assert stats["codes"] < 20
    assert stats["filters"] == 3
    texts: dict[Key, str] = {
        "stay": "s = 'stay'",
        "not": "s <> 'v7' AND t IN ('v1', 'v2')",
        "null": "u IS NULL",
        "new": "s = 'r0v5'",
    }
    matcher.add("new", texts["new"])
    asked = [event(s="stay", u=1), event(s="v7", t="v1"), event(s="v8", t="v2", u=0), event(s="r0v5"), event(t="v1")]
    assert check(matcher, texts, asked) == 6


def test_the_index_learns_what_events_look_like() -> None:
    """Filters name 80 values of `a` and of `b`; events have many of one and a single one of the other, then reversed.

    Lists of values cannot order a bucket, so that only the choice of the access test keeps scans short.
    """
    texts: dict[Key, str] = {i: f"a IN ('a{i % 80}', '-') AND b IN ('b{i // 80}', '-')" for i in range(6400)}
    matcher = Matcher(texts.items())
    draw = random.Random(11)

    def feed(events: int, fixed: str, varied: str) -> float:
        before = matcher.stats()
        for _ in range(events):
            matcher.match(event(**{fixed: f"{fixed}0", varied: f"{varied}{draw.randrange(80)}"}))
        after = matcher.stats()
        return float((after["scanned"] - before["scanned"]) / events)

    feed(WATCH, "a", "b")
    matcher._live.settle()
    assert matcher.stats()["rebuilds"] == 2, "after the first events it knew better"
    usual = feed(3 * WATCH, "a", "b")
    rebuilds = matcher.stats()["rebuilds"]
    drifted = feed(WATCH // 2, "b", "a")
    for _ in range(8):
        feed(WATCH, "b", "a")
        matcher._live.settle()
    settled = feed(WATCH // 2, "b", "a")
    assert drifted > 3 * usual
    assert matcher.stats()["rebuilds"] > rebuilds
    assert settled < drifted / 3
    assert check(matcher, texts, [event(a="a3", b="b0"), event(a="a0", b="b39"), event(a="a1")]) == 2


def test_batches_alone_let_the_index_learn_too() -> None:
    matcher = Matcher((i, f"a = 'a{i % 40}' AND b = 'b{i // 40}'") for i in range(1600))
    for _ in range(3):
        matcher.match_batch([event(a="a0", b=f"b{i % 40}") for i in range(WATCH)])
        matcher._live.settle()
    assert matcher.stats()["rebuilds"] > 1


def test_random_changes_against_linear_evaluation() -> None:
    """A long seeded run over a workload, with growth, replacement, removal and rebuilds in between."""
    content, draw = Content(0.01, seed=9), random.Random(10)
    texts: dict[Key, str] = {}
    matcher = Matcher()
    matches = 0
    for _ in range(12):
        for _ in range(150):
            key: Key = draw.randrange(900) if draw.random() < 0.5 else f"k{draw.randrange(900)}"
            if key in texts and draw.random() < 0.5:
                assert matcher.remove(key)
                del texts[key]
            else:
                texts[key] = content.filter()
                matcher.add(key, texts[key])
        assert len(matcher) == len(texts)
        matches += check(matcher, texts, [content.event() for _ in range(6)])
        if draw.random() < 0.3:
            matcher.optimize()
    assert matches > 100


def test_awkward_values_reach_every_kind_of_dimension() -> None:
    """Each name is tested for equality, order, prefix, suffix, kind and absence; each event has one awkward value."""
    numbers = [*strategies.NUMBERS, 10**400, -(10**400), float("nan")]
    literals = [strategies.literal(value) for value in strategies.NUMBERS]
    texts: dict[Key, str] = {}
    for value in literals:
        for operator in ("=", "<>", "<", "<=", ">", ">="):
            texts[f"{operator} {value}"] = f"x {operator} {value}"
    for text in strategies.TEXTS:
        quoted = strategies.literal(text)
        for shape in (
            "x = {}",
            "x <> {}",
            "x < {}",
            "x <= {}",
            "x > {}",
            "x >= {}",
            "startswith(x, {})",
            "endswith(x, {})",
            "contains(x, {})",
        ):
            texts[shape.format(quoted)] = shape.format(quoted)
    texts |= {"null": "x IS NULL", "not null": "x IS NOT NULL", "true": "x", "false": "NOT x"}
    texts |= {"in": f"x IN ({', '.join(literals)})", "not in": f"x NOT IN ({', '.join(literals)})"}
    matcher = Matcher(texts.items())
    values = [*numbers, *strategies.TEXTS, True, False, None, [], {}, ["a"]]
    for _ in range(2):
        assert check(matcher, texts, [event(x=value) for value in values]) > 1000
        matcher.optimize()
