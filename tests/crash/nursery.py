"""A process that has imported everything and then only forks: each child lives one life on a journal and is killed.

Run as `python -m tests.crash.nursery`. It reads one JSON object per line (a life to live) and answers with one per line
(what the child said before it died). No thread and no event loop is ever started here, so forking is safe.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import warnings
from typing import Any

from tests.crash import detection, workload
from tocsin.filters.index import engine

PLAYS = {"delivery": workload.run, "detection": detection.run}
"""What a life can be spent with."""


def live(life: dict[str, Any]) -> dict[str, Any]:
    """Fork, listen, kill: after `lines` lines and `pause` microseconds, if nothing else killed it before."""
    listen, speak = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(listen)
        try:
            PLAYS[life.get("play", "delivery")](life, speak)
        except BaseException as error:  # a child that fails must say so, not run on as a second nursery
            os.write(speak, workload.line("failed", f"{type(error).__name__}: {error}"[:2000]))
        os._exit(0)
    os.close(speak)
    said, killed = b"", False
    while True:
        if not killed and said.count(b"\n") >= life["lines"]:
            select.select([], [], [], life["pause"] / 1e6)
            os.kill(child, signal.SIGKILL)
            killed = True
        part = os.read(listen, 65_536)
        if not part:
            break
        said += part
    os.close(listen)
    _, status = os.waitpid(child, 0)
    whole = said[: said.rfind(b"\n") + 1].splitlines()  # the last line may be cut by the kill
    return {
        "said": [json.loads(each) for each in whole],
        "signal": os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0,
    }


def main() -> None:
    warnings.simplefilter("ignore", DeprecationWarning)  # 3.12 warns of forks beside NumPy's idle threads
    engine.wait()  # kernels are loaded once, by a thread that has ended when the first child is forked
    for request in sys.stdin:
        print(json.dumps(live(json.loads(request))), flush=True)


if __name__ == "__main__":
    main()
