"""Rights: their text, what they allow, and what people get wrong."""

from __future__ import annotations

import pytest

from tocsin.errors import ForbiddenError, TokenError
from tocsin.security.rights import PLAIN, PREFIXED, Rights, parse


@pytest.mark.parametrize("text", ["publish:machine.", "subscribe:*", "serve:params/", "join:line-", "metrics", "admin"])
def test_text_and_back(text: str) -> None:
    assert str(parse(text)) == text


@pytest.mark.parametrize(
    "text",
    ["", "publish", "publish:", "admin:*", "metrics:x", "read:*", "publish:machine.*", "publish:a\nb", ":x", "*"],
)
def test_what_is_no_right(text: str) -> None:
    with pytest.raises(TokenError) as raised:
        parse(text)
    assert raised.value.field == "rights" and raised.value.help


def test_a_right_is_for_its_verb_and_what_begins_so() -> None:
    rights = Rights(["publish:machine.", "subscribe:*", "metrics"])
    assert rights.allow("publish", "machine.value") and rights.allow("publish", "machine.")
    assert not rights.allow("publish", "machine") and not rights.allow("publish", "plant.machine.value")
    assert rights.allow("subscribe", "anything") and rights.allow("metrics")
    assert not any(rights.allow(verb, "machine.value") for verb in ("define", "serve", "request", "join", "admin"))


def test_the_nodes_own_types_must_be_named() -> None:
    assert not Rights(["subscribe:*"]).allow("subscribe", "tocsin.session")
    assert not Rights(["subscribe:toc"]).allow("subscribe", "tocsin.session")
    assert Rights(["subscribe:toc"]).allow("subscribe", "tocs")
    named = Rights(["subscribe:tocsin.ses"])
    assert named.allow("subscribe", "tocsin.session") and not named.allow("subscribe", "tocsin.ack")


def test_an_administrator_may_do_everything() -> None:
    rights = Rights(["admin"])
    assert all(rights.allow(verb, "tocsin.x") and rights.allow(verb, "x") for verb in PREFIXED)
    assert all(rights.allow(verb) for verb in PLAIN)


def test_what_is_refused_says_what_there_is() -> None:
    with pytest.raises(ForbiddenError, match="publish:door.open") as raised:
        Rights(["publish:machine."]).check("publish", "door.open")
    assert "publish:machine." in (raised.value.help or "")


def test_answers_are_remembered_within_bounds() -> None:
    rights = Rights(["publish:a"])
    for number in range(10_000):
        assert rights.allow("publish", f"a{number}") and not rights.allow("publish", f"b{number}")
    assert len(rights._answers) <= 4096
