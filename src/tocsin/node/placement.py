"""Where definitions run, and what is kept of each: on the node, or in the Spark pipeline beside it.

    all definitions ─┬─▶ for the node's detector: those placed there, and silently all they are made of
                     └─▶ for the pipeline: the same, with the offset from which each is looked for

A definition is checked against all others, wherever they run; it is told where it was placed, and nowhere else. One
that is needed in the other place too runs there without being told, and sees there what came after the one that needs
it. `Placements` never changes: with one more or one fewer there are others.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import cached_property
from typing import Final

import msgspec

from tocsin.composite.detector import Detector
from tocsin.composite.expression import Definition
from tocsin.composite.language import parse

__all__ = ["NODE", "RECORD", "SPARK", "Placements", "Record", "Wanted", "conform"]

NODE: Final = "node"
SPARK: Final = "spark"
RECORD: Final = "definition/"


class Record(msgspec.Struct, array_like=True, frozen=True):
    """What is kept of a definition, in the journal's small state."""

    placement: str
    since: int
    """It sees events above this offset."""
    made: int = 0
    """In which order they were made."""
    instant: int = 0
    """Absolute times up to this one, in microseconds, were over when it was made."""
    said: tuple[str, str, str, int | None] | None = None
    """Text, context, semantics and `max_open`; None: the node's detector has them (it was made by an early version)."""


class Wanted(msgspec.Struct, array_like=True, frozen=True):
    """A definition as the pipeline gets it."""

    name: str
    text: str
    context: str
    semantics: str
    max_open: int | None
    since: int
    instant: int
    is_told: bool
    """False: others are made of it; what it detects itself is told elsewhere."""


class Placements:
    """All definitions of a node, in the order they were made."""

    def __init__(self, records: Mapping[str, Record], whole: Detector) -> None:
        """Take what belongs together; see `load`.

        Args:
            records: by name.
            whole: all of them in one detector, which is never fed.
        """
        self.records, self.whole = records, whole

    @classmethod
    def load(cls, stored: Mapping[str, bytes], detector: Detector | None) -> Placements:
        """What a journal has stored, beside the detector of the node."""
        found = {
            name.removeprefix(RECORD): msgspec.msgpack.decode(record, type=Record) for name, record in stored.items()
        }
        known = {each.name: each for each in detector.definitions()} if detector is not None else {}
        if detector is not None and all(name in known for name in found) and len(found) == len(known):
            return cls({name: found[name] for name in known}, detector.blank())
        places = list(known)
        order = sorted(found, key=lambda name: (found[name].made, places.index(name) if name in known else 0))
        records = {name: found[name] for name in order}
        definitions = [known.get(name) or _read(name, record) for name, record in records.items()]
        return cls(records, Detector.of(definitions))

    def added(self, name: str, record: Record, whole: Detector) -> Placements:
        """The same with one more, or another under its name; `whole` has it already."""
        made = 1 + max((each.made for each in self.records.values()), default=0)
        record = msgspec.structs.replace(record, made=made)
        return Placements({**self.records, name: record}, whole)

    def without(self, name: str) -> Placements:
        """The same with one fewer.

        Raises:
            DefinitionError: there is no such definition, or others are made of it.
        """
        whole = self.whole.blank()
        whole.undefine(name)
        return Placements({other: each for other, each in self.records.items() if other != name}, whole)

    @cached_property
    def on_node(self) -> dict[str, Definition] | None:
        """What the node's detector must have, those first that others are made of; None: all there are."""
        if all(record.placement == NODE for record in self.records.values()):
            return None
        names = [name for name, record in self.records.items() if record.placement == NODE]
        return {each.name: each for name in names for each in self.whole.family(name)}

    @cached_property
    def silent(self) -> frozenset[str]:
        """Of those, what is told elsewhere."""
        return frozenset(name for name in self.on_node or () if self.records[name].placement != NODE)

    @cached_property
    def on_spark(self) -> tuple[Wanted, ...]:
        """What the pipeline must look for, those first that others are made of."""
        begins: dict[str, tuple[int, int]] = {}
        for name, record in self.records.items():
            if record.placement == SPARK:
                begin = (record.since, record.instant)
                for each in self.whole.family(name):
                    begins[each.name] = min(begins.get(each.name, begin), begin)
        found = []
        definitions = {each.name: each for each in self.whole.definitions()}
        for name, begin in begins.items():
            record, each = self.records[name], definitions[name]
            is_told = record.placement == SPARK
            since, instant = (record.since, record.instant) if is_told else begin
            said = (each.text, each.context, each.semantics, each.max_open)
            found.append(Wanted(name, *said, since, instant, is_told))
        return tuple(found)

    @cached_property
    def version(self) -> str:
        """A name for what the pipeline must look for: the same for the same."""
        return hashlib.blake2b(msgspec.msgpack.encode(self.on_spark), digest_size=8).hexdigest()


def conform(detector: Detector, wanted: Mapping[str, Definition] | None, now: int, apart: str | None = None) -> None:
    """Give a detector these definitions and no others; what it has of them already stays half detected.

    Args:
        detector: a draft.
        wanted: by name, those first that others are made of; None: it has what it should.
        now: absolute times up to this instant, in microseconds, are over.
        apart: this one is left as it is.

    Raises:
        DefinitionError: they do not fit each other.
    """
    if wanted is None:
        return
    known = {each.name: msgspec.structs.replace(each, generation=0) for each in detector.definitions()}
    for name, each in wanted.items():
        if name != apart and known.get(name) != msgspec.structs.replace(each, generation=0):
            said = (each.text, each.context, each.semantics)
            detector.define(name, *said, max_open=each.max_open, replace=name in known, now=now)
    left = {name for name in known if name not in wanted and name != apart}
    while left:
        needed = {each.name for name in left for each in detector.family(name)[:-1]}
        for name in left - needed:
            detector.undefine(name)
        left &= needed


def _read(name: str, record: Record) -> Definition:
    assert record.said is not None  # only what the node's detector has may lack it
    *said, max_open = record.said
    return msgspec.structs.replace(parse(name, *said), max_open=max_open)
