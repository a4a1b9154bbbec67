"""Where the parts of a batch wait at the node until it is complete: files beside the journal.

    <journal>.batches / <whose> / <batch> / <part>        rows that were checked, and before them what they are

    whose    the token's name, hashed: nobody sees or takes what another has staged

Promised: a part is there whole or not at all, also when the node is killed, and stays until its batch is stored or
given up; what nobody came back for is removed after a day. All parts together, and those of one token, are bounded.
Not promised: that a part survives the machine: it is not flushed. Then its checksum fails, nothing is stored, and who
has sent it sends it again.

Concurrency: functions that touch the disk are for other threads; one batch is not changed by two at a time that matter,
since each part has a name of its own.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import secrets
import shutil
import tempfile
import threading
import time
import weakref
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, Final

import msgspec

from tocsin.errors import JournalError, JournalFullError, OverloadError, ProtocolError
from tocsin.journal.packed import Chunk

__all__ = ["About", "Staged"]

MOST: Final = 16 << 30
"""Bytes that wait, of all together."""
MOST_EACH: Final = 8 << 30
"""Bytes that wait, of one token."""
MOST_PARTS: Final = 100_000
"""Parts that wait, of one token."""
MOST_BATCHES: Final = 1_000
"""Batches that are open, of one token."""
_DAY: Final = 24 * 3600
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_HEAD: Final = 8  # bytes that say how long the header is


class About(msgspec.Struct, frozen=True, array_like=True):
    """What is known of a part without reading its rows."""

    events: int
    size: int
    checksum: int
    types: list[str] = []


class Staged:
    """All parts that wait at a node."""

    def __init__(self, journal: Any) -> None:
        """Keep them beside a journal, or in a directory of their own if it is in memory."""
        inner = getattr(journal, "journal", journal)  # below an archive
        self._beside: str | None = getattr(inner, "path", None)
        self._root: Path | None = None
        self._lock = threading.Lock()
        self._bytes: Counter[str] = Counter()
        self._parts: Counter[str] = Counter()
        self.most, self.most_each = MOST, MOST_EACH

    def begin(self, whose: str, batch: str) -> None:
        """Open a batch; one that is open stays as it is.

        Raises:
            OverloadError: there are too many.
            JournalFullError: there is no room for it.
            ProtocolError: the name is none.
        """
        place = self._folder(whose, batch)
        with _kept():
            place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not place.exists() and len(list(place.parent.iterdir())) >= MOST_BATCHES:
                raise OverloadError(f"{MOST_BATCHES:,} batches are open", field="name", help="store or drop some first")
            place.mkdir(mode=0o700, exist_ok=True)

    def put(self, whose: str, batch: str, part: str, rows: bytes | bytearray, events: int, types: list[str]) -> About:
        """Keep a part of a batch that is open; the same name again replaces it.

        Raises:
            FileNotFoundError: the batch is not open. It was stored or given up, and a straggler does not open it again.
            OverloadError: too much waits already.
            JournalFullError: there is no room for it.
            ProtocolError: a name is none.
        """
        about = About(events, len(rows), zlib.crc32(rows), types)
        head = msgspec.msgpack.encode(about)
        place = self._folder(whose, batch) / _checked(part, "id")
        size = _HEAD + len(head) + len(rows)
        self._reserve(whose, size)
        draft = place.with_name(f".{secrets.token_hex(8)}")
        try:
            with _kept():
                try:
                    draft.write_bytes(b"".join((len(head).to_bytes(_HEAD, "big"), head, rows)))
                    before = place.stat().st_size if place.exists() else 0
                    draft.replace(place)
                finally:
                    draft.unlink(missing_ok=True)
        except BaseException:
            self._release(whose, size, 1)
            raise
        if before:
            self._release(whose, before, 1)
        return about

    def types(self, whose: str, batch: str, parts: list[str]) -> set[str]:
        """The types of all events in some parts, as far as they are there."""
        folder, found = self._folder(whose, batch), set[str]()
        for part in parts:
            place = folder / _checked(part, "parts")
            with contextlib.suppress(FileNotFoundError), place.open("rb") as file:
                found.update(_about(file).types)
        return found

    def chunk(self, whose: str, batch: str, part: str, about: About) -> Chunk:
        """A part as rows that are read when they are stored, and compared with what is known of it."""
        place = self._folder(whose, batch) / _checked(part, "parts")

        def read() -> bytes:
            with place.open("rb") as file:
                if _about(file).events != about.events:  # a block with another number of rows than it says is damaged
                    raise JournalError(f"part {part} is not what it was", help="stage it again")
                return file.read()

        return Chunk(about.events, about.size, about.checksum, read)

    def clear(self, whose: str, batch: str) -> None:
        """Remove a batch, and what nobody will come back for."""
        self._remove(whose, self._folder(whose, batch))
        with contextlib.suppress(OSError):
            for folder in self._place().glob("*/*"):
                if time.time() - folder.stat().st_mtime > _DAY:
                    self._remove(folder.parent.name, folder, hashed=True)

    def _remove(self, whose: str, folder: Path, *, hashed: bool = False) -> None:
        gone = folder.with_name(f".{secrets.token_hex(8)}")  # from here on nothing is put into it, so all is counted
        with contextlib.suppress(OSError):
            folder.rename(gone)
            sizes = [each.stat().st_size for each in gone.iterdir() if not each.name.startswith(".")]
            shutil.rmtree(gone, ignore_errors=True)
            self._release(whose, sum(sizes), len(sizes), hashed=hashed)

    # -- how much there is

    def _reserve(self, whose: str, size: int) -> None:
        self._place()
        name = _hashed(whose)
        with self._lock:
            each, parts = self._bytes[name] + size, self._parts[name] + 1
            if each > self.most_each or parts > MOST_PARTS or self._bytes.total() + size > self.most:
                raise OverloadError(
                    f"{self._bytes[name]:,} bytes in {self._parts[name]:,} parts wait here already",
                    field="parts",
                    help="store or drop batches first, or make them smaller",
                )
            self._bytes[name], self._parts[name] = each, parts

    def _release(self, whose: str, size: int, parts: int, *, hashed: bool = False) -> None:
        name = whose if hashed else _hashed(whose)
        with self._lock:
            self._bytes[name] -= size
            self._parts[name] -= parts

    # -- where

    def _place(self) -> Path:
        """The directory; found when it is first needed, with what an earlier life has left in it."""
        with self._lock:
            if self._root is None:
                if self._beside is None:
                    self._root = Path(tempfile.mkdtemp(prefix="tocsin-batches-"))
                    weakref.finalize(self, shutil.rmtree, self._root, ignore_errors=True)
                else:
                    self._root = Path(f"{self._beside}.batches")
                for file in self._root.glob("*/*/*"):
                    with contextlib.suppress(OSError):
                        if file.name.startswith("."):
                            file.unlink()  # the node was killed while it wrote
                        else:
                            self._bytes[file.parts[-3]] += file.stat().st_size
                            self._parts[file.parts[-3]] += 1
            return self._root

    def _folder(self, whose: str, batch: str) -> Path:
        return self._place() / _hashed(whose) / _checked(batch, "name")


@contextlib.contextmanager
def _kept() -> Iterator[None]:
    """A disk that takes nothing, as an error of ours; a place that is not there stays what it is."""
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        raise JournalFullError(
            f"this cannot be kept: {error.strerror}", help="tell who runs the node to look at its disk"
        ) from None


def _hashed(whose: str) -> str:
    return hashlib.blake2b(whose.encode(), digest_size=12).hexdigest()


def _checked(name: str, field: str) -> str:
    if not _NAME.fullmatch(name):
        help = "use letters, digits, dots, dashes and underscores, up to 128, a letter or digit first"
        raise ProtocolError(f"{name[:64]!r} is no name of a batch or a part", field=field, help=help)
    return name


def _about(file: BinaryIO) -> About:
    """What is known of a part that was opened; its rows are what can be read next.

    Raises:
        JournalError: it is not what was written.
    """
    size = int.from_bytes(file.read(_HEAD), "big")
    try:
        return msgspec.msgpack.decode(file.read(min(size, 1 << 26)), type=About)
    except msgspec.MsgspecError:
        raise JournalError("a part that waits is damaged", help="stage it again") from None
