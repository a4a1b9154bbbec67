"""An agent on its own: composites, rules, failures, timers, threads, state."""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
import weakref
from typing import Any

import pytest

from tocsin import DefinitionError, led, testing
from tocsin.clock import SystemClock
from tocsin.composite import ref
from tocsin.errors import RuleDepthError, RuleError
from tocsin.led import Agent, Occurrence
from tocsin.led.local import _FEWEST
from tocsin.rules import FAILED, Failure, command, rule


@pytest.fixture
def agent(clock: Any) -> Agent:
    return Agent("test", clock=clock)


def noted(agent: Agent, on: str, **options: Any) -> list[Occurrence]:
    found: list[Occurrence] = []
    agent.rule(on=on, name=f"note{len(agent.rules())}", **options)(found.append)
    return found


# -- composites


def test_composites_are_written_with_names_filters_and_composites(agent: Agent) -> None:
    agent.define("rise", "SEQ(low AS l, high AS h) WHERE h.v > l.v")
    found = noted(agent, "SEQ(rise, [type = 'alarm' AND level > 3] AS a)")
    agent.raise_("low", v=1)
    agent.raise_("high", v=2)
    agent.raise_("alarm", level=2)
    assert found == []
    agent.raise_("alarm", level=4)
    [happened] = found
    assert [part.name for part in happened.parts] == ["l", "h", "a"]
    assert (happened["low"]["v"], happened["h"]["v"], happened["a"]["level"]) == (1, 2, 4)
    with pytest.raises(KeyError):
        happened["nothing"]
    assert [each.name for each in agent.definitions()] == ["rise"]


def test_composites_may_be_written_in_python(agent: Agent) -> None:
    low, high = ref("low"), ref("high")
    agent.define("rise", low >> high)
    by_name, by_pattern = noted(agent, "rise"), noted(agent, (low >> high).by("n"))  # type: ignore[arg-type]
    agent.raise_("low", n=1)
    agent.raise_("high", n=2)
    agent.raise_("high", n=1)
    assert (len(by_name), len(by_pattern)) == (2, 1)


def test_constituents_are_the_objects_themselves(agent: Agent) -> None:
    found = noted(agent, "AND(a, b)")
    first, second = object(), object()
    agent.raise_("a", thing=first)
    agent.raise_("b", thing=second)
    assert found[0]["a"]["thing"] is first
    assert found[0]["b"]["thing"] is second


def test_rules_of_a_primitive_run_before_those_of_what_it_completes(agent: Agent) -> None:
    story: list[str] = []
    agent.rule(on="SEQ(a, b)", name="whole")(lambda _: story.append("whole"))
    agent.rule(on="b", name="part")(lambda _: story.append("part"))
    agent.raise_("a")
    agent.raise_("b")
    assert story == ["part", "whole"]


def test_names_are_taken_once(agent: Agent) -> None:
    agent.define("pair", "SEQ(a, b)")
    agent.declare("m", when="begin")
    for name in ("pair", "m"):
        with pytest.raises(DefinitionError, match="already"):
            agent.define(name, "AND(a, b)")
    with pytest.raises(DefinitionError, match="as an event of its own"):
        agent.define("b", "AND(x, y)")  # pair would not see it
    with pytest.raises(DefinitionError, match="made of itself"):
        agent.define("self", "SEQ(self, a)")
    with pytest.raises(RuleError, match="is not raised here"):
        agent.raise_("pair")
    with pytest.raises(DefinitionError) as caught:
        agent.define("bad", "SEQ(a, )")
    assert caught.value.position is not None


def test_undefining(agent: Agent) -> None:
    agent.define("pair", "SEQ(a, b)")
    agent.define("more", "SEQ(pair, c)")
    with pytest.raises(DefinitionError, match="more is made of pair"):
        agent.undefine("pair")
    agent.undefine("more")
    agent.undefine("pair")
    with pytest.raises(DefinitionError, match="no composite event pair"):
        agent.undefine("pair")
    assert agent.stats()["detected"] == {}


def test_removing_the_last_rule_of_a_text_ends_its_detection(agent: Agent) -> None:
    agent.define("pair", "SEQ(a, b)")
    for name in ("one", "two"):
        agent.rule(on="AND(a, b)", name=name)(print)
    agent.rule(on="pair", context="chronicle", name="three")(print)
    assert len(agent.stats()["detected"]) == 3
    agent.remove("one")
    assert len(agent.stats()["detected"]) == 3
    agent.remove("two")
    agent.remove("three")
    assert list(agent.stats()["detected"]) == ["pair"]
    with pytest.raises(RuleError, match="no rule one"):
        agent.remove("one")


def test_a_rule_may_come_before_its_composite(agent: Agent) -> None:
    recent, chronicle = noted(agent, "pair"), noted(agent, "pair", context="chronicle")
    agent.define("pair", "SEQ(a, b)")
    for name in "aabb":
        agent.raise_(name)
    assert (len(recent), len(chronicle)) == (2, 2)
    assert chronicle[0].parts[0].about["offset"] == 1
    assert recent[0].parts[0].about["offset"] == 2


# -- rules


def test_rule_names_are_unique(agent: Agent) -> None:
    agent.add(rule(on="a", name="r")(print))
    with pytest.raises(RuleError, match="r already"):
        agent.rule(on="b", name="r")(print)
    assert [each.name for each in agent.rules()] == ["r"]


def test_filters_and_names_keep_the_order_of_definition(agent: Agent) -> None:
    story: list[int] = []
    for number, on in enumerate(["e", "[n > 0]", "e", "[type = 'e']"]):
        agent.rule(on=on, name=f"r{number}")(lambda _, number=number: story.append(number))
    agent.raise_("e", n=1)
    assert story == [0, 1, 2, 3]


def test_a_failing_rule_is_an_event_and_stops_neither_rules_nor_detection(
    agent: Agent, caplog: pytest.LogCaptureFixture
) -> None:
    failures: list[Failure] = []
    agent.on_failure = failures.append
    told, pairs = noted(agent, FAILED), noted(agent, "SEQ(a, b)")

    def wrong(happened: Occurrence) -> bool:
        raise ValueError("no")

    agent.rule(on="a", name="action")(wrong)
    agent.rule(on="a", when=wrong, name="condition")(print)
    after = noted(agent, "a")
    with caplog.at_level(logging.WARNING, "tocsin"):
        agent.raise_("a")
    agent.raise_("b")
    assert (len(after), len(pairs)) == (1, 1)
    assert [each["rule"] for each in told] == ["action", "condition"]
    assert told[0].params == {
        "rule": "action",
        "error": "ValueError: no",
        "event": after[0].event.id,
        "type": "a",
    }
    assert [each.rule for each in failures] == ["action", "condition"]
    assert "rule action of agent test failed: ValueError: no" in caplog.text


def test_a_failing_rule_about_failures_ends_there(agent: Agent) -> None:
    runs: list[str] = []

    def wrong(happened: Occurrence) -> None:
        runs.append(happened.name)
        raise ValueError

    agent.rule(on="a", name="r")(wrong)
    agent.rule(on=FAILED, name="s")(wrong)
    agent.raise_("a")
    assert runs == ["a", FAILED]


def test_events_caused_by_rules_are_children(agent: Agent) -> None:
    story: list[str] = []

    @agent.rule(on="parent")
    def parent(happened: Occurrence) -> None:
        agent.raise_("child")
        story.append("parent")

    agent.rule(on="child", name="child")(lambda _: story.append("child"))
    agent.rule(on="SEQ(parent, child)", name="both")(lambda _: story.append("both"))
    agent.raise_("parent")
    assert story == ["child", "both", "parent"]


def test_rules_that_go_round_end_with_a_typed_error(clock: Any) -> None:
    failures: list[Failure] = []
    agent = Agent("round", clock=clock, max_depth=10, on_failure=failures.append)
    runs: list[int] = []

    @agent.rule(on="e")
    def again(happened: Occurrence) -> None:
        runs.append(1)
        agent.raise_("e")

    seen = noted(agent, "[type = 'e']")
    agent.raise_("e")
    assert (len(runs), len(seen)) == (10, 10)
    assert [type(each.error) for each in failures] == [RuleDepthError]


def test_rollback_drops_what_was_deferred_and_not_what_was_detected(agent: Agent) -> None:
    deferred, pairs = noted(agent, "a", coupling="deferred"), noted(agent, "SEQ(a, b)")
    agent.raise_("a")
    assert agent.rollback() == 1
    assert agent.commit() == 0
    agent.raise_("b")
    assert (deferred, len(pairs)) == ([], 1)


def test_detached_rules_do_not_hold_up_the_event(agent: Agent) -> None:
    go, done = threading.Event(), []

    @agent.rule(on="e", coupling="detached")
    def waits(happened: Occurrence) -> None:
        assert go.wait(20)
        done.append(happened["n"])

    agent.raise_("e", n=1)
    assert done == []
    go.set()
    agent.drain()
    assert done == [1]
    agent.close()


async def test_on_a_loop_everything_is_awaited_there(agent: Agent) -> None:
    loop, story = asyncio.get_running_loop(), []

    async def note(happened: Occurrence) -> None:
        assert asyncio.get_running_loop() is loop
        story.append(happened.name)

    for coupling in ("immediate", "deferred", "detached"):
        agent.rule(on="e", coupling=coupling, name=coupling)(note)  # type: ignore[arg-type]
    await agent.raise_async("e")
    assert story == ["e"]
    await agent.drain_async()
    assert await agent.commit_async() == 1
    assert story == ["e", "e", "e"]


def test_ready_made_actions_work_in_an_agent(agent: Agent, tmp_path: Any) -> None:
    out = tmp_path / "out"
    agent.add(rule(on="e")(command(["cp", "/dev/stdin", str(out)])))
    agent.raise_("e", n=7)
    assert '"n":7' in out.read_text().replace(" ", "")


def test_module_functions_speak_to_the_default_agent() -> None:
    story: list[Any] = []
    try:

        @led.rule(on="pair", coupling="deferred")
        def note(happened: Occurrence) -> None:
            story.append([part.of["n"] for part in happened.parts if part.of is not None])

        @led.event("a", when="begin")
        def work(n: int) -> None: ...

        led.define("pair", "SEQ(a, b)")
        led.declare("b", when="end")
        work(1)
        led.end("b", n=2)
        assert led.commit() == 1
        work(3)
        led.begin("b", n=4)  # it is an end
        assert led.rollback() == 0
        assert story == [[1, 2]]
        with pytest.raises(RuleError, match="another clock"):
            led.agent(clock=testing.ManualClock())
        assert led.agent(scheduler=True).scheduler
    finally:
        led.drop()
    assert led.agent().rules() == []
    led.drop()


# -- time


def test_timers_go_by_the_agents_clock(agent: Agent, clock: Any) -> None:
    found = noted(agent, "PLUS(a, 10 SECONDS)")
    agent.raise_("a", n=1)
    clock.advance(9)
    agent.advance()
    assert found == []
    clock.advance(1)
    agent.advance()
    assert found[0]["a"]["n"] == 1
    agent.raise_("a", n=2)
    clock.advance(60)
    agent.raise_("b")  # an event lets time pass, too
    assert [each["a"]["n"] for each in found] == [1, 2]
    assert agent._timer is None  # no thread: the clock is turned by hand


async def test_timers_on_a_loop(agent: Agent, clock: Any) -> None:
    found = noted(agent, "P(a, 10 SECONDS, b)")
    agent.raise_("a")
    clock.advance(30)
    await agent.advance_async()
    assert len(found) == 3
    assert found[0].parts[0].name == "e1"


def test_what_was_due_before_an_event_comes_before_it(agent: Agent, clock: Any) -> None:
    story: list[str] = []
    agent.rule(on="b", name="event")(lambda _: story.append("event"))
    agent.rule(on="PLUS(a, 10 SECONDS)", name="timer")(lambda _: story.append("timer"))
    agent.raise_("a")
    clock.advance(11)
    agent.raise_("b")
    assert story == ["timer", "event"]


def test_on_the_machines_clock_a_thread_waits_for_timers() -> None:
    agent, fired = Agent("timed", clock=SystemClock()), threading.Event()
    agent.rule(on="PLUS(a, 20 MILLISECONDS)", name="r")(lambda _: fired.set())
    agent.raise_("b")
    assert agent._timer is None  # nothing waits for time
    agent.raise_("a")
    assert fired.wait(20)
    fired.clear()
    agent.raise_("a")
    assert fired.wait(20)
    agent.close()


# -- threads


def test_many_threads_lose_nothing_and_detect_each_pair_once(agent: Agent) -> None:
    threads, each = 8, 300
    pairs = noted(agent, "SEQ(a, b) BY who, n", context="chronicle")

    def work(who: int) -> None:
        for n in range(each):
            agent.raise_("a", who=who, n=n)
            agent.raise_("b", who=who, n=n)

    workers = [threading.Thread(target=work, args=(who,)) for who in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    keys = {(pair.event.data["key"]["who"], pair.event.data["key"]["n"]) for pair in pairs}
    assert len(pairs) == len(keys) == threads * each


# -- memory and state


class Thing:
    """Something that can be seen to be gone."""


def test_objects_are_kept_as_long_as_something_may_be_made_of_them(agent: Agent, clock: Any) -> None:
    found = noted(agent, "SEQ(a, b) WITHIN 1 HOUR", context="chronicle")
    old, young = Thing(), Thing()
    refs = [weakref.ref(old), weakref.ref(young)]
    agent.raise_("a", thing=old)
    clock.advance(2 * 3600)
    agent.raise_("a", thing=young)
    del old, young
    for n in range(3 * _FEWEST):
        agent.raise_("c", n=n)
    gc.collect()
    assert refs[0]() is None  # too old to be completed
    assert refs[1]() is not None
    agent.raise_("b")
    assert found[0]["a"]["thing"] is refs[1]()
    found.clear()
    for n in range(3 * _FEWEST):
        agent.raise_("c", n=n)
    gc.collect()
    assert refs[1]() is None  # used up


@pytest.mark.parametrize("context", ["recent", "chronicle", "continuous", "cumulative"])
@pytest.mark.parametrize(
    "text", ["AND(a, b)", "ANY(2, a, b, c)", "NOT(a, b, c)", "A*(a, b, c)", "P*(a, 1 SECOND, c)", "OR(SEQ(a, b), c)"]
)
def test_what_a_detection_is_made_of_is_never_dropped_too_early(
    agent: Agent, clock: Any, monkeypatch: pytest.MonkeyPatch, text: str, context: str
) -> None:
    monkeypatch.setattr("tocsin.led.local._FEWEST", 2)  # looks all the time
    agent._local._sweep_at = 2
    found = noted(agent, text, context=context)
    for n, name in enumerate("abcaabbcacabcabbacccaabbabcacbaacb" * 3):
        clock.advance(0.4)
        agent.raise_(name, n=n)
    assert found
    for each in found:
        assert all(part.of is not None or "time" in part.about for part in each.parts)


@pytest.mark.parametrize("context", ["recent", "chronicle"])
def test_what_is_kept_does_not_grow_with_what_happens(agent: Agent, context: str) -> None:
    agent.define("pair", "SEQ(a, b)", context=context)
    most = 0
    for n in range(20_000):
        agent.raise_("b" if n % 2 else "a", thing=Thing())
        most = max(most, agent.stats()["kept"]) if n % 100 == 0 else most
    assert most <= _FEWEST + 10


def test_with_much_open_all_of_it_is_kept(agent: Agent) -> None:
    found = noted(agent, "SEQ(a, b) BY n", context="chronicle")
    count = 3 * _FEWEST
    for n in range(count):
        agent.raise_("a", n=n, thing=Thing())
    assert agent.stats()["kept"] == count
    for n in range(count):
        agent.raise_("b", n=n)
    assert all(isinstance(each["a"]["thing"], Thing) for each in found)
    assert len(found) == count


def test_without_composites_nothing_is_kept(agent: Agent) -> None:
    noted(agent, "a").clear()
    thing = Thing()
    seen = weakref.ref(thing)
    agent.raise_("x", thing=thing)
    del thing
    gc.collect()
    assert seen() is None
    assert agent.stats()["kept"] == 0


def defined(clock: Any) -> tuple[Agent, list[Occurrence]]:
    agent = Agent("stored", clock=clock)
    agent.define("pair", "SEQ(a AS x, b AS y)", context="chronicle")
    agent.define("triple", "SEQ(pair, c)")
    return agent, noted(agent, "triple")


def test_a_restored_agent_goes_on(clock: Any) -> None:
    before, _ = defined(clock)
    before.raise_("a", n=1, thing=Thing())
    after, found = defined(clock)
    after.restore(before.snapshot())
    after.raise_("b", n=2)
    again, found = defined(clock)
    again.restore(after.snapshot())
    again.raise_("c", n=3)
    assert [part.of["n"] for part in found[0].parts if part.of is not None] == [1, 2, 3]
    assert "thing" not in found[0]["x"].params  # no snapshot can hold it


def test_a_state_of_other_definitions_is_taken_as_far_as_it_goes(clock: Any) -> None:
    before, _ = defined(clock)
    before.raise_("a")
    after = Agent("stored", clock=clock)
    after.define("pair", "SEQ(a AS x, b AS y)", context="chronicle")
    pairs, others = noted(after, "pair"), noted(after, "AND(a, b)")
    after.restore(before.snapshot())
    after.raise_("b")
    assert (len(pairs), len(others)) == (1, 0)
    after.raise_("a")
    assert len(others) == 1


def test_what_is_no_state_is_refused(agent: Agent) -> None:
    for wrong in (b"", b"x", b"\x93\x01\x02\x03"):
        with pytest.raises(RuleError, match="no state"):
            agent.restore(wrong)


# -- what others get wrong


def test_the_event_of_failures_stays_an_event(agent: Agent) -> None:
    with pytest.raises(DefinitionError, match=FAILED):
        agent.define(FAILED, "SEQ(a, b)")
    with pytest.raises(RuleError, match=FAILED):
        agent.remote("e", application="P", host="h", as_=FAILED)


def test_an_error_that_cannot_be_shown_is_reported(agent: Agent) -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise ValueError

    found = noted(agent, FAILED)

    @agent.rule(on="e")
    def fails(happened: Occurrence) -> None:
        raise Mute

    agent.raise_("e")
    assert found[0]["error"] == "Mute, which cannot be shown"


def test_a_name_that_means_another_context_is_refused(agent: Agent) -> None:
    agent.define("rise", "SEQ(low, high)")
    with pytest.raises(DefinitionError, match="context"):
        agent.define("rise.in-chronicle", "OR(low, high)")


def test_a_rule_about_an_object_on_a_remote_event_is_refused(agent: Agent) -> None:
    agent.remote("e", application="P", host="h")
    with pytest.raises(RuleError, match="comes from elsewhere"):
        noted(agent, "e", instance=agent)
    noted(agent, "f", instance=agent)
    with pytest.raises(RuleError, match="comes from elsewhere"):
        agent.remote("f", application="P", host="h")


def test_a_damaged_state_is_refused(agent: Agent) -> None:
    agent.define("s", "SEQ(x, y) WITHIN 1 MINUTE BY k")
    agent.raise_("x", k=1)
    stored = agent.snapshot()
    for place in range(len(stored)):
        try:
            agent.restore(stored[:place] + b"\xff" + stored[place + 1 :])
        except RuleError:
            continue


def test_a_parameter_whose_name_is_no_text_is_no_field(agent: Agent) -> None:
    found = noted(agent, "e")
    agent.cause("e", {"\ud800": 1, "a": 2}, None)
    assert found[0].event.data == {"a": 2}
    assert found[0]["\ud800"] == 1


# -- time


def test_absolute_times_need_no_event(agent: Agent, clock: Any) -> None:
    found = noted(agent, "AT '08:00'")
    agent.define("nine", "AT '09:00'")
    nine = noted(agent, "nine")
    clock.advance(24 * 3600)
    agent.advance()
    assert (len(found), len(nine)) == (1, 1)


def test_a_timer_of_a_restored_state_fires_without_an_event() -> None:
    before = Agent("test")
    noted(before, "PLUS(e, 1 SECOND)")
    before.raise_("e")
    stored = before.snapshot()
    before.close()
    after, fired = Agent("test"), threading.Event()
    after.rule(on="PLUS(e, 1 SECOND)", name="r")(lambda happened: fired.set())
    after.restore(stored)
    assert fired.wait(20)
    after.close()


def test_a_rule_that_ends_its_thread_does_not_end_timers(caplog: pytest.LogCaptureFixture) -> None:
    agent, count, twice = Agent("test"), [0], threading.Event()

    @agent.rule(on="P(e, 1 SECOND)")
    def ends(happened: Occurrence) -> None:
        count[0] += 1
        if count[0] == 2:
            twice.set()
        raise SystemExit

    agent.raise_("e")
    assert twice.wait(20)
    agent.close()
    assert "SystemExit" in caplog.text
