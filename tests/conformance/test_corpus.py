"""The conformance corpus: lines of (filter, event, verdict) and of (bad filter, error) that anyone can extend.

`corpus/filters.jsonl`, one JSON object per line:
    filter    the text
    event     arguments of `tocsin.Event`; type "t" and source "s" unless given
    verdict   true, false or null, as docs/FILTERS.md has it
    why       optional: what the line is there to show
`corpus/filter_errors.jsonl`: filter, position (of the offence in the text), says (found in the message), error (class).

The verdicts are thought out from the normative text, not copied from a run.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tocsin import errors
from tocsin.filters.filter import Filter
from tocsin.model import Event

CORPUS = Path(__file__).with_name("corpus")


def lines(name: str) -> list[Any]:
    """Every line as a test case whose name is its place in the file."""
    texts = (CORPUS / name).read_text(encoding="utf-8").split("\n")
    return [pytest.param(json.loads(text), id=f"line-{number}") for number, text in enumerate(texts, 1) if text]


VERDICTS, ERRORS = lines("filters.jsonl"), lines("filter_errors.jsonl")


def event_of(line: dict[str, Any]) -> Event:
    return Event(**{"type": "t", "source": "s", **line["event"]})


@pytest.mark.parametrize("line", VERDICTS)
def test_verdict(line: dict[str, Any]) -> None:
    event, one = event_of(line), Filter(line["filter"])
    assert one.evaluate(event) is line["verdict"], line.get("why")
    assert one.matches(event) is (line["verdict"] is True)


@pytest.mark.parametrize("line", VERDICTS)
def test_canonical_text_is_the_same_filter(line: dict[str, Any]) -> None:
    canonical = str(Filter(line["filter"]))
    again = Filter(canonical)
    assert str(again) == canonical
    assert again.evaluate(event_of(line)) is line["verdict"]


@pytest.mark.parametrize("line", VERDICTS)
def test_negation_turns_the_verdict(line: dict[str, Any]) -> None:
    """NOT swaps true and false and leaves NULL, whatever it stands before."""
    negated = Filter(f"NOT ({Filter(line['filter'])})").evaluate(event_of(line))
    assert negated is {True: False, False: True, None: None}[line["verdict"]]


@pytest.mark.parametrize("line", VERDICTS)
def test_every_filter_has_spark_text(line: dict[str, Any]) -> None:
    """Its meaning is tested in tests/spark; here only that it can be written, and holds nothing that may raise."""
    sql = Filter(line["filter"]).sql()
    bare = re.sub(r"'(?:[^'\\]|\\.)*'", "''", sql)  # what a text says does not count
    assert bare.count("(") == bare.count(")")
    assert not re.search(r"(?<!try_)(?:variant_get|parse_json|element_at)\(", bare)


@pytest.mark.parametrize("line", ERRORS)
def test_error(line: dict[str, Any]) -> None:
    with pytest.raises(errors.FilterError) as caught:
        Filter(line["filter"])
    error = caught.value
    assert type(error).__name__ == line["error"]
    assert error.position == line["position"]
    assert line["says"] in str(error)
    assert error.text == line["filter"]


def test_the_corpus_is_large_and_balanced() -> None:
    verdicts = Counter(case.values[0]["verdict"] for case in VERDICTS)
    assert len(VERDICTS) >= 500
    assert min(verdicts[True], verdicts[False], verdicts[None]) >= 100, verdicts
    assert len(ERRORS) >= 160
    assert {case.values[0]["error"] for case in ERRORS} == {"FilterError", "FilterLimitError"}


def test_no_line_is_repeated() -> None:
    for cases in (VERDICTS, ERRORS):
        told = Counter(json.dumps([case.values[0]["filter"], case.values[0].get("event")]) for case in cases)
        assert not [text for text, count in told.items() if count > 1]
