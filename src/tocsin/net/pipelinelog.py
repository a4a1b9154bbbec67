"""What the process of the Spark pipeline says: a file in its directory, of which the last line is shown to people.

Promised: the file and the one before it stay within some megabytes, also while the process runs. It writes at the end
of the file, wherever that is, so the file can be emptied under it; a line that is written meanwhile may be lost.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path
from typing import Any, Final

__all__ = ["LOG", "bound", "last_line", "log_file"]

LOG: Final = "pipeline.log"
_LARGEST: Final = 8 << 20


def log_file(directory: Path) -> Any:
    """The file for what the process says, open; what was said long ago makes room."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    bound(directory)
    return (directory / LOG).open("ab")


def bound(directory: Path) -> None:
    """Let what was said long ago make room, if it has become too much."""
    path = directory / LOG
    with contextlib.suppress(OSError):
        if path.stat().st_size > _LARGEST:
            shutil.copyfile(path, path.with_suffix(".log.1"))
            os.truncate(path, 0)


def last_line(path: Path, began: int) -> str:
    """The last line that the process has said since the file was so large, for people."""
    try:
        with path.open("rb") as file:
            file.seek(began if began <= path.stat().st_size else 0)  # it may have been emptied since
            lines = [line.strip() for line in file.read()[-4096:].decode(errors="replace").splitlines() if line.strip()]
    except OSError:
        return ""
    return f": {lines[-1][:300]}" if lines else ""
