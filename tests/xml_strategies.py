"""Hypothesis strategies for XML payloads and XPaths that speak the same small vocabulary, so that they meet often.

    documents()   texts: mostly well-formed XML, some not, some with a DTD
    paths()       XPath 1.0 expressions that filters accept: (text, what it gives)
    tests()       conditions of the filter language over them
    events()      events whose payload or attribute is such a document, or something else

Left out is what Spark reads in its own way and docs/FILTERS.md does not promise: prefixes, exponents, letters beyond 16
bits, numbers with rounding, the order of attributes, comments before the root, CDATA.
"""

from __future__ import annotations

import functools
from typing import Any

from hypothesis import strategies as st

from tests.strategies import literal
from tocsin.filters.xpath import PathError, read
from tocsin.model import Event

NAMES = ["a", "b", "c"]
CONTENT = [
    "",
    "1",
    "2",
    "10",
    " 5 ",
    "-.5",
    "x",
    "xy",
    "é",
    "&lt;",
    "&#65;",
    "<!--x-->",
    "<?x y?>",
    "\n ",
]
VALUES = ["", "1", "2", "x", "9.082", "&quot;", " 7"]
NOT_XML = [
    *(
        "",
        " ",
        "<a>",
        "<a/>b",
        "<a/><b/>",
        "<a x='1' x='2'/>",
        "<a>&nbsp;</a>",
        "</a>",
        "a",
        "<a><b></a></b>",
        "<a b/>",
    ),
    *(
        "<!DOCTYPE a><a/>",
        '<!DOCTYPE a [<!ENTITY e "1">]><a>&e;</a>',
        "<a><!-- <!DOCTYPE --></a>",
        "\ufeff<a/>",
        "<a>\x01</a>",
    ),
]
HEADS = ["", "", "", "<?xml version='1.0'?>", "<?xml version='1.0' encoding='ISO-8859-1'?>\n"]
LITERALS = ["''", "'1'", "'x'", '"it\'s"', "'xy'"]


@st.composite
def documents(draw: st.DrawFn) -> str:
    """Texts for a payload."""
    return draw(_documents())


@functools.cache
def _documents() -> st.SearchStrategy[str]:
    return st.one_of(*[_document()] * 7, st.sampled_from(NOT_XML))


def _element(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    attributes = st.dictionaries(st.sampled_from(["x", "y", "id"]), st.sampled_from(VALUES), max_size=2)
    content = st.lists(inner | st.sampled_from(CONTENT), max_size=4).map("".join)

    def build(name: str, given: dict[str, str], body: str, default: str) -> str:
        start = name + default + "".join(f' {key}="{value}"' for key, value in given.items())
        return f"<{start}>{body}</{name}>" if body else f"<{start}/>"

    default = st.sampled_from([""] * 9 + [' xmlns="urn:d"'])
    return st.builds(build, st.sampled_from(NAMES), attributes, content, default)


def _document() -> st.SearchStrategy[str]:
    empty = st.sampled_from([f"<{name}/>" for name in NAMES])
    root = st.recursive(empty, _element, max_leaves=12)
    return st.builds("{}{}{}".format, st.sampled_from(HEADS), root, st.sampled_from(["", "\n"]))


@st.composite
def _one_of_kind(draw: st.DrawFn, kind: int) -> str:
    """An expression inside another: named, so that reprs stay short, and looked up late."""
    return draw(_expressions()[kind])


@functools.cache
def _expressions() -> tuple[st.SearchStrategy[str], ...]:
    """Nodes, texts, numbers and conditions; each inside the others."""
    name = st.sampled_from([*NAMES, "*"])
    test = name | st.sampled_from(["text()", "node()", "comment()"])
    axes = ["child", "descendant", "descendant-or-self", "parent", "ancestor", "following-sibling", "preceding-sibling"]
    axes += ["following", "preceding", "self", "ancestor-or-self"]
    nodes, texts, numbers, conditions = map(_one_of_kind, range(4))
    positions = st.sampled_from(["1", "2", "last()", "position() = 2", "position() < last()"])
    step = st.one_of(
        *[name] * 4,
        *[st.sampled_from(["@x", "@y", "@id", "text()", ".", ".."])] * 2,
        st.builds("{}::{}".format, st.sampled_from(axes), test),
        st.builds("{}[{}]".format, name, positions),
        st.builds("{}[local-name() = '{}']".format, test, st.sampled_from(NAMES)),
        st.builds("{}[{}]".format, name, conditions | nodes),
    )
    location = st.builds(
        "{}{}".format, st.sampled_from(["", "/", "//", "//"]), st.lists(step, min_size=1, max_size=3).map("/".join)
    )
    all_nodes = st.one_of(
        *[location] * 5,
        st.builds("{}{} | //{}".format, st.sampled_from(["", "//"]), name, name),
        st.builds("({} | //{})[1]/{}".format, name, name, step),
        st.builds("({})[{}]".format, location, positions),
        st.builds("({})/{}".format, location, step),
        st.just("/"),
    )
    compared = st.one_of(nodes, nodes.map("({})".format), numbers, texts, conditions.map("({})".format))
    all_conditions = st.one_of(
        st.builds("{} {} {}".format, compared, st.sampled_from(["=", "=", "!=", "<", "<=", ">", ">="]), compared),
        st.builds("{} and {}".format, nodes, conditions),
        st.builds("{} or {}".format, conditions, nodes),
        st.builds("not({})".format, conditions | nodes),
        st.builds("{}({}, {})".format, st.sampled_from(["contains", "starts-with"]), texts, texts),
        st.sampled_from(["true()", "false()"]),
    )
    all_numbers = st.one_of(
        st.sampled_from(["0", "1", "2", "-1", "2.5", "10"]),
        st.builds("count({})".format, nodes),
        st.builds("sum({})".format, nodes),
        st.builds("string-length({})".format, texts),
        st.builds(
            "{} {} {}".format,
            st.sampled_from(["1", "7"]),
            st.sampled_from(["+", "-", "*", "mod"]),
            st.sampled_from(["2", "-3"]),
        ),
        st.builds("{}({})".format, st.sampled_from(["floor", "ceiling", "round", "number"]), nodes),
    )
    all_texts = st.one_of(
        st.sampled_from(LITERALS),
        st.builds("string({})".format, nodes),
        st.builds("normalize-space({})".format, nodes),
        st.builds("concat({}, {})".format, nodes, st.sampled_from(LITERALS)),
        st.builds(
            "substring-{}({}, {})".format, st.sampled_from(["before", "after"]), nodes, st.sampled_from(LITERALS)
        ),
        st.builds("substring({}, 2, 1)".format, nodes),
        st.builds("translate({}, 'xy', 'Z')".format, nodes),
    )
    return all_nodes, all_texts, all_numbers, all_conditions


@st.composite
def paths(draw: st.DrawFn) -> tuple[str, str]:
    """An XPath that filters accept, and what it gives."""
    return draw(_paths())


@functools.cache
def _paths() -> st.SearchStrategy[tuple[str, str]]:
    return st.one_of(*_expressions()).map(_read).filter(lambda found: found[1] != "")


def _read(text: str) -> tuple[str, str]:
    try:
        return text, read(text).kind
    except PathError:
        return text, ""


NUMERIC = ["xpath_number", "xpath_double", "xpath_float", "xpath_int", "xpath_long", "xpath_short"]


@st.composite
def tests(draw: st.DrawFn) -> str:
    """Conditions over payloads."""
    return draw(_tests())


@functools.cache
def _tests() -> st.SearchStrategy[str]:
    value = st.sampled_from(["data", "data", "data", "data", "doc", "data.doc"])
    operator = st.sampled_from(["=", "<>", "<", ">="])
    path = paths().map(lambda found: literal(found[0]))
    textual = paths().filter(lambda found: found[1] != "a number").map(lambda found: literal(found[0]))
    boolean = st.builds("xpath_boolean({}, {})".format, value, path)
    text = st.builds("xpath_string({}, {})".format, value, textual)
    number = st.builds("{}({}, {})".format, st.sampled_from(NUMERIC), value, path)
    single = st.one_of(
        *[boolean] * 4,
        st.builds("{} {} {}".format, text, operator, st.sampled_from(["''", "'1'", "'x'"])),
        st.builds("{} LIKE '%x%'".format, text),
        st.builds("{} {} {}".format, number, operator, st.sampled_from(["0", "1", "2", "2.5", "1e999"])),
        st.builds("{} IN (1, 2, 9.082)".format, number),
        st.builds("{} IS NULL".format, text | number),
        st.builds("length({}) > 1".format, text),
        st.builds("({}) IS NOT TRUE".format, boolean),
    )
    other = st.sampled_from(["type = 't'", "priority > 5", "data LIKE '<a%'", "data IS NULL"])
    return st.one_of(
        *[single] * 3,
        st.builds("{} AND {}".format, single, other),
        st.builds("{} OR {}".format, single, single),
        single.map("NOT ({})".format),
    )


@st.composite
def events(draw: st.DrawFn) -> Event:
    """Events to ask."""
    return draw(_events())


@functools.cache
def _events() -> st.SearchStrategy[Event]:
    xml = st.sampled_from(["application/xml", "text/xml", "image/svg+xml; charset=utf-8", "text/plain"])
    fields: dict[str, Any] = {"type": st.sampled_from(["t", "u"]), "source": st.just("s"), "id": st.just("e")}
    fields["priority"] = st.sampled_from([1, 9])
    return st.one_of(
        *[st.builds(Event, **fields, data=documents(), datacontenttype=xml)] * 6,
        st.builds(Event, **fields, data=documents()),  # a JSON string
        st.builds(Event, **fields, data=st.fixed_dictionaries({"doc": documents() | st.just(1)})),
        st.builds(Event, **fields, attributes=st.fixed_dictionaries({"doc": documents()})),
        st.builds(Event, **fields, data=st.sampled_from([None, 5, b"<a/>", ["<a/>"], True])),
    )
