"""Who published which events of a block: names and runs, kept beside the events and through merging.

Not a column of the events: filters and readers do not see it. Bytes carry a checksum of their own, since they are read
without the block. None stands for "nobody said".
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable

import msgspec

from tocsin.errors import JournalDamagedError

__all__ = ["Runs", "pack_publishers", "publisher_at", "unpack_publishers"]

Runs = Iterable[tuple[int, str]]
"""How many events in a row were published by whom, in order."""

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(tuple[list[str], list[tuple[int, int]]]).decode


def pack_publishers(runs: Runs) -> bytes | None:
    """Runs as bytes: each name once, neighbours of one name joined."""
    names: dict[str, int] = {}
    joined: list[list[int]] = []
    for count, name in runs:
        number = names.setdefault(name, len(names))
        if joined and joined[-1][1] == number:
            joined[-1][0] += count
        else:
            joined.append([count, number])
    if not any(names):
        return None
    body = _encode((list(names), joined))
    return zlib.crc32(body).to_bytes(4, "little") + body


def unpack_publishers(packed: bytes | None, count: int) -> list[tuple[int, str]]:
    """Undo `pack_publishers` for a block of `count` events.

    Raises:
        JournalDamagedError: the bytes are not what was written.
    """
    if packed is None:
        return [(count, "")]
    try:
        if packed[:4] != zlib.crc32(packed[4:]).to_bytes(4, "little"):
            raise ValueError("the checksum is wrong")
        names, runs = _decode(packed[4:])
        if sum(size for size, _ in runs) != count:
            raise ValueError("they are too many or too few")
        return [(size, names[number]) for size, number in runs]
    except (msgspec.MsgspecError, ValueError, IndexError) as error:
        raise JournalDamagedError(f"the publishers of a block cannot be read: {error}") from None


def publisher_at(packed: bytes | None, count: int, place: int) -> str:
    """Who published one event of a block, by its place in it."""
    for size, name in unpack_publishers(packed, count):
        if place < size:
            return name
        place -= size
    return ""
