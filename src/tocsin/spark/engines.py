"""Engines inside tasks: packed chunks in, derived events out, with the same meaning as a node's detector.

    feed     chunks of one bucket ─▶ what they detect
    Engines  of a process: detectors that go on from batch to batch, each known by where it is

A detector in memory is a convenience. Where it is says a *token*, which is new after every batch and stored with it: a
detector whose token is not that of the stored state has seen something else (a batch that was then repeated, say), and
is made anew out of what is stored. So nothing depends on which process does a task, nor on what became of the last one.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa

from tocsin.composite.deriving import Derived
from tocsin.composite.detector import Detector
from tocsin.composite.rows import Rows
from tocsin.composite.state import uncollected
from tocsin.errors import DefinitionError
from tocsin.node.placement import Moment
from tocsin.spark.begins import Turn, mark_of
from tocsin.spark.chunks import Chunk, rows_of, stream
from tocsin.spark.detected import batches, progress
from tocsin.spark.detecting import Division

__all__ = ["Answer", "Engine", "Engines", "Stored", "Work", "division_mark", "feed", "written"]

KEPT = 256
"""Detectors that a process keeps, the last used ones …"""
BUSY = 60.0
"""… and all that were used within so many seconds: those of a running query are needed again."""
UNUSED = 600.0
"""Seconds after which one is given up that nobody has asked for."""
TOLD = 10_000
"""Detections that are handed to Spark together."""
TOGETHER = 16 << 20
"""Bytes of chunks that an engine takes at once, where it is fed key by key."""
_VERSION = 1


class Engine(NamedTuple):
    """A detector at work for a division: what it is fed, and what it tells."""

    detector: Detector
    filters: Sequence[str]
    """Of the division, as chunks refer to them."""
    emits: Collection[str]


def feed(engine: Engine, chunks: Iterable[Chunk], above: int = 0, upto: Moment | None = None) -> Derived:
    """Give an engine all chunks of one bucket that lie side by side in the journal; returns what is detected.

    Chunks come in any order, and may overlap: their events are taken in the order of offsets.

    Args:
        engine: takes them.
        chunks: of one bucket.
        above: leave out events up to this offset, which it was fed before, out of the same chunks.
        upto: feed it events up to this offset only, and let it be as late as it was then.
    """
    derived = Derived()
    with uncollected():  # many events and windows are made, and none leads back to itself
        groups = _apart(chunks)
        if upto is None and engine.detector.is_apart:
            groups = _joined(groups)
        for together in groups:
            _feed(engine, together, above, None if upto is None else upto.offset, derived)
    if upto is not None:  # whoever has seen the event there: timers due before it are over
        if upto.time:
            engine.detector.reach(*upto, derived, engine.emits)
        engine.detector.skip(upto.offset)
    return derived


def _feed(engine: Engine, together: list[Chunk], above: int, upto: int | None, derived: Derived) -> None:
    detector, filters, emits = engine
    last, instant = max(chunk.last for chunk in together), max(chunk.time for chunk in together)
    if upto is None:  # they are looked at for the last time
        detector.miss(sum(chunk.keyless for chunk in together))
    if last <= above or (upto is not None and together[0].first > upto):
        return
    several = [rows_of(chunk.events, filters) for chunk in together if chunk.events is not None]
    if last > detector.position:  # the first event, whoever sees it, says when absolute times begin
        detector.begin(max(min(chunk.begin for chunk in together), detector.time))
    if several:
        detector.feed_rows(Rows.merged(several).between(above, upto), derived, emits)
    if upto is None or last <= upto:
        detector.reach(last, instant, derived, emits)


def _apart(chunks: Iterable[Chunk]) -> list[list[Chunk]]:
    """Chunks in order, those that overlap together."""
    groups: list[list[Chunk]] = []
    end = -1
    for chunk in sorted(chunks, key=lambda chunk: (chunk.first, chunk.last)):
        if groups and chunk.first <= end:
            groups[-1].append(chunk)
        else:
            groups.append([chunk])
        end = max(end, chunk.last)
    return groups


def _joined(groups: list[list[Chunk]]) -> list[list[Chunk]]:
    """The same, several groups together as far as memory should allow: a key's events are then at hand at once."""
    joined: list[list[Chunk]] = []
    size = 0
    for group in groups:
        more = sum(len(chunk.events or b"") for chunk in group)
        if not joined or size + more > TOGETHER:
            joined.append([])
            size = 0
        joined[-1] += group
        size += more
    return joined


class Stored(msgspec.Struct, array_like=True):
    """The state of one bucket as it is stored: a snapshot, and the chunks since, batch by batch."""

    snapshot: bytes | None
    batches: list[msgspec.Raw]
    """Each is what `Work.chunks` was."""


class Work(msgspec.Struct, array_like=True):
    """A batch for one bucket."""

    lineage: bytes
    """Which state this is: made up when it began."""
    before: bytes
    """The token of the state as it is stored."""
    after: bytes
    """Its token when this batch is done."""
    division: Division
    chunks: msgspec.Raw
    """See `written`."""
    save: bool
    """Is a snapshot wanted?"""
    stored: Stored | None = None
    """Is given when it was asked for."""


class Answer(msgspec.Struct, array_like=True):
    """What became of it."""

    detected: list[bytes]
    """Arrow's streams of the raw columns of `detected`."""
    snapshot: bytes | None
    """If it was wanted, or must be stored because the definitions have changed."""
    is_done: bool
    """Has the engine all definitions of the division?"""
    keyless: int
    """Matches of this batch whose events have no key …"""
    repeated: int
    """… and events of it that came before: both were left out."""


class Engines:
    """The detectors of a process."""

    def __init__(self) -> None:
        """Begin without any."""
        self._kept: OrderedDict[bytes, tuple[bytes, bytes, Detector, float]] = OrderedDict()

    def run(self, work: Work) -> Answer | None:
        """Do a batch; None: the stored state is needed.

        Raises:
            DefinitionError: what is stored has a version that this program does not know.
        """
        token, known, detector, _ = self._kept.pop(work.lineage, (b"", b"", None, 0))
        if detector is None or token != work.before:
            if work.stored is None:
                return None
            detector, known = _revived(work.stored)
        division, chunks, save = work.division, _taken(detector, work.chunks), work.save
        keyless, repeated = detector.left_out
        mark = division_mark(division)
        done: list[Derived] = []
        is_done = Turn.is_done(known, mark)
        if is_done:
            done.append(feed(Engine(detector, division.filters, division.lasting), chunks))
        else:
            turn = Turn(detector, known, mark, division.schedule, division.by)
            first = min([chunk.first for chunk in chunks], default=detector.position + 1)
            above = 0
            for step in turn.steps(first, max([chunk.last for chunk in chunks], default=0)):
                done.append(feed(Engine(detector, division.filters, step.emits), chunks, above, step.upto))
                above = step.upto.offset if step.upto is not None else above
            known, save = turn.known(), True
            is_done = Turn.is_done(known, mark)
        self._keep(work.lineage, work.after, known, detector)
        told = [piece for found in done for piece in _pieces(found, division.is_exact)]
        if division.is_exact and chunks:
            told.append(progress(detector, max(chunk.time for chunk in chunks)))
        snapshot = _encode(_Saved(_VERSION, known, division.filters, detector.snapshot())) if save else None
        more, again = detector.left_out
        sent = [stream(each, is_large=True) for each in told]
        return Answer(sent, snapshot, is_done, more - keyless, again - repeated)

    def _keep(self, lineage: bytes, token: bytes, known: bytes, detector: Detector) -> None:
        """Keep a detector, and none whose query has ended, as far as one can tell."""
        now = time.monotonic()
        self._kept[lineage] = token, known, detector, now
        while self._kept:
            used = next(iter(self._kept.values()))[3]
            if used > now - (BUSY if len(self._kept) > KEPT else UNUSED):
                return
            self._kept.popitem(last=False)


def written(chunks: list[Chunk]) -> msgspec.Raw:
    """Chunks as they travel and are stored."""
    return msgspec.Raw(_encode(chunks))


def division_mark(division: Division) -> bytes:
    """A name for what a division looks for: the same for the same."""
    return mark_of(division.schedule, division.filters)


def _pieces(found: Derived, is_exact: bool) -> Iterator[pa.RecordBatch]:
    for whole in batches(found, is_exact=is_exact):
        for place in range(0, whole.num_rows, TOLD):
            yield whole.slice(place, TOLD)


class _Saved(msgspec.Struct, array_like=True):
    version: int
    known: bytes
    """See `Turn.known`."""
    filters: tuple[str, ...]
    """What the chunks of the batches since refer to."""
    detector: bytes


def _revived(stored: Stored) -> tuple[Detector, bytes]:
    """The detector of a stored state, and what it knows. All batches since a snapshot had its definitions."""
    if stored.snapshot is None:
        return Detector(), b""
    version = msgspec.msgpack.decode(stored.snapshot, type=tuple[Any, ...])[0]
    if version != _VERSION:
        raise DefinitionError(
            f"the state in the checkpoint has version {version!r}, and this program knows {_VERSION}",
            help="use the program that wrote it, or begin with a new checkpoint",
        )
    saved = _read(stored.snapshot)
    engine = Engine(Detector.restore(saved.detector), saved.filters, ())
    for chunks in stored.batches:  # what they detect was told before
        feed(engine, _taken(engine.detector, chunks))
    return engine.detector, saved.known


def _taken(detector: Detector, content: msgspec.Raw) -> list[Chunk]:
    """The chunks of a batch; the detector learns what was passed before it (`chunks.passed`)."""
    chunks = _read_chunks(content)
    for chunk in chunks:
        if not chunk.first:
            detector.skip(chunk.last)
    return [chunk for chunk in chunks if chunk.first]


_encode = msgspec.msgpack.Encoder().encode
_read = msgspec.msgpack.Decoder(_Saved).decode
_read_chunks = msgspec.msgpack.Decoder(list[Chunk]).decode
