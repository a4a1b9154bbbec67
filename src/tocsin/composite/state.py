"""What a detector has half detected, as a value: open windows by node and key, the time, and counts.

State knows nothing of definitions: it is filed under the identities of nodes, so it outlives a change of definitions
and can be divided by key. Timers and expiries are not in it, since they follow from the windows. It is written with
MessagePack, under a version; nothing is ever unpickled.
"""

from __future__ import annotations

import gc
from collections.abc import Container, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from tocsin.composite.keys import Key
from tocsin.composite.occurrence import Part, Window
from tocsin.errors import DefinitionError

__all__ = ["Counts", "State", "uncollected"]

_VERSION = 2
_KNOWN = (1, 2)
"""The first had windows where `pairs` has parts now; operations see to it."""


@contextmanager
def uncollected() -> Iterator[None]:
    """Put garbage collection off: a million windows are made or read at once, without a cycle among them.

    The collector would walk all of them again and again, and take most of the time.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


class Counts(msgspec.Struct, array_like=True):
    """What happened to events, since the beginning."""

    events: int = 0
    keyless: int = 0
    """Events that matched a leaf and had no key."""
    skipped: int = 0
    """Derived events and system records that were fed."""
    repeated: int = 0
    """Events whose offset had been fed already."""
    dropped: dict[str, int] = {}
    """By identity of a node: openers given up because too many were open."""
    expired: dict[str, int] = {}
    """By identity of a node: openers that were not completed in time."""
    detected: dict[str, int] = {}
    """By definition."""

    def keep(self, nodes: Container[str], definitions: Container[str]) -> None:
        """Forget what belongs to others than these."""
        self.dropped = {name: count for name, count in self.dropped.items() if name in nodes}
        self.expired = {name: count for name, count in self.expired.items() if name in nodes}
        self.detected = {name: count for name, count in self.detected.items() if name in definitions}


class _Stored(msgspec.Struct, array_like=True):
    version: int
    time: int
    advanced: int
    fed: int
    cells: list[tuple[str, list[tuple[Key, list[Window]]]]]
    counts: Counts
    pairs: list[tuple[str, list[tuple[Key, list[Part]]]]] = []
    """Cells that hold parts."""


class State(msgspec.Struct):
    """Run-time state of a detector."""

    time: int = 0
    """Up to this instant, in microseconds, everything has happened."""
    advanced: int = -1
    """Up to this instant time was let pass: what comes now is later."""
    fed: int = 0
    """The offset of the last event, or how many there were."""
    cells: dict[str, dict[Key, list[Any]]] = {}
    """By identity of a node, then by key: windows, or parts (`pairs`)."""
    counts: Counts = msgspec.field(default_factory=Counts)

    def twin(self) -> State:
        """The same again; windows are shared, so only one of the two may go on."""
        counts = msgspec.convert(msgspec.to_builtins(self.counts), Counts)
        return State(self.time, self.advanced, self.fed, dict(self.cells), counts)

    def dump(self) -> bytes:
        """As bytes."""
        with uncollected():
            filed = [(identity, list(by_key.items())) for identity, by_key in self.cells.items() if by_key]
            pairs = [each for each in filed if isinstance(each[1][0][1][0], Part)]
            cells = [each for each in filed if not isinstance(each[1][0][1][0], Part)]
            return _encode(_Stored(_VERSION, self.time, self.advanced, self.fed, cells, self.counts, pairs))

    @classmethod
    def load(cls, stored: bytes) -> State:
        """Undo `dump`.

        Raises:
            DefinitionError: these bytes are no state, or of a later version.
        """
        try:
            with uncollected():
                found = _decode(stored)
                cells: dict[str, dict[Key, list[Any]]] = {identity: dict(by_key) for identity, by_key in found.cells}
                cells |= {identity: dict(by_key) for identity, by_key in found.pairs}
        except msgspec.DecodeError as error:
            raise DefinitionError(
                f"this is no state of a detector ({error})", help="restore what snapshot() gave"
            ) from None
        if found.version not in _KNOWN:
            raise DefinitionError(
                f"the state has version {found.version}, this program knows {_VERSION}", help="use the newer program"
            )
        return cls(found.time, found.advanced, found.fed, cells, found.counts)


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Stored).decode
