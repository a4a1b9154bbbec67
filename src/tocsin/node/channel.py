"""What a node and its Spark pipeline say to each other: messages on a pair of sockets that only the two have.

    pipeline  Begin ─▶ Settings      Look ─▶ Definitions      Found ─▶ stored, stale, or later: ask again
              Wants ─▶ Subscriptions      Recall ─▶ what was counted      Counted ─▶ true, or false: later
              Fit, Unfit, Up, Matched, Report, Failed ─▶ nothing

The pipeline asks, the node answers, one question after the other. A message is four bytes of length and MessagePack.
The node has made the pair and given one end to the process it started: nobody else can speak here, so nothing is
checked but the form, and no token is needed.
"""

from __future__ import annotations

import socket
import struct
import threading
from typing import Any, Final, Literal

import msgspec

from tocsin.errors import NetworkError
from tocsin.node.beside import Progress
from tocsin.node.divided import Divided
from tocsin.node.placement import Wanted

__all__ = [
    "Archived",
    "Begin",
    "Counted",
    "Definitions",
    "Detection",
    "Failed",
    "Fit",
    "Found",
    "Line",
    "Look",
    "Matched",
    "Message",
    "Outcome",
    "Recall",
    "Report",
    "Settings",
    "Subscriptions",
    "Unfit",
    "Up",
    "Wants",
    "decode",
    "pack",
]

HEADER: Final = struct.Struct(">I")
Outcome = Literal["stored", "stale", "later"]
"""What became of a batch; `later`: it could not be stored now, a full disk say, and must be told again."""
_encode = msgspec.msgpack.Encoder().encode


class Settings(msgspec.Struct, array_like=True, frozen=True):
    """What the pipeline must know before anything else."""

    journal: str
    """The path of the journal's file."""
    url: str
    """Where the node is reached by http."""
    token: str | None
    """What opens it."""
    master: str
    directory: str
    """Where the pipeline keeps its own: checkpoints, and what it logs."""
    lake: str | None
    """Where the journal is archived; None: it is not."""
    ca: str | None = None
    """Certificates to trust when the node is reached by https."""


class Definitions(msgspec.Struct, array_like=True, frozen=True):
    """What must be looked for."""

    version: str
    wanted: tuple[Wanted, ...]


class Detection(msgspec.Struct, array_like=True, frozen=True):
    """A derived event."""

    type: str
    id: str
    instant: int
    data: str
    """JSON, as Spark has it."""
    classification: str
    completed: int | None = None
    """The offset of the event that completed it; None: a timer did."""


class Archived(msgspec.Struct, frozen=True):
    """How far the archive is."""

    last: int
    """The newest offset in the lake."""
    events: int
    """How many were added since the pipeline came up."""
    seconds: float
    """What the last run took."""


class Begin(msgspec.Struct, tag=True, array_like=True, frozen=True):
    """Here I am. Answer: `Settings`."""


class Fit(msgspec.Struct, tag=True, array_like=True, frozen=True):
    """Spark can run here."""


class Unfit(msgspec.Struct, tag=True, array_like=True, frozen=True):
    """It cannot, and trying again is no use."""

    message: str
    help: str | None


class Up(msgspec.Struct, tag=True, array_like=True, frozen=True):
    """Spark runs."""

    spark: str
    """Its version."""


class Look(msgspec.Struct, tag=True, array_like=True, frozen=True):
    """Answer: `Definitions`; None: they have this version still."""

    version: str | None


class Found(msgspec.Struct, tag=True, array_like=True, frozen=True):
    """A batch is done, or a piece of what it has found; see `Beside.store`. Answer: an `Outcome`."""

    version: str
    writer: str
    position: int
    upto: int
    instant: int
    events: list[Detection]
    traceparent: str | None = None
    piece: int = 0
    is_last: bool = True


class Wants(msgspec.Struct, tag=True, array_like=True, frozen=True):
    """Answer: `Subscriptions`; None: they have this version still."""

    version: int | None


class Subscriptions(msgspec.Struct, array_like=True, frozen=True):
    """What must be matched."""

    version: int
    filters: dict[str, str]
    """By the names of lanes."""


class Matched(msgspec.Struct, tag=True, array_like=True, frozen=True):
    """A stretch of the journal was looked at; see `OpenLanes.matched`."""

    version: int
    first: int
    last: int
    found: dict[str, list[int]]


class Recall(msgspec.Struct, tag=True, array_like=True, frozen=True):
    """Answer: what the last `Counted` left; None: there was none."""


class Counted(msgspec.Struct, tag=True, array_like=True, frozen=True):
    """Statistics of a stretch of the journal; see `Beside.store_statistics`. Answer: were they stored?"""

    counted: bytes
    data: dict[str, Any] | None


class Report(msgspec.Struct, tag=True, array_like=True, frozen=True):
    """How it goes. What is None has not changed."""

    progress: Progress | None = None
    batch_seconds: float | None = None
    state_rows: int | None = None
    state_bytes: int | None = None
    archived: Archived | None = None
    trouble: tuple[str, str, str | None] | None = None
    """What does not work though the rest does (detection, archive, statistics), why, and what helps."""
    matching: Divided | None = None
    """How the filters of subscriptions are divided."""


class Failed(msgspec.Struct, tag=True, array_like=True, frozen=True):
    """It ends, because of this."""

    message: str
    help: str | None


Message = Begin | Fit | Unfit | Up | Look | Found | Wants | Matched | Recall | Counted | Report | Failed
_decode = msgspec.msgpack.Decoder(Message).decode


def decode(body: bytes) -> Message:
    """A message of the pipeline."""
    message: Message = _decode(body)
    return message


def pack(value: object) -> bytes:
    """A message or an answer, with its length."""
    body = _encode(value)
    return HEADER.pack(len(body)) + body


class Line:
    """The pipeline's end. Any thread may ask; one waits for the other."""

    def __init__(self, end: socket.socket) -> None:
        """Take over a socket."""
        self._end, self._lock = end, threading.Lock()

    def ask(self, message: Message, kind: Any = None) -> Any:
        """Say something, and wait for the answer.

        Raises:
            NetworkError: the node is gone.
        """
        with self._lock:
            try:
                self._end.sendall(pack(message))
                body = self._receive(HEADER.unpack(self._receive(HEADER.size))[0])
            except OSError as error:
                help = "it starts another pipeline when it is up"
                raise NetworkError(f"the node is gone: {error}", help=help) from None
        return msgspec.msgpack.decode(body, type=kind)

    def _receive(self, size: int) -> bytes:
        found = bytearray()
        while len(found) < size:
            part = self._end.recv(min(size - len(found), 1 << 20))
            if not part:
                raise ConnectionResetError("it has hung up")
            found += part
        return bytes(found)
