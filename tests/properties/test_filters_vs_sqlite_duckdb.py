"""Strangers' opinions: random filters evaluated by SQLite and by DuckDB over typed columns, against `Filter.evaluate`.

Restricted to where the meaning coincides: each column has one type, comparisons stay within a type, and some things are
left out: NaN (SQLite has none), `%` of fractions (SQLite truncates), escapes in quotes, RLIKE, arrays, booleans in
order (SQLite has 0 and 1). What remains is three-valued logic, comparison, IN, BETWEEN, LIKE, arithmetic and text.
Division by zero is NULL in SQLite too; DuckDB's answer depends on its release, so it is asked with nullif.
"""

from __future__ import annotations

import random
import re
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from tocsin.filters.filter import Filter
from tocsin.model import Event

COLUMNS = {"i": "BIGINT", "j": "BIGINT", "x": "DOUBLE", "y": "DOUBLE", "s": "TEXT", "u": "TEXT", "flag": "BOOLEAN"}
WHOLES = [0, 1, 2, 3, -1, -5, 7, 10, 2**53 - 1, 2**53, 2**53 + 1, -(2**53) - 1, 2**63 - 1, -(2**63) + 1]
SMALL = [0, 1, 2, 3, -1, -5, 7, 10]
DOUBLES = [0.0, 0.5, -0.5, 1.0, 2.5, -3.25, 1e10, 1e-10, 0.1, 0.2, 0.30000000000000004]
TEXTS = ["", "a", "A", "ab", "abc", "b", "ba", "a_b", "a%b", "é", "😀", "😀a", "aXb", "10", "it's", " a"]
PATTERNS = ["a%", "%b", "%b%", "a_b", "_", "%", "", "ab", "__", "a%b%", "é%", "_a"]
ROWS, FILTERS = 120, 400


class Writer:
    """Writes one random condition in our language and in the stranger's; they differ in little."""

    def __init__(self, chance: random.Random, like: str) -> None:
        self.pick = chance.choice
        self.chance = chance
        self.like = like

    def condition(self, depth: int = 0) -> tuple[str, str]:
        if depth < 3 and self.chance.random() < 0.55:
            kind = self.pick(["AND", "OR", "NOT", "IS"])
            if kind == "NOT":
                ours, theirs = self.condition(depth + 1)
                return f"NOT ({ours})", f"NOT ({theirs})"
            if kind == "IS":
                ours, theirs = self.condition(depth + 1)
                truth = self.pick(["TRUE", "NOT TRUE", "FALSE", "NOT FALSE"])
                return f"({ours}) IS {truth}", f"({theirs}) IS {truth}"
            parts = [self.condition(depth + 1) for _ in range(self.pick([2, 2, 3]))]
            ours, theirs = (f" {kind} ".join(f"({part[side]})" for part in parts) for side in (0, 1))
            return ours, theirs
        test = self.pick([self.comparison, self.comparison, self.between, self.inside, self.text, self.null, self.flag])
        return test()

    def comparison(self) -> tuple[str, str]:
        op = self.pick(["=", "<>", "<", "<=", ">", ">="])
        return alike(self.pick(["{0} {1} {2}", "{2} {1} {0}"]).format(*self.pair(op)))

    def pair(self, op: str) -> tuple[str, str, str]:
        kind = self.pick(["whole", "double", "text", "length", "sum"])
        if kind == "whole":
            return self.pick("ij"), op, self.pick(["i", "j", str(self.pick(WHOLES)), "NULL"])
        if kind == "double":
            return self.pick("xy"), op, self.pick(["x", "y", repr(self.pick(DOUBLES)), str(self.pick(SMALL))])
        if kind == "text":
            return self.pick("su"), op, self.pick(["s", "u", quote(self.pick(TEXTS))])
        if kind == "length":
            return f"length({self.pick('su')})", op, self.pick(["length(u)", str(self.pick(SMALL))])
        return self.sum(), op, self.pick([repr(self.pick(DOUBLES)), str(self.pick(SMALL)), "x"])

    def sum(self) -> str:
        number = repr(self.pick(DOUBLES))
        return self.pick(
            ["x + y", "x - {}", "x * {}", "x / y", "x / {}", "-x", "abs(y)", "(x + {}) * y", "x - y - {}"]
        ).format(number)

    def between(self) -> tuple[str, str]:
        negated = self.pick(["", "NOT "])
        name, pool = self.pick([("i", WHOLES), ("x", DOUBLES), ("s", TEXTS)])
        low, high = (literal(self.pick([*pool, None])) for _ in range(2))
        return alike(f"{name} {negated}BETWEEN {low} AND {high}")

    def inside(self) -> tuple[str, str]:
        name, pool = self.pick([("i", WHOLES), ("x", DOUBLES), ("s", TEXTS)])
        items = [literal(self.pick(pool)) for _ in range(self.pick([1, 2, 4]))] + ["NULL"] * (
            self.chance.random() < 0.2
        )
        return alike(f"{name} {self.pick(['', 'NOT '])}IN ({', '.join(items)})")

    def text(self) -> tuple[str, str]:
        negated, name = self.pick(["", "NOT "]), self.pick("su")
        if self.chance.random() < 0.3:
            pattern = self.pick(["a!_b", "a!%b", "!%", "%!_%"])
            return alike(f"{name} {negated}LIKE '{pattern}' ESCAPE '!'")
        if self.chance.random() < 0.3:
            part = quote(self.pick(["a", "b", "é", "😀", "X"]))
            return f"contains({name}, {part})", self.like.format(name, part)
        return alike(f"{name} {negated}LIKE {quote(self.pick(PATTERNS))}")

    def null(self) -> tuple[str, str]:
        return alike(f"{self.pick(list(COLUMNS))} IS {self.pick(['', 'NOT '])}NULL")

    def flag(self) -> tuple[str, str]:
        return alike(self.pick(["flag", "NOT flag", "flag = TRUE", "flag <> FALSE"]))


def alike(text: str) -> tuple[str, str]:
    return text, text


def quote(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def literal(value: object) -> str:
    return "NULL" if value is None else quote(value) if isinstance(value, str) else repr(value)


def rows(chance: random.Random) -> list[dict[str, Any]]:
    pools: dict[str, list[Any]] = {"BIGINT": WHOLES, "DOUBLE": DOUBLES, "TEXT": TEXTS, "BOOLEAN": [True, False]}
    return [
        {name: None if chance.random() < 0.2 else chance.choice(pools[kind]) for name, kind in COLUMNS.items()}
        for _ in range(ROWS)
    ]


def compare(
    chance: random.Random, like: str, ask: Callable[[str], Iterable[tuple[int, Any]]], events: list[Event]
) -> Counter[bool | None]:
    """Ask both about every event; return how often each verdict came out."""
    writer, found = Writer(chance, like), Counter[bool | None]()
    for _ in range(FILTERS):
        ours, theirs = writer.condition()
        one = Filter(ours)
        for number, verdict in ask(theirs):
            got = one.evaluate(events[number])
            assert got is (None if verdict is None else bool(verdict)), (ours, events[number])
            found[got] += 1
    return found


def assert_all_verdicts_seen(found: Counter[bool | None]) -> None:
    assert sum(found.values()) == ROWS * FILTERS
    assert min(found[True], found[False], found[None]) > 3_000, found


def table(data: list[dict[str, Any]]) -> tuple[str, str, list[tuple[Any, ...]]]:
    columns = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
    marks = ", ".join("?" * (len(COLUMNS) + 1))
    return (
        f"CREATE TABLE t (n INTEGER, {columns})",
        f"INSERT INTO t VALUES ({marks})",
        [(number, *row.values()) for number, row in enumerate(data)],
    )


def test_sqlite_agrees() -> None:
    chance = random.Random(11)
    data = rows(chance)
    create, insert, values = table(data)
    base = sqlite3.connect(":memory:")
    try:
        base.execute("PRAGMA case_sensitive_like = ON")
        base.execute(create)
        base.executemany(insert, values)
        events = [Event("t", "s", data=row) for row in data]
        found = compare(
            chance, "(instr({}, {}) > 0)", lambda sql: base.execute(f"SELECT n, ({sql}) FROM t").fetchall(), events
        )
    finally:
        base.close()
    assert_all_verdicts_seen(found)


def test_duckdb_agrees() -> None:
    duckdb = pytest.importorskip("duckdb", reason="DuckDB is not installed; `make setup` installs it")
    chance = random.Random(12)
    data = rows(chance)
    create, insert, values = table(data)
    with duckdb.connect(":memory:") as base:
        base.execute("SET threads = 1")
        base.execute(create)
        base.executemany(insert, values)
        # Attributes this time, where the row has a value: the same names, found in the other place.
        present = [{name: value for name, value in row.items() if value is not None} for row in data]
        events = [Event("t", "s", attributes=attributes) for attributes in present]

        def ask(sql: str) -> list[tuple[int, Any]]:
            guarded = re.sub(r"/ ([^ )]+)", r"/ nullif(\1, 0)", sql)
            answers: list[tuple[int, Any]] = base.execute(f"SELECT n, ({guarded}) FROM t").fetchall()
            return answers

        found = compare(chance, "contains({}, {})", ask, events)
    assert_all_verdicts_seen(found)
