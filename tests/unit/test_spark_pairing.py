"""Ids, keys and payloads made by columns are those that a detector makes one by one."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from tocsin.composite.deriving import Derived, Deriver
from tocsin.composite.language import parse
from tocsin.composite.occurrence import Occurrence, Part

pytest.importorskip("pyspark", reason="PySpark is not installed; `make setup` installs it")
from tocsin.spark.pairing import Pairing, read_key

ODD = [
    "",
    "a",
    "x" * 31,
    "ü" * 20,
    "y" * 255,
    "z" * 70_000,
    'say "so"',
    "back\\slash",
    "\x00\x1f\x7f",
    "line\u2028",
    "😀",
]
KEYS = ["t", "tm1", 't"', "t\x0b", "n1", "n-9223372036854775808", "d2.5", "d1.0E300", "dNaN", "dInfinity", "btrue"]
DEFINITIONS = (
    parse("one", "SEQ([type = 'a'] AS x, [type = 'b']) BY k"),
    parse("two", "NOT([type = 'a'], [type = 'c'], [type = 'b'] AS y) BY k, l", "continuous"),
    parse("none", "SEQ([type = 'a'], [type = 'b'])", "chronicle"),
)
NAMES = (("x", None), (None, "y"), (None, None))


def wanted(numbers: list[int], keys: list[tuple[str, str]], parts: list[list[tuple[int, str, str]]]) -> pa.Array:
    derived = Derived()
    derivers = [Deriver(each, {}) for each in DEFINITIONS]
    for number, key, told in zip(numbers, keys, parts, strict=True):
        made = [Part(NAMES[number][0], *each, 0) for each in told[:-1]]
        made.append(Part(NAMES[number][1], *told[-1], 0))
        own = read_key(key[: len(DEFINITIONS[number].by)])
        derivers[number].add(derived, own, Occurrence(0, made[0].offset or 0, 0, told[-1][0], tuple(made)), None)
    columns = [[each.decode() if isinstance(each, bytes) else each for each in derived.keys]]
    return list(zip(derived.ids, *columns, [each.decode() for each in derived.data], strict=True))


@pytest.mark.parametrize("definitions", [1, 3])
@pytest.mark.parametrize("most", [1, 4])
@pytest.mark.parametrize("text", [pa.string(), pa.large_string()], ids=str)
def test_by_columns_as_one_by_one(definitions: int, most: int, text: pa.DataType) -> None:
    """Texts are large where `spark.sql.execution.arrow.useLargeVarTypes` says so."""
    draw = random.Random(definitions + most)
    count = 400
    numbers = [draw.randrange(definitions) for _ in range(count)]
    parts = [
        [(draw.randrange(1, 2**62), draw.choice(ODD), draw.choice(ODD)) for _ in range(draw.randint(1, most) + 1)]
        for _ in range(count)
    ]
    keys = [(draw.choice(KEYS), draw.choice(KEYS)) for _ in range(count)]
    padded = [
        [key[place] if place < len(DEFINITIONS[number].by) else "" for number, key in zip(numbers, keys, strict=True)]
        for place in range(1 if definitions == 1 else 2)
    ]
    kinds = [pa.int64(), text, text]
    closers = [pa.array([told[-1][place] for told in parts], kinds[place]) for place in range(3)]
    pairing = Pairing(DEFINITIONS[:definitions], NAMES[:definitions])
    rest = [*closers, pa.array(numbers, pa.int16()), *(pa.array(column, text) for column in padded)]
    if most == 1:
        made = pairing.pairs(*(pa.array([told[0][n] for told in parts], kinds[n]) for n in range(3)), *rest)
    else:
        struct = pa.struct(list(zip(("offset", "id", "source"), kinds, strict=True)))
        openers = [[dict(zip(("offset", "id", "source"), each, strict=True)) for each in told[:-1]] for told in parts]
        made = pairing.gathered(pa.array(openers, pa.list_(struct)), *rest)
    found = [(each["id"], each["key"], each["data"]) for each in made.to_pylist()]
    assert found == wanted(numbers, keys, parts)
    assert len(set(found)) > count / 2


def test_nothing_comes_of_nothing() -> None:
    empty = [pa.array([], kind) for kind in (pa.int64(), pa.string(), pa.string()) * 2]
    for definitions in (1, 3):
        pairing = Pairing(DEFINITIONS[:definitions], NAMES[:definitions])
        assert len(pairing.pairs(*empty, pa.array([], pa.int16()), pa.array([], pa.string()))) == 0
