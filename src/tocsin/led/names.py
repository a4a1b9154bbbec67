"""Names: of events elsewhere, and of those that composites are made of.

An event elsewhere is known by three things: its name, the application and the host. They stay three: as fields of the
published event (`type`, `application`, `host`), never as one text in which they could run together.

A composite is written with names of events. `rewritten` puts in their place what a detector understands.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple
from urllib.parse import quote

import msgspec

from tocsin.composite.expression import Definition, Expression, Leaf
from tocsin.composite.printer import print_definition
from tocsin.errors import RuleError
from tocsin.filters.filter import Filter
from tocsin.filters.printer import print_scalar
from tocsin.model import Event
from tocsin.rules.contract import named

__all__ = ["REQUEST", "GlobalName", "Request", "check_place", "heard_as", "rewritten"]

REQUEST: Final = "led.request"
"""The type of the event by which an application asks another one for an event."""


class GlobalName(NamedTuple):
    """An event of an application on a host."""

    event: str
    application: str
    host: str

    @property
    def filter(self) -> str:
        """Which published events are meant, in canonical form."""
        place = f"application = {print_scalar(self.application)} AND host = {print_scalar(self.host)}"
        return str(Filter(f"{named(self.event)} AND {place}"))

    @property
    def source(self) -> str:
        """The source of its events."""
        return f"led/{quote(self.host, safe='')}/{quote(self.application, safe='')}"


class Request(NamedTuple):
    """Somebody wants an event, in a context."""

    of: GlobalName
    context: str

    @property
    def attributes(self) -> dict[str, str]:
        """As attributes of the event that asks."""
        event, application, host = self.of
        return {"event": event, "application": application, "host": host, "context": self.context}

    @classmethod
    def read(cls, event: Event) -> Request | None:
        """Undo `attributes`; None: this is no request."""
        found = [event.attributes.get(key) for key in ("event", "application", "host", "context")]
        if event.type != REQUEST or not all(isinstance(each, str) for each in found):
            return None
        texts: list[Any] = found
        return cls(GlobalName(*texts[:3]), texts[3])


def check_place(text: object, what: str) -> str:
    """Refuse what cannot name an application or a host.

    Raises:
        RuleError: it is empty, too long, or not printable.
    """
    if not isinstance(text, str) or not 0 < len(text) <= 200 or not text.isprintable():
        raise RuleError(f"{text!r} is no name of {what}", field="name", help="give up to 200 printable characters")
    return text


def rewritten(definition: Definition, leaf_of: Callable[[str], Leaf]) -> str:
    """The text of a definition with something else in place of names; filters and aliases stay."""

    def walk(expression: Expression) -> Expression:
        if not isinstance(expression, Leaf):
            return msgspec.structs.replace(expression, of=tuple(walk(each) for each in expression.of))
        if expression.definition is None:
            return expression
        return msgspec.structs.replace(leaf_of(expression.definition), alias=expression.alias)

    return print_definition(msgspec.structs.replace(definition, expression=walk(definition.expression)))


def heard_as(name: str) -> Leaf:
    """The leaf of an agent's events of a name."""
    return Leaf(filter=str(Filter(named(name))))
