"""XML documents and the questions filters ask of them: lxml, kept on a short lead.

A text is parsed once, however many filters look at it: the last few documents of each thread are kept. A document that
cannot be asked gives NULL, never an error, and is counted by reason (`refused`):

    doctype     `<!DOCTYPE` is in it: no DTD, hence no entity, is ever read
    long        longer than the question allows (`xpath.Path.longest`)
    malformed   no well-formed XML, a prefix that is not declared, elements more than 255 deep
    failed      libxml2 gave up on the question

Namespaces are ignored: elements and attributes go by their names without prefix. An attribute keeps its prefix, and
cannot be named, where the element has another of the same name.

Promised: nothing is fetched, from disk or network; no entity is expanded but the five of XML and `&#65;`. An answer
depends on text and question alone. Not promised: names longer than 50,000 characters, and the time a question takes
beyond what `xpathcost` bounds.
"""

from __future__ import annotations

import functools
import math
import re
import struct
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

from tocsin.filters import xpath
from tocsin.filters.xpathcost import BOOLEAN, NUMBER

__all__ = ["DOCTYPE", "MissingLibraryError", "asker", "refused"]

DOCTYPE = "<!DOCTYPE"
"""What must not be in a document."""
_BYTE_ORDER_MARK = "\ufeff"  # lxml would skip it, Java does not
_KEPT_DOCUMENTS, _KEPT_CHARACTERS = 256, 262_144  # a tree takes some thirty times its text
_NUMBER = re.compile(r"[ \t\r\n]*(-?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+))[ \t\r\n]*")

_refused: Counter[str] = Counter()
_refused_lock = threading.Lock()


class MissingLibraryError(Exception):
    """XPath needs lxml, which is not installed."""


def refused() -> dict[str, int]:
    """Count the questions that were answered with NULL because of the document, by reason, since the process began."""
    with _refused_lock:
        return dict(_refused)


@functools.lru_cache(maxsize=4096)
def asker(function: str, path: str) -> Callable[[object], Any]:
    """Return the function that asks `path` of a value, as Spark SQL's `function` does; NULL if that is no document.

    Raises:
        xpath.PathError: the path is not taken.
        MissingLibraryError: lxml is not there.
    """
    known, etree = xpath.read(path), _lxml()
    convert: Callable[[Any], Any] = _NUMBERS.get(function, lambda value: value)
    if function == "xpath_boolean":
        wanted = "boolean"
    elif function in _NUMBERS and known.kind in (NUMBER, BOOLEAN):
        wanted = "number"
    else:
        wanted = "string"
        if function in _NUMBERS:  # not by libxml2, which also reads 1e3 and rounds in its own way
            inner = convert
            convert = lambda text: inner(_as_number(text))  # noqa: E731
    try:
        question = etree.XPath(f"{wanted}({known.text})", smart_strings=False)
    except etree.XPathError as error:
        raise xpath.PathError(str(error).lower(), "write it as XPath 1.0 says") from None

    def ask(text: object) -> Any:
        if not isinstance(text, str):
            return None
        if len(text) > known.longest:
            return _refuse("long")
        if (tree := _library.tree(text)) is None:
            return _refuse("doctype" if DOCTYPE in text else "malformed")
        try:
            return convert(question(tree))
        except etree.XPathError:
            return _refuse("failed")

    return ask


def _refuse(reason: str) -> None:
    with _refused_lock:
        _refused[reason] += 1


@functools.cache
def _lxml() -> Any:
    try:
        from lxml import etree
    except ImportError as error:
        raise MissingLibraryError(str(error)) from error
    return etree


class _Library(threading.local):
    """The last documents of a thread: trees by their texts, the oldest first; None for what is none."""

    def __init__(self) -> None:
        self._trees: dict[str, Any] = {}
        self._characters = 0
        self._parser: Any = None

    def tree(self, text: str) -> Any:
        """Return the parsed text, or None."""
        try:
            return self._trees[text]
        except KeyError:
            pass
        tree = None if text.startswith(_BYTE_ORDER_MARK) or DOCTYPE in text else self._parsed(text)
        self._trees[text] = tree
        self._characters += len(text)
        while len(self._trees) > 1 and (len(self._trees) > _KEPT_DOCUMENTS or self._characters > _KEPT_CHARACTERS):
            oldest = next(iter(self._trees))
            del self._trees[oldest]
            self._characters -= len(oldest)
        return tree

    def _parsed(self, text: str) -> Any:
        etree = _lxml()
        if self._parser is None:
            self._parser = etree.XMLParser(
                encoding="utf-8",  # the text is decoded already, whatever its first line says
                resolve_entities=False,
                no_network=True,
                load_dtd=False,
                dtd_validation=False,
                huge_tree=False,
            )
        try:
            root = etree.fromstring(text.encode(), self._parser)
        except (etree.XMLSyntaxError, UnicodeEncodeError):
            return None
        if "xmlns" in text or "xml:" in text:
            for element in root.iter(etree.Element):
                _drop_namespaces(element)
        return root.getroottree()


def _drop_namespaces(element: Any) -> None:
    if element.tag[0] == "{":
        element.tag = element.tag.rpartition("}")[2]
    for name, value in element.attrib.items():
        plain = name.rpartition("}")[2]
        if plain not in element.attrib:
            del element.attrib[name]
            element.attrib[plain] = value


_library = _Library()


# -- numbers, as Java makes them


def _as_number(text: str) -> float:
    found = _NUMBER.fullmatch(text)
    return float(found[1]) if found else math.nan


def _whole(value: float, bits: int) -> int:
    """Cut off the fraction; NaN is 0, and what is too large becomes the largest."""
    limit = 1 << (bits - 1)
    if math.isnan(value):
        return 0
    if math.isinf(value):
        return limit - 1 if value > 0 else -limit
    return max(-limit, min(limit - 1, int(value)))


def _short(value: float) -> int:
    """Keep the lowest 16 of 32 bits."""
    return (_whole(value, 32) + (1 << 15)) % (1 << 16) - (1 << 15)


def _single(value: float) -> float:
    """Round to single precision."""
    try:
        return float(struct.unpack("f", struct.pack("f", value))[0])
    except OverflowError:
        return math.copysign(math.inf, value)


_NUMBERS: dict[str, Callable[[float], float | int]] = {
    "xpath_number": float,
    "xpath_double": float,
    "xpath_float": _single,
    "xpath_int": lambda value: _whole(value, 32),
    "xpath_long": lambda value: _whole(value, 64),
    "xpath_short": _short,
}
