"""`python -m tocsin.spark.pipeline FD`: the pipeline as a process, started by a node that has the other end of FD.

It ends with 0 when it is told to, or when the node is gone; with 1 after a failure, which it has told the node before.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import traceback

from tocsin.errors import NetworkError, SessionError, TocsinError
from tocsin.node.channel import Begin, Failed, Fit, Line, Settings, Unfit
from tocsin.spark.pipeline import fitness

__all__ = ["main"]


def main(descriptor: int) -> int:
    """Run until the end; returns the exit code."""
    os.set_inheritable(descriptor, False)  # the JVM must not hold it open when this process is gone
    line = Line(socket.socket(fileno=descriptor))
    try:
        settings: Settings = line.ask(Begin(), Settings)
        try:
            fitness.check(settings)
        except SessionError as error:
            line.ask(Unfit(error.message, error.help))
            return 0
        line.ask(Fit())
        return _run(line, settings)
    except NetworkError:
        return 0


def _run(line: Line, settings: Settings) -> int:
    try:
        from tocsin.spark.pipeline.application import Application  # only now: it needs PySpark

        Application(line, settings).run()
    except SystemExit:
        _end_children()
        return 0
    except NetworkError:
        raise
    except TocsinError as error:
        line.ask(Failed(error.message, error.help))
        return 1
    except Exception as error:
        traceback.print_exc()
        lines = str(error).splitlines()
        first = lines[0][:300] if lines else ""
        line.ask(Failed(f"the Spark pipeline has failed: {type(error).__name__}: {first}", "pipeline.log has the rest"))
        return 1
    return 0


def _end_children() -> None:
    """End a JVM that was about to come up: without us it would stay, and nobody watches it yet."""
    if os.getpgrp() == os.getpid():  # as the node has started us: the group is our own
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.killpg(os.getpgrp(), signal.SIGTERM)


if __name__ == "__main__":
    # Whatever else still runs in here has been told to end; what it would say now helps nobody.
    code = main(int(sys.argv[1]))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
