"""Definitions that begin at offsets of their own, in the middle of a batch: for who must be exact, as the pipeline is.

    what an engine knows ─┐
    what it should know  ─┴▶ Turn: gone at once; new, behind the offset of each

A definition is known by its name, what it says, and the offset behind which it begins: one that was removed and made
again is another, and has nothing half detected.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import msgspec

from tocsin.composite.detector import Detector
from tocsin.composite.expression import Definition

__all__ = ["Begin", "Turn", "mark_of"]


class Begin(msgspec.Struct, frozen=True, array_like=True):
    """Where a definition begins."""

    since: int
    """It sees events above this offset."""
    instant: int
    """Absolute times up to this one, in microseconds, are over."""


class _Known(msgspec.Struct, array_like=True):
    mark: bytes
    """Of the division whose definitions it has; empty: some are missing yet."""
    since: dict[str, int]


def mark_of(definitions: bytes, begins: dict[str, Begin]) -> bytes:
    """A name for definitions and their beginnings: the same for the same."""
    return hashlib.blake2b(definitions + msgspec.msgpack.encode(sorted(begins.items())), digest_size=16).digest()


class Turn:
    """A detector on its way to other definitions."""

    def __init__(
        self, detector: Detector, known: bytes, mark: bytes, wanted: Detector, begins: dict[str, Begin]
    ) -> None:
        """Drop what is gone, and see what is new.

        Args:
            detector: goes on with the definitions that stay.
            known: what `known` gave for it; empty: it has no definitions.
            mark: of what is wanted.
            wanted: has all definitions, those first that others are made of.
            begins: of each of them.
        """
        self._detector, self._wanted, self._begins, self._mark = detector, wanted, begins, mark
        self._known = msgspec.msgpack.decode(known, type=_Known) if known else _Known(b"", {})
        have = {each.name: _facts(each) for each in detector.definitions()}
        self._waiting = [
            each
            for each in wanted.definitions()
            if have.get(each.name) != _facts(each) or self._known.since.get(each.name) != begins[each.name].since
        ]
        self._drop({name for name in have if name not in begins})

    @staticmethod
    def is_done(known: bytes, mark: bytes) -> bool:
        """Has an engine all definitions of a division?"""
        return bool(known) and msgspec.msgpack.decode(known, type=_Known).mark == mark

    def known(self) -> bytes:
        """What the detector has now, for the next time."""
        mark = b"" if self._waiting else self._mark
        return msgspec.msgpack.encode(_Known(mark, self._known.since))

    def before(self, last: int) -> Iterator[int]:
        """The offsets below `last` behind which something begins; it begins when the next one is asked for."""
        for since in sorted({self._begins[each.name].since for each in self._waiting}):
            if since < last:
                yield since
                self._begin(since)

    def _begin(self, since: int) -> None:
        fresh = {each.name for each in self._waiting if self._begins[each.name].since <= since}
        for name in fresh:  # what one is made of begins with it, if it is missing
            fresh = fresh | {each.name for each in self._wanted.family(name) if each.name not in self._known.since}
        for each in [each for each in self._waiting if each.name in fresh]:
            said = (each.name, each.text, each.context, each.semantics)
            is_there = each.name in {known.name for known in self._detector.definitions()}
            instant = self._begins[each.name].instant
            self._detector.define(*said, max_open=each.max_open, replace=is_there, now=instant)
            self._known.since[each.name] = self._begins[each.name].since
        self._waiting = [each for each in self._waiting if each.name not in fresh]

    def _drop(self, gone: set[str]) -> None:
        """Remove definitions, those last that others are made of; one that stays may be made of one that goes."""
        while gone:
            families = [self._detector.family(each.name)[:-1] for each in self._detector.definitions()]
            used = {each.name for family in families for each in family}
            if not gone - used:  # until that is replaced it stays
                return
            for name in gone - used:
                self._detector.undefine(name)
                self._known.since.pop(name, None)
            gone = gone & used


def _facts(each: Definition) -> tuple[str, str, str, int | None]:
    return each.text, each.context, each.semantics, each.max_open
