"""Where definitions run, and what is kept of each: on the node, or in the Spark pipeline beside it.

    all definitions ─┬─▶ for the node's detector: those placed there, and silently all they are made of
                     └─▶ for the pipeline: the same as a *schedule*, from which offset on each is looked for, and up to
                         which one that has ended

A definition is checked against all others, wherever they run; it is told where it was placed, and nowhere else. One
that is needed in the other place too runs there without being told. The pipeline may be behind: one that was replaced,
moved or removed is kept as long as the pipeline has not passed the offset where it ended, and looked for up to there.
`Placements` never changes: with one more or one fewer there are others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any, Final, NamedTuple

import msgspec

from tocsin.composite.detector import Detector
from tocsin.composite.expression import Definition, leaves
from tocsin.composite.language import parse

__all__ = ["ENDED", "NODE", "RECORD", "SPARK", "Ended", "Moment", "Placements", "Record", "Wanted", "conform"]

NODE: Final = "node"
SPARK: Final = "spark"
RECORD: Final = "definition/"
ENDED: Final = "definition-ended/"


class Moment(NamedTuple):
    """When definitions change."""

    offset: int
    """What comes after this one sees them as they are then."""
    time: int
    """Journal time at the offset, in microseconds; 0: it is not known any more."""


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
    members: Any = None
    """Of an early version; nobody asks for it any more."""
    time: int = 0
    """Journal time at `since`, in microseconds."""


class Ended(msgspec.Struct, array_like=True, frozen=True):
    """A definition that is there no more, or another one under its name."""

    name: str
    record: Record
    until: int
    """It saw events up to this offset."""
    time: int
    """Journal time there, in microseconds."""

    @property
    def key(self) -> str:
        """Under which it is kept."""
        return f"{ENDED}{self.name}/{self.record.since}"


class Wanted(msgspec.Struct, array_like=True, frozen=True):
    """A definition as the pipeline gets it."""

    name: str
    text: str
    context: str
    semantics: str
    max_open: int | None
    since: int
    """It sees events above this offset, if it is told; others see what those see that are made of them …"""
    instant: int
    time: int
    """Journal time at `since`, in microseconds."""
    is_told: bool
    """False: others are made of it; what it detects itself is told elsewhere."""
    until: int | None = None
    """… and up to this one; None: there is no end yet."""
    end: int = 0
    """Journal time at `until`."""


class Placements:
    """All definitions of a node, in the order they were made."""

    def __init__(self, records: Mapping[str, Record], whole: Detector, ended: tuple[Ended, ...] = ()) -> None:
        """Take what belongs together; see `load`.

        Args:
            records: by name.
            whole: all of them in one detector, which is never fed.
            ended: those that the pipeline may still have to look for, in the order they ended.
        """
        self.records, self.whole, self.ended = records, whole, ended

    @classmethod
    def load(cls, stored: Mapping[str, bytes], ended: Mapping[str, bytes], detector: Detector | None) -> Placements:
        """What a journal has stored, beside the detector of the node."""
        found = {
            name.removeprefix(RECORD): msgspec.msgpack.decode(record, type=Record) for name, record in stored.items()
        }
        over = [msgspec.msgpack.decode(each, type=Ended) for each in ended.values()]
        past = tuple(sorted(over, key=lambda each: each.until))
        known = {each.name: each for each in detector.definitions()} if detector is not None else {}
        if detector is not None and all(name in known for name in found) and len(found) == len(known):
            return cls({name: found[name] for name in known}, detector.blank(), past)
        places = list(known)
        order = sorted(found, key=lambda name: (found[name].made, places.index(name) if name in known else 0))
        records = {name: found[name] for name in order}
        definitions = [known.get(name) or _read(name, record) for name, record in records.items()]
        return cls(records, Detector.of(definitions), past)

    def added(self, name: str, record: Record, whole: Detector) -> Placements:
        """The same with one more, or another under its name; `whole` has it already."""
        made = 1 + max((each.made for each in self.records.values()), default=0)
        record = msgspec.structs.replace(record, made=made)
        ended = self._ended(name, Moment(record.since, record.time))
        return Placements({**self.records, name: record}, whole, ended)

    def without(self, name: str, moment: Moment) -> Placements:
        """The same with one fewer.

        Raises:
            DefinitionError: there is no such definition, or others are made of it.
        """
        whole = self.whole.blank()
        whole.undefine(name)
        records = {other: each for other, each in self.records.items() if other != name}
        return Placements(records, whole, self._ended(name, moment))

    def passed(self, offset: int) -> Placements:
        """The same when the pipeline has looked at everything up to an offset."""
        ended = tuple(each for each in self.ended if each.until >= offset)  # at its end itself it may have it still
        if not self.on_spark and all(each.until <= offset for each in ended):  # and will never look again
            ended = ()
        return self if len(ended) == len(self.ended) else Placements(self.records, self.whole, ended)

    def _ended(self, name: str, moment: Moment) -> tuple[Ended, ...]:
        """What has ended, with one more."""
        record = self.records.get(name)
        if record is None or record.since >= moment.offset or not self.is_on_spark(name):
            return self.ended
        each = next(each for each in self.whole.definitions() if each.name == name)
        record = msgspec.structs.replace(record, said=(each.text, each.context, each.semantics, each.max_open))
        return (*self.ended, Ended(name, record, *moment))

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
    def on_spark(self) -> tuple[str, ...]:
        """Names of those that are told by the pipeline."""
        return tuple(name for name, record in self.records.items() if record.placement == SPARK)

    def is_on_spark(self, name: str) -> bool:
        """Does the pipeline look for it, told or not?"""
        return self.records[name].placement == SPARK or any(each.name == name for each in self.schedule)

    @cached_property
    def schedule(self) -> tuple[Wanted, ...]:
        """What the pipeline must look for, what has ended first; empty: nothing."""
        versions: dict[str, list[tuple[Definition, Wanted]]] = {}
        if not self.on_spark and not self.ended:
            return ()
        for definition, wanted in self._versions():
            versions.setdefault(wanted.name, []).append((definition, wanted))
        names: dict[str, None] = {}
        rest = [name for name, each in versions.items() if any(wanted.is_told for _, wanted in each)]
        while rest:
            name = rest.pop()
            if name not in names:
                names[name] = None
                for definition, _ in versions.get(name, ()):
                    rest += [leaf.definition for leaf in leaves(definition.expression) if leaf.definition is not None]
        found = [wanted for name, each in versions.items() if name in names for _, wanted in each]
        return tuple(sorted(found, key=lambda each: each.until is None))

    def _versions(self) -> Iterator[tuple[Definition, Wanted]]:
        for each in self.ended:
            definition = _read(each.name, each.record)
            yield definition, _wanted(definition, each.record, each.until, each.time)
        for definition in self.whole.definitions():
            yield definition, _wanted(definition, self.records[definition.name])


def conform(
    detector: Detector,
    wanted: Mapping[str, Definition] | None,
    now: int,
    *,
    apart: str | None = None,
    anew: str | None = None,
) -> None:
    """Give a detector these definitions and no others; what it has of them already stays half detected.

    Args:
        detector: a draft.
        wanted: by name; None: it has what it should.
        now: absolute times up to this instant, in microseconds, are over.
        apart: this one is left as it is, with what it is made of.
        anew: this one begins now, also if it is there.

    Raises:
        DefinitionError: they do not fit each other.
    """
    if wanted is None:
        return
    known = {each.name for each in detector.definitions()}
    left = detector.family(apart) if apart in known else []
    target = {each.name: each for each in left} | {name: each for name, each in wanted.items() if name != apart}
    detector.become(target.values(), () if anew is None else (anew,), dict.fromkeys(target, now))


def _read(name: str, record: Record) -> Definition:
    assert record.said is not None  # only what the node's detector has may lack it
    *said, max_open = record.said
    return msgspec.structs.replace(parse(name, *said), max_open=max_open)


def _wanted(each: Definition, record: Record, until: int | None = None, end: int = 0) -> Wanted:
    said = (each.text, each.context, each.semantics, each.max_open)
    begin = (record.since, record.instant, record.time)
    return Wanted(each.name, *said, *begin, record.placement == SPARK, until, end)
