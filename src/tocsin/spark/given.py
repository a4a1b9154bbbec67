"""DataFrames of events as users give them: what they must have, and what their columns mean.

Asked where a plan is made, by `match`, `detect` and back-tests alike, so that what is wrong is said before Spark runs.
"""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import DataFrame
from pyspark.sql.types import ByteType, DataType, IntegerType, LongType, ShortType, StructType, VariantType

from tocsin.errors import SchemaError
from tocsin.spark.schema import schema_for

__all__ = ["ALWAYS", "WHOLE", "comes_in_order", "own_columns", "refuse_doubles", "refuse_variants"]

ALWAYS = ("offset", "arrived", "type", "source", "id")
"""The columns that detection needs of every event."""
WHOLE = (ByteType, ShortType, IntegerType, LongType)
"""The types of whole numbers."""
_PASSING = ("Project", "Filter", "SubqueryAlias", "View")
"""Steps of a plan that pass each row on at once, or leave it out."""


def comes_in_order(stream: DataFrame) -> bool:
    """Is this a stream of the source, with nothing in between that could hold a row back? Then none comes late."""
    plan = stream._jdf.queryExecution().analyzed()
    while plan.nodeName() in _PASSING:
        plan = plan.child()
    return bool(plan.nodeName() == "StreamingRelationV2" and plan.sourceName() == "tocsin")


def own_columns() -> dict[str, DataType]:
    """The source's columns, by name."""
    schema = StructType.fromDDL(schema_for(filters=True))
    assert isinstance(schema, StructType)
    return {field.name: field.dataType for field in schema}


def refuse_doubles(events: DataFrame) -> None:
    """Raise a SchemaError if two columns have one name."""
    if twice := sorted({name for name in events.columns if events.columns.count(name) > 1}):
        raise SchemaError(f"two columns are named {twice[0]}", field=twice[0], help="rename one")


def refuse_variants(schema: StructType, columns: Iterable[str]) -> None:
    """Raise a SchemaError if one of these columns is a VARIANT where nobody expects one."""
    for name in columns:
        if name not in ("attributes", "data") and isinstance(schema[name].dataType, VariantType):
            raise SchemaError(
                f"the column {name} is a VARIANT", field=name, help="cast it to a type, or leave it out: drop(…)"
            )
