"""Scope: what somebody may see, as a test of an event and as a filter.

Two conditions: the type begins as a right to subscribe says, and the classification is within the clearance. A
subscription's filter is joined with that, so what lies outside is never matched: not live, not in the past, not in a
replay. Both forms say the same; `tests/security/test_scope.py` holds them together.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tocsin.composite.leaves import SYSTEM
from tocsin.errors import TokenError
from tocsin.filters.filter import Filter
from tocsin.filters.limits import DEFAULT, Limits
from tocsin.filters.printer import print_scalar
from tocsin.model import CLASSIFICATION, Event
from tocsin.security.rights import Rights

__all__ = ["Scope", "check_clearance", "types_filter"]


def check_clearance(clearance: str) -> int:
    """The place of a clearance among all.

    Raises:
        TokenError: it is none.
    """
    if clearance not in CLASSIFICATION:
        raise TokenError(
            f"{clearance[:80]!r} is no clearance", field="clearance", help=f"give one of {', '.join(CLASSIFICATION)}"
        )
    return CLASSIFICATION.index(clearance)


class Scope:
    """What somebody may see."""

    def __init__(self, rights: Rights, clearance: str) -> None:
        """Put it together."""
        self._rights = rights
        self._cleared = frozenset(CLASSIFICATION[: check_clearance(clearance) + 1])
        prefixes = rights.prefixes("subscribe")
        self.is_empty = not prefixes
        """Nothing at all?"""
        self.has_system = any(prefix.startswith(SYSTEM) for prefix in prefixes)
        """Some records of the node's own?"""
        self.types = types_filter(prefixes)
        """Their types, whatever their classification, apart from the node's own records; None: all."""
        cleared = _cleared(clearance)
        self._published = _joined([self.types, cleared])
        self._journal = _joined([_with_system(prefixes), cleared])

    def sees(self, event: Event) -> bool:
        """Is this event in it?"""
        return event.classification in self._cleared and self._rights.allow("subscribe", event.type)

    def filter(self, *, system: bool) -> Filter | None:
        """It as a filter; None: everything.

        Args:
            system: are the node's own records among what is asked? If not, it need not say that they are excluded.
        """
        return self._journal if system else self._published

    def limit(self, text: str | Filter, *, system: bool, limits: Limits = DEFAULT) -> Filter:
        """A filter, joined with the scope: the same every time, so that who subscribes again resumes.

        Args:
            text: what is asked for.
            system: as for `filter`.
            limits: what it may cost, before it is joined.

        Raises:
            FilterError: it is wrong, or too costly.
        """
        asked = Filter(text.text if isinstance(text, Filter) else text, limits=limits)
        return _joined([asked, self.filter(system=system)]) or asked

    def covers(self, filter: Filter, *, system: bool) -> bool:
        """Is all that a filter can match in it? True is certain."""
        if self.is_empty or (system and not self.has_system):
            return False
        mine = self.filter(system=system)
        return mine is None or mine.covers(filter)


def types_filter(prefixes: Sequence[str]) -> Filter | None:
    """What has a type that begins with one of these; None: everything."""
    return None if "" in prefixes else _any_of(_begins(prefix) for prefix in prefixes)


def _with_system(prefixes: Sequence[str]) -> Filter | None:
    """The same, for a journal that has the node's own records in it: they must be named."""
    named = [prefix for prefix in prefixes if prefix.startswith(SYSTEM)]
    others = [prefix for prefix in prefixes if not prefix.startswith(SYSTEM)]
    if "" in others and SYSTEM in named:
        return None
    outside = f"NOT {_begins(SYSTEM)}"
    texts = [_begins(prefix) for prefix in named]
    for prefix in others:
        overlaps = SYSTEM.startswith(prefix)
        texts.append(outside if not prefix else f"({_begins(prefix)} AND {outside})" if overlaps else _begins(prefix))
    return _any_of(texts)


def _cleared(clearance: str) -> Filter | None:
    place = check_clearance(clearance)
    if place == len(CLASSIFICATION) - 1:
        return None
    return Filter(f"classification IN ({', '.join(map(print_scalar, CLASSIFICATION[: place + 1]))})")


def _begins(prefix: str) -> str:
    return f"startswith(type, {print_scalar(prefix)})"


def _any_of(texts: Iterable[str]) -> Filter:
    return Filter(" OR ".join(texts) or "FALSE")


def _joined(filters: Iterable[Filter | None]) -> Filter | None:
    texts = [f"({each})" for each in filters if each is not None]
    return Filter(" AND ".join(texts)) if texts else None
