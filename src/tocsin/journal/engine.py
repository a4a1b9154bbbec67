"""The compiled kernels of `transcode`: loaded when first asked for, in the background.

Loading takes half a second from Numba's cache, some seconds the very first time, when they are compiled (`make setup`
and `python -m tocsin.spark.warm` do that ahead). So the first to ask waits a moment; if that was not enough, plain
Python does the work until the kernels are there. The answers are the same.

`TOCSIN_KERNELS=numpy` does without them, `TOCSIN_KERNELS=numba` waits for them however long they take.
"""

from __future__ import annotations

import importlib
import os
import threading
from typing import Any

__all__ = ["failure", "kernels", "wait"]

_PATIENCE = 3.0  # seconds: loading from the cache takes well under one

_lock = threading.Lock()
_thread: threading.Thread | None = None
_loaded: Any = None
_failure: str | None = None


def kernels() -> Any:
    """The module `transcode`, or None: do without."""
    if _loaded is None and _thread is None:
        _start()
    return _loaded


def wait() -> bool:
    """Wait until loading is over; True if the kernels are there."""
    _start()
    if _thread is not None:
        _thread.join()
    return _loaded is not None


def failure() -> str | None:
    """Why there are no kernels, if loading was tried and failed."""
    return _failure


def _start() -> None:
    global _thread
    choice = os.environ.get("TOCSIN_KERNELS", "")
    if choice == "numpy":
        return
    with _lock:
        if _thread is None:
            # Not a daemon: a process that ends while the compiler runs would otherwise crash in it.
            _thread = threading.Thread(target=_load, name="tocsin-transcode")
            _thread.start()
            _thread.join(None if choice == "numba" else _PATIENCE)


def _load() -> None:
    global _loaded, _failure
    try:
        _loaded = importlib.import_module("tocsin.journal.transcode")
    except ImportError as error:
        _failure = f"Numba is not installed ({error}); pip install 'tocsin[fast]'"
    except RuntimeError as error:  # an executor may have no folder that Numba can keep its cache in
        _failure = f"Numba could not keep what it compiled ({error}); set NUMBA_CACHE_DIR to a folder it may write to"
