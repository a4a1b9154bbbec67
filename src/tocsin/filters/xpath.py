"""XPath 1.0 as filters take it: read, typed, and weighed before anything is asked.

    text ─ tokens ─▶ recursive descent ─▶ Path: what it gives, how long a document may be, its text for lxml

libxml2 and Java's JAXP, which Spark uses, both evaluate XPath 1.0. Accepted is what the two read alike. Refused, each
with its place: prefixes (namespaces are ignored), variables, `id`, `lang`, `name`, `namespace-uri`, the namespace axis,
a number where a text belongs (the two spell numbers differently), `|` beside other operators, and outside square
brackets `position()` and its kin.

XPath can take time that grows with a power of the document, `//a[.//b]` with the square. `xpathcost` finds the power,
and `Path.longest` is the length of document up to which the work stays bounded. No clock is needed, and every evaluator
refuses the same documents.

Promised: no text raises anything but `PathError`. Not here: documents (`documents`), what is asked of them.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import NamedTuple

import msgspec

from tocsin.filters import xpathcost
from tocsin.filters.xpathcost import BOOLEAN, LOCAL_AXES, NODES, NUMBER, TEXT, Part

__all__ = ["Path", "PathError", "read"]

MIN_DOCUMENT = 512
"""A path that could only be asked of shorter documents is refused."""
_MAX_OPERATORS, _MAX_GROUPS = 64, 10  # Java refuses more than 100 and 10
_MAX_DEPTH = 16  # brackets inside each other; each takes ten Python frames of the 1,000

_TOKEN = re.compile(
    r"""(?P<blank>[ \t\r\n]+)|(?P<number>[0-9]+(?:\.[0-9]*)?|\.[0-9]+)|(?P<literal>"[^"]*"|'[^']*')"""
    r"""|(?P<name>[^\W\d][\w.·-]*)|(?P<symbol>::|//|\.\.|!=|<=|>=|[/|+\-=<>*()\[\],@.])"""
)
_OPERATORS = frozenset(["/", "//", "|", "+", "-", "*", "div", "mod", "=", "!=", "<", "<=", ">", ">=", "and", "or"])
_NODE_TYPES = frozenset(["node", "text", "comment", "processing-instruction"])
_AXES = LOCAL_AXES | {
    *("parent", "ancestor", "ancestor-or-self", "descendant", "descendant-or-self"),
    *("following", "following-sibling", "preceding", "preceding-sibling"),
}
_ANY = "anything"
_CONTEXT = frozenset(["string", "number", "normalize-space", "string-length", "local-name"])  # without argument: of `.`
# What a function takes (a star repeats the last), how many arguments it needs, what it gives.
_FUNCTIONS: dict[str, tuple[tuple[str, ...], int, str]] = {
    **dict.fromkeys(["last", "position"], ((), 0, NUMBER)),
    **dict.fromkeys(["count", "sum"], ((NODES,), 1, NUMBER)),
    "local-name": ((), 0, TEXT),  # Java makes local-name(//*) the name of a comment, if that comes first
    "string": ((TEXT,), 0, TEXT),
    "concat": ((TEXT, TEXT, "*"), 2, TEXT),
    **dict.fromkeys(["starts-with", "contains"], ((TEXT, TEXT), 2, BOOLEAN)),
    **dict.fromkeys(["substring-before", "substring-after"], ((TEXT, TEXT), 2, TEXT)),
    "substring": ((TEXT, NUMBER, NUMBER), 2, TEXT),
    "string-length": ((TEXT,), 0, NUMBER),
    "normalize-space": ((TEXT,), 0, TEXT),
    "translate": ((TEXT, TEXT, TEXT), 3, TEXT),
    **dict.fromkeys(["boolean", "not"], ((_ANY,), 1, BOOLEAN)),
    **dict.fromkeys(["true", "false"], ((), 0, BOOLEAN)),
    "number": ((NUMBER,), 0, NUMBER),
    **dict.fromkeys(["floor", "ceiling", "round"], ((NUMBER,), 1, NUMBER)),
}
_SEARCHES = frozenset(["contains", "substring-before", "substring-after", "translate"])
_REFUSED_FUNCTIONS = {
    "name": "namespaces are ignored: write local-name()",
    "namespace-uri": "namespaces are ignored: a names a and p:a alike",
    "id": "without a DTD nothing is an id: write //*[@id='…']",
    "lang": "write ancestor-or-self::*/@lang = 'en'",
}
_SIGNS = {"$": "there are no variables: write the value itself", ":": "namespaces are ignored: write b for p:b"}
_STEP = "a step is a name, *, @name, text(), . or .."


class PathError(Exception):
    """An XPath that is not taken: why, how to mend it, and where (0 is its first character)."""

    def __init__(self, message: str, help: str, at: int = 0, limit: bool = False) -> None:
        """Build the error; `limit`: it is well written, but too large."""
        super().__init__(message)
        self.help, self.at, self.limit = help, at, limit


class Path(msgspec.Struct, frozen=True):
    """An XPath that was read."""

    text: str
    """For libxml2: paths that begin at the document say so, since lxml begins them at its root element."""
    kind: str
    """What it gives."""
    longest: int
    """Characters of the longest document it may be asked of."""


class _Token(NamedTuple):
    kind: str
    text: str
    at: int


@functools.lru_cache(maxsize=4096)
def read(text: str) -> Path:
    """Read an XPath 1.0 expression.

    Raises:
        PathError: it is none, or not taken here.
    """
    return _Reader(text).whole()


def _split(text: str) -> list[_Token]:
    tokens: list[_Token] = []
    at = 0
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None:
            sign = text[at]
            if sign in "'\"":
                raise PathError("a text is not closed", f"close it: {sign}", at)
            raise PathError(f"{sign!r} is not expected here", _SIGNS.get(sign, "it has no meaning in XPath"), at)
        if found.lastgroup != "blank":
            tokens.append(_Token(str(found.lastgroup), found.group(), at))
        at = found.end()
    tokens.append(_Token("end", "", len(text)))
    return tokens


class _Reader:
    """One recursive descent; `inside` counts the square brackets around."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = _split(text)
        self._at = 0
        self._inside = 0
        self._depth = -1  # the whole is no bracket
        self._work = self._reads = 0
        self._counts = {"operators": 0, "groups": 0}
        self._union_at, self._joined = -1, False  # in the expression around: the last |, and is there another operator?
        self._begins: list[int] = []  # where a relative path begins that starts at the document

    def whole(self) -> Path:
        if len(self._tokens) == 1:
            raise PathError("the XPath is empty", "write / to ask for any XML document")
        part = self._expression()
        if self._now.kind != "end":
            raise self._unexpected("an operator or the end would be")
        power, longest = xpathcost.longest(part, self._work, self._reads)
        if longest < MIN_DOCUMENT:
            message = f"the work for this XPath grows with the power {power} of the document"
            raise PathError(message, "use fewer of // and following:: inside each other", limit=True)
        text = self._text
        for begin in reversed(self._begins):
            text = f"{text[:begin]}/{text[begin:]}"
        return Path(text, part.kind, longest)

    # -- tokens

    @property
    def _now(self) -> _Token:
        return self._tokens[self._at]

    def _take(self, *texts: str) -> _Token | None:
        """The token here, if it is one of these signs or words."""
        token = self._now
        if token.text not in texts or token.kind not in ("symbol", "name"):
            return None
        self._at += 1
        if token.text in _OPERATORS:
            self._work += 1
            self._count("operators", _MAX_OPERATORS, token)
        return token

    def _count(self, what: str, most: int, token: _Token) -> None:
        self._counts[what] += 1
        if self._counts[what] > most:
            raise PathError(f"an XPath has {most} {what} at most", "split it into two conditions", token.at, True)

    def _expect(self, sign: str) -> None:
        if self._take(sign) is None:
            raise self._unexpected(f"{sign} would be")

    def _unexpected(self, help: str) -> PathError:
        token = self._now
        if token.kind == "end":
            return PathError("the XPath ends too early", help, token.at)
        return PathError(f"{token.text[:40]!r} is not expected here", help, token.at)

    # -- operators, from the loosest

    def _expression(self) -> Part:
        """A whole expression: all there is, a condition in square brackets, an argument."""
        around = self._union_at, self._joined
        self._union_at, self._joined = -1, False
        part = self._deeper(self._or)
        if self._union_at >= 0 and self._joined:  # Java loses its way in these
            raise PathError("| does not stand beside other operators", "write //a = 1 or //b = 1", self._union_at)
        self._union_at, self._joined = around
        return part

    def _chain(self, below: Callable[[], Part], operators: tuple[str, ...], kind: str) -> Part:
        part = below()
        while self._take(*operators):
            self._joined = True
            other = below()
            self._reads += part.kind == NODES or other.kind == NODES
            compared = kind == BOOLEAN and operators[0] not in ("or", "and")
            part = xpathcost.combined(part, other, kind, compared)
        return part

    def _or(self) -> Part:
        return self._chain(self._and, ("or",), BOOLEAN)

    def _and(self) -> Part:
        return self._chain(self._equality, ("and",), BOOLEAN)

    def _equality(self) -> Part:
        return self._chain(self._relation, ("=", "!="), BOOLEAN)

    def _relation(self) -> Part:
        return self._chain(self._sum, ("<", "<=", ">", ">="), BOOLEAN)

    def _sum(self) -> Part:
        return self._chain(self._product, ("+", "-"), NUMBER)

    def _product(self) -> Part:
        return self._chain(self._unary, ("*", "div", "mod"), NUMBER)

    def _unary(self) -> Part:
        if self._take("-") is None:
            return self._union()
        self._joined = True
        if self._now.text == "-":
            raise self._unexpected("one minus is enough")
        return self._union().read()._replace(kind=NUMBER)

    def _union(self) -> Part:
        first = self._at
        part = self._path()
        while sign := self._take("|"):
            begin = self._now.at
            more = self._path()
            for one, at in ((part, self._tokens[first].at), (more, begin)):
                if one.kind != NODES:
                    raise PathError(f"| joins nodes, and this is {one.kind}", "write or between conditions", at)
            part = xpathcost.united(part, more)
            self._union_at = sign.at
        return part

    # -- paths

    def _path(self) -> Part:
        token, behind = self._now, self._tokens[min(self._at + 1, len(self._tokens) - 1)]
        if token.kind in ("number", "literal"):
            self._at += 1
            part = Part(NUMBER if token.kind == "number" else TEXT, each=0)
        elif token.text == "(" and token.kind == "symbol":
            part = self._group()
        elif token.kind == "name" and behind.text == "(" and token.text not in _NODE_TYPES:
            part = self._call()
        else:
            return self._location()
        if self._now.text not in ("[", "/", "//") or self._now.kind != "symbol":
            return part
        if part.kind != NODES:
            raise self._unexpected(f"this is {part.kind}, and only nodes have what stands behind / and in [ ]")
        part = self._predicates(Part(NODES), part, "self")
        return self._steps(part) if self._now.text in ("/", "//") else part

    def _group(self) -> Part:
        self._count("groups", _MAX_GROUPS, self._now)
        self._expect("(")
        part = self._deeper(self._or)
        self._expect(")")
        return part

    def _deeper(self, read: Callable[[], Part]) -> Part:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise PathError(f"brackets stand more than {_MAX_DEPTH} deep", "split the XPath in two", self._now.at, True)
        part = read()
        self._depth -= 1
        return part

    def _location(self) -> Part:
        token = self._now
        part = Part(NODES, local=token.text not in ("/", "//"))
        if token.text == "/" and token.kind == "symbol" and not self._begins_step(self._tokens[self._at + 1]):
            self._take("/")
            return part._replace(each=1)
        if part.local:
            if not self._inside:
                self._begins.append(token.at)
            part = self._step(part, at_root=not self._inside)
        elif token.text == "/":
            self._take("/")
            part = self._step(part, at_root=True)
        return self._steps(part)

    def _begins_step(self, token: _Token) -> bool:
        return token.kind == "name" or (token.kind == "symbol" and token.text in ("*", "@", ".", ".."))

    def _steps(self, part: Part) -> Part:
        while sign := self._take("/", "//"):
            if sign.text == "//":
                part = xpathcost.stepped(part, "descendant-or-self", False)
            part = self._step(part)
        return part

    def _step(self, before: Part, at_root: bool = False) -> Part:
        """One step; `at_root`: from the document, which has one child that is an element."""
        self._work += 1
        token = self._now
        if self._take(".", ".."):
            if self._now.text == "[" and self._now.kind == "symbol":
                raise self._unexpected("write self::node()[…] or parent::node()[…]")
            return xpathcost.stepped(before, "self" if token.text == "." else "parent", True)
        axis = "child"
        if self._take("@"):
            axis = "attribute"
        elif token.kind == "name" and self._tokens[self._at + 1].text == "::":
            axis = token.text
            if axis not in _AXES:
                help = f"there are {', '.join(sorted(_AXES))}"
                raise PathError(f"there is no axis {axis[:40]}", help, token.at)
            self._at += 2
        test = self._test()
        narrow = axis in ("self", "parent") or (axis == "attribute" and test == "name")
        narrow = narrow or (at_root and axis == "child" and test != "type")
        return self._predicates(before, xpathcost.stepped(before, axis, narrow), axis)

    def _test(self) -> str:
        """A name, * or a type of node; return which."""
        token = self._now
        if self._take("*"):
            self._counts["operators"] -= 1  # it was none
            return "*"
        if token.kind != "name":
            raise self._unexpected(_STEP)
        self._at += 1
        if self._now.text != "(" or self._now.kind != "symbol":
            return "name"
        if token.text not in _NODE_TYPES:
            raise PathError(f"a step has no function {token.text[:40]}()", _STEP, token.at)
        self._expect("(")
        if token.text == "processing-instruction" and self._now.kind == "literal":
            self._at += 1
        self._expect(")")
        return "type"

    def _predicates(self, before: Part, part: Part, axis: str) -> Part:
        while self._take("["):
            self._inside += 1
            test = self._expression()
            self._inside -= 1
            self._expect("]")
            part = xpathcost.where(before, part, axis, test)
        return part

    # -- functions

    def _call(self) -> Part:
        name = self._now
        self._work += 1
        if name.text not in _FUNCTIONS:
            help = _REFUSED_FUNCTIONS.get(name.text, f"there are {', '.join(sorted(_FUNCTIONS))}")
            raise PathError(f"the function {name.text[:40]} is not taken here", help, name.at)
        if name.text in ("last", "position") and not self._inside:
            raise PathError(f"{name.text}() belongs in square brackets", f"write //a[{name.text}() = 1]", name.at)
        takes, least, gives = _FUNCTIONS[name.text]
        self._at += 1
        self._expect("(")
        given: list[tuple[Part, int]] = []
        begin, reads = self._at, self._reads
        while self._now.text != ")" or self._now.kind != "symbol":
            if given:
                self._expect(",")
            at = self._now.at
            given.append((self._expression(), at))
        self._expect(")")
        most = None if takes[-1:] == ("*",) else len(takes)
        if len(given) < least or (most is not None and len(given) > most):
            wanted = f"{least} or more" if most is None else f"{least} to {most}" if least != most else str(least)
            wanted += " argument" + "s" * (wanted != "1")
            help = "write //*[local-name() = 'a']" if name.text == "local-name" else "separate them by commas"
            raise PathError(f"{name.text} takes {wanted}, not {len(given)}", help, name.at)
        if not given and name.text in _CONTEXT:
            if not self._inside:
                raise PathError(f"{name.text}() without an argument belongs in square brackets", "say of what", name.at)
            self._reads += 1
            return Part(gives, 1, 1)
        once, each = 0, int(name.text == "position")
        for place, (part, at) in enumerate(given):
            wanted = takes[min(place, len(takes) - 1 - (most is None))]
            if wanted == NODES and part.kind != NODES:
                raise PathError(f"{name.text} takes nodes, and this is {part.kind}", "write a path", at)
            if wanted == TEXT and part.kind == NUMBER:
                raise PathError("a number is not turned into a text", "compare it as a number", at)
            if wanted in (TEXT, NUMBER) or name.text == "sum":
                part = part.read()
                self._reads += part.kind == NODES
            once, each = max(once, part.once), max(each, part.each)
        if name.text in _SEARCHES:  # each character of the first against each of the others
            letters = sum(len(token.text) for token in self._tokens[begin : self._at] if token.kind == "literal")
            self._reads += (self._reads - reads) * letters
            if any(part.each for part, _ in given[1:]):
                once, each = max(once, 2), max(once, 2) + 1
        return Part(gives, once, each)
