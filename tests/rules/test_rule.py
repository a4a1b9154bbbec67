"""What a rule is, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from tocsin import DefinitionError, Event, FilterError
from tocsin.errors import RuleError
from tocsin.rules import Rule, rule
from tocsin.rules.rule import trigger


def nothing(what: Any) -> None: ...


@pytest.mark.parametrize(
    ("on", "kind", "text"),
    [
        ("door.open", "event", "door.open"),
        (" door.open ", "event", "door.open"),
        ("[type = 'door.open' and door > 7]", "filter", "type = 'door.open' AND door > 7"),
        ("SEQ([a = 1], [b = 2])", "composite", "SEQ([a = 1], [b = 2])"),
        ("[a = 1] BY machine", "composite", "[a = 1] BY machine"),
    ],
)
def test_on_is_a_name_a_filter_or_a_composite(on: str, kind: str, text: str) -> None:
    found = trigger(on)
    assert (found.kind, found.text) == (kind, text)
    assert (found.definition is not None) == (kind == "composite")


def test_a_decorated_function_is_a_rule_and_can_be_called() -> None:
    @rule(on="door.open", when="door = 7", priority=9, coupling="detached")
    def shut(event: Any) -> str:
        return f"shut {event}"

    assert isinstance(shut, Rule)
    assert (shut.name, shut.priority, shut.coupling) == ("shut", 9, "detached")
    assert shut("it") == "shut it"
    assert shut.when.matches(Event("door.open", "s", data={"door": 7}))  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"priority": 0}, "priority"),
        ({"priority": 11}, "priority"),
        ({"priority": True}, "priority"),
        ({"coupling": "later"}, "coupling"),
        ({"context": "newest"}, "context"),
        ({"name": "two words"}, "name"),
        ({"name": ""}, "name"),
        ({"action": 5}, "action"),
    ],
)
def test_what_means_nothing_is_refused_and_named(wrong: dict[str, Any], field: str) -> None:
    with pytest.raises(RuleError) as caught:
        Rule(**{"name": "r", "on": "e", "action": nothing, **wrong})
    assert caught.value.field == field
    assert caught.value.help


def test_errors_in_texts_have_a_position() -> None:
    with pytest.raises(FilterError) as filter_error:
        Rule("r", "e", nothing, "door = ")
    assert filter_error.value.position is not None
    with pytest.raises(DefinitionError) as definition_error:
        Rule("r", "SEQ([a = 1], [b =])", nothing)
    assert definition_error.value.position == 16
