"""Commands of ours in processes of their own that need no second to start: one that has imported everything forks.

Run as `python -m tests.commands`. It reads one JSON object per line (a command) and answers with one per line (how it
has ended). No thread and no event loop is ever started here, so forking is safe. `python -m tocsin.cli` itself is
started wherever a command goes on while a test looks at it, or must be ended.
"""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]


def done(arguments: list[str], stdin: bytes, environment: Mapping[str, str]) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of `tocsin ARGUMENTS` in a process with this environment."""
    with tempfile.TemporaryDirectory(prefix="tocsin-command-") as folder:
        Path(folder, "0").write_bytes(stdin)
        asked = {"arguments": arguments, "environment": dict(environment), "folder": folder, "cwd": os.getcwd()}
        nursery = _nursery()
        assert nursery.stdin is not None and nursery.stdout is not None
        print(json.dumps(asked), file=nursery.stdin, flush=True)
        code = int(nursery.stdout.readline())
        return code, Path(folder, "1").read_text(), Path(folder, "2").read_text()


@cache
def _nursery() -> subprocess.Popen[str]:
    """One for each process of tests, which ends with it."""
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TOCSIN_")}
    environment["PYTHONPATH"] = path
    command, pipe = [sys.executable, "-m", __name__], subprocess.PIPE
    nursery = subprocess.Popen(command, cwd=ROOT, env=environment, stdin=pipe, stdout=pipe, text=True)
    atexit.register(nursery.__exit__, None, None, None)  # nobody asks any more: it ends, and is waited for
    return nursery


def _live(asked: dict[str, Any]) -> int:
    """Be the process of a command; returns its exit code."""
    from tocsin.cli import main

    for number, flags in enumerate((os.O_RDONLY, os.O_WRONLY | os.O_CREAT, os.O_WRONLY | os.O_CREAT)):
        file = os.open(f"{asked['folder']}/{number}", flags, 0o600)
        os.dup2(file, number)
        os.close(file)
    sys.stdin = open(0)  # noqa: SIM115 - the one there was has read what others asked
    os.chdir(asked["cwd"])
    os.environ.clear()
    os.environ.update(asked["environment"])
    sys.argv = ["tocsin", *asked["arguments"]]
    try:
        return main()
    except SystemExit as error:
        return error.code if isinstance(error.code, int) else 1
    except BaseException:
        traceback.print_exc()
        return 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()


def serve() -> None:
    """Fork for each command, and say how it has ended."""
    import tocsin.cli.app
    from tocsin.filters.index import engine

    assert tocsin.cli.app is not None
    engine.wait()  # kernels are loaded once, by a thread that has ended when the first child is forked
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            code = 1
            try:
                code = _live(json.loads(line))
            finally:
                os._exit(code)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


if __name__ == "__main__":
    serve()
