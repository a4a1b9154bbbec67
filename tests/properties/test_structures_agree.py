"""Matcher ≡ linear scan ≡ BE-Tree ≡ covering forest, on random filters and events with adds and removes in between.

The scan asks each filter by itself, so it is the definition; whoever differs from it is wrong.
"""

from __future__ import annotations

from typing import Any

from hypothesis import example, given, note
from hypothesis import strategies as st

from tests import strategies
from tocsin.filters.filter import Filter
from tocsin.filters.reference import BETree, CoveringForest, Domain, LinearScan, Parameters
from tocsin.model import Event

DOMAINS = [
    Domain("x", -3, 12, 0.5),
    Domain("s", values=["a", "ab", "abc", "b", "é", ""]),
    Domain("y", 0, 10, 5),
    Domain("data.x", -1, 3, 1),
    Domain("attributes.s", values=["ab", "b"]),
    Domain("a.b", 0, 7, 1),
    Domain("type", values=strategies.TYPES),
    Domain("priority", 1, 10, 1),
]


def structures() -> dict[str, Any]:
    from tocsin.filters.index import Matcher

    return {
        "scan": LinearScan(),
        "betree": BETree(DOMAINS, Parameters(largest=2)),
        "forest": CoveringForest(),
        "matcher": Matcher(),
    }


def operations() -> st.SearchStrategy[list[tuple[str, Any]]]:
    add = st.tuples(st.just("add"), strategies.filters() | strategies.conjunctions())
    remove = st.tuples(st.just("remove"), st.integers(0, 30))
    match = st.tuples(st.just("match"), strategies.events())
    return st.lists(st.one_of(add, add, match, remove), min_size=1, max_size=30)


@given(operations(), strategies.events())
@example([("add", "x = 1 OR x = 'a'"), ("add", "x = 1"), ("remove", 0)], Event("a", "a", attributes={"x": 1}))
def test_all_structures_give_the_answers_of_the_scan(steps: list[tuple[str, Any]], last: Event) -> None:
    under_test = structures()
    scan = under_test.pop("scan")
    keys = 0
    for what, argument in [*steps, ("match", last)]:
        if what == "add":
            note(f"add {keys}: {argument}")
            filter = Filter(argument)
            for structure in (scan, *under_test.values()):
                structure.add(keys, filter)
            keys += 1
        elif what == "remove":
            alive = list(scan._filters)
            if alive:
                key = alive[argument % len(alive)]
                note(f"remove {key}")
                for structure in (scan, *under_test.values()):
                    structure.remove(key)
        else:
            expected = scan.match(argument)
            for name, structure in under_test.items():
                assert sorted(structure.match(argument)) == expected, f"{name} on {argument}"
        assert {name: len(structure) for name, structure in under_test.items()} == dict.fromkeys(under_test, len(scan))


@given(st.lists(strategies.filters(), min_size=1, max_size=12), st.lists(strategies.events(), min_size=1, max_size=4))
def test_many_keys_on_few_filters(texts: list[str], events: list[Event]) -> None:
    """Identical filters share an entry in some structures; every key must be reported, and its removal be its own."""
    under_test = structures()
    scan = under_test.pop("scan")
    keys = [(text, copy) for copy in range(3) for text in range(len(texts))]
    for structure in (scan, *under_test.values()):
        for text, copy in keys:
            structure.add(f"{text}/{copy}", Filter(texts[text]))
        for text, copy in keys[::2]:
            structure.remove(f"{text}/{copy}")
    for event in events:
        expected = sorted(scan.match(event))
        for name, structure in under_test.items():
            assert sorted(structure.match(event)) == expected, name
