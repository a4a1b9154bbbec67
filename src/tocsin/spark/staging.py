"""Where rows wait for the commit: files that tasks write and the driver reads, beside the journal.

    <journal>.staging / <whose> / <partition>-<random>.rows      one file for each attempt of a task

    whose    a stream's: journal and writer, hashed.  A batch write's: the process that runs it, and a random part

Files are not flushed to the disk: if the machine fails before the commit, Spark does the batch again and nobody asks
for them; the journal's own commit is what must last. The driver compares every chunk with the checksum that its task
reported, so a file that is missing, cut or another's fails the commit, and stores nothing.

What is left behind
    - An attempt that fails removes its file. What a killed or superfluous attempt leaves goes with its batch, when that
      is committed or aborted: the whole folder goes, since one batch ends before the next begins. Other attempts may
      still run when Spark aborts: so the driver makes the folder, and an attempt that finds none gives up.
    - A killed driver leaves its batch. It is removed by the next commit to the same journal: at once if the stream is
      the same or the process is dead, else after a day.

Not promised: anything on file systems that driver and executors do not share. On several machines give the option
`staging` a directory that all of them see.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import secrets
import shutil
import socket
import time
import zlib
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

import msgspec

from tocsin.errors import JournalError
from tocsin.journal.packed import Chunk

__all__ = ["Piece", "Stage", "StagedFile", "chunks_in", "job_name", "stream_name"]

_DAY = 24 * 3600
_STREAM, _JOB = "stream", "job"
_TRIES = 10
"""How often a step is repeated that another process may undo at the same moment."""


class Piece(msgspec.Struct, frozen=True, array_like=True):
    """A chunk of rows in a file."""

    start: int
    size: int
    count: int
    checksum: int


def stream_name(url: str, writer: str) -> str:
    """Whose files those of a stream are."""
    return f"{_STREAM}-{hashlib.blake2b(f'{url} {writer}'.encode(), digest_size=12).hexdigest()}"


def job_name() -> str:
    """Whose files those of a batch write are; called on the driver.

    The parent of a Python worker is Spark's daemon or the JVM itself: it lives as long as the driver.
    """
    return f"{_JOB}-{os.getppid()}-{secrets.token_hex(8)}-{socket.gethostname()}"


class Stage(msgspec.Struct, frozen=True):
    """The files of one batch at a time."""

    root: str
    """The staging directory."""
    whose: str
    """By `stream_name` or `job_name`."""

    @property
    def place(self) -> Path:
        """Where the files are."""
        return Path(self.root, self.whose)

    def prepare(self) -> None:
        """Make the folder that tasks will write to; on the driver, before a batch.

        Raises:
            JournalError: it cannot be made.
        """
        for tries_left in reversed(range(_TRIES)):
            try:
                self.place.parent.mkdir(exist_ok=True)
                self.place.mkdir(exist_ok=True)
                return
            except OSError as error:
                # A commit elsewhere may remove the empty root between the two steps.
                if not isinstance(error, FileNotFoundError) or not tries_left:
                    raise _not_staged(self.place, error) from None

    def clear(self) -> None:
        """Remove everything; and what others left for good."""
        _remove(self.place)
        with contextlib.suppress(OSError):
            for folder in self.place.parent.iterdir():
                if _is_abandoned(folder):
                    _remove(folder)
        with contextlib.suppress(OSError):  # somebody else is at work in it
            self.place.parent.rmdir()


class StagedFile:
    """The file of one attempt of a task, made when there are rows. Left with an error it is removed."""

    def __init__(self, stage: Stage, partition: int) -> None:
        """Give the file a name that no other attempt has."""
        self._place = stage.place
        self.path = str(stage.place / f"{partition}-{secrets.token_hex(8)}.rows")
        self.pieces: list[Piece] = []
        self._end = 0
        self._file: BinaryIO | None = None

    def add(self, rows: bytearray, count: int) -> None:
        """Add a chunk of `packed.pack`.

        Raises:
            JournalError: it cannot be written.
        """
        try:
            if self._file is None:
                self._file = open(self.path, "xb")  # noqa: SIM115 - it stays open until the task ends
            self._file.write(rows)
            self._file.flush()
        except OSError as error:
            raise _not_staged(self._place, error) from None
        self.pieces.append(Piece(self._end, len(rows), count, zlib.crc32(rows)))
        self._end += len(rows)

    def __enter__(self) -> StagedFile:
        """Use it in a `with` block."""
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: TracebackType | BaseException | None) -> None:
        """Close it."""
        if self._file is not None:
            self._file.close()
            if kind is not None:
                with contextlib.suppress(OSError):
                    os.unlink(self.path)


def chunks_in(path: str, pieces: list[Piece]) -> list[Chunk]:
    """What a task staged, as chunks that are read when they are stored."""
    return [
        Chunk(piece.count, piece.size, piece.checksum, functools.partial(_read, path, piece.start, piece.size))
        for piece in pieces
    ]


def _read(path: str, start: int, size: int) -> bytes:
    with open(path, "rb") as file:
        file.seek(start)
        return file.read(size)


def _not_staged(place: Path, error: OSError) -> JournalError:
    return JournalError(
        f"rows cannot be staged in {place}: {error.strerror}",
        path=str(place),
        help="give the option staging a directory that the driver and every executor can write to",
    )


def _remove(folder: Path) -> None:
    """Remove a folder, also if an attempt that was given up adds a file meanwhile."""
    for _ in range(_TRIES):
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            return


def _is_abandoned(folder: Path) -> bool:
    """Will nobody come back for these files?"""
    kind, _, rest = folder.name.partition("-")
    process, _, rest = rest.partition("-")
    if kind == _JOB and rest.partition("-")[2] == socket.gethostname() and not _is_alive(process):
        return True
    try:
        return time.time() - max(path.stat().st_mtime for path in [folder, *folder.iterdir()]) > _DAY
    except OSError:  # it changes under our eyes: somebody is at work
        return False


def _is_alive(process: str) -> bool:
    try:
        os.kill(int(process), 0)
    except (ProcessLookupError, ValueError):
        return False
    except PermissionError:
        return True
    return True
