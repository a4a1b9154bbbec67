"""Which engine matches: the Numba kernels once they are loaded, plain NumPy until then or where Numba is missing.

Loading takes half a second from Numba's cache and much longer the very first time, when the kernels are compiled
(`make setup` and `python -m tocsin.filters.warm` do that ahead). So the first matcher starts loading in a thread and
waits a moment; if that was not enough, matching begins on NumPy and changes over when the kernels are there. Nobody
waits for a compiler.

`TOCSIN_KERNELS=numpy` keeps to NumPy, `TOCSIN_KERNELS=numba` waits for the kernels however long they take.
"""

from __future__ import annotations

import importlib
import os
import threading
from typing import Any

from tocsin.filters.index.builtin import supported

__all__ = ["Kernels", "batch_kernels", "columns", "kernels", "native", "start", "wait"]

_PATIENCE = 3.0  # seconds: loading from the cache takes well under one

Kernels = Any
_lock = threading.Lock()
_thread: threading.Thread | None = None
_loaded: Kernels | None = None
_batch: Kernels | None = None
_native: Kernels | None = None
_columns: Kernels | None = None
_failure: str | None = None


def kernels() -> Kernels | None:
    """The loaded kernels, or None: use `vectors`."""
    return _loaded


def batch_kernels() -> Kernels | None:
    """The loaded kernels for many events; None: use `vectors`."""
    return _batch if _loaded is not None else None


def native() -> Kernels | None:
    """The loaded kernels that read events and name keys; None: use `encoder`, and Python."""
    return _native if _loaded is not None else None


def columns() -> Kernels | None:
    """The loaded kernels over Arrow columns; None: use Arrow's own functions."""
    return _columns if _loaded is not None else None


def failure() -> str | None:
    """Why there are no kernels, if loading was tried and failed."""
    return _failure


def start() -> None:
    """Begin loading, once, and wait a moment for it."""
    global _thread
    choice = os.environ.get("TOCSIN_KERNELS", "")
    if _loaded is not None or choice == "numpy":
        return
    with _lock:
        if _thread is None:
            # Not a daemon: a process that ends while the compiler runs would otherwise crash in it.
            _thread = threading.Thread(target=_load, name="tocsin-kernels")
            _thread.start()
            _thread.join(None if choice == "numba" else _PATIENCE)


def wait() -> bool:
    """Wait until loading is over; True if the kernels are there."""
    start()
    if _thread is not None:
        _thread.join()
    return _loaded is not None


def _load() -> None:
    global _loaded, _batch, _native, _columns, _failure
    try:
        if supported():
            _native = importlib.import_module("tocsin.filters.index.native")
        _columns = importlib.import_module("tocsin.filters.index.columns")
        _batch = importlib.import_module("tocsin.filters.index.batch_kernels")
        _loaded = importlib.import_module("tocsin.filters.index.kernels")
    except ImportError as error:
        _failure = f"Numba is not installed ({error}); pip install 'tocsin[fast]'"
