"""`tocsin up --log-format json`: one object a line, whatever was said, and no token in it."""

from __future__ import annotations

import json
import logging
import signal
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from tests.cli.processes import started, up
from tocsin.cli.logs import LogFormat, log_to_stderr
from tocsin.security.tokens import FILE, TokenStore

WRONG = "tcn_this-is-a-wrong-token-of-mine"


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_refusal_is_logged_and_its_token_is_not(tmp_path: Path, form: str) -> None:
    data = tmp_path / "data"
    data.mkdir(mode=0o700)
    TokenStore(data / FILE).add("ann", ["publish:*"])
    with up(data, "--log-format", form) as node:
        request = urllib.request.Request(node.url.replace("ws:", "http:") + "/alerts")
        request.add_header("authorization", f"Bearer {WRONG}")
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(request, timeout=10)
        refused.value.close()
        assert refused.value.code == 401
        code, said = node.running.end(signal.SIGTERM)
    assert code == 0 and WRONG not in said
    lines = [line for line in said.splitlines() if line]
    assert lines, "a refusal is a warning"
    if form == "json":
        told = [json.loads(line) for line in lines]
        assert all({"time", "level", "logger", "message"} <= each.keys() for each in told)
        assert {each["level"] for each in told} <= {"warning", "error"} and "refused" in told[0]["message"]
        assert told[0]["logger"].startswith("tocsin") and told[0]["time"].endswith("Z")
    else:
        assert " WARNING tocsin" in lines[0]


def test_it_can_be_said_by_the_environment_and_nonsense_is_refused(tmp_path: Path) -> None:
    with started("up", "--port", "0", "--data", tmp_path / "data", TOCSIN_LOG_FORMAT="xml") as running:
        assert running.process.wait(30) == 2


def test_tracebacks_newlines_and_characters_that_no_encoding_has(capsys: pytest.CaptureFixture[str]) -> None:
    root = logging.getLogger()
    before = list(root.handlers)
    for handler in before:  # pytest's own: its report of this line could not be sent by one of its workers
        root.removeHandler(handler)
    log_to_stderr(LogFormat.JSON)
    try:
        try:
            raise ValueError("bad\nvalue")
        except ValueError:
            logging.getLogger("tocsin.test").exception("of %s", "a\nstranger \ud800")
        logging.getLogger("tocsin.test").info("not worth a line")
    finally:
        for handler in list(root.handlers):
            root.removeHandler(handler)
        for handler in before:
            root.addHandler(handler)
    [line] = capsys.readouterr().err.splitlines()
    told = json.loads(line)
    assert told["message"] == "of a\nstranger \ud800" and told["level"] == "error"
    assert told["traceback"].endswith("ValueError: bad\nvalue")
