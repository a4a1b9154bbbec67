"""What a task does with batches, without Spark: which index, which rows, which columns, how much at a time."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest

from tocsin import FilterSetError, Matcher
from tocsin.spark import serving
from tocsin.spark.filterset import FilterSet
from tocsin.spark.serving import SHARD, Serving, Shipped, loaded, needed
from tocsin.spark.shards import Layout, even, primitive


class Sent(NamedTuple):
    """Stands in for a broadcast."""

    value: bytes


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(serving, "_matchers", type(serving._matchers)())
    yield


def stored(count: int, first: int = 0) -> bytes:
    return Matcher((number, f"x = {number}") for number in range(first, first + count)).to_bytes()


def test_threads_load_an_index_once() -> None:
    fetched: list[int] = []
    found: list[Matcher] = []

    def fetch() -> bytes:
        fetched.append(1)
        return stored(300)

    threads = [threading.Thread(target=lambda: found.append(loaded("a", fetch))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert fetched == [1]
    assert len(found) == 8
    assert len({id(matcher) for matcher in found}) == 1


def test_the_last_used_indexes_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    content = stored(10)
    monkeypatch.setattr(serving, "KEPT", 2 * len(content))
    first = loaded("a", lambda: content)
    loaded("b", lambda: content)
    assert loaded("a", lambda: pytest.fail("it is here")) is first
    loaded("c", lambda: content)
    assert list(serving._matchers) == ["a", "c"]
    monkeypatch.setattr(serving, "KEPT", 1)
    loaded("d", lambda: content)
    assert list(serving._matchers) == ["d"]


def test_rows_of_several_shards_in_one_batch() -> None:
    indexes = tuple(Shipped(name, Sent(stored(5, first))) for name, first in (("a", 0), ("b", 3)))
    rows = pa.record_batch({"offset": [1, 2, 1, 2], "x": [1, 4, 1, 4], SHARD: pa.array([0, 0, 1, 1], pa.int32())})
    found = list(Serving(False, int, even(2), indexes=indexes).pairs(iter([rows, rows.slice(0, 0)])))
    pairs = [tuple(pair.values()) for batch in found for pair in batch.to_pylist()]
    assert pairs == [(1, 1), (2, 4), (2, 4)]
    assert {batch.schema for batch in found} == {pa.schema([("offset", pa.int64()), ("key", pa.int64())])}


def test_much_comes_out_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten thousand rows that match a hundred filters each must not be one batch."""
    monkeypatch.setattr(serving, "PAIRS", 20_000)
    index = Shipped("a", Sent(Matcher((number, f"x >= {-number}") for number in range(100)).to_bytes()))
    rows = pa.record_batch({"offset": list(range(1, 10_001)), "x": [5] * 10_000})
    found = list(Serving(False, int, Layout(), indexes=(index,)).pairs(iter([rows])))
    assert sum(batch.num_rows for batch in found) == 1_000_000
    assert max(batch.num_rows for batch in found[1:]) <= 21_000
    assert [batch.column(0)[0].as_py() for batch in found] == sorted(batch.column(0)[0].as_py() for batch in found)


def test_filters_that_look_at_nothing() -> None:
    index = Shipped("a", Sent(Matcher([("all", "TRUE"), ("none", "FALSE")]).to_bytes()))
    rows = pa.record_batch({"offset": [7, 8]})
    for source in (False, True):
        (found,) = Serving(source, str, Layout(), indexes=(index,)).pairs(iter([rows]))
        assert found.to_pylist() == [{"offset": 7, "key": "all"}, {"offset": 8, "key": "all"}]


def test_an_offset_that_no_event_could_have() -> None:
    """It is only a number to tell rows apart, unless a filter asks for it."""
    index = Shipped("a", Sent(Matcher([("x", "length(s) > 0")]).to_bytes()))
    rows = pa.record_batch({"offset": [0, -5, None], "s": ["a", "b", "c"]})
    (found,) = Serving(False, str, Layout(), indexes=(index,)).pairs(iter([rows]))
    assert found.column(0).to_pylist() == [0, -5, None]


def test_a_live_set_that_got_other_keys_than_planned(tmp_path: Path) -> None:
    filters = FilterSet(tmp_path / "filters")
    filters.change()
    filters.change(put={7: "x > 0"})
    rows = pa.record_batch({"offset": [1], "x": [1], "filters": pa.array([2], pa.int64())})
    with pytest.raises(FilterSetError, match="planned for keys of another kind"):
        list(Serving(False, str, Layout(), live=filters).pairs(iter([rows])))


NAMES = ["offset", "type", "attributes", "data", "datacontenttype", "x", "y", "deep"]


@pytest.mark.parametrize(
    ("fields", "wanted"),
    [
        (set(), []),
        ({("type",)}, ["type"]),
        ({("x",)}, ["attributes", "data", "datacontenttype", "x"]),
        ({("deep", "n")}, ["attributes", "data", "datacontenttype", "deep"]),
        ({("attributes", "y")}, ["attributes", "y"]),
        ({("data", "deep", "n")}, ["data", "datacontenttype", "deep"]),
        ({("data", "z")}, ["data", "datacontenttype"]),
        ({("data",)}, ["data", "datacontenttype", "deep"]),
        ({("attributes",)}, [name for name in NAMES if name != "deep"]),
        ({("nowhere",), ("offset",)}, ["offset", "attributes", "data", "datacontenttype"]),
    ],
)
def test_columns_that_are_needed(fields: set[Any], wanted: list[str]) -> None:
    assert needed(NAMES, ["deep"], fields) == wanted


def test_a_layout_is_the_same_for_ever_and_even() -> None:
    layout = even(5)
    assert [layout.shard_of(key) for key in ("a", "b", "7", 7, "é", "")] == [3, 3, 0, 0, 3, 1]
    counts = [0] * 5
    for shard in layout.shards_of(f"key {number}" for number in range(10_000)):
        counts[shard] += 1
    assert min(counts) > 1_800
    finer = even(15)  # what tasks compile is part of one shard
    assert all(finer.shard_of(key) % 5 == layout.shard_of(key) for key in range(1_000))
    assert [len(primitive(count)) for count in (0, 1_000_000, 1_000_001, 2_500_000)] == [1, 1, 2, 3]
