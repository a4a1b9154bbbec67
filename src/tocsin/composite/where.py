"""`WHERE`: a condition over named constituents, such as `b.value > a.value`.

It is written in the filter language, with the name of a constituent before each field, and is asked of what would be
detected. Where a name has several constituents the last one counts.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import datetime
from typing import Any

from msgspec.structs import force_setattr

from tocsin.composite.keys import storable
from tocsin.composite.occurrence import Occurrence
from tocsin.errors import DefinitionError
from tocsin.filters.evaluate import getter
from tocsin.filters.filter import Filter
from tocsin.filters.normal import fields
from tocsin.model import Event, time_text

__all__ = ["Needs", "accepting", "needs_of", "reader", "stored"]

Needs = tuple[tuple[str, ...], ...]
"""The fields of a constituent that a condition asks for."""


def needs_of(where: str, names: Collection[str]) -> dict[str, Needs]:
    """Which fields of which constituents a condition asks for.

    Raises:
        DefinitionError: it names a constituent that there is not, or none.
    """
    found: dict[str, set[tuple[str, ...]]] = {}
    for field in fields(Filter(where).condition):
        name, *rest = field.path
        if not rest:
            raise DefinitionError(
                f"WHERE asks for {name}, and does not say of which constituent",
                help=f"write {sorted(names)[0] if names else 'name'}.{name}, with the name given by AS",
            )
        if name not in names:
            known = ", ".join(sorted(names)) or "none"
            raise DefinitionError(
                f"WHERE asks for {'.'.join(field.path)}, but no constituent is called {name}",
                help=f"constituents get names by AS; there are: {known}",
            )
        found.setdefault(name, set()).add(tuple(rest))
    return {name: tuple(sorted(paths)) for name, paths in found.items()}


def reader(needs: Needs) -> Callable[[Event], dict[str, Any] | None]:
    """A function that takes these fields out of an event, nested as they are named."""
    if not needs:
        return lambda event: None
    getters = [(path, getter(path)) for path in needs]

    def read(event: Event) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for path, get in getters:
            value = get(event)
            if value is None:
                continue
            place = values
            for step in path[:-1]:
                place = place.setdefault(step, {})
            place[path[-1]] = stored(value)
        return values

    return read


def stored(value: Any) -> Any:
    """A value as it can be stored; what is no single value counts as missing in filters, too."""
    if isinstance(value, datetime):
        return time_text(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return storable(value)
    return value if isinstance(value, str | float | bool) else None


def accepting(where: str) -> Callable[[Occurrence], bool]:
    """The condition as a function of what would be detected."""
    matches = Filter(where).matches
    asked = Event("where", "tocsin", id="where")  # one for all: to make another would take longer than to ask it

    def accept(occurrence: Occurrence) -> bool:
        data = {part.name: part.values for part in occurrence.parts if part.values is not None}
        force_setattr(asked, "data", data)  # values of events, which were checked
        return matches(asked)

    return accept
