"""The columns of events on Spark: one schema for the source, the sink, the lake and `Filter.sql()`.

    offset BIGINT, arrived TIMESTAMP, time TIMESTAMP, id, source, type, subject STRING, priority INT, ttl DOUBLE,
    persistent BOOLEAN, ack, cancel, correlation_id, classification, datacontenttype STRING,
    attributes MAP<STRING, VARIANT>     NULL if there are none
    data STRING                         JSON text; NULL if there is none

What the values of `attributes` and `data` can be is said in `filters.sparksql`, which speaks of these columns.
"""

from __future__ import annotations

__all__ = ["FILTERS", "SCHEMA", "schema_for"]

SCHEMA = (
    "offset BIGINT, arrived TIMESTAMP, time TIMESTAMP, id STRING, source STRING, type STRING, subject STRING, "
    "priority INT, ttl DOUBLE, persistent BOOLEAN, ack STRING, cancel STRING, correlation_id STRING, "
    "classification STRING, datacontenttype STRING, attributes MAP<STRING, VARIANT>, data STRING"
)
"""As Spark's DDL."""
FILTERS = "filters BIGINT"
"""The column that says which version of a live filter set an event is matched with; only with option `filters`."""


def schema_for(*, filters: bool = False) -> str:
    """The schema of a source, as Spark's DDL."""
    return f"{SCHEMA}, {FILTERS}" if filters else SCHEMA
