"""XPath here and on Spark: Spark's own functions as a stranger's opinion, and `Filter.sql()` over the source's columns.

Spark asks Java's XPath, we ask libxml2. They were written by different people, and agree on all that filters accept.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tests.spark.test_sql_meaning import SCHEMA, differences, draw, row
from tests.xml_strategies import NUMERIC, documents, paths
from tests.xml_strategies import events as xml_events
from tests.xml_strategies import tests as xml_tests
from tocsin.filters.documents import asker
from tocsin.filters.sparksql import _text as quoted
from tocsin.filters.xpath import read

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

PER_QUERY = 50


@pytest.fixture(scope="module", name="spark")
def session(spark: Any) -> Any:
    own = spark.newSession()
    own.conf.set("spark.sql.codegen.wholeStage", "false")
    own.conf.set("spark.sql.codegen.factoryMode", "NO_CODEGEN")
    return own


def test_spark_functions_agree(spark: Any) -> None:
    """The functions by themselves, on documents that Spark can read: it raises on others."""
    whole = asker("xpath_boolean", "/")
    texts = sorted({text for text in draw(documents(), 150) if whole(text)})
    wanted = sorted(set(draw(paths(), 300)))
    frame = spark.createDataFrame([(n, text) for n, text in enumerate(texts)], "n INT, x STRING").cache()
    questions = [(name, path) for path, kind in wanted for name in _functions(kind, path)]
    wrong, found = [], Counter[str]()
    for start in range(0, len(questions), PER_QUERY):
        chunk = questions[start : start + PER_QUERY]
        shown = [f"{name}(x, {quoted(path)}) AS f{place}" for place, (name, path) in enumerate(chunk)]
        for answers in frame.selectExpr("n", *shown).collect():
            text = texts[answers["n"]]
            for place, (name, path) in enumerate(chunk):
                got, expected = answers[place + 1], asker(name, path)(text)
                if len(text) <= read(path).longest and repr(got) != repr(expected) and not got == expected == 0:
                    wrong.append(f"{name}({text!r}, {path!r}) is {expected!r} here and {got!r} on Spark")
                found[repr(expected)] += 1
    assert not wrong, f"{len(wrong)} differ:\n" + "\n".join(wrong[:20])
    assert len(texts) > 80 and len(wanted) > 200
    assert min(found["True"], found["False"], found["nan"]) > 1_000, found


def _functions(kind: str, path: str) -> list[str]:
    numeric = NUMERIC[len(path) % len(NUMERIC)]
    return ["xpath_boolean", "xpath_number", numeric, *["xpath_string"] * (kind != "a number")]


@pytest.mark.parametrize("ansi", ["true", "false"])
def test_filters_agree(spark: Any, ansi: str) -> None:
    """Whole filters over the source's columns, payloads that are no XML included: nothing raises."""
    spark.conf.set("spark.sql.ansi.enabled", ansi)
    given = draw(xml_events(), 120)
    texts = sorted(set(draw(xml_tests(), 150)))
    rows = [row(number, event) for number, event in enumerate(given)]
    frame = spark.createDataFrame(rows, SCHEMA).repartition(2).cache()
    found: Counter[bool | None] = Counter()
    wrong = differences(frame, texts, given, found)
    assert not wrong, f"{len(wrong)} differ:\n" + "\n".join(wrong[:20])
    assert min(found[True], found[False], found[None]) > 500, found


def test_a_filter_is_a_where_clause_that_spark_compiles(spark: Any) -> None:
    spark.conf.set("spark.sql.codegen.wholeStage", "true")
    spark.conf.set("spark.sql.codegen.factoryMode", "CODEGEN_ONLY")
    given = draw(xml_events(), 120)
    frame = spark.createDataFrame([row(number, event) for number, event in enumerate(given)], SCHEMA)
    from tocsin import Filter

    one = Filter("xpath_boolean(data, '//a[@x]') AND type = 't' OR xpath_number(data, '//b') > 1")
    expected = {number for number, event in enumerate(given) if one.matches(event)}
    assert {found["n"] for found in frame.where(one.sql()).select("n").collect()} == expected
    assert expected
