"""Work of the pipeline that is done every few seconds, in a thread of its own: the archive, and statistics.

What fails is told to the node and tried again; it stops nothing else.
"""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable

from tocsin.errors import NetworkError, TocsinError
from tocsin.node.channel import Line, Report

__all__ = ["every"]


def every(seconds: float, name: str, work: Callable[[], None], line: Line, ending: threading.Event) -> threading.Thread:
    """Do something again and again, with so many seconds between, until the end."""

    def run() -> None:
        while not ending.wait(seconds):
            try:
                work()
            except NetworkError:
                return
            except Exception as error:
                if ending.is_set():
                    return
                message, help = (error.message, error.help) if isinstance(error, TocsinError) else _told(error)
                try:
                    line.ask(Report(trouble=(name, f"the pipeline's {name} has failed: {message}", help)))
                except NetworkError:
                    return

    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    return thread


def _told(error: Exception) -> tuple[str, str | None]:
    traceback.print_exception(error)
    return f"{type(error).__name__}: {str(error)[:300]}", "pipeline.log has the rest"
