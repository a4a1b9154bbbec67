"""Functions and methods as events."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from tocsin.errors import RuleError
from tocsin.led import Agent, Occurrence


@pytest.fixture
def agent(clock: Any) -> Agent:
    return Agent("test", clock=clock)


@pytest.fixture
def heard(agent: Agent) -> list[Occurrence]:
    found: list[Occurrence] = []
    agent.rule(on="e", name="note")(found.append)
    return found


def test_parameters_are_fields_by_name_in_whatever_way_they_were_given(agent: Agent, heard: list[Occurrence]) -> None:
    @agent.event("e")
    def work(a: int, /, b: int, *rest: int, c: int = 3, **more: int) -> int:
        """Do it."""
        return a

    assert work(1, 2) == 1
    assert work(1, 2, 7, 8, c=4, d=5) == 1
    assert [dict(each.params) for each in heard] == [
        {"a": 1, "b": 2, "rest": (), "c": 3, "more": {}, "result": 1},
        {"a": 1, "b": 2, "rest": (7, 8), "c": 4, "more": {"d": 5}, "result": 1},
    ]
    assert (work.__name__, work.__doc__) == ("work", "Do it.")


def test_a_wrong_call_raises_as_ever_and_is_no_event(agent: Agent, heard: list[Occurrence]) -> None:
    @agent.event("e", when="begin")
    def work(a: int) -> None: ...

    with pytest.raises(TypeError):
        work()  # type: ignore[call-arg]
    assert heard == []


def test_a_body_that_raises_has_a_begin_and_no_end(agent: Agent, heard: list[Occurrence]) -> None:
    begun: list[Occurrence] = []
    agent.rule(on="b", name="begun")(begun.append)

    @agent.event("b", when="begin")
    @agent.event("e", when="end")
    def work() -> None:
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        work()
    assert (len(begun), heard) == (1, [])


async def test_coroutine_functions_wait_for_their_rules(agent: Agent) -> None:
    story: list[str] = []

    @agent.rule(on="b")
    async def before(happened: Occurrence) -> None:
        await asyncio.sleep(0)
        story.append("before")

    @agent.rule(on="e")
    async def after(happened: Occurrence) -> None:
        await asyncio.sleep(0)
        story.append(f"after {happened['result']}")

    @agent.event("b", when="begin")
    @agent.event("e", when="end")
    async def work() -> int:
        story.append("body")
        return 7

    assert await work() == 7
    assert story == ["before", "body", "after 7"]


def test_the_instance_is_the_object_or_the_class(agent: Agent, heard: list[Occurrence]) -> None:
    class Door:
        @agent.event("e")
        def open(self) -> None: ...

        @classmethod
        @agent.event("e")
        def count(cls) -> None: ...

        @staticmethod
        @agent.event("e")
        def paint(colour: str) -> None: ...

    door = Door()
    door.open()
    Door.count()
    Door.paint("red")
    assert [each.instance for each in heard] == [door, Door, None]
    assert heard[2]["colour"] == "red"


def test_rules_see_objects_and_filters_see_what_json_can_hold(agent: Agent) -> None:
    class Thing: ...

    heard: list[Occurrence] = []
    agent.rule(on="[type = 'e' AND n = 1 AND thing IS NULL AND deep.x = 2]", name="note")(heard.append)
    thing, deep = Thing(), {"x": 2}
    agent.raise_("e", n=1, thing=thing, deep=deep, odd={1: 2}, bad="\ud800")
    [happened] = heard
    assert happened["thing"] is thing
    assert happened["deep"] is deep
    deep["x"] = 3  # what was told stays as it was
    assert happened.event.data == {"n": 1, "deep": {"x": 2}}


def test_result_cannot_be_a_parameter_at_the_end(agent: Agent) -> None:
    with pytest.raises(RuleError, match="result"):

        @agent.event("e")
        def work(result: int) -> None: ...


def test_bodies_may_signal_themselves(agent: Agent, heard: list[Occurrence]) -> None:
    agent.declare("b", when="begin")
    agent.declare("e", when="end")
    agent.begin("b", "e", n=1)
    assert heard == []
    agent.end("b", "e", n=2, instance="me")
    assert [(each["n"], each.instance) for each in heard] == [(2, "me")]
    with pytest.raises(RuleError, match="no event x is declared"):
        agent.begin("x")


def test_an_event_has_one_meaning(agent: Agent) -> None:
    agent.declare("b", when="begin")
    agent.declare("b", when="begin")
    with pytest.raises(RuleError, match="another event b"):
        agent.declare("b", when="end")
    with pytest.raises(RuleError, match="when is 'middle'"):
        agent.event("m", when="middle")  # type: ignore[arg-type]
    for name in ("two words", "", "tocsin.clock", "e" * 201):
        with pytest.raises(RuleError, match="cannot be the name"):
            agent.event(name)
        with pytest.raises(RuleError, match="cannot be the name"):
            agent.raise_(name)


def test_what_is_no_function_is_refused_with_advice(agent: Agent) -> None:
    kinds: tuple[Any, ...] = (classmethod, staticmethod, property)
    for kind in kinds:
        with pytest.raises(RuleError, match=f"@{kind.__name__} above"):
            agent.event("e")(kind(lambda cls: None))
    with pytest.raises(RuleError, match="no function"):
        agent.event("e")(Agent)

    def numbers() -> Iterator[int]:
        yield 1

    with pytest.raises(RuleError, match="generator"):
        agent.event("e")(numbers)


def test_below_the_decorators_of_classes_it_works(agent: Agent, heard: list[Occurrence]) -> None:
    class Base:
        __slots__ = ()

        @classmethod
        @agent.event("e")
        def make(cls, n: int) -> int:
            return n

        @property
        @agent.event("e")
        def size(self) -> int:
            return 3

    class Child(Base): ...

    child = Child()
    assert (Child.make(1), child.size) == (1, 3)
    assert [(each.instance, each["result"]) for each in heard] == [(Child, 1), (child, 3)]


def test_an_object_that_is_called_like_a_coroutine_function_ends_when_it_has_ended(
    agent: Agent, heard: list[Occurrence]
) -> None:
    class Work:
        async def __call__(self, n: int) -> int:
            return n + 1

    assert asyncio.run(agent.event("e")(Work())(1)) == 2
    assert heard[0]["result"] == 2
