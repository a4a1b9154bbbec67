"""`ts.match` on a real Spark: the pairs that `Filter` and Spark SQL find, from any DataFrame, batches and shards."""

from __future__ import annotations

import json
import logging
import math
import os
import random
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.spark.test_sql_meaning import AIMED, PER_QUERY, SCHEMA, corpus, draw, row
from tests.strategies import events as random_events
from tests.strategies import filters as random_filters
from tests.unit.test_spark_records import storable
from tocsin import BadFiltersError, Event, Filter, FilterSetError, Matcher, MatcherError, SchemaError
from tocsin import spark as ts
from tocsin.spark import compiling, serving
from tocsin.spark.filterset import FilterSet
from tocsin.spark.shards import even

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

Key = str | int
Pairs = set[tuple[int, Key]]
RULES: dict[str, str] = {
    f"r{n}": f"a{n % 3} > {n % 40} AND a{(n + 1) % 3} <= {n % 17} AND s <> 'v{n % 5}'" for n in range(120)
}


def pairs_of(frame: Any) -> Pairs:
    """All pairs, none of them twice."""
    rows = [(found["offset"], found["key"]) for found in frame.collect()]
    assert len(rows) == len(set(rows))
    return set(rows)


def plain_rows(count: int, seed: int = 1) -> list[tuple[int, int, int, int, str]]:
    choose = random.Random(seed)
    return [(n + 1, *(choose.randrange(50) for _ in range(3)), f"v{choose.randrange(7)}") for n in range(count)]


def plain_frame(spark: Any, rows: list[Any]) -> Any:
    return spark.createDataFrame(rows, "offset BIGINT, a0 INT, a1 INT, a2 INT, s STRING")


def plain_pairs(rows: list[Any], filters: dict[Any, str]) -> Pairs:
    """What `Filter` says."""
    known = {key: Filter(text) for key, text in filters.items()}
    found = set()
    for offset, a0, a1, a2, s in rows:
        event = Event("t", "s", attributes={"a0": a0, "a1": a1, "a2": a2, "s": s})
        found |= {(offset, key) for key, each in known.items() if each.matches(event)}
    return found


# -- the meaning


def test_spark_sql_filter_and_match_agree(spark: Any) -> None:
    """Random filters, the corpus and some aimed at Spark, over events of every shape: three opinions."""
    choose = random.Random(6)
    texts, events = corpus()  # some of it: `test_sql_meaning` has the rest
    texts = list(dict.fromkeys([*choose.sample(AIMED, 20), *choose.sample(texts, 30), *draw(random_filters(), 50)]))
    events = [*choose.sample(events, 30), *draw(random_events(), 60)]
    events.append(Event("t", "s", attributes={"x": math.nan, "y": -math.inf, "s": "😀", "flag": True}))
    events = [each.replace(data=storable(each.data), offset=n + 1) for n, each in enumerate(events)]
    own = spark.newSession()
    for name in ("spark.sql.codegen.wholeStage", "spark.sql.subexpressionElimination.enabled"):
        own.conf.set(name, "false")
    own.conf.set("spark.sql.codegen.factoryMode", "NO_CODEGEN")
    frame = (
        own.createDataFrame([row(n, each) for n, each in enumerate(events)], SCHEMA).drop("n").repartition(3).cache()
    )
    known = [Filter(text) for text in texts]
    here = {(event.offset, key) for event in events for key, each in enumerate(known) if each.matches(event)}
    in_sql: set[tuple[int, int]] = set()
    for start in range(0, len(known), PER_QUERY):
        chunk = known[start : start + PER_QUERY]
        rows = frame.selectExpr(
            "offset", *(f"({each.sql()}) IS TRUE AS f{n}" for n, each in enumerate(chunk))
        ).collect()
        in_sql |= {(found["offset"], start + n) for found in rows for n in range(len(chunk)) if found[n + 1]}
    matched = pairs_of(ts.match(frame, dict(enumerate(known))))
    assert in_sql == here
    assert matched == here
    assert len(here) > 1_000
    assert len({key for _, key in here}) > 60
    # In columns as well: filters that share a few names only, one of them at a time.
    for name in ("x", "s", "flag", "data.x"):
        some = {
            key: each for key, each in enumerate(known) if {f.path for f in _fields(each)} == {tuple(name.split("."))}
        }
        assert pairs_of(ts.match(frame, some, shards=2)) == {pair for pair in here if pair[1] in some}


def _fields(filter: Filter) -> Any:
    from tocsin.filters.normal import fields

    return fields(filter.condition)


@pytest.fixture(scope="module")
def wide(spark: Any) -> Any:
    """Plain columns of every type Spark has a use for here."""
    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    rows = [
        (1, 5, 2.5, True, "a", noon, Decimal("1.5"), (7, "in"), ["a", "b"], {"x": "1"}, "open", b"x", 9),
        (2, None, None, None, None, None, None, None, None, None, None, None, None),
        (
            3,
            2**53 + 1,
            math.nan,
            False,
            "ab",
            noon.replace(year=2025),
            Decimal("-2.0"),
            (None, "b"),
            [],
            {},
            "b",
            b"",
            -1,
        ),
        (4, -(2**63), -math.inf, True, "", noon, Decimal("9.9"), (2**40, None), ["b"], {"y": "2"}, "open", b"y", 0),
        (5, 5, -0.0, False, "é😀", noon, Decimal("0.0"), (7, "in"), ["é"], None, "t", b"z", 127),
    ]
    schema = (
        "offset INT, x BIGINT, d DOUBLE, flag BOOLEAN, s STRING, time TIMESTAMP, price DECIMAL(5,1), "
        "deep STRUCT<n: BIGINT, t: STRING>, tags ARRAY<STRING>, attributes MAP<STRING, STRING>, type STRING, "
        "raw BINARY, small TINYINT"
    )
    return spark.createDataFrame(rows, schema)


PLAIN = [
    *("x = 5", "x > 5", "x = 9007199254740993", "x IS NULL", "x <> 5", "x IN (5, 1)", "x % 2 = 1", "small > 100"),
    *("d > 2", "d = 0", "d < 0", "d > 1e300", "d IS NOT NULL", "flag", "NOT flag", "flag IS NULL", "price >= 1.5"),
    *("s = 'a'", "s LIKE 'a%'", "s > 'a'", "length(s) = 0", "s RLIKE 'b$'", "lower(s) = 'ab'", "type = 'open'"),
    *("time > '2025-06-01T00:00:00Z'", "time IS NULL", "deep.n = 7", "data.deep.t = 'in'", "array_contains(tags, 'b')"),
    *(
        "attributes.x = '1'",
        "attributes.y = '2'",
        "raw IS NULL",
        "offset < 3",
        "offset = 4",
        "TRUE",
        "data IS NULL",
        "NULL",
    ),
]


@pytest.mark.parametrize("alone", [True, False])
def test_plain_columns_mean_what_match_batch_says(wide: Any, alone: bool) -> None:
    """Each filter by itself, which may be read in columns, and all at once, which may not."""
    table = wide.toArrow()
    for texts in [[text] for text in PLAIN] if alone else [PLAIN]:
        filters = dict(enumerate(texts))
        lists = Matcher(filters.items()).match_batch(table)
        wanted = {(n + 1, key) for n, keys in enumerate(lists) for key in keys}
        if not alone:
            assert pairs_of(ts.match(wide, filters)) == wanted
            assert len(wanted) > 40
        elif PLAIN.index(texts[0]) % 4 == 0:  # a query each: some are enough
            assert pairs_of(ts.match(wide, filters)) == wanted


def test_columns_beside_those_of_the_source(spark: Any) -> None:
    """As after a join: what is added to events counts as attributes."""
    events = [Event("t", "s", offset=n + 1, attributes={"x": n}, data={"y": n}) for n in range(6)]
    frame = spark.createDataFrame([row(n, each) for n, each in enumerate(events)], SCHEMA).drop("n")
    joined = frame.selectExpr("*", "CASE WHEN offset > 3 THEN 'north' END AS region", "offset * 10 AS ten")
    filters = {"region": "region = 'north' AND x > 3", "ten": "attributes.ten = 20", "both": "ten > 10 AND y < 3"}
    assert pairs_of(ts.match(joined, filters)) == {(5, "region"), (6, "region"), (2, "ten"), (2, "both"), (3, "both")}


def test_a_payload_as_variant_or_struct(spark: Any) -> None:
    events = [Event("t", "s", offset=n + 1, data={"machine": f"m{n}", "value": n / 2}) for n in range(5)]
    frame = spark.createDataFrame([row(n, each) for n, each in enumerate(events)], SCHEMA).select("offset", "data")
    filters = {"m": "machine = 'm3'", "v": "value > 1 AND data.machine <> 'm4'"}
    wanted = {(each.offset, key) for each in events for key, text in filters.items() if Filter(text).matches(each)}
    assert wanted
    assert pairs_of(ts.match(frame, filters)) == wanted
    assert pairs_of(ts.match(frame.selectExpr("offset", "parse_json(data) AS data"), filters)) == wanted
    declared = "from_json(data, 'machine STRING, value DOUBLE') AS data"
    assert pairs_of(ts.match(frame.selectExpr("offset", declared), filters)) == wanted


# -- filters


@pytest.fixture(scope="module")
def rows() -> list[Any]:
    return plain_rows(400)


@pytest.fixture(scope="module")
def frame(spark: Any, rows: list[Any]) -> Any:
    return plain_frame(spark, rows).repartition(3).cache()


@pytest.fixture(scope="module")
def wanted(rows: list[Any]) -> Pairs:
    found = plain_pairs(rows, RULES)
    assert len(found) > 2_000
    return found


def test_a_mapping(frame: Any, rows: list[Any], wanted: Pairs) -> None:
    found = ts.match(frame, RULES)
    assert found.dtypes == [("offset", "bigint"), ("key", "string")]
    assert pairs_of(found) == wanted
    numbered = {n: Filter(text) for n, text in enumerate(RULES.values())}
    found = ts.match(frame, numbered)
    assert found.dtypes == [("offset", "bigint"), ("key", "bigint")]
    assert pairs_of(found) == {(offset, int(str(key)[1:])) for offset, key in wanted}


def test_a_dataframe_a_table_and_files(spark: Any, frame: Any, wanted: Pairs, tmp_path: Path) -> None:
    filters = spark.createDataFrame(list(RULES.items()), "key STRING, filter STRING").withColumn("more", filters_note())
    assert pairs_of(ts.match(frame, filters)) == wanted
    filters.createOrReplaceTempView("rules_of_test")
    assert pairs_of(ts.match(frame, "rules_of_test")) == wanted
    for name, write in {
        "rules.parquet": lambda path: filters.write.parquet(path),
        "rules.csv": lambda path: filters.write.csv(path, header=True, quoteAll=True, escape='"'),
        "rules.jsonl": lambda path: filters.write.json(path),
    }.items():
        write(str(tmp_path / name))
        assert pairs_of(ts.match(frame, tmp_path / name)) == wanted
    numbered = spark.createDataFrame(
        [(n, text) for n, text in enumerate(RULES.values())], "key SMALLINT, filter STRING"
    )
    found = ts.match(frame, numbered)
    assert found.dtypes[1] == ("key", "bigint")
    assert {(offset, f"r{key}") for offset, key in pairs_of(found)} == wanted


def filters_note() -> Any:
    from pyspark.sql import functions as F

    return F.lit('it\'s, "quoted"')


def test_no_filters(frame: Any) -> None:
    assert pairs_of(ts.match(frame, {})) == set()
    assert pairs_of(ts.match(frame, {"never": "FALSE"}, shards=3)) == set()


@pytest.mark.parametrize("shards", [1, 2, 5])
def test_shards_make_no_difference(frame: Any, wanted: Pairs, shards: int) -> None:
    from pyspark.sql import functions as F

    found = ts.match(frame, RULES, shards=shards)
    assert pairs_of(found) == wanted
    if shards > 1:  # a task serves one shard, and every shard is served by one task
        layout = even(shards)
        places = found.select("key", F.spark_partition_id().alias("place")).distinct().collect()
        assert {(layout.shard_of(each["key"]), each["place"]) for each in places} == {(n, n) for n in range(shards)}


@pytest.mark.parametrize("form", ["mapping", "frame"])
def test_many_filters_are_compiled_by_tasks(
    spark: Any, frame: Any, rows: list[Any], form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver parses none of them, and joins what the tasks made."""
    monkeypatch.setattr(compiling, "FEW", 50)
    monkeypatch.setattr(compiling, "PART", 40)
    filters = {f"k{n}": f"a{n % 3} = {n % 50} AND a{(n + 1) % 3} < {n % 31}" for n in range(300)}
    given: Any = filters
    if form == "frame":
        given = spark.createDataFrame(list(filters.items()), "key STRING, filter STRING").repartition(5)
    parsed: list[str] = []
    with monkeypatch.context() as patch:
        patch.setattr(compiling, "checked", lambda key, text: parsed.append(key))
        report = ts.MatchReport()
        found = ts.match(frame, given, shards=2, report=report)
    assert parsed == []
    assert (report.filters, report.shards, report.skipped) == (300, 2, [])
    expected = plain_pairs(rows, filters)
    assert expected
    assert pairs_of(found) == expected


def test_ready_filters_join_the_others(frame: Any, rows: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiling, "FEW", 50)
    filters: dict[str, Any] = {f"k{n}": f"a0 = {n % 50}" for n in range(80)}
    filters |= {f"ready{n}": Filter(f"a1 = {n}") for n in range(20)}
    expected = plain_pairs(rows, {key: getattr(each, "text", each) for key, each in filters.items()})
    assert pairs_of(ts.match(frame, filters)) == expected


# -- bad filters


def test_a_bad_filter_among_ten_thousand(spark: Any, frame: Any, caplog: pytest.LogCaptureFixture) -> None:
    filters: list[tuple[Any, Any]] = [(f"k{n}", f"a0 = {n % 50} AND a1 = {n % 7}") for n in range(10_000)]
    filters[777] = ("broken", "a0 > > 3")
    given = spark.createDataFrame(filters, "key STRING, filter STRING")
    with pytest.raises(BadFiltersError, match="1 of 10,000 filters is bad") as caught:
        ts.match(frame, given)
    (bad,) = caught.value.filters
    assert (bad.key, bad.text, bad.position) == ("broken", "a0 > > 3", 5)
    assert "'broken': " in str(caught.value)
    assert 'errors="skip"' in str(caught.value)
    report = ts.MatchReport()
    with caplog.at_level(logging.WARNING):
        found = ts.match(frame, given, errors="skip", report=report)
    assert report.filters == 10_000
    assert [each.key for each in report.skipped] == ["broken"]
    assert "'broken'" in caplog.text
    keys = {key for _, key in pairs_of(found)}
    assert "broken" not in keys
    assert len(keys) > 1_000


def test_every_sort_of_bad_filter(spark: Any, frame: Any) -> None:
    rows: list[tuple[Any, Any]] = [("good", "a0 >= 0"), ("twice", "a0 > 1"), ("twice", "a0 > 2"), ("same", "a1 > 1")]
    rows += [
        ("same", "a1 > 1"),
        (None, "a0 > 1"),
        ("none", None),
        ("half", "a0 >"),
    ]
    given = spark.createDataFrame(rows, "key STRING, filter STRING")
    with pytest.raises(BadFiltersError) as caught:
        ts.match(frame, given)
    bad = Counter(each.key for each in caught.value.filters)
    assert bad == {"twice": 1, None: 1, "none": 1, "half": 1}
    report = ts.MatchReport()
    found = pairs_of(ts.match(frame, given, errors="skip", report=report))
    assert Counter(each.key for each in report.skipped) == bad
    assert {key for _, key in found} == {"good", "same"}
    mapping: dict[Any, Any] = {"good": "a0 >= 0", "half": "a0 >", "none": None, 1.5: "a0 > 1"}
    with pytest.raises(BadFiltersError, match="3 of 4 filters are bad"):
        ts.match(frame, mapping)


def test_what_cannot_be_matched_is_told_at_once(spark: Any, frame: Any, tmp_path: Path) -> None:
    refused: list[tuple[type[Exception], str, Callable[[], Any]]] = [
        (SchemaError, "need a column offset", lambda: ts.match(frame.drop("offset"), RULES)),
        (SchemaError, "need a column offset", lambda: ts.match(frame.selectExpr("s AS offset", "a0"), RULES)),
        (SchemaError, "two columns are named a0", lambda: ts.match(frame.selectExpr("*", "1 AS a0"), RULES)),
        (
            SchemaError,
            "the column a0 is a VARIANT",
            lambda: ts.match(frame.selectExpr("offset", "a0::variant AS a0"), RULES),
        ),
        (MatcherError, "events are list", lambda: ts.match([Event("t", "s")], RULES)),  # type: ignore[arg-type]
        (MatcherError, "filters are int", lambda: ts.match(frame, 7)),  # type: ignore[arg-type]
        (MatcherError, "there is no table", lambda: ts.match(frame, "nowhere_to_be_found")),
        (SchemaError, "filters have the columns", lambda: ts.match(frame, frame)),
        (
            SchemaError,
            "the keys of filters are",
            lambda: ts.match(frame, frame.selectExpr("1.5 AS key", "s AS filter")),
        ),
        (MatcherError, "text and some are whole numbers", lambda: ts.match(frame, {"a": "a0 > 1", 1: "a0 > 1"})),
        (MatcherError, "shards is 0", lambda: ts.match(frame, RULES, shards=0)),
        (MatcherError, "errors is 'ignore'", lambda: ts.match(frame, RULES, errors="ignore")),  # type: ignore[arg-type]
        (FilterSetError, "there is no filter set", lambda: ts.match(frame, FilterSet(tmp_path / "none"))),
    ]
    for kind, message, attempt in refused:
        with pytest.raises(kind, match=message):
            attempt()


# -- where the work is done


def test_only_columns_that_filters_need_are_read(spark: Any, frame: Any, tmp_path: Path) -> None:
    frame.write.parquet(str(tmp_path / "events"))
    found = ts.match(spark.read.parquet(str(tmp_path / "events")), {"one": "a1 > 48"})
    plan = found._jdf.queryExecution().executedPlan().toString()
    assert "ReadSchema: struct<offset:bigint,a1:int>" in plan
    assert pairs_of(found)


@pytest.fixture
def small_results(spark: Any) -> Iterator[None]:
    """The driver takes no more than 64 KB from all tasks of a job."""
    conf = spark.sparkContext._jsc.sc().conf()
    conf.set("spark.driver.maxResultSize", "64k")
    yield
    conf.remove("spark.driver.maxResultSize")


def test_the_work_is_done_by_tasks(
    spark: Any, small_results: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No row comes to the driver: its matcher is never asked, and results of megabytes are more than it would take."""
    frame = plain_frame(spark, plain_rows(3_000)).repartition(2)
    filters = {f"k{n}": f"a0 >= {n % 10}" for n in range(100)}
    context = spark.sparkContext
    with monkeypatch.context() as patch:
        for name in ("match_pairs", "match_batch", "match"):
            patch.setattr(Matcher, name, lambda *_: pytest.fail("the driver was asked to match"))
        context.setJobGroup("planning", "")
        found = ts.match(frame, filters, shards=2)
        assert list(context.statusTracker().getJobIdsForGroup("planning")) == []
        context.setJobGroup("writing", "")
        found.write.parquet(str(tmp_path / "pairs"))
    context.setLocalProperty("spark.jobGroup.id", None)
    assert spark.read.parquet(str(tmp_path / "pairs")).count() > 200_000
    with pytest.raises(Exception, match="maxResultSize"):  # the limit does bite
        found.collect()


def test_an_index_is_loaded_once_and_stays(spark: Any, frame: Any, wanted: Pairs) -> None:
    def look(_: Any) -> Iterator[pa.RecordBatch]:
        for name, (_, matcher) in serving._matchers.items():
            yield pa.record_batch({"pid": [os.getpid()], "name": [name], "place": [id(matcher)]})

    def held() -> set[tuple[int, str, int]]:
        """The indexes of those processes that happen to serve us now."""
        found = spark.range(8).repartition(8).mapInArrow(look, "pid BIGINT, name STRING, place BIGINT").collect()
        return set(map(tuple, found))

    before = {name for _, name, _ in held()}
    seen: set[tuple[int, str, int]] = set()
    for _ in range(3):
        assert pairs_of(ts.match(frame, RULES | {"one more": "a0 = 3"})) > wanted  # planned anew, but the same index
        seen |= {each for each in held() if each[1] not in before}
    assert len({name for _, name, _ in seen}) == 1
    assert len({pid for pid, _, _ in seen}) == len(seen)  # one matcher in a process, the same each time
    assert os.getpid() not in {pid for pid, _, _ in seen}


# -- streams


def stream_of(spark: Any, frame: Any, path: Path, cuts: list[int]) -> Any:
    """The rows as a stream whose batches end at these offsets."""
    for number, (first, last) in enumerate(zip([0, *cuts], [*cuts, 10**9], strict=True)):
        part = frame.where(f"offset > {first} AND offset <= {last}").coalesce(1)
        part.write.parquet(str(path / f"part={number:03d}"))
    return spark.readStream.schema(frame.schema).option("maxFilesPerTrigger", 1).parquet(str(path / "part=*"))


def drained(frame: Any, path: Path) -> int:
    """Run a stream to its end, into files; returns how many batches it took."""
    query = frame.writeStream.format("parquet").option("checkpointLocation", str(path / "checkpoint"))
    running = query.trigger(availableNow=True).start(str(path / "pairs"))
    running.awaitTermination()
    assert running.exception() is None
    return len(running.recentProgress)


@pytest.mark.parametrize(("cuts", "shards"), [([1, 2, 250], 1), ([130], 2)])
def test_a_stream_gives_what_a_batch_gives(
    spark: Any, frame: Any, wanted: Pairs, tmp_path: Path, cuts: list[int], shards: int
) -> None:
    stream = stream_of(spark, frame, tmp_path / "events", cuts)
    assert drained(ts.match(stream, RULES, shards=shards), tmp_path) >= len(cuts) + 1
    assert pairs_of(spark.read.parquet(str(tmp_path / "pairs"))) == wanted


# -- live sets


def test_events_of_several_versions_in_one_batch(spark: Any, tmp_path: Path) -> None:
    filters = FilterSet(tmp_path / "filters")
    filters.change(put={"low": "a0 < 10", "high": "a0 > 40"})
    filters.change(put={"high": "a0 > 30 AND new IS NULL"}, remove=["low"])
    filters.change(put={"s": "s = 'v1'"})
    rows = plain_rows(200)
    frame = plain_frame(spark, rows).selectExpr("*", "offset % 3 + 1 AS filters").repartition(2)
    states = {version: filters.filters(version) for version in (1, 2, 3)}
    wanted = set()
    for version, state in states.items():
        wanted |= plain_pairs([each for each in rows if each[0] % 3 + 1 == version], state)  # type: ignore[arg-type]
    assert len({key for _, key in wanted}) == 3
    for shards in (None, 3):
        assert pairs_of(ts.match(frame, filters, shards=shards)) == wanted
    newest = ts.match(frame.drop("filters"), filters)  # as of now
    filters.change(remove=["s", "high"])
    assert pairs_of(newest) == plain_pairs(rows, states[3])  # type: ignore[arg-type]


def test_a_stream_without_versions_is_refused(spark: Any, frame: Any, tmp_path: Path) -> None:
    filters = FilterSet(tmp_path / "filters")
    filters.change(put={"low": "a0 < 10"})
    stream = stream_of(spark, frame, tmp_path / "events", [])
    with pytest.raises(FilterSetError, match=r'no column filters.*add \.option\("filters"'):
        ts.match(stream, filters)
    with pytest.raises(SchemaError, match="the column filters is string"):
        ts.match(stream.selectExpr("*", "'1' AS filters"), filters)
    with pytest.raises(Exception, match="column filters is NULL"):
        ts.match(frame.selectExpr("*", "CAST(NULL AS INT) AS filters"), filters).collect()


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Any]:
    from tocsin.journal.sqlite import SqliteJournal

    journal = SqliteJournal(str(tmp_path / "plant.db"))
    yield journal
    journal.close()


def publish(journal: Any, values: list[int]) -> None:
    journal.append([Event("machine.value", "line/7", data={"value": value}) for value in values])


def live_stream(spark: Any, tmp_path: Path, filters: FilterSet) -> Any:
    source = spark.readStream.format("tocsin").option("url", f"file:{tmp_path / 'plant.db'}")
    return ts.match(source.option("filters", filters.path).option("startingOffset", "earliest").load(), filters)


def test_filters_change_while_a_query_runs(spark: Any, journal: Any, tmp_path: Path) -> None:
    filters = FilterSet(tmp_path / "filters")
    filters.change(put={"low": "value < 10"})
    batches: list[Pairs] = []
    matched = live_stream(spark, tmp_path, filters).writeStream.foreachBatch(lambda f, _: batches.append(pairs_of(f)))
    query = matched.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    try:
        publish(journal, [5, 15])
        query.processAllAvailable()
        filters.change(put={"high": "value > 10"})
        publish(journal, [5, 15])
        query.processAllAvailable()
        filters.change(remove=["low"])
        publish(journal, [5, 15])
        query.processAllAvailable()
        assert query.isActive
    finally:
        query.stop()
    assert set().union(*batches) == {(1, "low"), (3, "low"), (4, "high"), (6, "high")}


def test_a_repeated_batch_meets_the_filters_it_met(spark: Any, journal: Any, tmp_path: Path) -> None:
    """A batch fails after it was planned; filters change; the query begins again with its checkpoint."""
    filters = FilterSet(tmp_path / "filters")
    filters.change(put={"low": "value < 10"})
    publish(journal, [5, 15])

    def fail(found: Any, _: int) -> None:
        assert pairs_of(found) == {(1, "low")}
        raise RuntimeError("the power went")

    def run(each: Callable[[Any, int], None]) -> Any:
        matched = live_stream(spark, tmp_path, filters).writeStream.foreachBatch(each)
        return matched.option("checkpointLocation", str(tmp_path / "checkpoint")).start()

    query = run(fail)
    with pytest.raises(Exception, match="the power went"):
        query.awaitTermination()
    filters.change(put={"low": "value < 0", "high": "value > 10"})
    publish(journal, [-1, 15])
    batches: dict[int, Pairs] = {}
    query = run(lambda found, number: batches.update({number: pairs_of(found)}))
    try:
        query.processAllAvailable()
    finally:
        query.stop()
    assert batches[0] == {(1, "low")}  # not what the newest filters say
    assert set().union(*batches.values()) == {(1, "low"), (3, "low"), (4, "high")}
    offsets = json.loads((tmp_path / "checkpoint" / "offsets" / "0").read_text().splitlines()[2])
    assert offsets["filters"] == 1
