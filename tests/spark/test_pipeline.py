"""What the pipeline does, in one Spark session beside a real node: detection through changes, trims and lost files."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.helpers import heard
from tests.pipeline.inside import Beside, beside
from tests.pipeline.plant import PAIR, until
from tocsin import Detector
from tocsin.composite.detector import SOURCE
from tocsin.errors import DefinitionError, JournalError, JournalFullError
from tocsin.spark import Elastic, archive, balancing, elastic, register
from tocsin.spark.pipeline import matching as module
from tocsin.spark.pipeline import subscribed
from tocsin.spark.pipeline.archiving import Archiving
from tocsin.spark.pipeline.detection import Detecting
from tocsin.spark.pipeline.matching import Matching
from tocsin.spark.shards import Layout

pytestmark = pytest.mark.timeout(400)
TIMED = "PLUS([type = 'beat'], 1 SECOND) BY k"


def trimmed(plant: Beside, spark: Any) -> None:
    """Bring everything into the lake, and nothing is left in the journal."""
    archive(f"file:{plant.folder / 'journal.db'}", plant.folder / "lake", spark=spark)
    plant.do(plant.bus.trim(archived=True))
    assert plant.node.journal.kept == plant.node.head + 1


def test_what_was_trimmed_up_to_where_it_stands_is_no_loss(spark: Any, tmp_path: Path) -> None:
    with beside(tmp_path) as plant:
        plant.do(plant.bus.define("pair", PAIR))
        detecting = plant.detecting(spark)
        plant.publish("a")
        plant.caught_up(detecting)
        trimmed(plant, spark)
        plant.do(plant.bus.define("timed", TIMED))  # another query, which begins where nothing is kept
        plant.publish("b", "beat")
        plant.look_until(detecting, lambda: plant.counts() == {"pair": 1, "timed": 1}, "both are detected")
        plant.publish("a")
        plant.caught_up(detecting)
        detecting.stop()
        trimmed(plant, spark)
    with beside(tmp_path) as plant:  # another life, with the same checkpoint
        detecting = plant.detecting(spark)
        plant.caught_up(detecting)
        plant.publish("b")
        plant.look_until(detecting, lambda: plant.counts()["pair"] == 2, "what was half detected is whole")
        plant.caught_up(detecting)
        detecting.stop()
        trimmed(plant, spark)
        shutil.rmtree(tmp_path / "spark" / "detect")  # it begins again where definitions begin: in the lake
        detecting = plant.detecting(spark)
        plant.caught_up(detecting)
        plant.publish("a", "b", k="again")
        plant.look_until(detecting, lambda: plant.counts()["pair"] == 3, "it goes on, and tells nothing twice")
        detecting.stop()


def test_definitions_change_without_a_batch_being_lost(spark: Any, tmp_path: Path) -> None:
    with beside(tmp_path) as plant:
        detecting = plant.detecting(spark)
        plant.do(plant.bus.define("first", PAIR))
        plant.publish("a")
        plant.caught_up(detecting)
        for number in range(5):  # one after the other: the query is made anew once or twice, not five times
            plant.do(plant.bus.define(f"later{number}", PAIR))
        plant.publish("b")
        plant.do(plant.bus.define("other", "SEQ([type = 'c'], [type = 'd']) BY k"))
        plant.do(plant.bus.define("other", "SEQ([type = 'c'], [type = 'b']) BY k", replace=True))
        plant.publish("c", "d", "b")
        plant.look_until(detecting, lambda: plant.counts().get("other") == 1, "the one that was replaced")
        plant.caught_up(detecting)
        plant.do(plant.bus.undefine("other"))
        assert plant.counts() == {"first": 2} | {f"later{n}": 0 for n in range(5)}
        for name in plant.counts():
            plant.do(plant.bus.undefine(name))
        checkpoint = tmp_path / "spark" / "detect"
        plant.look_until(detecting, lambda: not checkpoint.exists(), "nothing is left to look for")
        assert plant.status().lag is None


TEXTS = (
    "SEQ([type = 'a'], [type = 'b']) BY k",
    "SEQ([type = 'a'], [type = 'b'])",
    "NOT([type = 'a'], [type = 'b'], [type = 'c']) BY k",
    "SEQ([type = 'c'], [type = 'd'])",
    "SEQ({0}, [type = 'c'])",
    "SEQ({0}, {1}) BY k",
    "AND({0}, [type = 'd'])",
)


def test_whatever_changes_while_spark_is_away_it_finds_what_a_node_finds(spark: Any, tmp_path: Path) -> None:
    draw, names = random.Random(11), ("one", "two", "three")
    with beside(tmp_path) as plant:
        changes: list[tuple[int, str, str | None]] = []

        def change(name: str, text: str | None, placement: str = "spark") -> None:
            before = plant.node.watcher.placements.records.get(name)
            with suppress(DefinitionError):  # others are made of it, or go BY other fields
                if text is None:
                    plant.do(plant.bus.undefine(name))
                else:
                    plant.do(plant.bus.define(name, text, placement=placement, replace=True))
                if plant.node.watcher.placements.records.get(name) != before:  # else it was the same again
                    changes.append((plant.node.head, name, text))

        def publish(kinds: str) -> None:
            for kind in kinds:
                plant.publish(kind, k=draw.choice("xy"))

        change("stay", "SEQ([type = 'a'], [type = 'd']) BY k")
        change("one", "SEQ([type = 'a'], [type = 'b'])")
        change("two", "SEQ(one, [type = 'c'])")
        detecting = plant.detecting(spark)
        publish("ab")
        plant.caught_up(detecting)
        detecting.stop()
        for name, text in (("two", TEXTS[3]), ("one", "SEQ(two, [type = 'd'])"), ("two", TEXTS[1])):
            change(name, text)  # each fits the others as they are then, and not as they were before
            publish("abcd")
        for number in range(12):
            if number % 3 == 0:
                detecting = plant.detecting(spark)
                detecting.look()
            for _ in range(draw.randint(1, 3)):
                name, *others = draw.sample(names, 3)
                text = draw.choice(TEXTS).format(*others) if draw.random() < 0.8 else None
                change(name, text, draw.choice(("spark", "spark", "node")))
                publish("".join(draw.choices("abcd", k=3)))
            if number % 3 == 2:
                plant.caught_up(detecting)
                detecting.stop()
        found = [event for block in plant.node.journal.blocks(1, plant.node.head) for event in block.events()]
    assert len(changes) > 15
    detector, expected = Detector(), dict[str, str]()
    for event in found:
        while changes and changes[0][0] < (event.offset or 0):
            _, name, text = changes.pop(0)
            if text is None:
                detector.undefine(name)
            else:
                detector.define(name, text, replace=True)
        expected |= {each.id: each.type for each in detector.feed(event)}
    derived = {event.id: event.type for event in found if event.source == SOURCE}
    assert derived == expected and set(expected.values()) == {"stay", *names}


def test_what_cannot_be_stored_now_is_told_again(spark: Any, tmp_path: Path, monkeypatch: Any) -> None:
    with beside(tmp_path) as plant:
        plant.do(plant.bus.define("pair", PAIR))
        detecting = plant.detecting(spark)
        plant.publish("a")
        plant.caught_up(detecting)
        tell, tried = type(plant.node.beside)._tell, list[int]()

        async def full(self: Any, *told: Any) -> None:
            tried.append(1)
            if len(tried) < 3:
                raise JournalFullError("the disk is full", help="make room")
            await tell(self, *told)

        monkeypatch.setattr(type(plant.node.beside), "_tell", full)
        plant.publish("b")
        plant.look_until(detecting, lambda: plant.status().trouble, "it is told")
        trouble = plant.status().trouble
        assert trouble is not None and "could not be stored" in trouble.message and trouble.help == "make room"
        plant.look_until(detecting, lambda: plant.counts() == {"pair": 1}, "it is stored when that can be done")
        assert plant.status().trouble is None and len(tried) == 3
        detecting.stop()


def test_what_is_matched_here_is_delivered_once(spark: Any, tmp_path: Path) -> None:
    with beside(tmp_path) as plant:
        matching = Matching(spark, plant.line, plant.settings, plant.source)
        got = dict[str, list[str]]()

        async def take_from(name: str, sub: Any) -> None:
            got.setdefault(name, []).extend(await heard(plant.bus, sub))

        def came(name: str, sub: Any, count: int) -> bool:
            matching.look()
            plant.do(take_from(name, sub))
            return len(got[name]) >= count

        first = plant.do(plant.bus.subscribe("k = 'x'", consumer="first", placement="spark"))
        plant.publish("a", "b")
        plant.publish("c", k="y")
        until(lambda: came("first", first, 2), "what Spark has matched", 90)
        second = plant.do(plant.bus.subscribe("type = 'd'", consumer="second", placement="spark"))  # while it runs
        plant.publish("c", "d")
        until(lambda: came("second", second, 1), "the new one's", 90)
        query = matching._query
        until(lambda: came("first", first, 4), "and the old one's", 90)
        assert query is matching._query and query is not None and query.isActive  # it was not made anew
        matching.stop()  # it is killed, say
        plant.publish("d", "d")
        again = Matching(spark, plant.line, plant.settings, plant.source)
        matching = again
        until(lambda: came("second", second, 3), "it goes on", 90)
        until(lambda: came("first", first, 6), "for both", 90)
        assert all(len(each) == len(set(each)) for each in got.values())
        assert {name: len(each) for name, each in got.items()} == {"first": 6, "second": 3}
        for name in got:
            plant.do(plant.bus.forget(name))
        matching.look()
        assert matching._query is None
        matching.stop()


def test_on_a_cluster_shards_split_and_merge_and_the_node_looks_for_nothing_itself(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Subscriptions come and go meanwhile, old versions are pruned, and it is killed: each event comes once."""
    monkeypatch.setattr(elastic, "HELPED", 1e9)  # a few filters are no work, so dividing them is no help
    monkeypatch.setattr(subscribed, "SPARE", 1)
    session = register(spark.newSession())
    session.conf.set("spark.sql.streaming.minBatchesToRetain", "2")
    grow = Elastic(split=1e-9, merge=0, window=1, most=4)
    shrink = Elastic(split=1000, merge=500, window=1, most=4)
    with beside(tmp_path) as plant:
        elsewhere = replace(plant.settings, master="local-cluster[2,1,1024]")  # the session is the tests' own
        subs = {
            name: plant.do(plant.bus.subscribe(f"k = '{name}'", consumer=name, placement="spark")) for name in "uvwxyz"
        }
        got, sent = dict[str, list[str]](), Counter[str]()
        told: list[int] = []
        matched = plant.node.lanes.matched
        monkeypatch.setattr(
            plant.node.lanes, "matched", lambda version, *rest: told.append(version) or matched(version, *rest)
        )

        async def take() -> None:
            for name, sub in subs.items():
                got.setdefault(name, []).extend(await heard(plant.bus, sub))

        def came() -> bool:
            matching.look()
            plant.do(take())
            return all(len(got.get(name, ())) >= sent[name] for name in subs)

        def round_of(count: int) -> None:
            for _ in range(count):
                for name in subs:
                    plant.publish("a", k=name)
                sent.update(list(subs))
                until(came, "what Spark has matched", 90)
                balancing.settle(matching._subscribed.filters)
                matching.tidy()

        def shards() -> int:
            matching._next_report = 0.0
            matching.look()
            found = plant.status().matching
            assert found is not None and found.version == matching._subscribed.filters.version
            return len(found.shards)

        for policy, wanted in ((grow, 4), (shrink, 1)):
            monkeypatch.setattr(module, "ELASTIC", policy)
            matching = Matching(session, plant.line, elsewhere, plant.source)
            round_of(1)
            while shards() != wanted:  # a batch may hold events of some shards only, and the others stay as they are
                assert sum(sent.values()) < 300
                round_of(1)
            told.clear()
            round_of(2)
            assert set(told) == {plant.node.lanes.version}, "a layout in between is no other version"
            gone, new = ("u", "t") if policy is grow else ("v", "s")
            plant.do(plant.bus.forget(gone))
            del subs[gone]
            subs[new] = plant.do(plant.bus.subscribe(f"k = '{new}'", consumer=new, placement="spark"))
            round_of(2)
            matching.stop()  # it is killed, say
        said = plant.status()
        assert said.subscriptions == 6 and said.matching is not None and said.matching.merges == 3
        assert {name: Counter(each).most_common(1)[0][1] for name, each in got.items()} == dict.fromkeys(got, 1)
        assert {name: len(each) for name, each in got.items()} == dict(sent)
        filters = matching._subscribed.filters
        assert 3 < filters.oldest <= (matching._checkpoint.least("filters") or 0)
        matching = Matching(session, plant.line, plant.settings, plant.source)  # on this machine from now on
        round_of(1)
        assert filters.layout() == Layout() and shards() == 1
        matching.stop()
        assert {name: len(each) for name, each in got.items()} == dict(sent)


def test_subscriptions_that_come_and_go_where_nothing_happens_leave_few_versions(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subscribed, "SPARE", 3)
    monkeypatch.setattr(subscribed, "CROWDED", 6)
    with beside(tmp_path) as plant:
        matching = Matching(spark, plant.line, plant.settings, plant.source)
        sub = plant.do(plant.bus.subscribe("k = 'x'", consumer="stays", placement="spark"))
        got: list[str] = []

        async def take() -> None:
            got.extend(await heard(plant.bus, sub))

        def came(count: int) -> bool:
            matching.look()
            plant.do(take())
            return len(got) >= count

        plant.publish("a")
        until(lambda: came(1), "what Spark has matched", 90)
        filters = matching._subscribed.filters
        query = matching._query
        for turn in range(10):
            plant.do(plant.bus.subscribe(f"k = '{turn}'", consumer="comes", placement="spark"))
            matching.look()
            plant.do(plant.bus.forget("comes"))
            matching.look()
            matching.tidy()
        matching.look()
        assert filters.version > 20 and filters.version - filters.oldest < 12
        assert matching._query is not query  # the last batch was the first, and named a version of long ago
        plant.publish("b", "c")
        until(lambda: came(3), "it goes on", 90)
        matching.tidy()
        matching.stop()
        assert len(got) == len(set(got)) == 3


def test_the_archive_takes_what_is_complete_and_the_rest_when_it_is_quiet(spark: Any, tmp_path: Path) -> None:
    with beside(tmp_path) as plant:
        archiving = Archiving(spark, plant.line, plant.settings)
        plant.publish("a", "b")
        archiving.run()
        assert plant.status().archived is None  # more may come
        archiving.run()
        archived = plant.status().archived
        assert archived is not None and (archived.last, archived.events) == (2, 2)
        plant.publish("a")
        archiving.run()
        archiving.run()
        assert plant.status().archived == archived  # so soon it is not written anew


def test_state_that_is_really_damaged_is_said_to_be_with_what_helps(spark: Any, tmp_path: Path) -> None:
    base = tmp_path / "base"
    base.mkdir()
    with beside(base) as plant:
        plant.do(plant.bus.define("pair", PAIR))
        detecting = plant.detecting(spark)
        plant.publish("a")
        plant.caught_up(detecting)
        plant.publish("a", k="other")
        plant.caught_up(detecting)
        detecting.stop()

    def cut(state: Path) -> None:
        for path in [*state.rglob("*.changelog"), *state.rglob("*.zip")]:
            path.write_bytes(path.read_bytes()[:10])

    def garbled(state: Path) -> None:
        for path in (state / "0" / "_metadata").rglob("[0-9]*"):
            path.write_text("x")

    for damage in (shutil.rmtree, cut, garbled):
        folder = tmp_path / damage.__name__
        shutil.copytree(base, folder, ignore=shutil.ignore_patterns("*.crc"))
        damage(folder / "spark" / "detect" / "spark" / "state")
        with beside(folder) as plant:
            plant.publish("b")
            detecting = plant.detecting(spark)
            with pytest.raises(JournalError, match="is damaged") as caught:
                plant.look_until(detecting, lambda: False, "it is refused")
            detecting.stop()
            assert f"remove {folder / 'spark' / 'detect'}" in str(caught.value.help), damage.__name__
            shutil.rmtree(folder / "spark" / "detect")  # as it says
            detecting = plant.detecting(spark)
            plant.look_until(detecting, lambda: plant.counts() == {"pair": 1}, "it begins anew")
            detecting.stop()


def test_a_checkpoint_that_cannot_be_used_is_told_before_spark_starts(tmp_path: Path) -> None:
    with beside(tmp_path) as plant:
        plant.do(plant.bus.define("pair", PAIR))
        from tocsin.node.channel import Definitions, Look

        (tmp_path / "spark" / "detect").mkdir()
        with pytest.raises(Exception, match="is damaged"):
            Detecting.check(plant.line.ask(Look(None), Definitions), plant.settings)
        plant.do(plant.bus.undefine("pair"))
        Detecting.check(plant.line.ask(Look(None), Definitions), plant.settings)  # nobody needs it
