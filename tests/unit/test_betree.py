"""The BE-Tree's parts: domains as indices, the invariants of the tree, and filters it cannot place."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import strategies
from tocsin.errors import MatcherError, SchemaError
from tocsin.filters.filter import Filter
from tocsin.filters.reference import BETree, Domain, LinearScan, Parameters
from tocsin.filters.reference.domains import Domains
from tocsin.filters.reference.nodes import CNode, Expression
from tocsin.filters.reference.scores import Tally
from tocsin.model import Event

TEXTS = ["cat", "mouse", "dog", "bird", "dolphin"]


def domains() -> list[Domain]:
    return [
        Domain("a", 0, 7, 1),
        Domain("b", -1, 1, 0.1),
        Domain("c", 0, 1000, 1),
        Domain("t", values=TEXTS),
        Domain("data.deep.n", 0, 9, 1),
        Domain("priority", 1, 10, 1),
    ]


def hull(text: str, domain: Domain) -> object:
    (alternative,) = Filter(text).form.alternatives
    return Domains([domain]).hulls(alternative.sets).get(domain.name)


# -- domains


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a < 3", (0, 2)),
        ("a <= 3", (0, 3)),
        ("a = 3", (3, 3)),
        ("a > 3", (4, 7)),
        ("a >= 3", (3, 7)),
        ("a IN (2, 6, 4)", (2, 6)),
        ("a BETWEEN 2 AND 4", (2, 4)),
        ("a > 2 AND a < 6", (3, 5)),
        ("a <> 3", (0, 7)),
        ("a < 100", (0, 7)),
        ("a > 3.2 AND a < 3.8", (3, 4)),
        ("a > 100", (7, 7)),
        ("a < -5", (0, 0)),
        ("a = 'x'", None),
        ("a IS NULL", None),
        ("b = 1", None),
        ("abs(a) = 1", None),
    ],
)
def test_hull_of_a_numeric_test_is_table_5_1_of_the_thesis(text: str, expected: object) -> None:
    assert hull(text, Domain("a", 0, 7, 1)) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("t = 'dog'", (2, 2)),
        ("t IN ('dog', 'mouse')", (1, 2)),
        ("startswith(t, 'do')", (2, 4)),
        ("t LIKE '%t'", (0, 0)),
        ("endswith(t, 'e') AND startswith(t, 'm')", (1, 1)),
        ("t <> 'cat'", (1, 4)),
        ("t = 'cow'", None),
        ("contains(t, 'o')", None),  # a residue takes no part in placement
    ],
)
def test_hull_of_a_text_test_spans_the_declared_texts_it_accepts(text: str, expected: object) -> None:
    assert hull(text, Domain("t", values=TEXTS)) == expected


def test_grid_points_are_the_doubles_their_writer_means() -> None:
    domain = Domain("x", 0, 200, 0.001)
    assert domain.size == 200_001
    assert [domain.point(index) for index in (3, 100, 200_000)] == [0.003, 0.1, 200.0]
    for value in (0.003, 0.1, 0.7, 123.456, 199.999):
        index = round(value * 1000)
        assert domain.span(value) == (index, index)
    assert domain.span(0.0035) == (3, 4)
    assert [domain.span(value) for value in (-5, 1e300, math.inf, math.nan, 10**400)] == [(0, 0)] + [
        (200_000, 200_000)
    ] * 4
    assert [domain.span(value) for value in (True, "3", None, [1])] == [None] * 4


def test_undeclared_text_spans_the_whole_domain() -> None:
    domain = Domain("t", values=TEXTS)
    assert (domain.span("dog"), domain.span("cow"), domain.span(3)) == ((2, 2), (0, 4), None)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Domain("x"),
        lambda: Domain("x", 3, 2),
        lambda: Domain("x", 0, 1, 0),
        lambda: Domain("x", 0, 1, -1),
        lambda: Domain("x", 0, math.inf),
        lambda: Domain("x", math.nan, 1),
        lambda: Domain("x", 1e17, 1e17 + 64, 1),
        lambda: Domain("x", values=[]),
        lambda: Domain("x", values=["a", "a"]),
        lambda: Domain("x", 0, 1, values=["a"]),
        lambda: BETree([Domain("x", 0, 1), Domain("x", 0, 1)]),
    ],
)
def test_bad_domains_are_refused(make: object) -> None:
    with pytest.raises(SchemaError) as caught:
        make()  # type: ignore[operator]
    assert caught.value.field == "x"


@pytest.mark.parametrize("bad", [{"largest": 0}, {"smallest": 0}, {"beta": 2.0}, {"alpha": -1.0}])
def test_bad_parameters_are_refused(bad: dict[str, float]) -> None:
    with pytest.raises(MatcherError):
        Parameters(**bad)  # type: ignore[arg-type]


@given(strategies.conjunctions(), st.sampled_from(strategies.NUMBERS) | st.floats(-4, 13), st.integers(1, 9))
def test_what_a_filter_accepts_shares_an_index_with_it(text: str, value: float, step: int) -> None:
    domain = Domain("x", -2, 10, step / 4)
    filter, event = Filter(text), Event("a", "a", data={"x": value})
    for alternative in filter.form.alternatives:
        span, place = domain.span(value), Domains([domain]).hulls(alternative.sets).get("x")
        assert span is not None
        only_x = all(term == "x" for term, _ in alternative.sets)
        if place is not None and only_x and filter.matches(event):
            assert place[0] <= span[1] and span[0] <= place[1]


# -- the tree


def check(tree: BETree) -> None:
    """Everything that must hold between operations."""
    expressions: set[Expression] = set()
    check_cnode(tree.root, tree, expressions)
    assert tree.root.key == {}
    assert tree.root.bucket is None
    expected = {expression for entry in tree._entries.values() for expression in entry.expressions}
    assert expressions == expected
    stats = tree.stats()
    assert stats["entries"] == len(tree)
    assert stats["expressions"] == len(expected) == sum(size * count for size, count in stats["lnodes"].items())
    assert stats["nodes"] == stats["cnodes"] + stats["pnodes"] + stats["buckets"]


def check_cnode(cnode: CNode, tree: BETree, expressions: set[Expression]) -> Tally:
    tally = Tally()
    assert len(cnode.lnode) <= cnode.capacity
    assert cnode.capacity % tree.root.parameters.largest == 0
    for expression in cnode.lnode:
        assert expression.home is cnode
        assert expression not in expressions, "it rests in one place"
        expressions.add(expression)
        for name, (low, high) in cnode.key.items():
            assert low <= expression.spans[name][0] and expression.spans[name][1] <= high, "inside the key"
        tally.add(Tally.of(cnode.key, expression.spans))
    if cnode.pdirectory and cnode.bucket is not None:
        assert cnode.bucket.atomic or cnode.bucket.halves, "clustered before partitioned"
    for name, pnode in cnode.pdirectory.items():
        assert pnode.attribute == name
        assert pnode.parent is cnode
        assert name not in cnode.key, "an attribute comes once on a path"
        assert pnode.tally.entries > 0, "empty p-nodes are dropped"
        below = Tally()
        assert (pnode.root.low, pnode.root.high) == tree._domains[name].whole
        for bucket in pnode.buckets():
            assert bucket.cnode.key == cnode.key | {name: (bucket.low, bucket.high)}
            if bucket.halves:
                lower, upper = bucket.halves
                middle = (bucket.low + bucket.high) // 2
                assert (lower.low, lower.high) == (bucket.low, middle)
                assert (upper.low, upper.high) == (middle + 1, bucket.high)
                assert lower.parent is bucket is upper.parent
            inside: set[Expression] = set()
            below.add(check_cnode(bucket.cnode, tree, inside))
            for expression in inside:
                assert not any(half.encloses(expression.spans[name]) for half in bucket.halves), "the smallest bucket"
            assert not inside & expressions
            expressions |= inside
        assert_equal(pnode.tally, below)
        tally.add(below)
    assert_equal(cnode.tally, tally)
    return tally


def assert_equal(kept: Tally, fresh: Tally) -> None:
    assert (kept.entries, kept.subsumed, kept.covered) == (fresh.entries, fresh.subsumed, fresh.covered)


def random_filter(rng: random.Random) -> Filter:
    def test() -> str:
        name = rng.choice("aaabbcct") if rng.random() < 0.9 else rng.choice(["priority", "data.deep.n", "unknown"])
        if name == "t":
            word = rng.choice([*TEXTS, "cow"])
            return rng.choice([f"t = '{word}'", f"t LIKE '{word[:2]}%'", f"t <> '{word}'", f"contains(t, '{word[1]}')"])
        number = {"b": round(rng.uniform(-1.2, 1.2), rng.choice([1, 3])), "c": rng.randrange(-5, 1005)}.get(
            name, rng.randrange(-1, 10)
        )
        return rng.choice(
            [f"{name} {rng.choice(['<', '<=', '=', '>', '>='])} {number}"] * 4
            + [f"{name} BETWEEN {number} AND {number + rng.randrange(3)}", f"{name} IN ({number}, {number + 2})"]
            + [f"{name} IS NULL", f"{name} <> {number}"]
        )

    clauses = [" AND ".join(test() for _ in range(rng.choice([1, 2, 2, 3]))) for _ in range(rng.choice([1, 1, 1, 2]))]
    return Filter(" OR ".join(f"({clause})" for clause in clauses))


def random_event(rng: random.Random) -> Event:
    values = {
        "a": rng.choice([rng.randrange(8), rng.uniform(-2, 10), "3"]),
        "b": round(rng.uniform(-1.5, 1.5), rng.choice([1, 2])),
        "c": rng.randrange(-5, 1005),
        "t": rng.choice([*TEXTS, "cow"]),
    }
    kept = {name: value for name, value in values.items() if rng.random() < 0.75}
    data = {"deep": {"n": rng.randrange(12)}, "a": 4} if rng.random() < 0.5 else None
    return Event("reading", "sensor", attributes=kept, data=data, priority=rng.randrange(1, 11))


@pytest.mark.parametrize("largest", [1, 2, 7])
def test_invariants_and_answers_hold_after_random_operations(largest: int) -> None:
    rng = random.Random(largest)
    tree, scan = BETree(domains(), Parameters(largest=largest)), LinearScan()
    for step in range(600):
        if rng.random() < (0.65 if step < 300 else 0.35):
            filter = random_filter(rng)
            assert tree.add(step, filter) is scan.add(step, filter)
        else:
            key = rng.randrange(step + 1)
            assert tree.remove(key) is scan.remove(key)
        if step % 10 == 0:
            check(tree)
            event = random_event(rng)
            assert sorted(tree.match(event)) == scan.match(event)
    assert tree.stats()["depth"] >= 2
    for key in list(scan._filters):
        tree.remove(key)
    check(tree)
    assert tree.stats()["nodes"] == 1, "an emptied tree is a root"


def test_nothing_visited_but_the_event_s_own_path() -> None:
    tree = BETree(domains(), Parameters(largest=4))
    for key in range(1000):
        tree.add(key, Filter(f"c = {key}"))
    for key in range(1000, 2000):
        tree.add(key, Filter(f"b > 0 AND c < {key - 1000}"))
    assert tree.match(Event("a", "a", attributes={"c": 500})) == [500]
    assert tree.stats()["candidates"] <= 4 + 1000
    assert tree.match(Event("a", "a", attributes={"a": 1})) == []
    assert tree.stats()["candidates"] == 0


def test_filters_without_a_place_rest_in_the_root_and_still_match() -> None:
    texts = ["unknown = 1", "t RLIKE '^c'", "a IS NULL", "TRUE", "FALSE", "a = b", "length(t) = 3", "a = 'text'"]
    tree, scan = BETree(domains(), Parameters(largest=2)), LinearScan()
    for key, text in enumerate(texts):
        tree.add(key, Filter(text))
        scan.add(key, Filter(text))
    assert tree.stats()["pnodes"] == 0
    assert tree.root.capacity == 8  # FALSE has no alternative, hence nothing to place
    for attributes in ({"unknown": 1}, {"t": "cat"}, {"a": 0, "b": 0}, {"a": "text"}):
        event = Event("a", "a", attributes=attributes)
        assert sorted(tree.match(event)) == scan.match(event)
    assert len(tree) == len(texts)


def test_a_key_is_reported_once_though_several_alternatives_match() -> None:
    tree = BETree(domains(), Parameters(largest=1))
    tree.add("k", Filter("(a > 1 AND c > 1) OR (b > 0 AND c > 1) OR t = 'cat'"))
    assert tree.stats()["expressions"] == 3
    assert tree.match(Event("a", "a", attributes={"a": 2, "b": 0.5, "c": 2, "t": "cat"})) == ["k"]


def test_a_scarce_attribute_is_not_worth_a_p_node() -> None:
    tree = BETree(domains(), Parameters(largest=4, smallest=3))
    for key, text in enumerate(["a = 1", "a = 2", "b = 0", "c = 1", "t = 'cat'"]):
        tree.add(key, Filter(text))
    assert tree.stats()["pnodes"] == 0
    assert tree.root.capacity == 8


def test_a_long_path_does_not_meet_the_stack_s_end() -> None:
    names = [f"n{index}" for index in range(80)]
    tree = BETree([Domain(name, 0, 200, 0.001) for name in names], Parameters(largest=1))
    same = Filter(" AND ".join(f"{name} = 7" for name in names))
    tree.add(1, same)
    tree.add(2, same)
    assert tree.stats()["depth"] == 80
    assert sorted(tree.match(Event("a", "a", data=dict.fromkeys(names, 7)))) == [1, 2]
    tree.remove(1)
    tree.remove(2)
    assert tree.stats()["nodes"] == 1
