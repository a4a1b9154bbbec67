"""Rules over eight whole numbers, for Spark: the workload of `../shared/spark.md`, section 3, and Spark's own ways.

An event has `a0` to `a7`, each from 0 to 999. A rule has 2 to 4 tests on different attributes, half of them equalities,
half ranges of a tenth of the domain; an event matches about 0.09 % of all rules. Everything is drawn from the seed.

`CONTENDERS` are ways to find all pairs (offset, key). Each gets the events as a DataFrame and the rules, and gives a
DataFrame; all must give the same pairs, which the benchmark checks.

    cross       every event with every rule, the rules broadcast; bounds as columns
    hash_join   events unpivoted, joined by hash on one equality of each rule, the other tests as residual; rules
                without an equality are crossed
    binned      the same, but a rule without an equality is joined on the bins of one range: an index made by hand for
                these very rules, the best that plain Spark SQL does, as far as we know
    equality    an index on one equality in `mapInArrow`, in Numba; rules without an equality are scanned
    tocsin      `ts.match`
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numba
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tocsin import spark as ts

__all__ = ["CONTENDERS", "Rules", "write_events"]

ATTRIBUTES = 8
DOMAIN = 1000
WIDTH = DOMAIN // 10
BIN = 50
NAMES = [f"a{number}" for number in range(ATTRIBUTES)]


class Rules(NamedTuple):
    """Rules as bounds: rule n wants `low[n, i] <= a_i <= high[n, i]` for every i."""

    low: Any
    high: Any

    @classmethod
    def draw(cls, count: int, seed: int = 1) -> Rules:
        """Draw so many."""
        draw = random.Random(f"{seed} rules")
        low, high = np.zeros((count, ATTRIBUTES), np.int32), np.full((count, ATTRIBUTES), DOMAIN - 1, np.int32)
        for rule in range(count):
            for attribute in draw.sample(range(ATTRIBUTES), draw.randint(2, 4)):
                if draw.random() < 0.5:
                    low[rule, attribute] = high[rule, attribute] = draw.randrange(DOMAIN)
                else:
                    low[rule, attribute] = draw.randrange(DOMAIN - WIDTH + 1)
                    high[rule, attribute] = low[rule, attribute] + WIDTH - 1
        return cls(low, high)

    def texts(self) -> Iterator[tuple[str, str]]:
        """Each as a key and a filter."""
        for rule, (low, high) in enumerate(zip(self.low.tolist(), self.high.tolist(), strict=True)):
            tests = []
            for name, least, most in zip(NAMES, low, high, strict=True):
                if least == most:
                    tests.append(f"{name} = {least}")
                elif (least, most) != (0, DOMAIN - 1):
                    tests.append(f"{name} BETWEEN {least} AND {most}")
            yield f"r{rule}", " AND ".join(tests)

    def equalities(self) -> Any:
        """For each rule the first attribute it wants to be equal to something; -1 if none."""
        equal = self.low == self.high
        return np.where(equal.any(axis=1), equal.argmax(axis=1), -1)

    def ranges(self) -> Any:
        """For each rule the first attribute with a range."""
        return ((self.high - self.low) == WIDTH - 1).argmax(axis=1)

    def frame(self, spark: SparkSession, numbers: Any = None) -> DataFrame:
        """All, or those with these numbers, as a DataFrame: key, and two columns of bounds for each attribute."""
        numbers = np.arange(len(self.low)) if numbers is None else numbers
        columns: dict[str, Any] = {"key": [f"r{rule}" for rule in numbers]}
        for place in range(ATTRIBUTES):
            columns[f"low{place}"], columns[f"high{place}"] = self.low[numbers, place], self.high[numbers, place]
        return spark.createDataFrame(pa.table(columns))


def write_events(path: Path, count: int, seed: int = 1, files: int = 8) -> None:
    """Write events as Parquet, in files of equal size."""
    draw = np.random.default_rng(seed)
    path.mkdir(parents=True)
    for number, offsets in enumerate(np.array_split(np.arange(1, count + 1), files)):
        values = draw.integers(0, DOMAIN, (len(offsets), ATTRIBUTES), dtype=np.int32)
        columns = {"offset": offsets} | {name: values[:, place] for place, name in enumerate(NAMES)}
        pq.write_table(pa.table(columns), path / f"{number}.parquet")


def _residual(event: str = "") -> Any:
    """All tests of a rule, as one condition."""
    condition = F.lit(True)
    for number, name in enumerate(NAMES):
        condition &= F.col(f"{event}{name}").between(F.col(f"low{number}"), F.col(f"high{number}"))
    return condition


def cross(spark: SparkSession, events: DataFrame, rules: Rules) -> DataFrame:
    """Every event with every rule."""
    return events.join(F.broadcast(rules.frame(spark)), _residual()).select("offset", "key")


def _joined(
    spark: SparkSession, events: DataFrame, rules: Rules, keys: list[tuple[str, int]], places: list[Any]
) -> DataFrame:
    """Events joined with rules where one of an event's places is a rule's; then all tests."""
    names, hashes = zip(*keys, strict=True)
    filed = spark.createDataFrame(pa.table({"key": list(names), "place": pa.array(hashes, pa.int32())}))
    table = F.broadcast(filed.join(rules.frame(spark), "key"))
    unpivoted = events.withColumn("place", F.explode(F.array(*places)))
    return unpivoted.join(table, "place").where(_residual()).select("offset", "key")


def _by_value(rules: Rules) -> list[tuple[str, int]]:
    """Each rule with an equality, and its place: attribute and value in one number."""
    equal = rules.equalities()
    return [
        (f"r{rule}", int(equal[rule]) * DOMAIN + int(rules.low[rule, equal[rule]]))
        for rule in np.flatnonzero(equal >= 0)
    ]


def _values() -> list[Any]:
    return [F.lit(number * DOMAIN) + F.col(name) for number, name in enumerate(NAMES)]


def hash_join(spark: SparkSession, events: DataFrame, rules: Rules) -> DataFrame:
    """By hash on one equality; the others crossed."""
    joined = _joined(spark, events, rules, _by_value(rules), _values())
    rest = rules.frame(spark, np.flatnonzero(rules.equalities() < 0))
    return joined.union(events.join(F.broadcast(rest), _residual()).select("offset", "key"))


def binned(spark: SparkSession, events: DataFrame, rules: Rules) -> DataFrame:
    """By hash on one equality, or on a bin."""
    keys, ranged = _by_value(rules), rules.ranges()
    for rule in np.flatnonzero(rules.equalities() < 0):
        first, last = (int(bound[rule, ranged[rule]]) // BIN for bound in (rules.low, rules.high))
        base = ATTRIBUTES * DOMAIN + int(ranged[rule]) * (DOMAIN // BIN)
        keys += [(f"r{rule}", base + number) for number in range(first, last + 1)]
    bins = [
        F.lit(ATTRIBUTES * DOMAIN + number * (DOMAIN // BIN)) + (F.col(name) / BIN).cast("int")
        for number, name in enumerate(NAMES)
    ]
    return _joined(spark, events, rules, keys, _values() + bins)


@numba.njit(nogil=True, cache=True)
def _probe(values, starts, members, rest, low, high, out_rows, out_rules):  # type: ignore[no-untyped-def]
    found = 0
    width = values.shape[1]
    for row in range(values.shape[0]):
        for part in range(width + 1):
            if part < width:
                place = part * DOMAIN + values[row, part]
                first, last = starts[place], starts[place + 1]
            else:
                first, last = 0, rest.shape[0]
            for at in range(first, last):
                rule = members[at] if part < width else rest[at]
                good = True
                for number in range(width):
                    if values[row, number] < low[rule, number] or values[row, number] > high[rule, number]:
                        good = False
                        break
                if good:
                    if found < out_rows.shape[0]:
                        out_rows[found] = row
                        out_rules[found] = rule
                    found += 1
    return found


def equality(spark: SparkSession, events: DataFrame, rules: Rules) -> DataFrame:
    """An index on one equality, in `mapInArrow`."""
    equal = rules.equalities()
    indexed, rest = np.flatnonzero(equal >= 0), np.flatnonzero(equal < 0).astype(np.int32)
    places = equal[indexed] * DOMAIN + rules.low[indexed, equal[indexed]]
    order = np.argsort(places, kind="stable")
    members = indexed[order].astype(np.int32)
    starts = np.searchsorted(places[order], np.arange(ATTRIBUTES * DOMAIN + 1)).astype(np.int64)
    shipped = spark.sparkContext.broadcast((starts, members, rest, rules.low, rules.high))

    def find(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        starts, members, rest, low, high = shipped.value
        keys = pa.array([f"r{rule}" for rule in range(len(low))])
        capacity = 1 << 16
        for batch in batches:
            values = np.column_stack([batch.column(name).to_numpy() for name in NAMES])
            while True:
                rows, found = np.empty(capacity, np.int64), np.empty(capacity, np.int64)
                count = _probe(values, starts, members, rest, low, high, rows, found)
                if count <= capacity:
                    break
                capacity = 2 * count
            offsets = batch.column("offset").take(pa.array(rows[:count]))
            yield pa.record_batch([offsets, keys.take(pa.array(found[:count]))], names=["offset", "key"])

    return events.mapInArrow(find, "offset BIGINT, key STRING")


def tocsin(spark: SparkSession, events: DataFrame, rules: Rules) -> DataFrame:
    """What we do."""
    return ts.match(events, dict(rules.texts()))


CONTENDERS: dict[str, Callable[[SparkSession, DataFrame, Rules], DataFrame]] = {
    "cross": cross,
    "hash_join": hash_join,
    "binned": binned,
    "equality": equality,
    "tocsin": tocsin,
}
