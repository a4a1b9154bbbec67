"""Scenarios 12 to 20 of the elastic cloud's digest (cloud.md, section 8): the BE-Tree, by their numbers.

17 and 18 speak of any structure that holds subscriptions, so they run on all four of ours. Their brute force is NumPy
over plain tables: it shares nothing with what it checks, not even the filter language.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tocsin.filters.filter import Filter
from tocsin.filters.reference import (
    ADDED,
    NOT_ADDED,
    NOT_REMOVED,
    REMOVED,
    BETree,
    CoveringForest,
    Domain,
    LinearScan,
    Parameters,
)
from tocsin.filters.reference.nodes import Bucket, CNode
from tocsin.filters.reference.scores import Tally, gain
from tocsin.model import Event

TEXTS = ["cat", "mouse", "dog", "bird", "dolphin"]


def config_a() -> list[Domain]:
    return [Domain("a", 0, 7, 1), Domain("b", 0, 7, 1), Domain("t", values=TEXTS)]


def tree_of(*texts: str, largest: int = 2) -> BETree:
    tree = BETree(config_a(), Parameters(largest=largest))
    for key, text in enumerate(texts):
        assert tree.add(key, Filter(text)) is ADDED
    return tree


def event(**attributes: Any) -> Event:
    return Event("reading", "sensor", attributes=attributes)


def matcher() -> Any:
    from tocsin.filters.index import Matcher

    return Matcher()


STRUCTURES: dict[str, Callable[[], Any]] = {
    "scan": LinearScan,
    "betree": lambda: BETree(config_a(), Parameters(largest=4)),
    "forest": CoveringForest,
    "matcher": matcher,
}
every_structure = pytest.mark.parametrize("structure", STRUCTURES)


def shape(cnode: CNode) -> dict[str, Any]:
    """What a c-node holds, as plain data: keys in the l-node, and buckets by attribute."""
    return {"l": [e.entry.key for e in cnode.lnode], **{a: buckets(p.root) for a, p in cnode.pdirectory.items()}}


def buckets(bucket: Bucket) -> dict[tuple[int, int], Any]:
    found = {(bucket.low, bucket.high): shape(bucket.cnode)}
    for half in bucket.halves:
        found |= buckets(half)
    return found


def test_12_third_subscription_overflows_the_root_and_buckets_halve() -> None:
    tree = tree_of("a = 1", "a = 2")
    assert shape(tree.root) == {"l": [0, 1]}
    tree.add(2, Filter("a <= 3"))
    assert shape(tree.root) == {
        "l": [],
        "a": {
            (0, 7): {"l": []},
            (0, 3): {"l": [2]},
            (0, 1): {"l": [0]},
            (2, 3): {"l": [1]},
            (4, 7): {"l": []},
        },
    }
    assert sorted(tree.match(event(a=2))) == [1, 2]
    assert tree.stats()["candidates"] == 2
    assert tree.match(event(a=6)) == []
    assert tree.stats()["candidates"] == 0


@pytest.mark.parametrize("count", [3, 4, 5, 50])
def test_13_equal_subscriptions_reach_an_atomic_bucket_whose_capacity_grows(count: int) -> None:
    tree = tree_of(*["a = 5"] * count)
    atomic = tree.root.pdirectory["a"].root.smallest_enclosing((5, 5))
    assert (atomic.low, atomic.high) == (5, 5)
    assert len(atomic.cnode.lnode) == count
    assert atomic.cnode.capacity == count + count % 2, "rounded up to a multiple of 2"
    for key in range(count - 1):
        tree.remove(key)
    assert atomic.cnode.capacity == 2, "falls again with its use"


def test_14_an_attribute_of_the_key_is_not_used_again() -> None:
    tree = tree_of("a = 5", "a = 5 AND b = 1", "a = 5 AND b = 2")
    found = buckets(tree.root.pdirectory["a"].root)
    assert set(tree.root.pdirectory) == {"a"}
    assert found[5, 5] == {"l": [0], "b": {(0, 7): {"l": [1, 2]}}}
    assert all(content == {"l": []} for span, content in found.items() if span != (5, 5))
    # More of the same: no path may use `a` twice.
    for key in range(3, 30):
        tree.add(key, Filter("a = 5 AND b = 1"))
    path = tree.root.pdirectory["a"].root.smallest_enclosing((5, 5)).cnode.pdirectory
    assert set(path) == {"b"}
    assert not path["b"].root.smallest_enclosing((1, 1)).cnode.pdirectory


def test_15_the_attribute_most_subscriptions_constrain_partitions() -> None:
    tree = tree_of("b = 1", "a = 1 AND b = 6", "a = 2", "a = 7", largest=3)
    assert set(tree.root.pdirectory) == {"a"}
    assert shape(tree.root)["l"] == [0]


def test_15_ties_go_to_the_attribute_declared_first() -> None:
    tree = tree_of("b = 1 AND t = 'cat'", "t = 'dog' AND b = 2", "b = 3 AND t = 'bird'")
    assert set(tree.root.pdirectory) == {"b"}


def test_16_gain_counts_predicates_equal_to_the_key_and_inside_it() -> None:
    assert gain({"a": (2, 3)}, [{"a": (2, 3)}, {"a": (2, 2)}], beta=0.25) == 0.75 * 1 + 0.25 * 1 == 1.0
    # The same from the tree: `BETWEEN 2 AND 3` and `a = 2` rest under the key a ∈ [2, 3].
    tree = BETree(config_a(), Parameters(largest=2, beta=0.25))
    for key, text in enumerate(["a BETWEEN 2 AND 3", "a = 2", "a = 1"]):
        tree.add(key, Filter(text))
    bucket = tree.root.pdirectory["a"].root.smallest_enclosing((2, 3))
    assert bucket.cnode.key == {"a": (2, 3)}
    assert bucket.cnode.tally.gain(0.25) == 1.0
    assert Tally().score(Parameters()) == float("-inf"), "an empty branch"


# -- 17: random subscriptions against brute force


def triplet(rng: random.Random, name: str) -> tuple[str, Callable[[int], bool]]:
    """A test of one attribute: its text, and which indices of the domain it accepts."""
    if name == "t":
        word = rng.choice(TEXTS)
        part = word[: rng.randint(1, 2)]
        return rng.choice(
            [
                (f"t = '{word}'", lambda index: TEXTS[index] == word),
                (f"startswith(t, '{part}')", lambda index: TEXTS[index].startswith(part)),
                (f"contains(t, '{part}')", lambda index: part in TEXTS[index]),
                (f"endswith(t, '{word[-2:]}')", lambda index: TEXTS[index].endswith(word[-2:])),
            ]
        )
    low = rng.randrange(8)
    high = rng.randint(low, 7)
    return rng.choice(
        [
            (f"{name} < {high + 1}", lambda index: index <= high),
            (f"{name} <= {high}", lambda index: index <= high),
            (f"{name} = {low}", lambda index: index == low),
            (f"{name} > {low - 1}", lambda index: index >= low),
            (f"{name} >= {low}", lambda index: index >= low),
            (f"{name} BETWEEN {low} AND {high}", lambda index: low <= index <= high),
        ]
    )


class BruteForce:
    """For each attribute a table subscription × index of its value; the last column stands for a missing value."""

    def __init__(self, count: int) -> None:
        self.tables = {name: np.ones((count, 9), dtype=bool) for name in ("a", "b", "t")}
        self.alive = np.zeros(count, dtype=bool)

    def put(self, key: int, tests: dict[str, Callable[[int], bool]]) -> None:
        for name, accepts in tests.items():
            size = len(TEXTS) if name == "t" else 8
            self.tables[name][key, :] = [accepts(index) for index in range(size)] + [False] * (9 - size)

    def match(self, indices: dict[str, int]) -> list[int]:
        hits = self.alive.copy()
        for name, table in self.tables.items():
            hits &= table[:, indices.get(name, 8)]
        return [int(key) for key in np.flatnonzero(hits)]


@every_structure
def test_17_random_subscriptions_with_interleaved_removals_equal_brute_force(structure: str) -> None:
    rng = random.Random(17)
    subscriptions, publications = 10_000, 1_000
    under_test, brute = STRUCTURES[structure](), BruteForce(subscriptions)
    filters = []
    for key in range(subscriptions):
        names = rng.sample(["a", "b", "t"], rng.choice([1, 1, 2, 2, 3]))
        tests = {name: triplet(rng, name) for name in names}
        brute.put(key, {name: accepts for name, (_, accepts) in tests.items()})
        filters.append(Filter(" AND ".join(text for text, _ in tests.values())))
    removed: list[int] = []
    for round_number in range(publications):
        for key in range(round_number * 10, round_number * 10 + 10):
            under_test.add(key, filters[key])
            brute.alive[key] = True
        for _ in range(rng.randrange(5)):
            key = rng.randrange(round_number * 10 + 10)
            if brute.alive[key]:
                under_test.remove(key)
                brute.alive[key] = False
                removed.append(key)
        if removed and round_number % 3 == 0:  # and some come back
            key = removed.pop(rng.randrange(len(removed)))
            under_test.add(key, filters[key])
            brute.alive[key] = True
        indices = {name: rng.randrange(5 if name == "t" else 8) for name in "abt" if rng.random() < 0.8}
        values = {name: TEXTS[index] if name == "t" else index for name, index in indices.items()}
        if structure != "scan" or round_number % 10 == 9:  # it is slow, and cannot go wrong in between
            assert sorted(under_test.match(event(**values))) == brute.match(indices)
    assert len(under_test) == brute.alive.sum()


@every_structure
def test_18_any_insertion_order_gives_the_same_answers(structure: str) -> None:
    texts = ["a = 1", "a <= 3", "a > 2 AND b < 5", "t = 'cat'", "b = 1 OR a = 6", "a <= 5"]
    events = [event(a=a, b=b, **({"t": "cat"} if t else {})) for a in range(8) for b in (1, 6) for t in (0, 1)]
    answers = set()
    for order in itertools.islice(itertools.permutations(range(len(texts))), 0, None, 24):
        under_test = STRUCTURES[structure]()
        for key in order:
            under_test.add(key, Filter(texts[key]))
        answers.add(tuple(tuple(sorted(under_test.match(e))) for e in events))
    assert len(answers) == 1


@pytest.mark.parametrize("structure", ["scan", "betree", "forest"])
def test_19_duplicate_add_changes_nothing(structure: str) -> None:
    under_test = STRUCTURES[structure]()
    assert under_test.add("one", Filter("a = 5 AND b = 1")) is ADDED
    before = under_test.stats()
    assert under_test.add("one", Filter("a = 5 AND b = 1")) is NOT_ADDED
    assert under_test.stats() == before
    assert len(under_test) == 1
    assert under_test.match(event(a=5, b=1)) == ["one"]


def test_19_duplicate_add_changes_nothing_when_scores_have_moved() -> None:
    tree = tree_of("a = 5 AND b = 1", *["a = 5"] * 3, *["b = 1"] * 3)
    first = tree._entries[0].expressions[0].home
    assert first is not None
    assert set(tree.root.pdirectory) == {"a", "b"}
    assert "a" in first.key
    # Now `b` outweighs `a`: the same subscription, new today, would go there.
    for key in range(10, 40):
        tree.add(key, Filter("b = 1"))
    assert tree.root.pdirectory["b"].score > tree.root.pdirectory["a"].score
    before = tree.stats()
    assert tree.add(0, Filter("a = 5 AND b = 1")) is NOT_ADDED
    assert tree.stats() == before
    tree.add("twin", Filter("a = 5 AND b = 1"))
    twin = tree._entries["twin"].expressions[0].home
    assert twin is not None
    assert "a" not in twin.key or list(twin.key)[0] == "b"
    assert sorted(map(str, tree.match(event(a=5, b=1)))).count("0") == 1


@pytest.mark.parametrize("structure", ["scan", "betree", "forest"])
def test_20_removing_an_unknown_subscription_changes_nothing(structure: str) -> None:
    under_test = STRUCTURES[structure]()
    for key, text in enumerate(["a = 1", "a = 2", "a <= 3", "b = 4", "a < 2", "a < 3", "a = 3"]):
        under_test.add(key, Filter(text))
    before = under_test.stats()
    assert under_test.remove("unknown") is NOT_REMOVED
    assert under_test.stats() == before
    assert under_test.remove(1) is REMOVED
    assert under_test.remove(1) is NOT_REMOVED
    assert len(under_test) == 6
