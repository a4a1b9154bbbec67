"""A matcher equals asking every filter in turn, through any life of adds, removals, rebuilds and storage."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from tests.strategies import conjunctions, events, filters
from tocsin import Event, Filter
from tocsin.filters.index import Matcher, engine

KEYS = st.one_of(st.integers(-2, 9), st.sampled_from(["a", "b", "1", "", "é"]))
TEXTS = st.one_of(filters(), filters(max_leaves=3), conjunctions())
Key = str | int


class Life(RuleBasedStateMachine):
    """The model is a dictionary of filters."""

    tally: Counter[str] = Counter()
    plain = False

    def __init__(self) -> None:
        super().__init__()
        self._patch = pytest.MonkeyPatch()
        if self.plain:
            self._patch.setattr(engine, "_loaded", None)
        self.matcher = Matcher()
        self.filters: dict[Key, Filter] = {}
        self.watched: list[Event] = []

    def teardown(self) -> None:
        self._patch.undo()

    @initialize(texts=st.lists(TEXTS, max_size=8), watched=st.lists(events(), min_size=2, max_size=4))
    def begin(self, texts: list[str], watched: list[Event]) -> None:
        self.watched = watched
        self.matcher.add_many(enumerate(texts))
        self.filters.update((key, Filter(text)) for key, text in enumerate(texts))

    @rule(key=KEYS, text=TEXTS)
    def add(self, key: Key, text: str) -> None:
        added = Filter(text)
        present = self.filters.get(key)
        changed = self.matcher.add(key, added)
        if present is None:
            assert changed
        elif present == added:
            assert not changed
        self.filters[key] = added

    @rule(data=st.data(), key=KEYS)
    def share(self, data: st.DataObject, key: Key) -> None:
        if self.filters:
            text = data.draw(st.sampled_from(sorted(map(str, self.filters.values()))))
            self.matcher.add(key, text)
            self.filters[key] = Filter(text)

    @rule(key=KEYS)
    def remove(self, key: Key) -> None:
        assert self.matcher.remove(key) is (self.filters.pop(key, None) is not None)

    @rule(event=events())
    def match(self, event: Event) -> None:
        self._compare(self.matcher.match(event), event)

    @rule(asked=st.lists(events(), max_size=5))
    def match_batch(self, asked: list[Event]) -> None:
        found = self.matcher.match_batch(asked)
        assert len(found) == len(asked)
        for keys, event in zip(found, asked, strict=True):
            self._compare(keys, event)

    @rule(event=events())
    def explain(self, event: Event) -> None:
        for key, filter in self.filters.items():
            told = self.matcher.explain(key, event)
            assert told.matches is filter.matches(event), f"{filter} of {event}:\n{told}"
            assert bool(told.failed) is not (told.matches or told.alternatives == [])
            str(told)

    @rule()
    def optimize(self) -> None:
        self.matcher.optimize()

    @rule()
    def store(self) -> None:
        self.matcher = Matcher.from_bytes(self.matcher.to_bytes())

    @invariant()
    def counts(self) -> None:
        assert len(self.matcher) == len(self.filters)
        stats = self.matcher.stats()
        assert stats["filters"] == len(self.filters)
        assert stats["distinct"] == len({filter.form.key() for filter in self.filters.values()})
        assert all(key in self.matcher for key in self.filters)

    @invariant()
    def answers(self) -> None:
        """The same few events after every step, so that no change goes by unasked."""
        for event in self.watched:
            self._compare(self.matcher.match(event), event)
        for keys, event in zip(self.matcher.match_batch(self.watched), self.watched, strict=True):
            self._compare(keys, event)

    def _compare(self, found: list[Key], event: Event) -> None:
        wanted = {key for key, filter in self.filters.items() if filter.matches(event)}
        assert len(found) == len(set(found))
        assert set(found) == wanted, f"{event}: {[str(self.filters[key]) for key in set(found) ^ wanted]}"
        self.tally["compared"] += len(self.filters)
        self.tally["matched"] += len(wanted)


@pytest.fixture
def tally() -> Iterator[Counter[str]]:
    Life.tally = Counter()
    yield Life.tally


@pytest.mark.parametrize("plain", [False, True], ids=["numba", "numpy"])
def test_a_matcher_lives_as_a_dictionary_of_filters(
    plain: bool, tally: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert plain or engine.wait()
    monkeypatch.setattr(Life, "plain", plain)
    run_state_machine_as_test(
        Life, settings=settings(max_examples=settings().max_examples // 3, stateful_step_count=30)
    )
    assert tally["compared"] > 10_000
    assert 1000 < tally["matched"] < tally["compared"]
