"""Where a node's log goes and how it looks: the one place that configures logging.

Warnings and errors go to stderr: as `text` for people, or as `json` for programs, one object a line. Whatever a library
or a part of ours logs comes through here. Not promised: what the Spark pipeline's process says, which has a file of its
own (`net/pipelinelog.py`). Nobody who logs is handed a token, and so none is in the log.
"""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from enum import StrEnum

__all__ = ["LogFormat", "log_to_stderr"]


class LogFormat(StrEnum):
    """How a line of the log looks."""

    TEXT = "text"
    JSON = "json"


class _AsJson(logging.Formatter):
    """One object a line: `time`, `level`, `logger`, `message`, and where there was an exception its `traceback`."""

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        about = {"time": at, "level": record.levelname.lower(), "logger": record.name, "message": record.getMessage()}
        if record.exc_info:
            about["traceback"] = self.formatException(record.exc_info)
        return json.dumps(about)  # in ASCII: what a stranger has sent may hold characters that no encoding has


def log_to_stderr(format: LogFormat) -> None:
    """Log warnings and errors from now on."""
    as_text = logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
    handler = logging.StreamHandler(sys.stderr)
    handler.setLevel(logging.WARNING)
    handler.setFormatter(_AsJson() if format is LogFormat.JSON else as_text)
    logging.getLogger().addHandler(handler)
