"""What a rule of an agent gets: an event that has happened, with the very objects it is about.

Filters see the event's fields, which are the parameters that JSON can hold; conditions and actions see all of them.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, NamedTuple

from tocsin.model import Event
from tocsin.payload import is_plain

__all__ = ["Occurrence", "Part", "fields"]


class Part(NamedTuple):
    """A constituent of a composite event."""

    name: str
    """As the definition calls it; e1, e2 … if it does not."""
    of: Occurrence | None
    """What happened; None: a timer's tick, or something another application has seen."""
    about: Mapping[str, Any]
    """As the detected event has it: offset, id, source; of a tick, its time."""


class Occurrence:
    """An event that has happened."""

    __slots__ = ("context", "event", "instance", "name", "params", "parts")

    def __init__(
        self,
        name: str,
        event: Event,
        params: Mapping[str, Any],
        instance: object = None,
        parts: tuple[Part, ...] = (),
        context: str | None = None,
    ) -> None:
        """Put it together."""
        self.name = name
        self.event = event
        """The same as filters see it."""
        self.params = params
        """Parameters by name: the objects themselves. Of a composite, see `parts`."""
        self.instance = instance
        """The object whose method it was, if there is one."""
        self.parts = parts
        """Constituents of a composite, in order of their roles."""
        self.context = context
        """In which a composite was detected."""

    def __getitem__(self, key: str) -> Any:
        """A parameter; of a composite, the last constituent of that name, or of the event of that name.

        Raises:
            KeyError: there is none.
        """
        if not self.parts:
            return self.params[key]
        for part in reversed(self.parts):
            if part.of is not None and key in (part.name, part.of.name):
                return part.of
        raise KeyError(key)

    def __repr__(self) -> str:
        """Show what it is."""
        about = ", ".join(part.name for part in self.parts) if self.parts else dict(self.params)
        return f"Occurrence({self.name!r}, {about})"


def fields(params: Mapping[str, Any]) -> dict[str, Any]:
    """Those parameters that JSON can hold, as they are at this moment."""
    found: dict[str, Any] = {}
    for name, value in params.items():
        kind = type(value)
        if kind in (dict, list):
            if is_plain({name: value}):
                found[name] = copy.deepcopy(value)
        elif is_plain({name: value}):
            found[name] = value
    return found
