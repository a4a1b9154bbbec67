"""XML from strangers: parsed once, never trusted, refused with NULL and counted."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from tocsin import Event, Filter, Matcher
from tocsin.filters import documents
from tocsin.filters.documents import asker, refused


def counted(reason: str) -> int:
    return refused().get(reason, 0)


def xml(text: str) -> Event:
    return Event("t", "s", data=text, datacontenttype="application/xml")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("<a>", "malformed"),
        ("", "malformed"),
        ("<p:a/>", "malformed"),
        ("\ufeff<a/>", "malformed"),
        ("<a>" * 300 + "</a>" * 300, "malformed"),
        ("<!DOCTYPE a><a/>", "doctype"),
        ("<a>" + " " * 1_048_576 + "</a>", "long"),
    ],
)
def test_what_is_refused_is_null_and_counted(text: str, reason: str) -> None:
    before = counted(reason)
    assert Filter("//a").evaluate(xml(text)) is None
    assert Filter("xpath_number(data, '//a') IS NULL").evaluate(xml(text)) is True
    assert counted(reason) == before + 2


def test_a_question_libxml2_gives_up_on_is_null_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    etree = documents._lxml()

    class Failing:
        def __init__(self, text: str, smart_strings: bool) -> None: ...

        def __call__(self, tree: object) -> object:
            raise etree.XPathEvalError("memory")

    monkeypatch.setattr(etree, "XPath", Failing)
    before = counted("failed")
    assert asker.__wrapped__("xpath_boolean", "//a")("<a/>") is None
    assert counted("failed") == before + 1


def test_no_file_is_read(tmp_path: Path) -> None:
    """XXE: in the document, by an external DTD, by parameter entities, by XInclude."""
    secret = tmp_path / "secret"
    secret.write_text("<x>secret</x>")
    for text in (
        f'<!DOCTYPE a [<!ENTITY e SYSTEM "file://{secret}">]><a>&e;</a>',
        f'<!DOCTYPE a SYSTEM "file://{secret}"><a/>',
        f'<!DOCTYPE a [<!ENTITY % e SYSTEM "file://{secret}"> %e;]><a/>',
    ):
        assert asker("xpath_string", "/*")(text) is None
    include = f'<a xmlns:xi="http://www.w3.org/2001/XInclude"><xi:include href="file://{secret}"/></a>'
    assert asker("xpath_string", "/*")(include) == ""
    assert asker("xpath_boolean", "//include")(include) is True
    assert asker("xpath_boolean", "//a")(f'<?xml-stylesheet href="file://{secret}"?><a/>') is True


def test_no_laughs() -> None:
    levels = "".join(f'<!ENTITY l{n + 1} "{f"&l{n};" * 10}">' for n in range(9))
    text = f'<?xml version="1.0"?><!DOCTYPE a [<!ENTITY l0 "ha">{levels}]><a>&l9;</a>'
    assert asker("xpath_string", "/a")(text) is None


@pytest.mark.parametrize("path", ["document('file:///etc/passwd')", "unparsed-entity-uri('x')", "re:test('a', 'a')"])
def test_no_functions_of_others(path: str) -> None:
    with pytest.raises(documents.xpath.PathError):
        asker("xpath_boolean", path)


@pytest.mark.parametrize(
    ("text", "path", "answer"),
    [
        ("<p:a xmlns:p='u'><p:b p:x='1'/></p:a>", "/a/b/@x", "1"),
        ("<a xmlns='u'><b xmlns=''/></a>", "/a/b", ""),
        ("<a xml:lang='sv'>x</a>", "/a[@lang = 'sv']", "x"),
        ("<a xmlns:p='u' x='1' p:x='2'/>", "/a/@x", "1"),
        ("<a><![CDATA[<b>]]>&amp;</a>", "/a/text()", "<b>&"),
        ("<?xml version='1.0' encoding='UTF-16'?><a>é😀</a>", "/a", "é😀"),
        ("<a>x<!-- c -->y<?p i?>z</a>", "/a", "xyz"),
        ("<a>\r\n</a>", "/a", "\n"),
    ],
)
def test_namespaces_are_ignored_and_texts_are_as_written(text: str, path: str, answer: str) -> None:
    assert asker("xpath_string", path)(text) == answer


def test_a_payload_is_parsed_once_for_all_filters(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[str] = []
    parse = documents._Library._parsed

    def counting(self: Any, text: str) -> Any:
        parsed.append(text)
        return parse(self, text)

    monkeypatch.setattr(documents._Library, "_parsed", counting)
    matcher = Matcher()
    for n in range(50):
        matcher.add(f"b{n}", f"//m[@id = '{n}']")
        matcher.add(f"s{n}", f"xpath_string(data, '//m/@id') = '{n}'")
        matcher.add(f"n{n}", f"xpath_number(data, '//m/@id') = {n} AND type = 't'")
    events = [xml(f"<once><m id='{n}'/></once>") for n in range(40)]
    for n, event in enumerate(events):
        assert sorted(matcher.match(event)) == [f"b{n}", f"n{n}", f"s{n}"]
    assert len(parsed) == 40
    assert [sorted(found) for found in matcher.match_batch(events)] == [[f"b{n}", f"n{n}", f"s{n}"] for n in range(40)]
    assert len(parsed) == 40


def test_what_is_kept_is_bounded() -> None:
    library = documents._Library()
    for n in range(2_000):
        library.tree(f"<a>{n}</a>")
    assert len(library._trees) == documents._KEPT_DOCUMENTS
    for n in range(20):
        library.tree(f"<a>{n}{' ' * 100_000}</a>")
    assert library._characters == sum(map(len, library._trees)) <= documents._KEPT_CHARACTERS
    assert library.tree("<a>" + " " * 500_000 + "</a>") is not None
    assert len(library._trees) == 1


def test_threads_ask_at_once() -> None:
    ask, wrong = asker("xpath_number", "sum(//v) + count(//v[. > 2])"), []

    def work(seed: int) -> None:
        for n in range(300):
            text = "<r>" + "".join(f"<v>{k}</v>" for k in range((n + seed) % 5 + 1)) + "</r>"
            last = (n + seed) % 5
            if ask(text) != last * (last + 1) / 2 + max(0, last - 2):
                wrong.append(text)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_stored_matcher_asks_again() -> None:
    matcher = Matcher()
    matcher.add("seven", "//machine[@id='7']")
    matcher.add("value", "xpath_number(data, '//v') > 3 AND xpath_boolean(data, '//v')")
    again = Matcher.from_bytes(matcher.to_bytes())
    assert again.match(xml("<r><machine id='7'/></r>")) == ["seven"]
    assert again.match(xml("<r><v>4</v></r>")) == ["value"]
    assert matcher.stats()["with_residue"] == 2
