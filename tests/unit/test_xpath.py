"""XPaths read: what they give, where they are wrong, and how long a document they may be asked of."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.xml_strategies import paths
from tocsin import Filter, FilterError, FilterLimitError
from tocsin.errors import FilterTypeError
from tocsin.filters import documents
from tocsin.filters.dialects import from_cloudevents
from tocsin.filters.documents import asker
from tocsin.filters.limits import Limits
from tocsin.filters.schema import Schema
from tocsin.filters.xpath import PathError, read
from tocsin.filters.xpathcost import MAX_DOCUMENT

SIGNS = [
    "a",
    "b",
    "/",
    "//",
    "[",
    "]",
    "(",
    ")",
    "@x",
    "*",
    "|",
    "=",
    "<",
    "-",
    " and ",
    "'x'",
    "1",
    ".",
    "..",
    "::",
    ",",
]
SIGNS += ["count(", "last()", "not(", "child", "text()", "string(", ":", "$", "é", "\x00", '"', "#", "\n"]


@pytest.mark.parametrize(
    ("path", "kind", "asked"),
    [
        ("//a", "nodes", "//a"),
        ("a/b", "nodes", "/a/b"),
        ("a = 2 and count(b) > 1", "a boolean", "/a = 2 and count(/b) > 1"),
        ("a[b/c]/d", "nodes", "/a[b/c]/d"),
        ("(a)[1]/b", "nodes", "(/a)[1]/b"),
        ("* * *", "a number", "/* * /*"),
        ("div div mod", "a number", "/div div /mod"),
        ("and and or", "a boolean", "/and and /or"),
        ("string(@x)", "a text", "string(/@x)"),
        (". | ..", "nodes", "/. | /.."),
        ("a-b.c", "nodes", "/a-b.c"),
        ("processing-instruction('x')", "nodes", "/processing-instruction('x')"),
        ("-a", "a number", "-/a"),
        ("/", "nodes", "/"),
    ],
)
def test_a_path_begins_at_the_document(path: str, kind: str, asked: str) -> None:
    found = read(path)
    assert (found.kind, found.text) == (kind, asked)


@pytest.mark.parametrize(
    "path",
    [
        *(
            "//machine[@id='7']",
            "/a/b/c[@x and d]",
            "//a[b/c = 'x']",
            "count(//a) > 3",
            "//a[last()]",
        ),
        *(
            "/a[.//b]",
            "//a[b[c[d]]]",
            "/a/b[1]/following-sibling::c",
            "(//a)[1]//b",
            "//a[position() < 3]/@x",
            "//@*",
            "sum(//v)",
        ),
    ],
)
def test_plain_questions_take_long_documents(path: str) -> None:
    assert read(path).longest == MAX_DOCUMENT


@pytest.mark.parametrize(
    ("path", "power"),
    [
        *(("//a//b", 2), ("//a[.//b]", 2), ("//a = //b", 2), ("//a[b = c]", 2), ("//a/..", 2), ("//a | //b", 2)),
        *(
            ("//a[. = //b]", 2),
            ("//a[contains(/, 'x')]", 2),
            ("/a/b/preceding-sibling::c", 3),
            ("//a[following::b]", 2),
        ),
        *(("//a/following::b", 3), ("//a[.//b[.//c]]", 3), ("//a[//b = //c]", 3), ("//a[../b]", 2)),
    ],
)
def test_what_grows_with_a_power_takes_shorter_ones(path: str, power: int) -> None:
    longest = read(path).longest
    assert {2: 4_000, 3: 512}[power] <= longest <= {2: 20_000, 3: 1_500}[power]


def test_the_work_is_bounded_whatever_the_question() -> None:
    """The worst documents we know for the worst paths we know."""
    worst = 0.0
    paths = [
        "//a//a",
        "//a[sum(//a) = 0]",
        "//a/following::a/preceding::a",
        "//a[//a != //a]",
        "//a[. = //a]",
        "//a | //b",
    ]
    for path in [*paths, "//*[contains(., 'x')]", "//a[last()]", "count(//a/ancestor::a/descendant::a)"]:
        room = read(path).longest - 7
        chain = "<a>" * 125 + "x" + "</a>" * 125
        bodies = ["<a/>" * (room // 4), chain * (room // len(chain)), "<a/><b/>" * (room // 8)]
        for body in bodies:
            begin = time.perf_counter()
            assert asker("xpath_boolean", path)(f"<r>{body}</r>") is not None
            worst = max(worst, time.perf_counter() - begin)
    assert worst < 5  # a fraction of a second when nothing else runs


@given(st.lists(st.sampled_from(SIGNS), max_size=12).map("".join) | st.text(max_size=12))
def test_any_text_is_read_or_refused_with_its_place(text: str) -> None:
    try:
        found = read(text)
    except PathError as error:
        assert 0 <= error.at <= len(text)
        assert str(error) and error.help
    else:
        assert asker("xpath_boolean", text)("<a><b/></a>") in (True, False)
        assert found.longest >= 512


@given(paths())
def test_a_filter_with_a_path_reads_back(found: tuple[str, str]) -> None:
    path = found[0]
    one = Filter(f"xpath_boolean(data, '{path.replace(chr(39), chr(39) * 2)}')")
    assert Filter(str(one)) == one
    if path.startswith("/") and not path.startswith("/*"):
        assert Filter(path) == one
        assert Filter(f"\n {path}  ") == one


def test_a_path_alone_is_a_filter() -> None:
    assert str(Filter("//machine[@id='7']")) == "xpath_boolean(data, '//machine[@id=''7'']')"
    assert str(Filter("/")) == "xpath_boolean(data, '/')"
    assert str(Filter("/* a comment */ x = 1")) == "x = 1"


def test_limits_of_a_server_hold_for_paths() -> None:
    for text in ("//abcdef", "xpath_boolean(data, '//abcdef')"):
        with pytest.raises(FilterLimitError) as caught:
            Filter(text, limits=Limits(pattern=5))
        assert caught.value.limit == "pattern"
    with pytest.raises(FilterLimitError) as caught:
        Filter("//a[.//b[.//c[.//d]]]")
    assert caught.value.limit == "xpath"


def test_without_lxml_the_filter_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> None:
        raise documents.MissingLibraryError("No module named 'lxml'")

    monkeypatch.setattr(documents, "_lxml", missing)
    with pytest.raises(FilterError) as caught:
        Filter("type = 't' AND xpath_boolean(data, '//never-asked-before')")
    assert caught.value.position == 36
    assert "pip install 'tocsin[xml]'" in str(caught.value)


def test_relations_see_a_path_as_a_whole() -> None:
    one, other = Filter("//a"), Filter("//a | //b")
    assert one.covers(one) and one.identical(Filter("xpath_boolean(data, '//a')"))
    assert not one.covers(other) and not other.covers(one)
    assert not one.disjoint(other)
    assert one.disjoint(Filter("NOT xpath_boolean(data, '//a')"))
    assert one.disjoint(Filter("data = 5"))
    assert Filter("//a").overlaps(Filter("type = 't'"))
    assert Filter("TRUE").covers(one) and one.covers(
        Filter("//a AND type = 't'".replace("//a", "xpath_boolean(data, '//a')"))
    )
    low, high = Filter("xpath_number(data, '//v') > 3"), Filter("xpath_number(data, '//v') > 5")
    assert low.covers(high) and not high.covers(low)
    merged = one.merge(Filter("//b"))
    assert merged.perfect and merged.covers(one)


def test_a_schema_checks_what_is_asked() -> None:
    schema = Schema.from_toml('[t]\nn = { type = "number" }\ndoc = { type = "text" }')
    for text in ("//a", "xpath_boolean(doc, '//a')", "xpath_string(doc, '//a') = 'x'", "xpath_int(doc, '//a') > 3"):
        assert str(schema.check_filter(Filter(text))) == str(Filter(text))
    for text in ("xpath_boolean(n, '//a')", "xpath_number(n, '//a') > 3", "xpath_string(doc, '//a') = 3"):
        with pytest.raises(FilterTypeError):
            schema.check_filter(Filter(text))


def test_other_dialects_do_not_know_it() -> None:
    with pytest.raises(FilterError, match="CloudEvents SQL"):
        from_cloudevents({"sql": "xpath_string(subject, '//a') = 'x'"})


def test_texts_searched_for_long_texts_are_shorter() -> None:
    alphabet = "abcdefghij" * 100
    assert read("//*[contains(., 'x')]").longest == 400_000
    assert 512 <= read(f"//*[translate(., '{alphabet}', '') = '1']").longest <= 2_000
    assert 512 <= read("//*[contains(/, .)]").longest <= 1_000
    with pytest.raises(PathError) as caught:
        read(f"//*[contains(concat({', '.join('.' * 100)}), '{alphabet}')]")
    assert caught.value.limit
