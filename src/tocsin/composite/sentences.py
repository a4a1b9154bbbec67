"""The meaning of operators and contexts in plain sentences, for people who ask why."""

from __future__ import annotations

from tocsin.composite.expression import Context, Operation
from tocsin.composite.printer import print_duration

__all__ = ["rule"]

_OCCURS = {
    "OR": "OR occurs at each of its constituents",
    "AND": "AND occurs when both have come, in any order",
    "SEQ": "SEQ occurs at the closer, if an opener came before",
    "NOT": "NOT occurs at the closer, if an opener came before and nothing forbidden between",
    "A": "A occurs at each middle after an opener, until a closer",
    "A*": "A* occurs once, at the closer, with all middles since the opener",
    "P": "P occurs every {period} after an opener, until a closer",
    "P*": "P* occurs once, at the closer, with all ticks ({period}) since the opener",
    "PLUS": "PLUS occurs once, {period} after an opener",
    "ANY": "ANY occurs when {count} different ones have come",
}

_POOL: dict[Context, str] = {
    "recent": "the newest of each kind counts, and stays until a newer one comes",
    "chronicle": "the oldest of each kind counts; all are used up",
    "continuous": "each opens a window of its own; what completes windows uses up those windows and itself",
    "cumulative": "all that have come go into one; all are used up",
}
_NEXT: dict[Context, str] = {
    "recent": "the newest opener counts, and stays until a newer one comes",
    "chronicle": "the oldest opener counts; it and the closer are used up",
    "continuous": "every opener counts by itself; all are used up",
    "cumulative": "all openers go into one; all are used up",
}
_USES: dict[str, dict[Context, str]] = {
    "AND": _POOL,
    "ANY": _POOL,
    "SEQ": _NEXT,
    "NOT": _NEXT | {"recent": "the newest opener counts, and stays until a newer or a forbidden one comes"},
    "A": {
        "recent": "the newest opener counts, and stays until a newer one or a closer comes",
        "chronicle": "the oldest opener counts, and stays until a closer ends it",
        "continuous": "every opener counts by itself, and stays until a closer comes",
        "cumulative": "all openers go into one; all are used up",
    },
    "A*": {
        "recent": "the newest opener counts, with the middles since it; all are used up",
        "chronicle": "the oldest opener counts, with its middles; all are used up, other openers keep theirs",
        "continuous": "every opener counts by itself, with its middles; all are used up",
        "cumulative": "all openers and all middles since the first go into one; all are used up",
    },
    "P": {
        "recent": "the newest opener counts, and stays until a newer one or a closer comes",
        "chronicle": "every opener ticks by itself, and stays; a closer ends the oldest",
        "continuous": "every opener ticks by itself, and stays until a closer comes",
        "cumulative": "all openers tick together, from the first on, and stay until a closer comes",
    },
    "P*": {
        "recent": "the newest opener counts, with the ticks since it; all are used up",
        "chronicle": "the oldest opener counts, with its ticks; all are used up",
        "continuous": "every opener counts by itself, with its ticks; all are used up",
        "cumulative": "all openers go into one, with the ticks since the first; all are used up",
    },
    "PLUS": {
        "recent": "the newest opener counts, for a newer one begins the wait anew; it is used up",
        "chronicle": "every opener waits by itself; it is used up",
        "continuous": "every opener waits by itself; it is used up",
        "cumulative": "openers that come meanwhile go with the first; all are used up",
    },
}


def rule(operation: Operation, context: Context) -> str:
    """When an operation occurs and, in a context, what it uses: one sentence."""
    if operation.operator == "OR" or operation.count == 1:
        return f"{_OCCURS['OR'].replace('OR', operation.operator)}; nothing is kept."
    period = print_duration(operation.period) if operation.period is not None else ""
    occurs = _OCCURS[operation.operator].format(period=period, count=operation.count)
    return f"{occurs}. In {context} {_USES[operation.operator][context]}."
