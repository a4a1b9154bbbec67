"""Which events open, close or forbid something, and for which key: in SQL, for `windowed`.

    columns that are looked at ─ type ─▶ payload read, once ─▶ filters, once each ─▶ a row for each definition that sees
    the event: (definition, key0 …, offset, at, id, source, level, role)

Columns of the source mean what they mean there; others are attributes, as for the engines.

Promised: nothing is asked of rows whose type no definition wants; a payload is read at most once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce
from operator import or_

import msgspec
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    BooleanType,
    DataType,
    DoubleType,
    FloatType,
    StringType,
    StructType,
)

from tocsin.composite.expression import Definition, Leaf, Operation
from tocsin.composite.leaves import SOURCE, SYSTEM, LeafFinder
from tocsin.filters import values
from tocsin.filters.filter import Filter
from tocsin.filters.normal import calls, fields
from tocsin.filters.sparksql import WHOLE, Names, render, render_value, render_variant
from tocsin.filters.syntax import XPATH_FUNCTIONS
from tocsin.model import CLASSIFICATION, ENVELOPE
from tocsin.spark import given

__all__ = ["CLOSER", "MIDDLE", "OPENER", "Pattern", "can_tell", "labelled", "pattern_of"]

OPENER, CLOSER, MIDDLE = 1, 2, 4
"""Bits of `role`."""
_ROLES = {"SEQ": ("opener", "closer"), "NOT": ("opener", "middle", "closer")}
_BITS = {"opener": OPENER, "closer": CLOSER, "middle": MIDDLE}
_INEXACT = frozenset({"distance_km", "lower", "upper", *XPATH_FUNCTIONS})
"""Functions that Spark may answer otherwise, if only in the last bit or for rare letters; see `filters.sparksql`."""
_PAYLOAD = "tocsin_payload"
_KINDS: dict[type[DataType], str] = {
    **dict.fromkeys(given.WHOLE, WHOLE),
    **dict.fromkeys((DoubleType, FloatType), values.NUMBER),
    StringType: values.TEXT,
    BooleanType: values.BOOLEAN,
}


class Pattern(msgspec.Struct, frozen=True):
    """A definition that windows can detect."""

    definition: Definition
    filters: dict[str, str]
    """By role: opener, closer, and perhaps middle."""
    names: tuple[str | None, str | None]
    """What opener and closer are called."""
    within: int | None
    """Microseconds."""

    @property
    def paths(self) -> set[tuple[str, ...]]:
        """What is looked at."""
        asked = {field.path for text in self.filters.values() for field in fields(Filter(text).condition)}
        return asked | {_path(field) for field in self.definition.by}


def pattern_of(definition: Definition) -> Pattern | None:
    """A definition as windows have it; None: it needs an engine."""
    expression = definition.expression
    if not isinstance(expression, Operation) or expression.operator not in _ROLES:
        return None
    if definition.where is not None or definition.semantics != "detection" or definition.max_open is not None:
        return None
    filters: dict[str, str] = {}
    names: dict[str, str | None] = {}
    for role, part in zip(_ROLES[expression.operator], expression.of, strict=False):
        if not isinstance(part, Leaf) or part.filter is None or not _is_exact(part.filter):
            return None
        filters[role], names[role] = part.filter, part.alias
    if len(filters) != len(expression.of):
        return None
    if any(render_value(_path(field)) is None for field in definition.by):
        return None
    if definition.context != "recent" and not Filter(filters["opener"]).disjoint(Filter(filters["closer"])):
        return None
    if definition.context == "chronicle" and expression.within is not None:
        return None
    return Pattern(definition, filters, (names["opener"], names["closer"]), expression.within)


def can_tell(schema: StructType, pattern: Pattern) -> bool:
    """Do columns hold what a pattern looks at in a form that SQL sees as the engine does?"""
    own, kinds = given.own_columns(), {field.name: field.dataType for field in schema}
    if len(kinds) < len(schema) or not set(given.ALWAYS) <= kinds.keys():
        return False
    if any(kind != own[name] for name, kind in kinds.items() if name in own):
        return False
    beside = {name: type(kind) in _KINDS for name, kind in kinds.items() if name not in own}
    # What is nested is a member of the payload.
    return all(beside.get(name, True) for path in pattern.paths for name in path[:2]) and not any(
        path == ("data",) and not all(beside.values()) for path in pattern.paths
    )


def _is_exact(text: str) -> bool:
    return not any(call.name in _INEXACT for call in calls(Filter(text).condition))


def _path(field: str) -> tuple[str, ...]:
    return tuple(field.split("."))


def labelled(events: DataFrame, patterns: Sequence[Pattern]) -> DataFrame:
    """The events that a leaf matches, once for each definition; without `definition` if there is only one."""
    own, kinds = given.own_columns(), {field.name: type(field.dataType) for field in events.schema}
    beside = {name: _KINDS[kind] for name, kind in kinds.items() if name not in own and kind in _KINDS}
    wanted = _columns({path for pattern in patterns for path in pattern.paths}, beside)
    names = Names(_PAYLOAD if "data" in wanted & kinds.keys() else None, "attributes" in wanted & kinds.keys(), beside)
    columns = [
        _column(name) if name in kinds else F.lit(None).cast(own[name]).alias(name)
        for name in sorted({*wanted, *given.ALWAYS, "classification"} & (kinds.keys() | set(ENVELOPE)))
    ]
    rows = events.select(*columns).where(_is_event(patterns))
    if names.payload is not None:
        rows = rows.select("*", _held("try_parse_json(data)", _PAYLOAD))
    keys = list(dict.fromkeys(field for pattern in patterns for field in pattern.definition.by))
    return _apart(_with_keys(_with_roles(rows, patterns, names), len(patterns), keys, names), patterns, keys)


def _with_roles(rows: DataFrame, patterns: Sequence[Pattern], names: Names) -> DataFrame:
    """Rows that have a role for anybody, and which."""
    filters = list(dict.fromkeys(text for pattern in patterns for text in pattern.filters.values()))
    tests = {text: F.coalesce(F.expr(render(Filter(text).condition, names)), F.lit(False)) for text in filters}
    if len(patterns) > 1:  # each once, however many definitions ask for it
        rows = rows.select("*", *(tests[text].alias(f"tocsin_filter{place}") for place, text in enumerate(filters)))
        tests = {text: F.col(f"tocsin_filter{place}") for place, text in enumerate(filters)}
    rows = rows.select("*", *(_role(each, tests).alias(f"tocsin_role{place}") for place, each in enumerate(patterns)))
    return rows.where(reduce(or_, (F.col(f"tocsin_role{place}") != 0 for place in range(len(patterns)))))


def _with_keys(rows: DataFrame, roles: int, keys: list[str], names: Names) -> DataFrame:
    """What a part tells of an event, its roles, and the texts of all fields that anybody goes BY."""
    texts = []
    for place, path in enumerate(map(_path, keys)):
        variant, held = render_variant(path, names), f"tocsin_held{place}"
        if variant is not None:
            rows = rows.select("*", _held(variant, held))
        text = render_value(path, None if variant is None else held, names) or "CAST(NULL AS STRING)"
        texts.append(F.expr(text).alias(f"text{place}"))
    return rows.select(
        *_told(), *(F.col(f"tocsin_role{place}").alias(f"role{place}") for place in range(roles)), *texts
    )


def _apart(rows: DataFrame, patterns: Sequence[Pattern], keys: list[str]) -> DataFrame:
    """A row for each definition that sees the event and finds its key; without that an event takes no part."""
    common = [F.col(name) for name in ("offset", "at", "id", "source", "level")]
    if len(patterns) == 1:
        mine = [F.col(f"text{keys.index(field)}").alias(f"key{place}") for place, field in enumerate(keys)]
        rows = rows.select(*mine, *common, F.col("role0").alias("role"))
        return rows.dropna(subset=[f"key{place}" for place in range(len(keys))]) if keys else rows
    most = max(len(pattern.definition.by) for pattern in patterns)
    each = []
    for number, pattern in enumerate(patterns):
        texts = [F.col(f"text{keys.index(field)}") for field in pattern.definition.by]
        texts += [F.lit("")] * (most - len(texts))
        named = [text.alias(f"key{place}") for place, text in enumerate(texts)]
        number_of = F.lit(number).cast("smallint").alias("definition")
        each.append(F.struct(number_of, F.col(f"role{number}").alias("role"), *named))
    rows = rows.select(*common, F.inline(F.array(*each)))
    there = reduce(
        lambda one, other: one & other, (F.col(f"key{place}").isNotNull() for place in range(most)), F.lit(True)
    )
    return rows.where((F.col("role") != 0) & there)


def _columns(paths: Iterable[tuple[str, ...]], beside: dict[str, str]) -> set[str]:
    """The columns that are looked at, if there are such."""
    found = set()
    for head, *rest in paths:
        if head in ENVELOPE or head == "data":
            found.add(head)
        elif head == "attributes":
            found |= {head, *rest[:1]} if rest and rest[0] in beside else {head}
        else:
            found |= {"attributes", "data", *({head} & beside.keys())}
    return found


def _is_event(patterns: Sequence[Pattern]) -> Column:
    """Of a type that matters; no leaf sees system records and derived events."""
    finder = LeafFinder([text for pattern in patterns for text in pattern.filters.values()])
    is_own = ~F.col("source").eqNullSafe(F.lit(SOURCE))
    if finder.rest is None:
        return F.col("type").isin(sorted(kind for kind in finder.plans if not kind.startswith(SYSTEM))) & is_own
    return ~F.startswith(F.col("type"), F.lit(SYSTEM)) & is_own


def _held(expression: str, name: str) -> Column:
    """What depends on the partition is made where it stands: else Spark would move it into every use, and filters."""
    return F.expr(f"if(spark_partition_id() >= 0, {expression}, NULL)").alias(name)


def _role(pattern: Pattern, tests: dict[str, Column]) -> Column:
    bits = [F.when(tests[text], F.lit(_BITS[role])).otherwise(F.lit(0)) for role, text in pattern.filters.items()]
    role = reduce(lambda one, other: one.bitwiseOR(other), bits).cast("tinyint")
    return F.when(F.spark_partition_id() >= 0, role)  # as in `_held`


def _told() -> list[Column]:
    """What a part tells of an event, in its order.

    What has no place in the order, or is secret in a way that nobody knows, is refused, as by the engines; that stands
    with the offset, which nobody leaves out.
    """
    bad = F.raise_error(F.lit("EventError: an event has the offset NULL or below 1, or no journal time (arrived)"))
    secret = F.col("classification")
    strange = F.concat(
        F.lit("EventError: an event's classification is '"),
        secret,
        F.lit(f"'; it must be one of {', '.join(CLASSIFICATION)}"),
    )
    offset = (
        F.when((F.col("offset") < 1) | F.col("offset").isNull() | F.col("arrived").isNull(), bad.cast("bigint"))
        .when(~secret.isin(*CLASSIFICATION), F.raise_error(strange).cast("bigint"))  # NULL is neither
        .otherwise(F.col("offset"))
    )
    level = F.coalesce(F.array_position(F.array(*map(F.lit, CLASSIFICATION)), secret) - 1, F.lit(0)).cast("tinyint")
    return [
        offset.alias("offset"),
        F.unix_micros("arrived").alias("at"),
        *(F.coalesce(F.col(name), F.lit("-")).alias(name) for name in ("id", "source")),
        level.alias("level"),
    ]


def _column(name: str) -> Column:
    return F.col("`" + name.replace("`", "``") + "`")
