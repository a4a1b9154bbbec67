"""Definitions that begin and end in the middle of a batch: for who must be exact, as the pipeline is.

    a schedule: versions of definitions, each with the offsets between which it is there
    what an engine knows ─┐
    the schedule         ─┴▶ Turn: at each offset where something changes, exactly those that are there from then on

One set of definitions is there at a time, as it was on the node: those of a division that are told, and all that they
are made of. A version is known by its name, what it says, and where it begins: one that was removed and made again is
another, and has nothing half detected.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from tocsin.composite.detector import Detector
from tocsin.composite.expression import Definition, leaves
from tocsin.composite.language import parse
from tocsin.node.placement import Moment, Wanted

__all__ = ["Begin", "Step", "Turn", "mark_of", "parsed"]


class Begin(msgspec.Struct, frozen=True, array_like=True):
    """Where a version of a definition begins."""

    since: int
    """It sees events above this offset."""
    instant: int
    """Absolute times up to this one, in microseconds, are over."""


class _Known(msgspec.Struct, array_like=True):
    mark: bytes
    """Of the schedule that it is through with; empty: something is to come yet."""
    begins: dict[str, Begin]


class Step(NamedTuple):
    """A stretch of the journal with one set of definitions."""

    upto: Moment | None
    """Where it ends; None: with the batch."""
    emits: frozenset[str]
    """Those that are told."""


def mark_of(*facts: object) -> bytes:
    """A name for what is looked for: the same for the same."""
    return hashlib.blake2b(msgspec.msgpack.encode(facts), digest_size=16).digest()


def parsed(each: Wanted) -> Definition:
    """A version as a definition."""
    return msgspec.structs.replace(parse(each.name, each.text, each.context, each.semantics), max_open=each.max_open)


class Turn:
    """A detector on its way through a schedule."""

    def __init__(self, detector: Detector, known: bytes, mark: bytes, schedule: Sequence[Wanted], by: tuple[str, ...]):
        """Begin where the detector is.

        Args:
            detector: goes on with the definitions that stay.
            known: what `known` gave for it; empty: it has no definitions.
            mark: of the schedule.
            schedule: all versions.
            by: told are those that go BY these fields, sorted.
        """
        self._detector, self._mark, self._by = detector, mark, by
        self._known = msgspec.msgpack.decode(known, type=_Known) if known else _Known(b"", {})
        self._versions = [(each, parsed(each)) for each in schedule]
        times = {each.since: each.time for each in schedule}
        times |= {each.until: each.end for each in schedule if each.until is not None}
        self._turns = [Moment(offset, times[offset]) for offset in sorted(times)]

    @staticmethod
    def is_done(known: bytes, mark: bytes) -> bool:
        """Is an engine through with a schedule?"""
        return bool(known) and msgspec.msgpack.decode(known, type=_Known).mark == mark

    def known(self) -> bytes:
        """What the detector has now, for the next time."""
        return msgspec.msgpack.encode(self._known)

    def steps(self, first: int, last: int) -> Iterator[Step]:
        """The stretches of a batch; while one is there, the detector has the definitions of it.

        Args:
            first: the offset with which the batch begins.
            last: with which it ends.
        """
        here = first - 1
        for turn in self._turns:
            if here < turn.offset < last:
                yield Step(turn, self._become(here))
                here = turn.offset
        yield Step(None, self._become(here))
        if all(turn.offset < max(last, first) for turn in self._turns):
            self._known.mark = self._mark

    def _become(self, offset: int) -> frozenset[str]:
        """Have the detector look for what is there behind an offset; returns what of it is told."""
        there = {each.name: (each, definition) for each, definition in self._versions if _is_there(each, offset)}
        wanted: dict[str, tuple[Wanted, Definition]] = {}
        told = set()
        for name, (each, definition) in there.items():
            if each.is_told and tuple(sorted(definition.by)) == self._by:
                family = _family(name, there)
                if family.keys() <= there.keys():  # else it begins with what it is made of, if that is long forgotten
                    told.add(name)
                    wanted |= {other: there[other] for other in family}
        begins = {name: Begin(each.since, each.instant) for name, (each, _) in wanted.items()}
        anew = {name for name, begin in begins.items() if self._known.begins.get(name) != begin}
        instants = {name: begin.instant for name, begin in begins.items()}
        self._detector.become([definition for _, definition in wanted.values()], anew, instants)
        self._known = _Known(b"", begins)
        return frozenset(told)


def _is_there(each: Wanted, offset: int) -> bool:
    return each.since <= offset and (each.until is None or offset < each.until)


def _family(name: str, there: dict[str, tuple[Wanted, Definition]]) -> dict[str, None]:
    """The names of all that a definition is made of, and its own."""
    found: dict[str, None] = {}
    rest = [name]
    while rest:
        each = rest.pop()
        if each not in found:
            found[each] = None
            if each in there:
                rest += [leaf.definition for leaf in leaves(there[each][1].expression) if leaf.definition is not None]
    return found
