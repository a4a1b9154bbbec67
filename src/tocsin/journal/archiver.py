"""Bringing a journal into a lake: what to write, and making it count. The work itself is `lakewriter`'s, or Spark's.

    ranges ─▶ [written elsewhere, below `staging`] ─▶ install: files to their places ─▶ manifest ─▶ old files go

A chunk ends where its last offset is a multiple of `chunk`, or at the end of what there was. Such an unfinished one is
written anew, with what came since, at the next run (`compact`). So the lake depends on what the journal holds and on
`chunk`, not on how often or how well archiving went.

Promised: one archiver at a time (another gets LakeError, and nothing is damaged). It may die at any moment: files that
no manifest lists are removed when the next one begins, and it goes on behind the newest manifest. Nothing that a
manifest lists is removed before one that does not is on stable storage.
Not promised: that who reads the Parquet files without the manifest sees each event once *during* a run, or between a
crash and the next run.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from tocsin import crashpoints
from tocsin.errors import JournalError, JournalFullError, JournalLockedError, LakeError
from tocsin.journal import durably, lakewriter, manifest
from tocsin.journal.archived import Joined, Readable, check_same
from tocsin.journal.lake import Lake
from tocsin.journal.lakefiles import SYSTEM
from tocsin.journal.lockfile import LockFile
from tocsin.journal.manifest import PRIVATE, Chunk

__all__ = ["CHUNK", "Archiver", "Staged", "archive", "plan"]

CHUNK = 100_000
"""Events of a chunk: some megabytes, and half a second's work."""
_OURS = re.compile(f"(?:{SYSTEM}/)?day=[^/]*/type=[^/]*")
_NAME = re.compile(r"[0-9]+-[0-9]+\.parquet")


class Staged(NamedTuple):
    """A chunk that is written, but not in its place yet."""

    chunk: Chunk
    place: str
    """The directory its paths are relative to, now."""


class Archiver:
    """The right to change a lake, held until `close`.

    Args:
        journal: what is archived: a journal, or a reader of one.
        lake: the lake's directory; it is made if need be.
        chunk: where chunks end: at multiples of this offset.
        compact: whether unfinished chunks are written anew when there is more.
    """

    def __init__(self, journal: Readable, lake: str, chunk: int = CHUNK, compact: bool = True) -> None:
        """Take the lock, check that the lake is this journal's, and clear away what nobody lists.

        Raises:
            LakeError: another archiver is at work, the lake is another journal's, or its list was lost.
            JournalError: `chunk` means nothing.
            JournalFullError: the directory cannot be written to.
        """
        if type(chunk) is not int or chunk < 1:
            raise JournalError(f"chunk is {chunk!r}", help="give a number of events from 1 up")
        self.lake = Lake(lake)
        self._chunk, self._compact = chunk, compact
        private = os.path.join(self.lake.path, PRIVATE)
        self.staging = os.path.join(private, "staging", secrets.token_hex(8))
        """Where this run may write; it is gone in the end."""
        try:
            os.makedirs(private, exist_ok=True)
            self._lock = LockFile(os.path.join(private, "archive"))
        except JournalLockedError as error:
            raise LakeError(
                f"another archiver is at work on {self.lake.path}: {error.holder}",
                path=self.lake.path,
                help="wait until it is done; it goes on by itself where this one would",
            ) from None
        except OSError as error:
            raise _unwritable(self.lake.path, error) from None
        try:
            self.lake.refresh()
            check_same(journal, self.lake)
            self.journal = Joined(journal, self.lake)
            """What there is to archive: an unfinished chunk may be in the lake alone by now."""
            self.removed = self._clear()
            """Files of earlier runs that were removed."""
            os.makedirs(self.staging)
        except BaseException:
            self._lock.release()
            raise

    def ranges(self, upto: int | None = None) -> list[tuple[int, int]]:
        """What is to be written: first and last offsets, ascending. Empty if all up to `upto` (the head) is there."""
        head = self.journal.head if upto is None else min(upto, self.journal.head)
        first = self.journal.first
        chunks = [chunk for chunk in self.lake.manifest.chunks if chunk.first >= first]
        return plan(chunks, max(self.lake.last + 1, first), head, self._chunk, self._compact)

    def install(self, written: Sequence[Staged]) -> None:
        """Make written chunks part of the lake, in place of all that lie within them.

        Raises:
            LakeError: somebody else has changed the lake.
            JournalFullError: it cannot be written.
        """
        if not written:
            return
        path, before = self.lake.path, self.lake.manifest
        chunks = [each.chunk for each in written]
        crashpoints.reach("archive-staged")
        try:
            for chunk, place in written:
                for file in chunk.files:
                    target = os.path.join(path, file.path)
                    os.makedirs(os.path.dirname(target), exist_ok=True)
                    os.replace(os.path.join(place, file.path), target)
            for directory in _directories(file.path for chunk in chunks for file in chunk.files):
                durably.sync_directory(os.path.join(path, directory))
        except OSError as error:
            raise _unwritable(path, error) from None
        crashpoints.reach("archive-moved")
        name = getattr(self.journal.journal, "file_id", "")
        self._commit(before, manifest.replaced(before, chunks, name))

    def drop_before(self, moment: int) -> list[Chunk]:
        """Drop the chunks whose last event arrived before a moment (microseconds); returns them."""
        before = self.lake.manifest
        old = [chunk for chunk in before.chunks if chunk.arrived[1] < moment]
        if old:
            self._commit(before, manifest.without(before, old))
        return old

    def _commit(self, before: manifest.Manifest, after: manifest.Manifest) -> None:
        """The manifest first, then the files that it does not list any more."""
        manifest.commit(self.lake.path, after)
        crashpoints.reach("archive-committed")
        self.lake.refresh()
        listed = {file.path for chunk in after.chunks for file in chunk.files}
        for path in {file.path for chunk in before.chunks for file in chunk.files} - listed:
            self._remove(path)

    def _clear(self) -> int:
        """Remove what a run that died has left."""
        shutil.rmtree(os.path.join(self.lake.path, PRIVATE, "staging"), ignore_errors=True)
        listed = {file.path for chunk in self.lake.manifest.chunks for file in chunk.files}
        unlisted = [path for path in _files(self.lake.path) if path not in listed]
        self._keep_only_copies(unlisted)
        for path in unlisted:
            self._remove(path)
        return len(unlisted)

    def _keep_only_copies(self, unlisted: list[str]) -> None:
        """Refuse to remove what the journal has no longer, and the list does not have yet.

        A run that died leaves no such files, unless the journal was trimmed beyond the list. A list that was lost, or
        went back to an earlier version, does: as after a copy that left `_tocsin` out.
        """
        kept, known = self.journal.kept, self.lake.last
        only = []
        for path in unlisted:
            first, last = map(int, os.path.basename(path).removesuffix(".parquet").split("-"))
            if max(first, known + 1) < min(kept, last + 1):
                only.append(path)
        if only:
            raise LakeError(
                f"the list of what {self.lake.path} holds ends at offset {known} and the journal begins at {kept}, so "
                f"{len(only)} files that are not listed, such as {only[0]}, may be the only copies of what was trimmed",
                path=self.lake.path,
                help=f"restore the newest list, in {PRIVATE}, from a copy; or move these files away",
            )

    def _remove(self, path: str) -> None:
        place = os.path.join(self.lake.path, path)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(place)
        while (place := os.path.dirname(place)) != self.lake.path:
            try:
                os.rmdir(place)
            except OSError:  # there is more in it
                return

    def close(self) -> None:
        """Let others archive. May be repeated."""
        shutil.rmtree(self.staging, ignore_errors=True)
        with contextlib.suppress(OSError):
            os.rmdir(os.path.dirname(self.staging))
        self._lock.release()

    def __enter__(self) -> Archiver:
        """Use it in a `with` block."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()


def archive(journal: Readable, lake: str, *, chunk: int = CHUNK, upto: int | None = None) -> int:
    """Archive a journal in this process, one chunk after the other; returns the last offset archived."""
    with Archiver(journal, lake, chunk) as archiver:
        for first, last in archiver.ranges(upto):
            place = os.path.join(archiver.staging, f"{first}-{last}")
            archiver.install(
                [Staged(lakewriter.write(archiver.journal.blocks(first, last), first, last, place), place)]
            )
        return archiver.lake.last


def plan(chunks: Sequence[Chunk], first: int, head: int, size: int, compact: bool = True) -> list[tuple[int, int]]:
    """The ranges to be written.

    Args:
        chunks: those there are, by offset.
        first: the first offset that is to be added.
        head: the last one.
        size: where chunks end: at its multiples.
        compact: whether chunks that lie between the same two multiples, side by side, become one.
    """
    ranges = []
    while first <= head:
        last = min(head, first + size - 1 - (first - 1) % size)
        ranges.append((first, last))
        first = last + 1
    if not compact:
        return ranges
    runs: list[tuple[int, int, int]] = []  # first, last, how many
    for low, high in sorted([*((chunk.first, chunk.last) for chunk in chunks), *ranges]):
        if runs and runs[-1][1] == low - 1 and (runs[-1][0] - 1) // size == (high - 1) // size:
            low, count = runs.pop()[0], 2
        else:
            count = 1
        runs.append((low, high, count))
    return [(low, high) for low, high, count in runs if count > 1 or (low, high) in ranges]


def _directories(paths: Iterable[str]) -> list[str]:
    """Directories of files, and those that they lie in."""
    found = {""}
    for path in paths:
        while path := os.path.dirname(path):
            found.add(path)
    return sorted(found)


def _files(lake: str) -> Iterator[str]:
    """Every file below a lake that has a name as ours have, whoever made it; others are none of our business."""
    for place, _, names in os.walk(lake):
        directory = os.path.relpath(place, lake)
        if _OURS.fullmatch(directory):
            yield from (f"{directory}/{name}" for name in names if _NAME.fullmatch(name))


def _unwritable(lake: str, error: OSError) -> JournalFullError:
    help = "check its space and permissions"
    return JournalFullError(f"the lake cannot be written: {error}", path=lake, help=help)
