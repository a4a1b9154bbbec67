"""SQLite's errors as ours: no `sqlite3` exception leaves the journal."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from tocsin.errors import JournalDamagedError, JournalError, JournalFullError

__all__ = ["as_journal_error", "translated"]

_FULL = {sqlite3.SQLITE_FULL, sqlite3.SQLITE_READONLY}
_DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}


def as_journal_error(error: sqlite3.Error, path: str) -> JournalError:
    """The error of ours that says what SQLite's says."""
    # The low byte is the primary code; the rest says where in SQLite it happened, which helps nobody outside.
    code = (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF
    if code == sqlite3.SQLITE_FULL:
        return JournalFullError(
            f"no space is left for {path}", path=path, help="free space, or trim the journal; then try again"
        )
    if code in _FULL:
        return JournalFullError(
            f"{path} cannot be written to: {error}", path=path, help="check permissions of the file and its directory"
        )
    # A changed byte can also turn a blob into text; that Python cannot read it has no code.
    if code in _DAMAGED or (not code and "decode to UTF-8" in str(error)):
        return JournalDamagedError(f"{path} is damaged: {error}", path=path, help="see `tocsin journal check`")
    if code == sqlite3.SQLITE_CANTOPEN:
        return JournalError(
            f"{path} cannot be opened: {error}", path=path, help="check that it exists, and its permissions"
        )
    if code == sqlite3.SQLITE_BUSY:
        return JournalError(
            f"{path} is being written to by another program: {error}",
            path=path,
            help="write to a journal through Tocsin only",
        )
    return JournalError(f"{path} cannot be used: {error}", path=path, help="check the disk, then try again")


@contextmanager
def translated(path: str) -> Iterator[None]:
    """Raise SQLite's errors inside the block as ours.

    A changed byte can also make a NULL or a missing row where our tables allow none, or text that is none; Python then
    says TypeError or UnicodeDecodeError.
    """
    try:
        yield
    except sqlite3.Error as error:
        raise as_journal_error(error, path) from error
    except (TypeError, UnicodeDecodeError) as error:
        raise JournalDamagedError(
            f"{path} is damaged: its tables hold what cannot be there ({error})",
            path=path,
            help="see `tocsin journal check`",
        ) from error
