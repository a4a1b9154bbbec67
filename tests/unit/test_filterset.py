"""Filter sets on disk: versions that never change, one writer for each, matchers that go to and fro between them."""

from __future__ import annotations

import logging
import os
import pickle
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tocsin import BadFiltersError, Event, Filter, FilterSetError, Matcher
from tocsin.spark import filterset, versions
from tocsin.spark.filterset import FilterSet
from tocsin.spark.shards import Shard, even

ROOT = Path(__file__).resolve().parents[2]
EVENTS = [Event("t", "s", data={"x": number % 12, "s": f"v{number % 5}"}) for number in range(60)]
Key = str | int


@pytest.fixture(autouse=True)
def forget() -> Iterator[None]:
    """Each test is a process of its own, as far as matchers are kept."""
    filterset._held.clear()
    filterset._known_files.clear()
    yield


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "plant.filters"


def answers(matcher: Matcher) -> list[list[Key]]:
    return [sorted(keys, key=repr) for keys in matcher.match_batch(EVENTS)]


def wanted(filters: dict[Any, str]) -> list[list[Key]]:
    known = {key: Filter(text) for key, text in filters.items()}
    return [sorted((key for key, each in known.items() if each.matches(event)), key=repr) for event in EVENTS]


def history(filters: FilterSet, changes: int, seed: int = 1) -> list[dict[Key, str]]:
    """Change a set at random; returns what each version holds, the one before the first included."""
    draw = random.Random(seed)
    held: dict[Key, str] = {}
    states = [{}]
    for number in range(changes):
        put = {f"k{draw.randrange(20)}": f"x > {draw.randrange(12)} AND s <> 'v{number}'" for _ in range(3)}
        remove = [key for key in held if draw.random() < 0.2 and key not in put]
        assert filters.change(put=put, remove=remove) == number + 1
        held = {key: text for key, text in {**held, **put}.items() if key not in remove}
        states.append(dict(held))
    return states


# -- versions


def test_a_change_makes_a_version(path: Path) -> None:
    filters = FilterSet(path)
    assert filters.change(put={"ops": "x > 9", "night": Filter("s = 'v1'")}) == 1
    assert filters.change(put={"ops": "x > 10"}, remove=["night"]) == 2
    assert filters.version == FilterSet(path).version == 2
    assert filters.filters(1) == {"ops": "x > 9", "night": "s = 'v1'"}
    assert filters.filters(2) == filters.filters() == {"ops": "x > 10"}


def test_a_change_that_was_made_already_makes_none(path: Path) -> None:
    filters = FilterSet(path)
    filters.change(put={"a": "x > 1", "b": "x > 2"})
    for _ in range(2):
        assert filters.change(put={"a": "x > 5"}, remove=["b", "never there"]) == 2
    assert filters.change() == 2


def test_a_set_that_is_not_there(path: Path) -> None:
    filters = FilterSet(path)
    for ask in (
        lambda: filters.version,
        lambda: filters.filters(),
        lambda: filters.matcher(),
        lambda: filters.key_type,
    ):
        with pytest.raises(FilterSetError, match="there is no filter set at") as caught:
            ask()
        assert caught.value.path == str(path)
    assert not path.exists()


@pytest.mark.parametrize("version", [0, -1, 3, "2", 2.0, True])
def test_a_version_that_is_not_there(path: Path, version: Any) -> None:
    filters = FilterSet(path)
    history(filters, 2)
    with pytest.raises(FilterSetError, match="has no version .*; it has 1 to 2"):
        filters.matcher(version)
    with pytest.raises(FilterSetError, match="has no version"):
        filters.filters(version)


def test_an_empty_set_can_be_made_and_filled(path: Path) -> None:
    filters = FilterSet(path)
    assert filters.change() == 1
    assert filters.key_type is None
    assert answers(filters.matcher()) == [[]] * len(EVENTS)
    assert filters.change(put={7: "x > 9"}) == 2
    assert filters.key_type is int


def test_bad_filters_are_all_named_and_nothing_changes(path: Path) -> None:
    filters = FilterSet(path)
    filters.change(put={"a": "x > 1"})
    put: dict[Any, Any] = {f"k{number}": f"x > {number}" for number in range(50)}
    put |= {f"bad{number}": "x > > 3" for number in range(12)}
    with pytest.raises(BadFiltersError, match="12 of 62 filters are bad") as caught:
        filters.change(put=put)
    assert [each.key for each in caught.value.filters] == [f"bad{number}" for number in range(12)]
    assert {each.position for each in caught.value.filters} == {4}
    assert "'bad9': " in str(caught.value)
    assert "and 2 more" in str(caught.value)
    assert filters.filters() == {"a": "x > 1"}
    assert filters.version == 1


@pytest.mark.parametrize("put", [{"a": None}, {"a": 7}, {None: "x > 1"}, {1.5: "x > 1"}, {True: "x > 1"}, {2**63: "x"}])
def test_what_is_no_key_or_no_text_is_refused(path: Path, put: Any) -> None:
    with pytest.raises(BadFiltersError, match="1 of 1 filters is bad"):
        FilterSet(path).change(put=put)
    assert not path.exists()


def test_keys_are_of_one_kind(path: Path) -> None:
    with pytest.raises(FilterSetError, match="keys are of two kinds"):
        FilterSet(path).change(put={"a": "x > 1", 1: "x > 1"})
    filters = FilterSet(path)
    filters.change(put={"a": "x > 1"})
    filters.change(remove=["a"])
    assert filters.key_type is str
    with pytest.raises(FilterSetError, match="keys are of two kinds"):
        filters.change(put={1: "x > 1"})
    with pytest.raises(FilterSetError, match="put and removed at once"):
        filters.change(put={"b": "x > 1"}, remove=["b"])


def test_it_pickles_as_its_path(path: Path) -> None:
    filters = FilterSet(path)
    filters.change(put={"a": "x > 1"})
    assert pickle.loads(pickle.dumps(filters)).filters() == {"a": "x > 1"}


# -- matchers


def test_a_matcher_of_any_version_in_any_order(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filterset, "SMALL", 5_000)  # a base every few versions
    filters = FilterSet(path)
    states = history(filters, 30)
    assert len(versions.Files(str(path)).bases()) > 2
    kept = filters.matcher(1)
    draw = random.Random(3)
    moved, version = 0, 1
    for _ in range(60):  # near and far
        version = draw.randrange(1, 31) if draw.random() < 0.4 else min(30, max(1, version + draw.randint(-2, 2)))
        matcher = filters.matcher(version)
        moved += matcher is kept
        kept = matcher
        found = answers(matcher)
        assert found == wanted(states[version])
        assert any(found)
    assert 5 < moved < 60  # some were brought over by changes, some loaded from a base
    for version, state in enumerate(states[1:], 1):
        assert filters.filters(version) == state


def test_going_on_and_back_a_version_loads_nothing_anew(path: Path) -> None:
    filters = FilterSet(path)
    states = history(filters, 9)
    first = filters.matcher(5)
    for version in (6, 5, 6, 8, 7):
        assert filters.matcher(version) is first
        assert answers(first) == wanted(states[version])


def test_every_shard_of_every_version(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filterset, "SMALL", 5_000)
    filters = FilterSet(path)
    states = history(filters, 12)
    layout = even(3).split(Shard(3, 1))
    for version in (12, 5, 9):
        found: list[list[Key]] = [[] for _ in EVENTS]
        for number, shard in enumerate(layout.shards):
            matcher = filters.matcher(version, shard=shard)
            assert all(layout.shard_of(key) == number for key in states[version] if key in matcher)
            for keys, more in zip(found, answers(matcher), strict=True):
                keys += more
        assert [sorted(keys, key=repr) for keys in found] == wanted(states[version])


def test_old_bases_can_go(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filterset, "SMALL", 5_000)
    filters = FilterSet(path)
    states = history(filters, 20)
    files = versions.Files(str(path))
    bases = files.bases()
    (path / ".dead").write_bytes(b"half")
    os.utime(path / ".dead", (0, 0))
    (path / ".alive").write_bytes(b"half")
    assert filters.prune() == len(bases) - 1 > 0
    assert files.bases() == bases[-1:]
    assert [entry.name for entry in path.glob(".*")] == [".alive"]
    for version in (1, 7, 20):
        assert answers(filters.matcher(version)) == wanted(states[version])
        assert filters.filters(version) == states[version]
    assert filters.prune(0) == 1
    filterset._held.clear()
    assert answers(filters.matcher(11)) == wanted(states[11])


def test_a_large_change_is_compiled_once_by_its_writer(path: Path) -> None:
    filters = FilterSet(path)
    put = {number: f"x > {number % 12} AND y = '{'z' * 200}{number}'" for number in range(1_500)}
    filters.change(put=put)
    assert versions.Files(str(path)).bases() == [1]
    assert len(filters.matcher()) == 1_500


def test_an_index_of_another_release_is_made_anew(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(filterset, "SMALL", 5_000)
    filters = FilterSet(path)
    states = history(filters, 8)
    for index in path.glob("*.index"):
        index.write_bytes(b"tocsin-matcher\x09 of the future")
    with caplog.at_level(logging.WARNING):
        assert answers(filters.matcher(8)) == wanted(states[8])
    assert "cannot be used" in caplog.text


def test_a_damaged_version_is_named(path: Path) -> None:
    filters = FilterSet(path)
    history(filters, 3)
    broken = path / f"{2:020d}.change"
    broken.write_bytes(broken.read_bytes()[:100])
    with pytest.raises(FilterSetError, match=rf"{broken.name} is damaged"):
        filters.matcher(3)
    broken.unlink()
    with pytest.raises(FilterSetError, match=rf"there is no {broken.name}"):
        filters.matcher(3)


def test_threads_load_once(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filters = FilterSet(path)
    history(filters, 4)
    loads: list[int] = []
    load = FilterSet._loaded
    monkeypatch.setattr(FilterSet, "_loaded", lambda self, *args: loads.append(1) or load(self, *args))
    threads = [threading.Thread(target=filters.matcher, args=(4,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert loads == [1]


# -- several processes

WRITER = """
import sys
from tocsin.spark import filterset
from tocsin.spark.filterset import FilterSet
filterset.SMALL = 2_000
filters, name = FilterSet(sys.argv[1]), sys.argv[2]
print("ready", flush=True)
sys.stdin.readline()
for number in range(int(sys.argv[3])):
    made = filters.change(put={f"{name} {number % 7}": f"x = {number}", "both": f"s = '{name} {number}'"})
    print(made, flush=True)
"""


def start(path: Path, name: str, changes: int) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path), name, str(changes)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "TOCSIN_KERNELS": "numpy"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def go(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def replayed(path: Path) -> dict[Key, str]:
    """The newest state, from the changes alone; each fits the one before it."""
    files = versions.Files(str(path))
    held: dict[Key, str] = {}
    for version in range(1, files.newest() + 1):
        for key, after, before in files.change(version).rows:
            assert held.get(key) == before
            held.pop(key, None)
            if after is not None:
                held[key] = after
    return held


@pytest.mark.crash
def test_two_writers_never_make_the_same_version(path: Path) -> None:
    FilterSet(path).change(put={"begin": "x > 1"})
    writers = [start(path, name, 60) for name in ("ann", "bob")]
    for writer in writers:
        go(writer)
    made = [list(map(int, writer.communicate(timeout=60)[0].split())) for writer in writers]
    assert all(writer.returncode == 0 for writer in writers)
    assert sorted([*made[0], *made[1]]) == list(range(2, 122))  # each version by one of them, none left out
    assert min(made[1]) < max(made[0])  # they did run at once
    assert min(made[0]) < max(made[1])
    filters = FilterSet(path)
    assert filters.filters() == replayed(path)
    assert set(filters.filters()) == {"begin", "both", *(f"{name} {n}" for name in ("ann", "bob") for n in range(7))}
    last = max(zip(("ann", "bob"), made, strict=True), key=lambda pair: pair[1][-1])[0]
    assert filters.filters()["both"] == f"s = '{last} 59'"
    assert answers(filters.matcher()) == wanted(filters.filters())


@pytest.mark.crash
def test_a_killed_writer_leaves_whole_versions(path: Path) -> None:
    draw = random.Random(5)
    FilterSet(path).change(put={"begin": "x > 1"})
    told = 1
    for turn in range(3):
        writer = start(path, f"w{turn}", 10_000)
        go(writer)
        assert writer.stdout is not None
        for _ in range(draw.randrange(1, 40)):
            told = int(writer.stdout.readline())
        writer.send_signal(signal.SIGKILL)
        told = max([told, *map(int, writer.stdout.read().split())])  # `communicate` has not what was read ahead
        writer.communicate()
        assert writer.returncode == -signal.SIGKILL
        filters = FilterSet(path)
        assert told <= filters.version <= told + 1  # what was told is there; one may have been made and not told
        assert filters.filters() == replayed(path)
        assert answers(filters.matcher()) == wanted(filters.filters())
    assert filters.change(put={"after": "x = 3"}) == filters.version
    assert filters.filters()["after"] == "x = 3"
