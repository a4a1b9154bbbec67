"""Compile the matching kernels ahead of time: `python -m tocsin.filters.warm`.

Quick when they are in the cache already.
"""

from __future__ import annotations

import time

from tocsin.filters.index import engine

__all__ = ["main"]


def main() -> None:
    """Load the kernels, compiling them if need be, and say so."""
    started = time.monotonic()
    if engine.wait():
        print(f"matching kernels ready ({time.monotonic() - started:.1f} s)")
    else:
        reason = engine.failure() or "switched off by TOCSIN_KERNELS"
        print(f"matching kernels not available: {reason}; NumPy will do the work")


if __name__ == "__main__":
    main()
