"""What this machine lends us: cores and bytes of memory, no more than a container's limits allow.

The JVM looks at the same limits, so both sides agree on what `local[*]` means.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

__all__ = ["cores", "memory"]


def cores(root: Path = Path("/")) -> int:
    """Processors this process may use, at least 1.

    Args:
        root: where `proc` and `sys` are; another place only in tests.
    """
    try:
        allowed = len(os.sched_getaffinity(0))
    except AttributeError:  # not on macOS
        allowed = os.cpu_count() or 1
    for group in _groups(root, "cpu"):
        quota, period = (*_numbers(group / "cpu.max"), None, None)[:2]
        if quota is None:  # the older layout of control groups; -1 stands for no limit
            quota = next(_numbers(group / "cpu.cfs_quota_us"), None)
            period = next(_numbers(group / "cpu.cfs_period_us"), None)
        if quota and period and quota > 0:
            allowed = min(allowed, -(-quota // period))  # rounded up, as the JVM does
    return max(1, allowed)


def memory(root: Path = Path("/")) -> int:
    """Bytes of memory this process may use.

    Args:
        root: where `proc` and `sys` are; another place only in tests.
    """
    limit = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for group in _groups(root, "memory"):
        for name in ("memory.max", "memory.limit_in_bytes"):
            limit = min([limit, *_numbers(group / name)])
    return limit


def _groups(root: Path, controller: str) -> Iterator[Path]:
    """Directories of the control groups this process is in, the innermost first; none where there are no such."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            base = root / "sys/fs/cgroup"
        elif controller in controllers.split(","):
            base = root / "sys/fs/cgroup" / controller
        else:
            continue
        inner = base / path.strip("/")
        # Inside a container the path may be the host's and not exist here; the limits are then at the base.
        yield from (each for each in (inner, *inner.parents) if each.is_relative_to(base) and each.is_dir())


def _numbers(file: Path) -> Iterator[int]:
    """The numbers in a file; none if it is missing or says `max`."""
    try:
        words = file.read_text().split()
    except OSError:
        return
    yield from (int(word) for word in words if word.removeprefix("-").isdigit()) if "max" not in words else ()
