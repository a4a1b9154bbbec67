"""What people see on a terminal of 80 columns: colours, tables that fit, a greeting, a progress bar."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import termios
from pathlib import Path

import tocsin
from tests.cli.processes import COMMAND, QUICK, Node

CODES = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


def on_terminal(*arguments: str, until: str = "", stdin: bytes | None = None) -> tuple[int, str]:
    """Exit code of a command on a terminal, and all that it shows; if `until` is shown, Ctrl-C is typed."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    environment = {name: value for name, value in QUICK.items() if name not in ("COLUMNS", "NO_COLOR")}
    process = subprocess.Popen(
        [*COMMAND, *arguments],
        stdin=theirs if stdin is None else subprocess.PIPE,
        stdout=theirs,
        stderr=theirs,
        env=environment | {"TERM": "xterm-256color"},
    )
    os.close(theirs)
    try:
        if process.stdin is not None and stdin is not None:
            process.stdin.write(stdin)
            process.stdin.close()
        shown = ""
        while True:
            try:
                shown += os.read(ours, 65536).decode()
            except OSError:  # how Linux says that the other end is closed
                break
            if until and until in CODES.sub("", shown):
                process.send_signal(signal.SIGINT)
                until = ""
        return process.wait(60), shown
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def lines(shown: str) -> list[str]:
    return CODES.sub("", shown).replace("\r", "").split("\n")


def test_events_are_coloured_by_priority_and_ctrl_c_ends_it(node: Node) -> None:
    with tocsin.sync.connect(node.url) as bus:
        bus.publish(tocsin.Event("seen", "line/7", data={"value": 9.2}, priority=8))
    code, shown = on_terminal("sub", "type = 'seen'", "--past", "1", "--url", node.url, until='{"value":9.2}')
    assert code == 130
    assert "\x1b[1;31m 8\x1b[0m" in shown, "bold red"
    greeting, event, *_ = lines(shown)
    assert greeting == f"listening at {node.url}; Ctrl-C ends it"
    assert event.endswith('  8  seen  line/7  {"value":9.2}')


def test_tables_fit_and_ids_can_be_copied(node: Node) -> None:
    with tocsin.sync.connect(node.url) as bus:
        long = tocsin.Event("smoke.in.the.basement", "building/north/wing/2", ttl=60_000, ack="client", priority=10)
        id = bus.publish(long).id
        sub = bus.subscribe("type = 'smoke.in.the.basement'", consumer="the-fire-brigade-of-this-town", past=1)
        sub.next(20).ack()
    code, shown = on_terminal("alerts", "--url", node.url)
    assert code == 0 and max(map(len, lines(shown))) <= 80
    assert any(line.split()[-1:] == [id] for line in lines(shown)), "in one piece"
    code, shown = on_terminal("consumers", "--url", node.url)
    assert code == 0 and max(map(len, lines(shown))) <= 80
    assert "the-fire-brigade-of-this-town" in shown


def test_lines_show_how_far_they_are(node: Node, tmp_path: Path) -> None:
    text = b'{"n": 1}\n' * 700
    code, shown = on_terminal("pub", "bulk", "--lines", "--url", node.url, stdin=text)
    assert code == 0 and "publishing" in shown and "700 events published" in shown
