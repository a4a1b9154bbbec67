"""Filter sets whose old versions are pruned: the others stay what they were, whoever reads or dies meanwhile."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.test_filterset import ROOT, answers, go, history, wanted
from tocsin import FilterSetError
from tocsin.spark import elastic, filterset
from tocsin.spark.filterset import FilterSet
from tocsin.spark.shards import Layout, Shard
from tocsin.spark.versions import Files

Key = str | int


@pytest.fixture(autouse=True)
def forget() -> Iterator[None]:
    filterset._held.clear()
    filterset._known_files.clear()
    yield


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "plant.filters"


def elsewhere(path: Path) -> FilterSet:
    """The set as another process has it: it remembers nothing of this one."""
    filterset._known_files.clear()
    return FilterSet(path)


def names(path: Path) -> set[str]:
    """The files of versions."""
    return {f"{int(file.name[:20])}{file.suffix}" for file in path.iterdir() if file.name[0].isdigit()}


def check(filters: FilterSet, states: list[dict[Key, str]], oldest: int) -> None:
    """It has all versions from one on, as they were, and none before."""
    assert (filters.oldest, filters.version) == (oldest, len(states) - 1)
    for version in range(1, oldest):
        for ask in (filters.filters, filters.matcher, filters.layout):
            with pytest.raises(FilterSetError, match=rf"version {version} of the filter set .* was pruned") as caught:
                ask(version)
            assert caught.value.help == f"it has {oldest} to {len(states) - 1}"
    for version in range(oldest, len(states)):
        assert filters.filters(version) == states[version]
        assert answers(filters.matcher(version)) == wanted(states[version])


def test_versions_before_one_go_and_the_others_stay(path: Path) -> None:
    filters = FilterSet(path)
    states = history(filters, 9)
    assert filters.prune_before(6) == 5
    assert names(path) == {"6.change", "6.base", "6.index", "7.change", "8.change", "9.change"}
    check(filters, states, 6)
    check(elsewhere(path), states, 6)
    assert filters.prune_before(3) == 0  # they have gone
    assert filters.prune_before(9) == 3
    assert names(path) == {"9.change", "9.base", "9.index"} and len(os.listdir(path / "oldest")) == 1
    check(filters, states, 9)
    states.append({**states[9], "new": "x = 1"})
    assert filters.change(put={"new": "x = 1"}) == 10
    check(elsewhere(path), states, 9)


def test_what_cannot_be_pruned(path: Path) -> None:
    filters = FilterSet(path)
    for ask in (lambda: filters.prune_before(1), lambda: filters.prune(), lambda: filters.oldest):
        with pytest.raises(FilterSetError, match="there is no filter set at"):
            ask()
    assert not path.exists()
    states = history(filters, 3)
    for version in (4, "2", 2.0, True):
        with pytest.raises(FilterSetError, match=f"has no version {version}; it has 1 to 3"):
            filters.prune_before(version)  # type: ignore[arg-type]
    assert filters.prune_before(1) == 0
    check(filters, states, 1)


def test_the_kind_of_keys_and_the_layout_outlive_what_said_them_first(path: Path) -> None:
    filters = FilterSet(path)
    filters.change(put={7: "x > 1"})
    halves = Layout().split(Shard())
    assert filters.lay_out(halves, instead=Layout()) == 2
    filters.change(remove=[7])
    filters.prune_before(3)
    for found in (filters, elsewhere(path)):
        assert (found.key_type, found.layout(), found.filters()) == (int, halves, {})
        with pytest.raises(FilterSetError, match="keys are of two kinds"):
            found.change(put={"a": "x > 1"})
        assert found.lay_out(Layout(), instead=Layout()) is None
    assert filters.change(put={8: "x > 2"}) == 4
    assert filters.lay_out(Layout(), instead=halves) == 5
    assert elsewhere(path).layout(4) == halves and elsewhere(path).layout() == Layout()


def test_the_base_that_the_oldest_version_needs_is_kept(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filterset, "SMALL", 2_000)
    filters = FilterSet(path)
    states = history(filters, 20)
    filters.prune_before(4)
    made = Files(str(path)).bases()
    assert made[0] == 4 and len(made) > 3
    assert filters.prune() == len(made) - 2
    assert Files(str(path)).bases() == [4, made[-1]]
    assert filters.prune(0) == 1
    check(elsewhere(path), states, 4)


@pytest.mark.parametrize("seed", range(4))
def test_random_changes_layouts_and_prunings(path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three processes that know nothing of each other, against plain dictionaries."""
    monkeypatch.setattr(filterset, "SMALL", 3_000)
    draw = random.Random(seed)
    sets = [elsewhere(path) for _ in range(3)]
    sets[0].change(put={"begin": "x > 1"})
    states: list[dict[Key, str]] = [{}, {"begin": "x > 1"}]
    layouts = [Layout(), Layout()]
    oldest = 1
    for number in range(150):
        filters, newest = draw.choice(sets), len(states) - 1
        what = draw.random()
        if what < 0.6:
            put = {f"k{draw.randrange(15)}": f"x > {draw.randrange(12)} AND s <> 'v{number}'" for _ in range(2)}
            remove = [key for key in states[-1] if draw.random() < 0.2 and key not in put]
            assert filters.change(put=put, remove=remove) == newest + 1
            states.append({key: text for key, text in {**states[-1], **put}.items() if key not in remove})
            layouts.append(layouts[-1])
        elif what < 0.7:
            layout = layouts[-1].split(draw.choice(layouts[-1].shards)) if len(layouts[-1]) < 4 else Layout()
            assert filters.lay_out(layout, instead=layouts[-1]) == newest + 1
            states.append(states[-1])
            layouts.append(layout)
        elif what < 0.8:
            version = draw.randrange(1, newest + 1)
            assert filters.prune_before(version) == max(0, version - oldest)
            oldest = max(oldest, version)
        elif what < 0.85:
            filters.prune(draw.randrange(3))
        else:
            version = draw.randrange(1, newest + 1)
            if version < oldest:
                with pytest.raises(FilterSetError, match="was pruned"):
                    filters.matcher(version)
            else:
                assert filters.filters(version) == states[version]
                assert filters.layout(version) == layouts[version]
                shard = draw.choice(layouts[version].shards)
                held = {key: text for key, text in states[version].items() if shard.holds(key)}
                assert answers(filters.matcher(version, shard=shard)) == wanted(held)
        assert (filters.oldest, filters.version, filters.key_type) == (oldest, len(states) - 1, str)
    assert oldest > 20
    check(elsewhere(path), states, oldest)


# -- others, meanwhile


def test_a_process_that_holds_an_old_version_goes_on(path: Path) -> None:
    states = history(FilterSet(path), 30)
    here, there = elsewhere(path), elsewhere(path)
    matcher = here.matcher(3)
    assert here.change(put=states[30]) == 30  # so it knows all filters of the newest version
    there.change(put={"new": "x = 1"})
    states.append({**states[30], "new": "x = 1"})
    there.prune_before(25)
    assert answers(here.matcher(26)) == wanted(states[26])
    assert here.matcher(26) is not matcher
    there.change(remove=["new"])
    there.prune_before(32)  # what lies between is nowhere
    assert here.change(put={"late": "x = 2"}) == 33
    assert elsewhere(path).filters() == here.filters() == {**states[30], "late": "x = 2"}
    assert here.lay_out(Layout().split(Shard()), instead=Layout()) == 34


STEPS = {
    "filters": "newest bases base change",
    "matcher": "newest bases index change size",
    "layout": "newest layout",
    "key_type": "newest kind",
    "change": "newest bases base change size kind layout",
    "lay_out": "newest kind layout",
    "status": "newest kind layout",
}


@pytest.mark.parametrize(("ask", "step"), [(ask, step) for ask, steps in STEPS.items() for step in steps.split()])
def test_pruning_while_somebody_reads(path: Path, ask: str, step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """At any of the steps of reading a version that is kept, all before it are pruned and more come."""
    monkeypatch.setattr(filterset, "SMALL", 2_000)
    states = history(FilterSet(path), 20)
    halves = Layout().split(Shard())
    asked: dict[str, Callable[[FilterSet], Any]] = {
        "filters": lambda found: found.filters(20) == states[20],
        "matcher": lambda found: answers(found.matcher(20)) == wanted(states[20]),
        "layout": lambda found: found.layout(20) == Layout(),
        "key_type": lambda found: found.key_type is str,
        "change": lambda found: found.change(put={"late": "x = 2"}) == 25 and found.filters()["late"] == "x = 2",
        "status": lambda found: [each.name for each in elastic.status(found).shards] == ["0 of 1"],
        "lay_out": lambda found: found.lay_out(halves, instead=Layout()) == 25 and found.layout() == halves,
    }
    here, there = elsewhere(path), elsewhere(path)
    is_over: list[bool] = []
    plain = getattr(Files, step)

    def disturbed(files: Files, *args: Any) -> Any:
        found = plain(files, *args)
        if files is here._files and not is_over:
            is_over.append(True)
            there.prune_before(20)
            for number in range(4):
                there.change(put={"new": f"x = {number}"})
            if ask in ("change", "lay_out", "status"):  # they are about the newest, whichever that is
                there.prune_before(24)
            filterset._held.clear()
        return found

    monkeypatch.setattr(Files, step, disturbed)
    assert asked[ask](here) and is_over


def test_a_writer_that_slept_while_its_version_came_and_went_takes_no_name_twice(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    history(FilterSet(path), 2)
    here, there = elsewhere(path), elsewhere(path)
    grown = FilterSet._grown

    def slow(self: FilterSet, *args: Any) -> Any:
        if self is here and there.version == 2:
            for number in range(5):
                there.change(put={"new": f"x = {number}"})
            there.prune_before(7)
        return grown(self, *args)

    monkeypatch.setattr(FilterSet, "_grown", slow)
    assert here.change(put={"late": "x = 2"}) == 8
    assert names(path) == {"7.change", "7.base", "7.index", "8.change"}
    found = elsewhere(path).filters()
    assert (found["late"], found["new"]) == ("x = 2", "x = 4")


# -- dying


class Killed(BaseException):
    """The process ends here."""


def test_whoever_dies_while_pruning_leaves_the_set_as_it_was_or_pruned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At each of the steps that change the directory; then others read, write and prune."""
    pruned, step = 0, 0
    while True:
        path = tmp_path / f"set {step}"
        filters = FilterSet(path)
        states = history(filters, 8)
        filters.prune_before(3)
        left = step

        def dying(do: Callable[..., Any]) -> Callable[..., Any]:
            def done(*args: Any, **named: Any) -> Any:
                nonlocal left
                left -= 1
                if left < 0:
                    raise Killed
                return do(*args, **named)

            return done

        with monkeypatch.context() as patch:
            for name in ("link", "replace", "unlink", "makedirs", "fsync"):
                patch.setattr(os, name, dying(getattr(os, name)))
            try:
                filters.prune_before(7)
            except Killed:
                pass
            else:
                break
        found = elsewhere(path)
        assert found.oldest in (3, 7)
        pruned += found.oldest == 7
        check(found, states, found.oldest)
        check(filters, states, found.oldest)
        assert filters.change(put={"late": "x = 2"}) == 9
        states.append({**states[8], "late": "x = 2"})
        elsewhere(path).prune_before(7)
        check(elsewhere(path), states, 7)
        assert names(path) == {"7.change", "7.base", "7.index", "8.change", "9.change"}
        step += 1
    assert step > 15 and 4 < pruned < step - 4


LIFE = """
import random, sys
from tocsin.spark import filterset
from tocsin.spark.filterset import FilterSet
filterset.SMALL = 2_000
filters, draw = FilterSet(sys.argv[1]), random.Random(int(sys.argv[2]))
print("ready", flush=True)
sys.stdin.readline()
for number in range(10_000):
    made = filters.change(put={f"k{draw.randrange(9)}": f"x > {draw.randrange(12)} AND s <> 'v{number}'"})
    if made % 3 == 0:
        filters.prune_before(made - draw.randrange(3))
    print(made, flush=True)
"""


@pytest.mark.crash
def test_killed_processes_that_change_and_prune(path: Path) -> None:
    """A reader here follows the newest version all the while; the next process goes on."""
    reader, draw = FilterSet(path), random.Random(3)
    reader.change(put={"begin": "x > 1"})
    for turn in range(3):
        process = subprocess.Popen(
            [sys.executable, "-c", LIFE, str(path), str(turn)],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "TOCSIN_KERNELS": "numpy"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        go(process)
        told = 0
        for _ in range(draw.randrange(20, 60)):
            told = int(process.stdout.readline())
            version = reader.version
            assert version >= told
            try:
                assert answers(reader.matcher(version)) == wanted(reader.filters(version))
            except FilterSetError as error:  # it was the newest a moment ago
                assert "was pruned" in str(error)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        found = elsewhere(path)
        assert told <= found.version and found.oldest > 1
        for version in range(found.oldest, found.version + 1):
            assert answers(found.matcher(version)) == wanted(found.filters(version))
        assert found.prune_before(found.version) < 10_000
        assert names(path) == {f"{found.version}.{ending}" for ending in ("change", "base", "index")}
    assert reader.change(put={"after": "x = 3"}) == found.version
