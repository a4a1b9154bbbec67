"""Which part of the journal is meant: `from` and `to`, offsets or times; and which of it somebody may see at all."""

from __future__ import annotations

from typing import NamedTuple

from tocsin.clock import as_micros
from tocsin.errors import EventError, ForbiddenError, ProtocolError, TrimmedError
from tocsin.filters.filter import Filter
from tocsin.journal.contract import Journal
from tocsin.model import parse_time
from tocsin.net.access import Caller

__all__ = ["Edge", "Range", "edge", "resolve", "visible"]


class Edge(NamedTuple):
    """An end of a range as it was said: one of the two."""

    offset: int | None = None
    moment: int | None = None
    """In microseconds."""


class Range(NamedTuple):
    """Offsets of a journal."""

    first: int
    last: int
    kept: int
    """The oldest there is."""
    head: int


def edge(text: str, field: str) -> Edge:
    """Read one.

    Raises:
        ProtocolError: it is neither.
    """
    if text.isascii() and text.isdigit() and len(text) < 19:
        return Edge(offset=int(text))
    try:
        return Edge(moment=as_micros(parse_time(text.replace(" ", "+"), field)))  # a + in a URL arrives as a blank
    except EventError:
        help = "give an offset, or a time such as 2026-01-31T12:00:00Z"
        raise ProtocolError(f"{field} is {text[:64]!r}", field=field, help=help) from None


def resolve(journal: Journal, begin: Edge | None, end: Edge | None) -> Range:
    """The offsets that are meant: those at or after a moment, or at or before it.

    Raises:
        TrimmedError: the first of them was named by its offset, and is no longer kept.
    """
    kept, head = journal.first, journal.head
    first = kept if begin is None else _offset(journal, begin, 0)
    last = head if end is None else min(head, _offset(journal, end, 1))
    if 1 < first < kept and begin is not None and begin.offset is not None:
        raise TrimmedError(f"offset {first} is no longer kept", first=kept, help=f"read from {kept} on")
    return Range(max(first, kept), last, kept, head)


def _offset(journal: Journal, edge: Edge, behind: int) -> int:
    if edge.offset is not None:
        return edge.offset
    return journal.offset_at((edge.moment or 0) + behind) - behind


def visible(caller: Caller) -> Filter | None:
    """All that the caller may see, as a filter; None: everything.

    Raises:
        ForbiddenError: nothing.
    """
    scope = caller.scope
    if scope is not None and not scope.form.alternatives:
        error = ForbiddenError("your token has no right to subscribe", help="ask who runs the node for another token")
        raise caller.refused(error, "right")
    return scope
