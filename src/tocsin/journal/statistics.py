"""What is known of a block without reading it, and whether a filter could match anything in it.

    batch ─ collect ─▶ Statistics ─ dump ─▶ bytes beside the block ─ load ─▶ Statistics ─ may_match ─▶ read it or not

Promised: `may_match` says False only if no event of the block matches. A name that is not listed is in no event, if
the list is complete.
Not promised: that a block which may match does. Only the top level of JSON payloads is looked at, and nothing is known
of how values meet in one event; patterns and computed values are known to need their names, no more.
"""

from __future__ import annotations

import functools
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tocsin.clock import SECOND
from tocsin.errors import JournalDamagedError
from tocsin.filters import intervals
from tocsin.filters.facts import enrich
from tocsin.filters.filter import Filter
from tocsin.filters.intervals import Cuts
from tocsin.filters.normal import NULLNESS
from tocsin.filters.syntax import Field
from tocsin.journal import facts
from tocsin.journal.facts import Facts
from tocsin.model import ACK, ENVELOPE
from tocsin.payload import content_kind

__all__ = ["SYSTEM", "Statistics", "collect", "dump", "load", "may_match"]

SYSTEM = "tocsin."
"""Types of system records begin with this."""

_VERSION = 1
_TEXTS = ("id", "source", "type", "subject", "ack", "cancel", "correlation_id", "classification", "datacontenttype")
_NOTHING = Facts(always=False)
_NULL, _NOT_NULL = (0, 1), (1, 2)


class Statistics(msgspec.Struct, frozen=True, array_like=True):
    """What is known of a block."""

    first: int
    """The first offset; the others follow without a gap."""
    rows: int
    """Number of events."""
    system: int
    """How many are system records."""
    volatile: int
    """How many are not persistent."""
    tracked: int
    """How many have a time to live or ask for acknowledgement."""
    expires: int | None
    """When the last of them expires (microseconds); None: some live until cancelled."""
    envelope: dict[str, Facts]
    """All envelope fields."""
    attributes: dict[str, Facts]
    fields: dict[str, Facts]
    """Top-level fields of JSON payloads."""
    all_attributes: bool
    """Attributes that are not listed are in no event."""
    all_fields: bool

    @property
    def offsets(self) -> tuple[int, int]:
        """First and last offset."""
        return self.first, self.first + self.rows - 1

    @property
    def arrived(self) -> tuple[int, int]:
        """Journal times of the first and last event, in microseconds."""
        found = self.envelope["arrived"].times
        return (found.keys[0], found.keys[1]) if found else (0, 0)

    @property
    def types(self) -> frozenset[str] | None:
        """The types; None: too many to list."""
        return self._listed("type")

    @property
    def sources(self) -> frozenset[str] | None:
        """The sources; None: too many to list."""
        return self._listed("source")

    @property
    def subjects(self) -> frozenset[str] | None:
        """The subjects; None: too many to list."""
        return self._listed("subject")

    @property
    def priorities(self) -> frozenset[int]:
        """The levels of priority that occur."""
        found = self.envelope["priority"].numbers
        return frozenset(int(intervals.number_from_key(key)) for key in found.keys) if found else frozenset()

    def _listed(self, name: str) -> frozenset[str] | None:
        found = self.envelope[name].texts
        return frozenset() if found is None else None if found.ranged else frozenset(found.keys)


def dump(statistics: Statistics) -> bytes:
    """Return the statistics as bytes."""
    body = msgspec.msgpack.encode((_VERSION, statistics))
    return zlib.crc32(body).to_bytes(4, "little") + body


def load(data: bytes) -> Statistics:
    """Undo `dump`.

    Raises:
        JournalDamagedError: these are not the bytes of statistics of this version. They can be collected anew.
    """
    body = data[4:]
    try:
        if zlib.crc32(body).to_bytes(4, "little") != data[:4]:
            raise msgspec.DecodeError("the checksum is wrong")
        version, rest = _decode_version(body)
        if version != _VERSION:
            raise msgspec.DecodeError(f"the version is {version}")
        return _decode(rest)
    except msgspec.DecodeError as error:
        mend = "collect them anew from the block"
        raise JournalDamagedError(f"the statistics of a block cannot be read: {error}", help=mend) from None


_decode_version: Callable[[bytes], tuple[int, msgspec.Raw]] = msgspec.msgpack.Decoder(tuple[int, msgspec.Raw]).decode
_decode: Callable[[msgspec.Raw], Statistics] = msgspec.msgpack.Decoder(Statistics).decode


# -- collecting


def collect(batch: pa.RecordBatch) -> Statistics:
    """Look at every event of a batch with the columns of `rows.SCHEMA`, decoding its payload once."""
    rows, column = batch.num_rows, batch.column
    ttl, arrived, persistent = column("ttl"), column("arrived").cast(pa.int64()), column("persistent")
    expires = None
    if rows and not ttl.null_count:
        lives = np.rint(ttl.to_numpy() * SECOND).astype(np.int64)
        expires = int((arrived.to_numpy() + lives).max())
    envelope = {name: facts.of_texts(column(name)) for name in _TEXTS}
    envelope["priority"] = facts.of_numbers(column("priority"), facts.MAX_VALUES)
    envelope["offset"], envelope["ttl"] = facts.of_numbers(column("offset")), facts.of_numbers(ttl)
    envelope["arrived"], envelope["time"] = facts.of_times(arrived), facts.of_times(column("time").cast(pa.int64()))
    flags = sorted(map(int, persistent.unique().to_pylist()))
    envelope["persistent"] = Facts(always=True, booleans=tuple(flags))
    attributes, all_attributes = facts.of_members(map(_unpack, column("attributes").drop_null().to_pylist()), rows)
    fields, all_fields = facts.of_members(_payloads(batch), rows)
    return Statistics(
        first=column("offset")[0].as_py() if rows else 0,
        rows=rows,
        system=_count(pc.starts_with(column("type"), SYSTEM)),
        volatile=rows - _count(persistent),
        tracked=_count(pc.or_(pc.is_valid(ttl), pc.not_equal(column("ack"), ACK[0]))),
        expires=expires,
        envelope=envelope,
        attributes=attributes,
        fields=fields,
        all_attributes=all_attributes,
        all_fields=all_fields,
    )


_unpack = msgspec.msgpack.Decoder(dict).decode
_read_json = msgspec.json.Decoder().decode


def _count(flags: pa.BooleanArray) -> int:
    return pc.sum(flags).as_py() or 0


def _payloads(batch: pa.RecordBatch) -> Iterable[Any]:
    """Decoded JSON payloads."""
    data, media_type = batch.column("data"), batch.column("datacontenttype")
    if media_type.null_count == len(media_type):
        return map(_read_json, data.drop_null().to_pylist())
    pairs = zip(data.to_pylist(), media_type.to_pylist(), strict=True)
    return (_read_json(raw) for raw, kind in pairs if raw is not None and (not kind or content_kind(kind) == "json"))


# -- asking


def may_match(filter: Filter, statistics: Statistics) -> bool:
    """Could an event of the block match? False is certain. A filter is prepared once, however many blocks are asked."""
    return any(all(_possible(need, statistics) for need in needs) for needs in _prepared(filter))


class _Need(NamedTuple):
    """What an event must hold to match: a place to look, a name there, and the set of values of one kind."""

    place: str
    name: str
    kind: str
    cuts: Cuts


_BARE, _ENVELOPE, _ATTRIBUTE, _FIELD, _INSIDE = "bare", "envelope", "attribute", "field", "inside"


@functools.lru_cache(maxsize=4096)
def _prepared(filter: Filter) -> tuple[tuple[_Need, ...], ...]:
    """For each alternative of the filter what it needs; the envelope first, since that tells most."""
    alternatives = []
    for conjunction in filter.form.alternatives:
        terms = dict(filter.form.terms)
        known = enrich(conjunction, terms)
        if known is not None:  # None: no event at all satisfies it
            needs = [need for (term, kind), cuts in known.sets.items() for need in _needs(terms[term], kind, cuts)]
            alternatives.append(tuple(sorted(needs, key=lambda need: need.place != _ENVELOPE)))
    return tuple(alternatives)


def _needs(value: object, kind: str, cuts: Cuts) -> Iterator[_Need]:
    """A computed value needs nothing itself; `enrich` has said what its arguments must be."""
    if not isinstance(value, Field):
        return
    head, *rest = value.path
    if head in ENVELOPE:
        if not rest:
            yield _Need(_ENVELOPE, head, kind, cuts)
    elif head == "attributes":
        if len(rest) == 1:
            yield _Need(_ATTRIBUTE, rest[0], kind, cuts)
    elif head == "data" and len(rest) == 1:
        yield _Need(_FIELD, rest[0], kind, cuts)
    elif head != "data" and not rest:
        yield _Need(_BARE, head, kind, cuts)
    elif rest and (kind != NULLNESS or cuts == _NOT_NULL):  # what has fields is an object of the payload
        yield _Need(_INSIDE, rest[0] if head == "data" else head, kind, cuts)


def _possible(need: _Need, statistics: Statistics) -> bool:
    place, name, kind, cuts = need
    if place == _ENVELOPE:
        return facts.may_hold(statistics.envelope[name], kind, cuts)
    attribute = statistics.attributes.get(name, _NOTHING if statistics.all_attributes else None)
    if place == _ATTRIBUTE:
        return attribute is None or facts.may_hold(attribute, kind, cuts)
    field = statistics.fields.get(name, _NOTHING if statistics.all_fields else None)
    if place == _INSIDE:
        return field is None or field.other
    if place == _FIELD:
        return field is None or facts.may_hold(field, kind, cuts)
    # A bare name is the attribute, if the event has it, else the field of the payload.
    if attribute is None:
        return True
    if attribute.always:
        return facts.may_hold(attribute, kind, cuts)
    if field is None:
        return True
    if kind == NULLNESS and cuts == _NULL:
        return not field.always
    return facts.may_hold(attribute, kind, cuts) or facts.may_hold(field, kind, cuts)
