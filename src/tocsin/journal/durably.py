"""Small files that are there whole or not at all, also after a power cut.

Promised: when a function returns, content and name are on stable storage; a reader never sees half a file.
Not promised: anything on file systems without hard links (`create`), or without `fsync`.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import statistics
import tempfile
import time
from collections.abc import Iterator

__all__ = ["create", "flush_seconds", "replace", "sync_directory", "sync_file"]


def create(path: str, data: bytes) -> None:
    """Write a file that is not there yet.

    Raises:
        FileExistsError: it is there; of several who try only one succeeds.
    """
    with _draft(path, data) as draft:
        os.link(draft, path)  # fails if the name is taken, unlike a rename
    sync_directory(os.path.dirname(path))


def replace(path: str, data: bytes, mode: int = 0o666) -> None:
    """Write a file, in the place of one that may be there; `mode` is who may read it, less what the umask takes."""
    with _draft(path, data, mode) as draft:
        os.replace(draft, path)
    sync_directory(os.path.dirname(path))


def sync_file(path: str) -> None:
    """Bring a file's content to stable storage."""
    _sync(path)


def sync_directory(path: str) -> None:
    """Make the names in a directory as durable as what they name."""
    _sync(path or ".")


@contextlib.contextmanager
def _draft(path: str, data: bytes, mode: int = 0o666) -> Iterator[str]:
    """The content under another name, which is gone in the end. It begins with a dot, so that readers pass it over."""
    directory, name = os.path.split(path)
    draft = os.path.join(directory, f".{name}.{secrets.token_hex(8)}")
    try:
        with open(draft, "xb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        yield draft
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(draft)


def _sync(path: str) -> None:
    place = os.open(path, os.O_RDONLY)
    try:
        os.fsync(place)
    finally:
        os.close(place)


def flush_seconds(directory: str | os.PathLike[str] | None, times: int) -> float:
    """How long the disk of a directory takes to flush 4 KiB: the median of so many tries.

    Raises:
        OSError: nothing can be written there.
    """
    seconds: list[float] = []
    with tempfile.TemporaryFile(dir=directory) as file:
        for _ in range(times):
            file.write(b"x" * 4096)
            file.flush()
            begun = time.perf_counter()
            os.fsync(file.fileno())
            seconds.append(time.perf_counter() - begun)
    return statistics.median(seconds)
