"""What a back-test is asked: a text that is a filter, a composite event or the name of one, and where to look.

    text ─▶ the name of a definition that the node has    it is tested as it is, context and semantics included
          ─▶ a filter
          ─▶ a composite event, which may name definitions that the node has

Everything that can be wrong is found here, without Spark. What a node has defined is in its journal, or is asked of
it; a lake has no definitions.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from contextlib import closing
from typing import NamedTuple

import msgspec

from tocsin.composite.detector import Detector
from tocsin.composite.expression import Definition, leaves
from tocsin.composite.language import parse
from tocsin.errors import DefinitionError, FilterError, ForbiddenError
from tocsin.filters.filter import Filter
from tocsin.node.watcher import stored_definitions
from tocsin.spark.asking import Address, Asker, is_address
from tocsin.spark.detecting import Given, checked
from tocsin.spark.origin import open_origin
from tocsin.spark.stretch import Moment, Stretch, stretch_of

__all__ = ["Question", "asked"]

_COMPOSITE = re.compile(r"\s*(\[|AT\b|(OR|AND|SEQ|NOT|A\*?|P\*?|PLUS|ANY)\s*\()", re.IGNORECASE)
"""How the text of a composite event begins, if it is not a name. A filter may begin with NOT( as well."""
_NAME = re.compile(r"\s*[\w.\-]+\s*")
"""What may be the name of a definition."""


class Question(NamedTuple):
    """A back-test that can be run: the text was understood, and there is something to look at."""

    wanted: Filter | Definition
    family: tuple[Definition, ...]
    """A composite event and those it is made of, itself last."""
    stretch: Stretch


def asked(
    place: str | os.PathLike[str],
    text: str,
    *,
    since: Moment = None,
    until: Moment = None,
    context: str = "recent",
    semantics: str = "detection",
    name: str = "backtest",
    definitions: Mapping[str, Given] | None = None,
    lake: str | os.PathLike[str] | None = None,
    token: str | None = None,
    ca: str | None = None,
) -> Question:
    """Check everything that can be wrong, without Spark; arguments and errors are those of `backtest`."""
    wanted = _read(text, name, context, semantics)
    stretch = stretch_of(place, since, until, lake=lake, token=token, ca=ca)
    is_named = isinstance(wanted, Definition) and any(leaf.definition for leaf in leaves(wanted.expression))
    if is_named or _NAME.fullmatch(text):  # else there is no need to know what is defined
        defined = _defined(stretch) if definitions is None else checked(definitions) if definitions else []
        known = {each.name: each for each in defined}
        if text.strip() in known:
            wanted = known[text.strip()]
        elif is_named:
            wanted = parse(name, text, context, semantics, known=known)
        if isinstance(wanted, Definition):
            whole = Detector.of(checked({**known, wanted.name: wanted}))
            return Question(wanted, tuple(whole.family(wanted.name)), stretch)
    return Question(wanted, (wanted,) if isinstance(wanted, Definition) else (), stretch)


def _read(text: str, name: str, context: str, semantics: str) -> Filter | Definition:
    """A filter, if it can be one, else a composite event, whatever it names."""
    try:
        return Filter(text)
    except FilterError as error:
        bad_filter = error
    try:
        return parse(name, text, context, semantics)
    except DefinitionError:
        if _COMPOSITE.match(text):
            raise
        raise bad_filter from None


class _Told(msgspec.Struct):
    """What a node tells of a definition."""

    name: str
    text: str
    context: str
    semantics: str


def _defined(stretch: Stretch) -> list[Definition]:
    """What is defined where the events are."""
    if not is_address(stretch.url):
        with closing(open_origin(stretch.url)) as origin:
            return stored_definitions(origin)[0].whole.definitions()
    with closing(Asker(Address(stretch.url, stretch.token, stretch.ca, patience=0))) as asker:
        try:
            told = msgspec.json.decode(asker.ask("GET", "/definitions").body, type=list[_Told])
        except ForbiddenError:  # it is then said which name is not known
            return []
    return [parse(each.name, each.text, each.context, each.semantics) for each in told]
