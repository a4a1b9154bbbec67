"""THE SAME MEANING AT SCALE: the journal as a Spark stream, filters by the hundred thousand, the archive and the past.

    from tocsin import spark as ts
    spark = ts.session()
    events = spark.readStream.format("tocsin").option("url", "file:plant.db").load()
    matches = ts.match(events, {"ops": "value > 9"})

A session of your own will do as well: `ts.register(spark)`.
"""

from __future__ import annotations

try:
    import pyspark  # noqa: F401
except ImportError as error:
    raise ImportError("tocsin.spark needs PySpark: pip install 'tocsin[spark]'") from error

from tocsin.spark.archive import ArchiveReport, archive
from tocsin.spark.backtest import backtest
from tocsin.spark.detect import detect
from tocsin.spark.elastic import Elastic
from tocsin.spark.filterset import FilterSet
from tocsin.spark.following import Following, follow
from tocsin.spark.match import MatchReport, match
from tocsin.spark.past import past
from tocsin.spark.reporting import Backtest
from tocsin.spark.session import register, session

__all__ = [
    "ArchiveReport",
    "Backtest",
    "Elastic",
    "FilterSet",
    "Following",
    "MatchReport",
    "archive",
    "backtest",
    "detect",
    "follow",
    "match",
    "past",
    "register",
    "session",
]
