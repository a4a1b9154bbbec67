"""Rules in a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from tocsin.errors import RuleError
from tocsin.rules import Command, Webhook, load

GOOD = """
[[rule]]
name = "call_guard"
on = "[type = 'door.open']"
when = "door = 7"
priority = 8
coupling = "detached"
webhook = { url = "https://guard/alarm", timeout = 5, headers = { Authorization = "Bearer x" } }

[[rule]]
name = "log_it"
on = "SEQ([type = 'a'], [type = 'b'])"
context = "chronicle"
command = { run = ["logger", "-t", "doors"], timeout = 10 }
"""


def written(tmp_path: Path, text: str) -> Path:
    place = tmp_path / "rules.toml"
    place.write_text(text)
    return place


def test_rules_are_read_with_all_they_say(tmp_path: Path) -> None:
    guard, log = load(written(tmp_path, GOOD))
    assert (guard.name, guard.priority, guard.coupling, str(guard.when)) == ("call_guard", 8, "detached", "door = 7")
    assert isinstance(guard.action, Webhook)
    assert (guard.action.url, guard.action.timeout) == ("https://guard/alarm", 5)
    assert (log.context, log.trigger.kind) == ("chronicle", "composite")
    assert isinstance(log.action, Command)
    assert log.action.arguments == ["logger", "-t", "doors"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("x = ", "cannot be read"),
        ("x = 1", "'x' is not known"),
        ("", r"there is no \[\[rule\]\]"),
        ("rule = 5", r"there is no \[\[rule\]\]"),
        ("[[rule]]\non = 'e'\ncommand = { run = ['a'] }", "rule 1: it has no name"),
        ("[[rule]]\nname = 'r'\ncommand = { run = ['a'] }", "rule 1: it has no on"),
        ("[[rule]]\nname = 'r'\non = 'e'", "one action"),
        ("[[rule]]\nname = 'r'\non = 'e'\ncommand = { run = ['a'] }\nwebhook = { url = 'http://h' }", "one action"),
        ("[[rule]]\nname = 'r'\non = 'e'\ncommand = { run = 'a b' }", "no program with arguments"),
        ("[[rule]]\nname = 'r'\non = 'e'\ncommand = { run = 5 }", "no program with arguments"),
        ("[[rule]]\nname = 'r'\non = 'e'\ncommand = { run = { a = 'b' } }", "no program with arguments"),
        ("[[rule]]\nname = 'r'\non = 'e'\ncommand = { run = ['a'], shell = true }", "command has no 'shell'"),
        ("[[rule]]\nname = 'r'\non = 'e'\ncommand = ['a']", "command has no run"),
        ("[[rule]]\nname = 'r'\non = 'e'\nwebhook = { url = 'x' }", "no address"),
        ("[[rule]]\nname = 'r'\non = 'e'\nwebhook = { url = 'http://h', timeout = 0 }", "timeout is 0"),
        ("[[rule]]\nname = 'r'\non = 'e'\nwebhook = { url = 'http://h', headers = { a = 1 } }", "headers"),
        ("[[rule]]\nname = 'r'\non = 'e'\npriority = 99\ncommand = { run = ['a'] }", "priority is 99"),
        ("[[rule]]\nname = 'r'\non = 'e'\nwhen = 5\ncommand = { run = ['a'] }", "when is 5"),
        ("[[rule]]\nname = 'r'\non = 'e'\nwhen = 'a ='\ncommand = { run = ['a'] }", "rule 1: "),
        ("[[rule]]\nname = 'r'\non = 'SEQ('\ncommand = { run = ['a'] }", "rule 1: "),
        ("[[rule]]\nname = 'r'\non = 'e'\nevery = 5\ncommand = { run = ['a'] }", "a rule has no 'every'"),
        ("[[rule]]\nname = 'r'\non = 'e'\ncommand = { run = ['a'] }\n" * 2, "rule 2: a rule r stands above"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(RuleError, match=says) as caught:
        load(written(tmp_path, text))
    assert "rules.toml" in str(caught.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(RuleError, match="cannot be read"):
        load(tmp_path / "none.toml")


@pytest.mark.parametrize(
    ("line", "field", "position"),
    [("when = 'a ='", "when", 2), ("when = 'a LIKE'", "when", 2), ("on = 'SEQ('", "on", 4)],
)
def test_a_text_that_cannot_be_read_is_pointed_at(tmp_path: Path, line: str, field: str, position: int) -> None:
    on = "" if field == "on" else "on = 'e'\n"
    with pytest.raises(RuleError, match=f"rule 1: {field}, at {position}: ") as caught:
        load(written(tmp_path, f"[[rule]]\nname = 'r'\n{on}{line}\ncommand = {{ run = ['a'] }}"))
    assert (caught.value.field, caught.value.position) == (field, position)


def test_a_path_that_cannot_be_one() -> None:
    with pytest.raises(RuleError, match="cannot be read"):
        load("a\0b")
