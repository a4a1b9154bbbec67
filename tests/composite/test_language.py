"""The language of definitions: what it reads, how it prints, and what it says of mistakes."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tocsin.composite.expression import Expression, Leaf, Operation
from tocsin.composite.language import parse
from tocsin.composite.printer import UNITS, print_definition, print_duration, print_expression, warnings
from tocsin.errors import DefinitionError


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("[type='a']", "[type = 'a']"),
        ("seq([type='a'] as x,[v>3]as y)", "SEQ([type = 'a'] AS x, [v > 3] AS y)"),
        ("SEQ([v > 1], [v > 2], [v > 3])", "SEQ([v > 1], [v > 2], [v > 3])"),
        ("SEQ(SEQ([v > 1], [v > 2]), [v > 3])", "SEQ([v > 1], [v > 2], [v > 3])"),
        ("SEQ([v > 1], SEQ([v > 2], [v > 3]))", "SEQ([v > 1], SEQ([v > 2], [v > 3]))"),
        (
            "NOT([v=1], [v=2], [v=3]) WITHIN 120 seconds BY door, data.site",
            "NOT([v = 1], [v = 2], [v = 3]) WITHIN 2 MINUTES BY door, data.site",
        ),
        ("a*([v=1], [v=2], [v=3])", "A*([v = 1], [v = 2], [v = 3])"),
        ("A([v=1], [v=2], [v=3])", "A([v = 1], [v = 2], [v = 3])"),
        ("P([v=1], 1 HOUR 30 MINUTES, [v=3])", "P([v = 1], 90 MINUTES, [v = 3])"),
        ("p*([v=1], 0.5 SECONDS, [v=3])", "P*([v = 1], 500 MILLISECONDS, [v = 3])"),
        ("PLUS(machine.stop AS s, 1 DAY)", "PLUS(machine.stop AS s, 1 DAY)"),
        ("ANY(2, [v=1], [v=2], other-one)", "ANY(2, [v = 1], [v = 2], other-one)"),
        (
            "AND([v=1] AS a, [v=2] AS b) where b.v > a.v AND a.name = 'x'",
            "AND([v = 1] AS a, [v = 2] AS b) WHERE b.v > a.v AND a.name = 'x'",
        ),
        ("[name = 'a]b'] AS x", "[name = 'a]b'] AS x"),
        (r"[name = 'it\'s ] here']", "[name = 'it''s ] here']"),
    ],
)
def test_canonical_text(text: str, canonical: str) -> None:
    found = parse("d", text)
    assert found.text == canonical
    assert parse("d", canonical) == found


DURATIONS = st.integers(1, 30_000).flatmap(lambda n: st.sampled_from(list(UNITS.values())).map(lambda u: n * u))
LEAVES = st.sampled_from(
    [Leaf(filter="type = 'a'"), Leaf(filter="v > 3"), Leaf(definition="other"), Leaf(definition="some.other")]
)
PERIODS = DURATIONS.map(lambda micros: max(micros, 1_000))


def _operations(parts: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
    span = st.none() | DURATIONS
    two = st.tuples(parts, parts)
    return st.one_of(
        st.builds(lambda o, of, w: Operation(o, of, within=w), st.sampled_from(["OR", "AND", "SEQ"]), two, span),
        st.builds(
            lambda o, of, w: Operation(o, of, within=w),
            st.sampled_from(["NOT", "A", "A*"]),
            st.tuples(parts, parts, parts),
            span,
        ),
        st.builds(
            lambda o, of, p: Operation(o, of, period=p),
            st.sampled_from(["P", "P*"]),
            two,
            DURATIONS.map(lambda d: max(d, 1000)),
        ),
        st.builds(lambda of, p: Operation("PLUS", (of,), period=p), parts, DURATIONS),
        st.builds(lambda of, w: Operation("ANY", of, count=2, within=w), two, span),
    )


@settings(max_examples=200)
@given(st.recursive(LEAVES, _operations, max_leaves=8))
def test_what_is_printed_is_read_back(expression: Expression) -> None:
    found = parse("d", print_expression(expression))
    assert found.expression == expression
    assert parse("d", print_definition(found)) == found


@given(st.integers(1, 10**15))
def test_durations_are_exact(micros: int) -> None:
    operation = parse("d", f"PLUS([v = 1], {print_duration(micros)})").expression
    assert isinstance(operation, Operation)
    assert operation.period == micros


@pytest.mark.parametrize(
    ("text", "at", "says"),
    [
        ("", "", "an expression is expected"),
        ("SEK([v=1], [v=2])", "SEK", "did you mean SEQ?"),
        ("SEQ([v=1])", "SEQ", "SEQ has 1 constituents; SEQ(first, then, …)"),
        ("NOT([v=1], [v=2])", "NOT", "NOT(opener, forbidden, closer)"),
        ("SEQ([v=1], [v=2]", "", "')' is expected"),
        ("SEQ([v=1], [v ==> 2])", ">", None),
        ("SEQ([v=1], [w = ])", "= ]", "a value or a condition is expected"),
        ("[v = 1", "[", "the bracket is not closed"),
        ("PLUS([v=1], 5)", ")", "is no unit of time"),
        ("PLUS([v=1], 5 PARSECS)", "PARSECS", "there are DAY, HOUR"),
        ("PLUS([v=1], 0 SECONDS)", "0", "above 0"),
        ("PLUS([v=1], -5 SECONDS)", "-5", "above 0"),
        ("P([v=1], 999 MICROSECONDS)", "P", "once a millisecond"),
        ("P([v=1], [v=2])", "[v=2]", "a duration is expected"),
        ("ANY(3, [v=1], [v=2])", "ANY", "ANY wants 3 of 2"),
        ("ANY([v=1], [v=2])", "[v=1]", "ANY begins with a number"),
        ("[v=1] AS type", "type", "cannot name a constituent"),
        ("AND([v=1] AS x, [v=2] AS x)", "x", "two constituents are called x"),
        ("[v=1] BY", "", "BY wants the name of a field"),
        ("[v=1] AS x WHERE x.v >", "", None),
        ("[v=1] nonsense", "nonsense", "WITHIN, BY, WHERE"),
        ("SEQ([v=1] BY m, [v=2])", "BY", None),
        ("WITHIN", "WITHIN", "stands where an expression is expected"),
    ],
)
def test_mistakes_are_pointed_at(text: str, at: str, says: str | None) -> None:
    with pytest.raises(DefinitionError) as caught:
        parse("d", text)
    error = caught.value
    assert error.position is not None
    if at:
        assert text[error.position :].startswith(at), (text[error.position :], str(error))
    if says is not None:
        assert says in str(error)
    assert "^" in str(error) or not text


@pytest.mark.parametrize("name", ["", "1a", "tocsin.x", "SEQ", "a b", "within"])
def test_names_that_cannot_be(name: str) -> None:
    with pytest.raises(DefinitionError, match="name"):
        parse(name, "[v = 1]")


def test_contexts_and_semantics_that_are_not() -> None:
    with pytest.raises(DefinitionError, match="there are recent, chronicle"):
        parse("d", "[v = 1]", "newest")
    with pytest.raises(DefinitionError, match="there are detection, interval"):
        parse("d", "[v = 1]", "recent", "both")


def test_very_deep_expressions_are_refused() -> None:
    with pytest.raises(DefinitionError, match="64 operators inside each other"):
        parse("d", "PLUS(" * 200 + "[v = 1]" + ", 1 SECOND)" * 200)


def test_an_endless_period_is_warned_of() -> None:
    assert "ticks for ever" in warnings(parse("d", "P([v = 1], 1 SECOND)"))[0]
    assert warnings(parse("d", "P([v = 1], 1 SECOND, [v = 2])")) == []
