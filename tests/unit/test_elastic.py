"""Elastic shards without Spark: layouts, the rules of splitting and merging, what the driver does with reports.

The scenarios 21 to 25 are those of `seeds/cloud.md`, section 8: a shard for a matcher, a batch for a publication.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin import Event, Filter, FilterSetError, MatcherError
from tocsin.spark import Elastic, elastic, filterset
from tocsin.spark.balancing import Balance
from tocsin.spark.elastic import Load, rebalanced
from tocsin.spark.filterset import FilterSet
from tocsin.spark.measuring import Measured
from tocsin.spark.serving import SHARD, VERSION, Serving
from tocsin.spark.shards import ENOUGH, WHOLE, Layout, Shard, even
from tocsin.spark.versions import Files

KEYS: list[str | int] = [*(f"key {number}" for number in range(150)), *range(150)]
POLICY = Elastic(split=1.0, merge=0.2, window=3)


@pytest.fixture(autouse=True)
def forget() -> Iterator[None]:
    filterset._held.clear()
    filterset._known_files.clear()
    yield


# -- layouts


@st.composite
def layouts(draw: st.DrawFn, steps: int = 12) -> Layout:
    """An even one, after splits and merges at random."""
    layout = even(draw(st.integers(1, 6)))
    for _ in range(draw(st.integers(0, steps))):
        shard = draw(st.sampled_from(layout.shards))
        whole = shard.whole
        if draw(st.booleans()):
            layout = layout.split(shard)
        elif whole is not None and set(whole.halves or ()) <= set(layout.shards):
            layout = layout.merge(whole)
    return layout


@given(layouts())
def test_every_key_is_in_one_shard(layout: Layout) -> None:
    for key in KEYS:
        holding = [number for number, shard in enumerate(layout.shards) if shard.holds(key)]
        assert holding == [layout.shard_of(key)]
    assert layout.shards_of(KEYS).tolist() == [layout.shard_of(key) for key in KEYS]


@given(layouts(), st.data())
def test_a_split_touches_one_shard_and_can_be_undone(layout: Layout, data: st.DataObject) -> None:
    shard = data.draw(st.sampled_from(layout.shards))
    split = layout.split(shard)
    assert len(split) == len(layout) + 1
    assert set(layout.shards) - set(split.shards) == {shard}
    for key in KEYS:
        if not shard.holds(key):
            assert split.shards[split.shard_of(key)] == layout.shards[layout.shard_of(key)]
    assert split.merge(shard) == layout


@given(layouts(), st.data())
def test_shards_that_miss_or_repeat_keys_are_no_layout(layout: Layout, data: st.DataObject) -> None:
    shard = data.draw(st.sampled_from(layout.shards))
    others = tuple(each for each in layout.shards if each != shard)
    first, second = shard.halves or (WHOLE, WHOLE)
    for wrong in (
        others,
        (*layout.shards, shard),
        (*layout.shards, first),
        (*others, first),
        (*others, second, second),
    ):
        with pytest.raises(MatcherError, match="do not hold every key once"):
            Layout(wrong)
    for odd in (Shard(0, 0), Shard(3, 3), Shard(2, -1)):
        with pytest.raises(MatcherError, match="do not hold every key once"):
            Layout((*others, odd))


def test_what_cannot_be_split_or_merged() -> None:
    smallest = WHOLE
    while smallest.halves is not None:
        smallest = smallest.halves[0]
    with pytest.raises(MatcherError, match="cannot be split"):
        Layout().split(smallest)
    with pytest.raises(MatcherError, match="no halves"):
        even(3).merge(WHOLE)
    assert WHOLE.whole is None
    assert str(Shard(6, 1)) == "1 of 6"


# -- the rules


def loads(*seconds: float, filters: int = 1000, events: int = 100) -> list[Load]:
    return [Load(each, events, filters) for each in seconds]


def test_a_split_needs_a_full_window_of_busy_batches() -> None:
    """Scenario 21."""
    halves = Layout(WHOLE.halves or ())
    assert rebalanced(Layout(), {WHOLE: loads(2, 2, 2)}, POLICY, 8) == halves
    assert rebalanced(Layout(), {WHOLE: loads(0.1, 2, 2, 2)}, POLICY, 8) == halves
    for window in (loads(2, 0.4, 2), loads(2, 2), loads(2, 1, 2), []):
        assert rebalanced(Layout(), {WHOLE: window}, POLICY, 8) == Layout()


def test_the_busiest_goes_first_where_there_is_no_room_for_all() -> None:
    """Scenario 22."""
    layout = even(3)
    windows = dict(zip(layout.shards, (loads(5, 5, 5), loads(4, 9, 9), loads(9, 9, 3)), strict=True))
    assert rebalanced(layout, windows, POLICY, 4) == layout.split(Shard(3, 1))
    assert len(rebalanced(layout, windows, POLICY, 8)) == 6


def test_what_cannot_be_split_stays() -> None:
    """Scenario 23: one filter, no room, or the smallest shard there is."""
    assert rebalanced(Layout(), {WHOLE: loads(2, 2, 2, filters=1)}, POLICY, 8) == Layout()
    assert rebalanced(Layout(), {WHOLE: loads(2, 2, 2)}, POLICY, 1) == Layout()
    layout = Layout()
    for _ in range(40):
        layout = layout.split(layout.shards[0])
    smallest = layout.shards[0]
    assert smallest.halves is None
    assert rebalanced(layout, {smallest: loads(2, 2, 2)}, POLICY, 100) == layout


def test_two_idle_halves_are_merged() -> None:
    """Scenario 24; loads are added up, since one shard will have both."""
    layout = even(2)
    first, second = layout.shards
    idle = loads(0.05, 0.05, 0.05)
    assert rebalanced(layout, {first: idle, second: idle}, POLICY, 8) == Layout()
    for other in (loads(0.05, 0.9, 0.05), loads(0.16, 0.16, 0.16), loads(0.05, 0.05), []):
        assert rebalanced(layout, {first: idle, second: other}, POLICY, 8) == layout
    assert rebalanced(even(3), dict.fromkeys(even(3).shards, idle), POLICY, 8) == even(3)  # these are no halves


def test_only_halves_that_are_whole_themselves_are_merged() -> None:
    """Scenario 25: as a matcher with children stays, so does a shard whose other half was split."""
    layout = even(2).split(Shard(2, 0))
    idle = dict.fromkeys([*layout.shards, Shard(2, 0)], loads(0.01, 0.01, 0.01))
    assert rebalanced(layout, idle, POLICY, 8) == even(2)
    assert rebalanced(even(2), idle, POLICY, 8) == Layout()


def test_too_many_filters_are_split_at_once_and_never_put_together() -> None:
    assert len(rebalanced(Layout(), {WHOLE: loads(0.0, filters=ENOUGH + 1)}, POLICY, 1)) == 2
    assert rebalanced(Layout(), {WHOLE: loads(0.0, filters=ENOUGH)}, POLICY, 1) == Layout()
    many = dict.fromkeys(even(2).shards, loads(0.0, 0.0, 0.0, filters=ENOUGH // 3))
    assert rebalanced(even(2), many, POLICY, 8) == even(2)


def test_what_did_not_help_is_not_done_again() -> None:
    layout = even(2)
    whole = Load(4.0, 100, 1000)
    before = dict.fromkeys(layout.shards, whole)
    for seconds, events, filters, wanted in (
        (3.9, 100, 500, 2),  # as slow as the whole was: it is not the filters
        (2.0, 100, 500, 4),
        (39.0, 1000, 500, 2),  # more events do not change that
        (3.9, 100, 1001, 4),  # many more filters may
    ):
        windows = dict.fromkeys(layout.shards, loads(seconds, seconds, seconds, events=events, filters=filters))
        assert len(rebalanced(layout, windows, POLICY, 8, before)) == wanted


@given(layouts(), st.data())
def test_whatever_is_measured_no_key_is_lost(layout: Layout, data: st.DataObject) -> None:
    some = st.builds(Load, st.floats(0, 3), st.integers(1, 1000), st.sampled_from([0, 1, 1000, ENOUGH, 2 * ENOUGH]))
    windows = {shard: data.draw(st.lists(some, max_size=5)) for shard in layout.shards}
    most = data.draw(st.integers(1, 12))
    after = rebalanced(layout, windows, POLICY, most)
    large = sum(1 for window in windows.values() if window and window[-1].filters > ENOUGH)
    assert len(after) <= max(len(layout) + large, most)
    assert after == rebalanced(layout, windows, POLICY, most)
    for shard in set(after.shards) - set(layout.shards):  # one step at a time
        assert shard.whole in layout.shards or set(shard.halves or ()) <= set(layout.shards)
    if all(len(window) < POLICY.window for window in windows.values()) and not large:
        assert after == layout


@given(
    layouts(steps=6),
    st.floats(0.01, 20),
    st.floats(0, 0.9),
    st.lists(st.floats(0.9, 1.1), min_size=60, max_size=60),
    st.integers(1, 5),
)
def test_a_steady_stream_comes_to_rest(
    layout: Layout, work: float, fixed: float, noise: list[float], window: int
) -> None:
    """Loads that hardly change end in a layout that does not: nothing is split and merged by turns."""
    policy = Elastic(split=1.0, merge=0.5, window=window)
    windows: dict[Shard, list[Load]] = {}
    before: dict[Shard, Load] = {}
    changes: list[int] = []
    split: set[Shard] = set()
    merged: set[Shard] = set()
    for turn in range(100):
        for shard in layout.shards:
            seconds = (fixed + work / shard.of) * noise[(turn + shard.rest) % len(noise)]
            windows.setdefault(shard, []).append(Load(seconds, 100, 10_000 // shard.of + 2))
        after = rebalanced(layout, windows, policy, 16, before)
        if after != layout:
            changes.append(turn)
        for shard in set(after.shards) - set(layout.shards):
            windows.pop(shard, None)
            if shard.whole in layout.shards and shard.whole is not None:
                split.add(shard.whole)
                before[shard] = windows[shard.whole][-1]
            else:
                merged.add(shard)
        layout = after
    assert not changes or changes[-1] < 12 * window
    assert not split & merged


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"split": 0}, "split"),
        ({"split": float("nan")}, "split"),
        ({"merge": 0.6}, "merge"),
        ({"merge": -1}, "merge"),
        ({"window": 0}, "window"),
        ({"window": 2.0}, "window"),
        ({"most": 0}, "most"),
        ({"most": 10_001}, "most"),
    ],
)
def test_limits_that_mean_nothing(given: dict[str, Any], field: str) -> None:
    with pytest.raises(MatcherError) as caught:
        Elastic(**given)
    assert caught.value.field == field


# -- what the driver does


def batch(number: int, shards: dict[Shard, float], query: str = "q") -> list[Measured]:
    return [Measured(query, number, shard, seconds, 10, 100) for shard, seconds in shards.items()]


@pytest.fixture
def filters(tmp_path: Path) -> FilterSet:
    made = FilterSet(tmp_path / "plant.filters")
    made.change(put={f"k{number}": f"x = {number}" for number in range(20)})
    return made


def test_reports_become_versions(filters: FilterSet) -> None:
    balance = Balance(filters, Elastic(split=1.0, merge=0.2, window=2), 4)
    assert elastic.status(filters.path).shards[0].seconds == ()
    first, second = WHOLE.halves or (WHOLE, WHOLE)
    balance.take(batch(0, {WHOLE: 0.7}) + batch(0, {WHOLE: 0.6}))  # two tasks, one batch
    balance.take(batch(1, {WHOLE: 3.0}))
    assert filters.layout() == Layout()
    balance.settle()
    assert filters.layout(1) == Layout()
    assert filters.layout(2) == filters.layout() == even(2)
    said = elastic.status(filters.path)
    assert (said.version, said.splits, said.merges) == (2, 1, 0)
    assert [each.name for each in said.shards] == ["0 of 2", "1 of 2"]
    assert [(change.version, change.what) for change in said.changes] == [(2, "split 0 of 1: 2 shards")]
    balance.take(batch(2, {WHOLE: 9.0}))  # planned before the split
    for number in (3, 4):
        balance.take(batch(number, {first: 0.01, second: 0.02}))
    balance.settle()
    assert filters.layout() == Layout()
    said = elastic.status(filters.path)
    assert (said.version, said.splits, said.merges) == (3, 1, 1)
    assert said.policy == Elastic(split=1.0, merge=0.2, window=2)
    balance.take(batch(5, {WHOLE: 0.25}))
    balance.settle()
    (shard,) = elastic.status(filters).shards
    assert (shard.seconds, shard.filters, shard.events) == ((0.25,), 100, 10)


def test_two_queries_do_not_end_each_others_batches(filters: FilterSet) -> None:
    balance = Balance(filters, Elastic(split=1.0, merge=0.0, window=1), 4)
    for query in "abab":
        balance.take(batch(7, {WHOLE: 0.4}, query))
    balance.settle()
    assert filters.layout() == Layout()  # 0.8 seconds each, in one batch each


def test_somebody_else_was_quicker(filters: FilterSet) -> None:
    assert filters.lay_out(even(2), instead=even(3)) is None
    assert filters.lay_out(even(4), instead=Layout()) == 2
    assert filters.lay_out(even(2), instead=Layout()) is None
    assert filters.lay_out(even(4), instead=even(4)) == 2
    assert filters.version == 2


def test_a_balance_that_cannot_work_says_so_and_goes_on(
    filters: FilterSet, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    balance = Balance(filters, Elastic(split=1.0, merge=0.0, window=1), 4)
    away = tmp_path / "away"
    Path(filters.path).rename(away)
    balance.take(batch(0, {WHOLE: 2.0}))
    balance.settle()
    assert "stay as they are" in caplog.text
    away.rename(filters.path)
    balance.take(batch(1, {WHOLE: 2.0}))
    balance.settle()
    assert len(filters.layout()) == 2


def test_a_status_without_a_set_or_with_a_damaged_note(filters: FilterSet, tmp_path: Path) -> None:
    with pytest.raises(FilterSetError, match="there is no filter set"):
        elastic.status(str(tmp_path / "nowhere"))
    Path(filters.path, elastic.NOTES).write_text('{"time": "half')
    assert elastic.status(filters.path).measured is None


# -- kept with the versions


def test_a_version_keeps_its_layout(filters: FilterSet, tmp_path: Path) -> None:
    filters.lay_out(even(2), instead=Layout())
    filters.change(put={"new": "x > 1"})
    filters.lay_out(even(2).split(Shard(2, 1)), instead=even(2))
    filters.change(remove=["new"])
    assert [len(filters.layout(version)) for version in range(1, 6)] == [1, 2, 2, 3, 3]
    assert len(FilterSet(filters.path).layout()) == 3
    assert filters.key_type is str
    broken = Path(filters.path, f"{4:020d}.change")
    broken.write_bytes(broken.read_bytes().replace(b"[[2,0]", b"[[2,1]"))
    with pytest.raises(FilterSetError, match="is damaged"):
        filters.layout(4)


def test_changes_and_splits_at_once(filters: FilterSet) -> None:
    """Two threads write versions; each does all it wanted, and nothing of the other's is undone."""

    def divide() -> None:
        own = FilterSet(filters.path)
        for _ in range(12):
            layout = own.layout()
            assert own.lay_out(layout.split(layout.shards[0]), instead=layout) is not None

    thread = threading.Thread(target=divide)
    thread.start()
    for number in range(40):
        filters.change(put={f"more {number}": f"x > {number}"})
    thread.join()
    assert len(filters.layout()) == 13
    assert len(filters.filters()) == 60
    assert filters.version == 1 + 12 + 40


def test_threads_that_ask_at_once_for_the_newest_version(filters: FilterSet) -> None:
    """None is told of one that is not there."""
    ended, wrong = threading.Event(), []

    def look() -> None:
        own = FilterSet(filters.path)
        while not ended.is_set():
            version = own.version
            if not Path(filters.path, f"{version:020d}.change").exists():
                wrong.append(version)

    threads = [threading.Thread(target=look) for _ in range(4)]
    for thread in threads:
        thread.start()
    for number in range(60):
        filters.change(put={f"more {number}": f"x > {number}"})
    ended.set()
    for thread in threads:
        thread.join()
    assert wrong == []


def exploded(serving: Serving, rows: pa.RecordBatch) -> pa.RecordBatch:
    """What the plan does before tasks: a copy for each shard."""
    counts = serving.copies(rows.column(VERSION)).to_pylist()
    places = [place for place, count in enumerate(counts) for _ in range(count)]
    shards = [number for count in counts for number in range(count)]
    return rows.take(pa.array(places)).append_column(SHARD, pa.array(shards, pa.int32()))


@pytest.mark.parametrize("seed", range(4))
def test_random_changes_splits_merges_and_deaths(tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Events meet any version, before and after; each finds what `Filter` says, once. A process may die at any time."""
    monkeypatch.setattr(filterset, "SMALL", 3_000)  # with a base now and then
    draw = random.Random(seed)
    filters = FilterSet(tmp_path / "set")
    filters.change(put={f"k{number}": f"x = {number}" for number in range(30)})
    serving = Serving(False, str, live=filters)
    done: Counter[str] = Counter()
    found_any = 0
    for _ in range(60):
        layout = filters.layout()
        shard = draw.choice(layout.shards)
        wholes = [
            whole for each in layout.shards if (whole := each.whole) and {*(whole.halves or ())} <= {*layout.shards}
        ]
        what = draw.choice(["change", "split", "split", "merge", "die", "match", "match"])
        if what == "change":
            put = {f"k{draw.randrange(60)}": f"x > {draw.randrange(40)} AND y <> {draw.randrange(9)}" for _ in range(4)}
            filters.change(
                put=put,
                remove=[f"k{number}" for number in range(60) if draw.random() < 0.05 and f"k{number}" not in put],
            )
        elif what == "split" and len(layout) < 9:
            assert filters.lay_out(layout.split(shard), instead=layout) == filters.version
        elif what == "merge" and wholes:
            assert filters.lay_out(layout.merge(draw.choice(wholes)), instead=layout) == filters.version
        elif what == "die":
            filterset._held.clear()  # a new process has nothing
        elif what == "match":
            newest = filters.version
            versions = [draw.randint(max(1, newest - 6), newest) for _ in range(3)]
            rows = [(n, draw.randrange(45), draw.randrange(9), draw.choice(versions)) for n in range(40)]
            batch = pa.record_batch(
                [pa.array(column) for column in zip(*rows, strict=True)], ["offset", "x", "y", VERSION]
            )
            pairs = Counter(
                (pair["offset"], pair["key"])
                for found in serving.pairs(iter([exploded(serving, batch)]))
                for pair in found.to_pylist()
            )
            texts = {version: filters.filters(version) for version in set(versions)}
            wanted = Counter(
                (offset, key)
                for offset, x, y, version in rows
                for key, text in texts[version].items()
                if known(text).matches(Event("t", "s", attributes={"x": x, "y": y}))
            )
            assert pairs == wanted
            found_any += len(wanted)
            done["many shards"] += len(layout) > 2
        else:
            continue
        done[what] += 1
    assert found_any > 500
    assert min(done[what] for what in ("change", "split", "merge", "die", "match", "many shards")) >= 2
    assert len(Files(filters.path).bases()) > 0


_parsed: dict[str, Filter] = {}


def known(text: str) -> Filter:
    return _parsed.setdefault(text, Filter(text))


def test_a_process_keeps_no_more_than_it_should(filters: FilterSet, monkeypatch: pytest.MonkeyPatch) -> None:
    """Shards of layouts that are no more do not pile up."""
    monkeypatch.setattr(filterset, "KEPT", 25)
    assert len(filters.matcher(1)) == 20
    for shard in even(2).shards:
        filters.matcher(1, shard=shard)
    assert (filters.path, WHOLE) not in filterset._held
    assert [shard for _, shard in filterset._held] == list(even(2).shards)
    monkeypatch.setattr(filterset, "KEPT", 1)
    assert len(filters.matcher(1)) == 20
    assert [shard for _, shard in filterset._held] == [WHOLE]
