"""XPath filters against a stranger (lxml asked directly, in another way) and the matcher against the filters."""

from __future__ import annotations

import json
import math
from typing import Any

import pyarrow as pa
from hypothesis import event as note
from hypothesis import given
from hypothesis import strategies as st
from lxml import etree

from tests.xml_strategies import documents, events, paths
from tests.xml_strategies import tests as conditions
from tocsin import Event, Filter, Matcher
from tocsin.filters.documents import asker
from tocsin.filters.printer import print_scalar
from tocsin.filters.xpath import read


def directly(text: str, path: str) -> Any:
    """What lxml gives for a path by itself, unconverted; None for what is no XML, or has a DTD."""
    if "<!DOCTYPE" in text or text.startswith("\ufeff"):
        return None
    try:
        root = etree.XML(text.encode(), etree.XMLParser(encoding="utf-8"))
    except etree.XMLSyntaxError:
        return None
    for element in root.iter(etree.Element):
        element.tag = etree.QName(element).localname
    tree, asked = root.getroottree(), read(path)
    answer = tree.xpath(asked.text)
    # lxml has no object for the document itself: its root stands for it, with the same text.
    return [root, *answer] if asked.kind == "nodes" and tree.xpath(f"count({asked.text})") > len(answer) else answer


@given(documents(), paths())
def test_lxml_agrees(text: str, found: tuple[str, str]) -> None:
    path, kind = found
    answer = directly(text, path)
    boolean, number = asker("xpath_boolean", path)(text), asker("xpath_number", path)(text)
    note(f"{kind}: {boolean}")
    if answer is None or len(text) > read(path).longest:
        assert boolean is None and number is None
        return
    assert boolean is (bool(answer) and answer == answer)  # NaN is false
    if kind == "a number":
        assert number == answer or (math.isnan(number) and math.isnan(answer))
        return
    if kind == "nodes":
        texts = [node if isinstance(node, str) else node.xpath("string()") for node in answer]
        answer = texts[0] if texts else ""
    assert asker("xpath_string", path)(text) == (str(answer).lower() if kind == "a boolean" else answer)


@given(st.lists(conditions(), min_size=1, max_size=12), st.lists(events(), min_size=1, max_size=6))
def test_the_matcher_gives_what_the_filters_say(texts: list[str], given_events: list[Event]) -> None:
    filters = [Filter(text) for text in texts]
    matcher = Matcher()
    matcher.add_many(enumerate(filters))
    expected = [[key for key, one in enumerate(filters) if one.matches(event)] for event in given_events]
    assert [sorted(matcher.match(event)) for event in given_events] == expected
    assert [sorted(found) for found in matcher.match_batch(given_events)] == expected
    for key, event in enumerate(given_events):
        for one in filters:
            assert Filter(f"NOT ({one})").evaluate(event) is {True: False, False: True, None: None}[one.evaluate(event)]
        note(f"{len(expected[key]) > 0}")


@given(st.lists(conditions(), min_size=1, max_size=6), st.lists(documents(), min_size=1, max_size=6))
def test_columns_of_xml_give_the_same(texts: list[str], payloads: list[str]) -> None:
    matcher = Matcher()
    matcher.add_many(enumerate(texts))
    given_events = [Event("t", "s", data=payload) for payload in payloads]
    columns = {
        "type": ["t"] * len(payloads),
        "source": ["s"] * len(payloads),
        "data": [json.dumps(p) for p in payloads],
    }
    found = matcher.match_batch(pa.table(columns))
    assert [sorted(keys) for keys in found] == [sorted(matcher.match(event)) for event in given_events]


@given(conditions(), conditions(), events())
def test_relations_are_sound(one: str, other: str, event: Event) -> None:
    left, right = Filter(one), Filter(other)
    if left.covers(right):
        assert left.matches(event) or not right.matches(event)
    if left.disjoint(right):
        assert not (left.matches(event) and right.matches(event))
    merged = left.merge(right)
    either = left.matches(event) or right.matches(event)
    assert merged.matches(event) == either or (either is False and not merged.perfect)


@given(documents(), paths())
def test_constants_are_decided_when_the_filter_is_made(text: str, found: tuple[str, str]) -> None:
    call = f"xpath_boolean({print_scalar(text)}, {print_scalar(found[0])})"
    assert Filter(call).matches(Event("t", "s")) is (asker("xpath_boolean", found[0])(text) is True)
    matcher = Matcher()
    matcher.add(1, call)
    assert bool(matcher.match(Event("t", "s"))) is Filter(call).matches(Event("t", "s"))
