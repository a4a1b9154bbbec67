"""Where `tocsin` begins: it can be started without the extra `server`, and then says what to install."""

from __future__ import annotations

import sys

__all__ = ["main"]

_EXTRA = ("typer", "rich")
"""What the command line needs beyond the base."""


def main() -> int:
    """Run the command in `sys.argv`; returns its exit code (`app.py` lists them)."""
    try:
        from tocsin.cli.app import run
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _EXTRA:
            raise  # not an extra that is missing, but a defect
        print(f"The command line needs {error.name}: pip install 'tocsin[server]'", file=sys.stderr)
        return 2
    return run(sys.argv[1:])
