"""Compile the kernels that Spark tasks use ahead of time: `python -m tocsin.spark.warm`.

Quick when they are in the cache already.
"""

from __future__ import annotations

import time

from tocsin.journal import engine

__all__ = ["main"]


def main() -> None:
    """Load the kernels, compiling them if need be, and say so."""
    started = time.monotonic()
    if engine.wait():
        print(f"Spark's kernels ready ({time.monotonic() - started:.1f} s)")
    else:
        print(f"Spark's kernels not available: {engine.failure() or 'switched off by TOCSIN_KERNELS'}; Python will do")


if __name__ == "__main__":
    main()
