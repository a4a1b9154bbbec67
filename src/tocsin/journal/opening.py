"""From a url to a journal.

memory:                       in this process, gone with it
file:plant.db                 a file, relative to the working directory
file:/var/lib/plant.db        a file
file:///var/lib/plant.db      the same

A journal that was archived is opened with its lake: the one that is named, or that `<path>.lake` remembers.
"""

from __future__ import annotations

import os
from urllib.parse import unquote, urlsplit

from tocsin.clock import Clock
from tocsin.errors import JournalError
from tocsin.journal.archived import ArchivedJournal
from tocsin.journal.contract import Journal
from tocsin.journal.lake import Lake, remembered_lake
from tocsin.journal.memory import MemoryJournal
from tocsin.journal.sqlite import SqliteJournal

__all__ = ["file_path", "joined", "open_journal"]

_HELP = "write memory: or file:path, such as file:plant.db or file:///var/lib/plant.db"


def open_journal(
    url: str,
    *,
    clock: Clock | None = None,
    commit_delay: float = 0.0,
    merge: bool = True,
    lake: str | os.PathLike[str] | None = None,
) -> Journal:
    """Open the journal a url names; a file is made if there is none.

    Args:
        url: see the module.
        clock: where `append` takes the time from; the system's if left out.
        commit_delay: see `SqliteJournal`.
        merge: see `SqliteJournal`.
        lake: where its archive is; None: where it was archived to, if it was.

    Raises:
        JournalLockedError: another process has it open for writing.
        JournalError: the url names no journal, or the file is not ours.
        LakeError: the lake is another journal's, or cannot be read.
    """
    journal: MemoryJournal | SqliteJournal
    if url == "memory:":
        journal = MemoryJournal(clock=clock)
    else:
        journal = SqliteJournal(file_path(url), clock=clock, commit_delay=commit_delay, merge=merge)
    try:
        return joined(journal, lake)
    except BaseException:
        (journal.abandon if journal.crashed else journal.close)()  # the next to open it hears of a crash, too
        raise


def joined(journal: Journal, lake: str | os.PathLike[str] | None = None) -> Journal:
    """The journal with its lake, if it has one and does not know it yet; `lake` as in `open_journal`.

    Raises:
        LakeError: the lake is another journal's, or cannot be read.
    """
    if lake is None and isinstance(journal, SqliteJournal):
        lake = remembered_lake(journal.path)
    return journal if lake is None else ArchivedJournal(journal, Lake(lake))


def file_path(url: str) -> str:
    """The path in a `file:` url.

    Raises:
        JournalError: it is another kind of url, or names a file of another machine, or nothing.
    """
    scheme, colon, rest = url.partition(":")
    if not colon:
        raise JournalError(f"{url!r} is not the url of a journal", help=f"write file:{url}" if url else _HELP)
    if scheme != "file":
        raise JournalError(f"{url!r} names no journal that can be opened here", help=_HELP)
    if rest.startswith("//"):
        # Only this form is a real url, where %20 stands for a space; after a plain file: the path is taken as written.
        parts = urlsplit(url)
        if parts.netloc not in ("", "localhost"):
            raise JournalError(f"{url!r} names a file of another machine, {parts.netloc}", help="write file:///path")
        rest = unquote(parts.path)
    if not rest or "\0" in rest:
        raise JournalError(f"{url!r} names no file", help=_HELP)
    return rest
