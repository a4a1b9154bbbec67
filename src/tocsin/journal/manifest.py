"""What a lake holds: a list, written anew as the next version whenever it changes. The newest version counts.

    lake/_tocsin/00000007.json     {format, version, journal, last, chunks: [{first, last, arrived, files, …}, …]}

A chunk is a stretch of the journal, whole: every offset from `first` to `last` is in one of its files, or was lost
before it came here (`journal repair`). A file that no chunk of the newest version lists does not exist for our readers.

Promised: a version is there whole or not at all, and never changes. Of two who write the same version one succeeds and
the other gets `LakeError`. The newest few versions are kept, so that a reader in the midst of one finds it.
Not promised: anything on object stores or file systems without hard links; lakes are for local and shared file systems.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence

import msgspec

from tocsin.errors import JournalFullError, LakeError
from tocsin.journal import durably

__all__ = ["PRIVATE", "Chunk", "File", "Manifest", "commit", "is_newest", "load", "replaced", "without"]

PRIVATE = "_tocsin"
"""The directory of a lake that is ours alone; readers of Parquet pass over names that begin so."""

_FORMAT = 1
_KEPT = 10  # versions: a reader that has listed one has this many commits' time to open it
_ENDING = ".json"


class File(msgspec.Struct, frozen=True):
    """A Parquet file: events of one type and one day, in order."""

    path: str
    """Below the lake, with slashes."""
    day: str
    """UTC, as 2026-01-31."""
    type: str
    """As the events have it; the path may hold it escaped, or cut."""
    rows: int
    bytes: int
    first: int
    """The offset of its first event."""
    last: int


class Chunk(msgspec.Struct, frozen=True):
    """A stretch of the journal, in files."""

    first: int
    last: int
    arrived: tuple[int, int]
    """Journal times of its first and last event, in microseconds."""
    ids: tuple[str, str]
    """Of its first and last event, to tell one journal from another; empty where that was lost."""
    files: tuple[File, ...]
    lost: tuple[tuple[int, int], ...] = ()
    """Stretches that had no events any more when they came here."""
    packed: bytes | None = msgspec.field(default=None, name="statistics")
    """Its statistics, as `statistics.dump` writes them; None: nothing is known."""


class Manifest(msgspec.Struct, frozen=True):
    """One version of the list."""

    version: int = 0
    journal: str = ""
    """The journal's own name for itself (`file_id`); empty if it has none."""
    last: int = 0
    """Up to where the journal has been archived; it stays when chunks are dropped by age."""
    chunks: tuple[Chunk, ...] = ()
    """By offset. There may be gaps: where the journal was trimmed before it was archived."""
    format: int = _FORMAT


def load(lake: str) -> Manifest:
    """The newest version; one without chunks if there is none.

    Raises:
        LakeError: it cannot be read, or was written by a later version of Tocsin.
    """
    while True:
        newest = max(_versions(lake), default=0)
        if not newest:
            return Manifest()
        try:
            with open(_place(lake, newest), "rb") as file:
                manifest = msgspec.json.decode(file.read(), type=Manifest)
        except FileNotFoundError:  # so many came since that it was cleared away: look again
            continue
        except (OSError, msgspec.MsgspecError, ValueError) as error:
            help = f"restore {_place(lake, newest)} from a copy"
            raise LakeError(f"the list of what the lake holds cannot be read: {error}", path=lake, help=help) from None
        if manifest.format != _FORMAT:
            raise LakeError(f"the lake has format {manifest.format}", path=lake, help="use a newer Tocsin")
        return manifest


def is_newest(lake: str, version: int) -> bool:
    """Is there no later version? Two questions to the file system, however large the lake is."""
    if version == 0:
        return not _versions(lake)
    return os.path.exists(_place(lake, version)) and not os.path.exists(_place(lake, version + 1))


def commit(lake: str, manifest: Manifest) -> None:
    """Make a version that is not there yet. What it lists must be on stable storage.

    Raises:
        LakeError: this version is there: somebody else has written it.
        JournalFullError: it cannot be written.
    """
    try:
        os.makedirs(os.path.join(lake, PRIVATE), exist_ok=True)
        durably.create(_place(lake, manifest.version), msgspec.json.encode(manifest))
    except FileExistsError:
        raise LakeError(
            f"version {manifest.version} of the lake was written by somebody else",
            path=lake,
            help="let one archiver work at a time; run this one again",
        ) from None
    except OSError as error:
        help = "check its space and permissions"
        raise JournalFullError(f"the lake cannot be written: {error}", path=lake, help=help) from None
    for old in _versions(lake):
        if old <= manifest.version - _KEPT:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(_place(lake, old))


def replaced(manifest: Manifest, chunks: Sequence[Chunk], journal: str = "") -> Manifest:
    """The next version, with chunks in the place of all that lie within them."""
    ranges = [(chunk.first, chunk.last) for chunk in chunks]
    kept = [old for old in manifest.chunks if not any(low <= old.first and old.last <= high for low, high in ranges)]
    return msgspec.structs.replace(
        manifest,
        version=manifest.version + 1,
        journal=journal or manifest.journal,
        last=max([manifest.last, *(chunk.last for chunk in chunks)]),
        chunks=tuple(sorted([*kept, *chunks], key=lambda chunk: chunk.first)),
    )


def without(manifest: Manifest, chunks: Sequence[Chunk]) -> Manifest:
    """The next version, without some chunks."""
    gone = {chunk.first for chunk in chunks}
    kept = tuple(chunk for chunk in manifest.chunks if chunk.first not in gone)
    return msgspec.structs.replace(manifest, version=manifest.version + 1, chunks=kept)


def _place(lake: str, version: int) -> str:
    return os.path.join(lake, PRIVATE, f"{version:08}{_ENDING}")


def _versions(lake: str) -> list[int]:
    try:
        names = os.listdir(os.path.join(lake, PRIVATE))
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [int(stem) for name in names if name.endswith(_ENDING) and (stem := name.removesuffix(_ENDING)).isdigit()]
