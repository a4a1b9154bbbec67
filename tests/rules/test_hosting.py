"""Rules on a bus: each a durable consumer. Every test runs on `memory:` and on a file."""

from __future__ import annotations

import asyncio
import logging
import threading
from pathlib import Path
from typing import Any

import pytest

import tocsin
from tocsin import DefinitionError, Event, testing
from tocsin.errors import RuleError
from tocsin.rules import FAILED, Failure, Rules, rule


def door(number: int, **fields: Any) -> Event:
    return Event("door.open", "gate", data={"door": number}, **fields)


async def until(bus: Any, condition: Any) -> None:
    """Wait until something holds of the node's consumers, which nobody signals."""
    async with asyncio.timeout(20):
        while not condition(await bus.consumers()):  # noqa: ASYNC110
            await asyncio.sleep(0.001)


class Seen(list[Any]):
    """What actions were given; `await seen.reach(n)` waits for so many."""

    def __init__(self) -> None:
        super().__init__()
        self._more = asyncio.Event()

    async def note(self, event: Event) -> None:
        self.append(event)
        self._more.set()

    async def reach(self, count: int) -> None:
        async with asyncio.timeout(20):
            while len(self) < count:
                self._more.clear()
                await self._more.wait()

    @property
    def doors(self) -> list[int]:
        return [event.data["door"] for event in self]


async def test_a_rule_runs_for_each_event_and_settles_it(bus: Any) -> None:
    seen, rules = Seen(), Rules(bus)
    rules.rule(on="door.open", name="note")(seen.note)
    async with rules:
        await bus.publish_many([door(1), Event("other", "s"), door(2)])
        await seen.reach(2)
    assert seen.doors == [1, 2]
    [info] = [each for each in await bus.consumers() if each.name == "rule.note"]
    assert (info.settled, info.lag) == (2, 0)


async def test_filters_and_conditions_choose(bus: Any) -> None:
    by_text, by_function, rules = Seen(), Seen(), Rules(bus)
    rules.rule(on="[type = 'door.open' OR type = 'x']", when="door > 1", name="text")(by_text.note)
    rules.rule(on="door.open", when=lambda event: event.data["door"] > 2, name="function")(by_function.note)
    async with rules:
        await bus.publish_many([door(1), door(2), door(3)])
        await by_text.reach(2)
        await by_function.reach(1)
    assert (by_text.doors, by_function.doors) == ([2, 3], [3])


async def test_the_node_asks_a_condition_that_is_a_filter(bus: Any) -> None:
    rules = Rules(bus)
    rules.rule(on="door.open", when="door = 1 OR door = 2", name="note")(Seen().note)
    async with rules:
        [(_, text)] = (await bus.consumers())[0].subscriptions
    assert text == "type = 'door.open' AND (door = 1 OR door = 2)"


async def test_plain_functions_do_not_hold_up_the_loop(bus: Any) -> None:
    go, rules, threads = threading.Event(), Rules(bus), []

    @rules.rule(on="door.open")
    def waits(event: Event) -> None:
        assert go.wait(20)  # set by the loop, which must therefore be running
        threads.append(threading.current_thread())

    async with rules:
        await bus.publish(door(1))
        await asyncio.sleep(0)
        go.set()
    assert threads and threads != [threading.current_thread()]


async def test_a_rule_goes_on_where_it_was(bus: Any) -> None:
    first, second = Seen(), Seen()
    rules = Rules(bus)
    rules.rule(on="door.open", name="note")(first.note)
    async with rules:
        await bus.publish(door(1))
        await first.reach(1)
    await bus.publish(door(2))  # nobody is there
    again = Rules(bus)
    again.rule(on="door.open", name="note")(second.note)
    async with again:
        await second.reach(1)
    assert (first.doors, second.doors) == ([1], [2])


async def test_a_rule_that_changed_forgets_what_it_was_triggered_by(bus: Any) -> None:
    for on in ("door.open", "door.shut"):
        rules = Rules(bus)
        rules.rule(on=on, name="note")(Seen().note)
        async with rules:
            pass
    [info] = await bus.consumers()
    assert [text for _, text in info.subscriptions] == ["type = 'door.shut'"]


async def test_closing_waits_for_what_runs(bus: Any) -> None:
    began, ended, rules = asyncio.Event(), [], Rules(bus)

    @rules.rule(on="door.open")
    async def slow(event: Event) -> None:
        began.set()
        await asyncio.sleep(0.05)
        ended.append(event.data["door"])

    async with rules:
        await bus.publish_many([door(1), door(2)])
        await began.wait()
    assert ended == [1]
    [info] = await bus.consumers()
    assert (info.settled, info.lag) == (1, 1)


async def test_a_failing_action_is_tried_again_then_reported_and_given_up(bus: Any, clock: Any) -> None:
    attempts, failures, reports = Seen(), [], Seen()
    rules = Rules(bus, max_deliver=3, retry=10.0, on_failure=failures.append)

    @rules.rule(on="door.open")
    async def broken(event: Event) -> None:
        await attempts.note(event)
        raise ValueError("no\npaper\ud800" + "!" * 5000)

    rules.rule(on=FAILED, name="report")(reports.note)
    async with rules:
        published = await bus.publish(door(1))
        for number, pause in enumerate((10, 20, 0), 1):
            await attempts.reach(number)
            await testing.settled(bus)
            clock.advance(pause - 1 if pause else 0)
            await testing.settled(bus)
            assert len(attempts) == number  # not before its time
            clock.advance(1)
        await reports.reach(1)
    [report] = reports
    error = report.data.pop("error")
    assert error.startswith("ValueError: no paper !!!")
    assert len(error) == 500
    assert report.data == {
        "rule": "broken",
        "event": published.id,
        "source": "gate",
        "type": "door.open",
        "attempts": 3,
    }
    assert [(each.rule, each.attempt) for each in failures] == [("broken", 1), ("broken", 2), ("broken", 3)]
    assert [step.step for step in await bus.audit(published.id)][-1] == "dead"
    assert all(each.lag == 0 for each in await bus.consumers())


async def test_a_failing_rule_holds_up_no_other_and_no_other_event(bus: Any) -> None:
    seen, fine, rules = Seen(), Seen(), Rules(bus)

    @rules.rule(on="door.open")
    async def picky(event: Event) -> None:
        if event.data["door"] == 1:
            raise ValueError("not this one")
        await seen.note(event)

    rules.rule(on="door.open", name="fine")(fine.note)
    async with rules:
        await bus.publish_many([door(1), door(2)])
        await seen.reach(1)
        await fine.reach(2)
    assert (seen.doors, fine.doors) == ([2], [1, 2])


async def test_an_action_whose_wait_was_cancelled_does_not_end_its_rule(bus: Any) -> None:
    seen, rules = Seen(), Rules(bus)

    @rules.rule(on="door.open")
    async def waits(event: Event) -> None:
        await seen.note(event)
        future = asyncio.get_running_loop().create_future()
        future.cancel()
        await future

    async with rules:
        await bus.publish_many([door(1), door(2)])
        await seen.reach(2)


async def test_an_action_may_remove_its_own_rule(bus: Any) -> None:
    seen, rules = Seen(), Rules(bus)

    @rules.rule(on="door.open")
    async def once(event: Event) -> None:
        await rules.remove("once")
        await seen.note(event)

    async with rules:
        await bus.publish_many([door(1), door(2)])
        await seen.reach(1)
        await testing.settled(bus)
    assert seen.doors == [1]
    assert await bus.consumers() == []


async def test_a_failing_rule_about_failures_does_not_go_round(bus: Any) -> None:
    attempts = Seen()
    rules = Rules(bus, max_deliver=1)

    @rules.rule(on="door.open")
    def broken(event: Event) -> None:
        raise ValueError

    @rules.rule(on=FAILED)
    async def broken_too(event: Event) -> None:
        await attempts.note(event)
        raise ValueError

    async with rules:
        await bus.publish(door(1))
        await attempts.reach(1)
        await asyncio.sleep(0.01)
    await testing.settled(bus)
    sub = await bus.subscribe(f"type = '{FAILED}'", past=tocsin.retained())
    assert sub.poll() is not None
    assert sub.poll() is None


async def test_a_failing_callback_is_logged_and_does_no_harm(bus: Any, caplog: pytest.LogCaptureFixture) -> None:
    attempts = Seen()

    def wrong(failure: Failure) -> None:
        raise KeyError("x")

    rules = Rules(bus, max_deliver=1, on_failure=wrong)

    @rules.rule(on="door.open")
    async def broken(event: Event) -> None:
        await attempts.note(event)
        raise ValueError

    with caplog.at_level(logging.WARNING, "tocsin"):
        async with rules:
            await bus.publish_many([door(1), door(2)])
            await attempts.reach(2)
    assert "on_failure failed" in caplog.text


async def test_detached_rules_take_several_events_at_once(bus: Any) -> None:
    rules, together = Rules(bus, workers=2), asyncio.Barrier(2)

    @rules.rule(on="door.open", coupling="detached")
    async def meet(event: Event) -> None:
        async with asyncio.timeout(20):
            await together.wait()

    async with rules:
        await bus.publish_many([door(1), door(2)])
        await until(bus, lambda consumers: consumers[0].settled == 2)


async def test_the_rule_with_the_highest_priority_gets_the_next_worker(bus: Any) -> None:
    ran, rules, go = Seen(), Rules(bus, workers=1), asyncio.Event()

    @rules.rule(on="start")
    async def occupy(event: Event) -> None:
        await ran.note("start")
        await go.wait()

    for name, priority in (("low", 1), ("high", 10), ("middle", 5)):

        @rules.rule(on="door.open", priority=priority, name=name)
        async def act(event: Event, name: str = name) -> None:
            await ran.note(name)

    async with rules:
        await bus.publish(Event("start", "s"))
        await ran.reach(1)
        await bus.publish(door(1))
        await testing.settled(bus)
        await until(bus, lambda consumers: sum(each.in_flight for each in consumers) == 4)
        go.set()
        await ran.reach(4)
    assert ran == ["start", "high", "middle", "low"]


async def test_deferred_rules_wait_for_commit_and_go_by_priority(bus: Any) -> None:
    ran, rules = [], Rules(bus)

    @rules.rule(on="door.open", coupling="deferred", priority=2)
    async def low(event: Event) -> None:
        ran.append(("low", event.data["door"]))
        if event.data["door"] == 1:
            await bus.publish(door(3))  # for the next commit

    @rules.rule(on="door.open", coupling="deferred", priority=8)
    def high(event: Event) -> None:
        ran.append(("high", event.data["door"]))

    async with rules:
        await bus.publish_many([door(1), door(2)])
        await testing.settled(bus)
        assert ran == []
        assert await rules.commit() == 4
        assert ran == [("high", 1), ("high", 2), ("low", 1), ("low", 2)]
        assert await rules.rollback() == 2
        assert await rules.commit() == 0
    assert all(each.lag == 0 for each in await bus.consumers())


async def test_a_composite_is_defined_on_the_node_and_shared(bus: Any) -> None:
    first, second, rules = Seen(), Seen(), Rules(bus)
    text = "SEQ([type = 'door.open'] AS o, [type = 'motion'] AS m) BY door"
    rules.rule(on=text, context="chronicle", name="first")(first.note)
    rules.rule(on=text.lower().replace("as", "AS"), context="chronicle", name="second")(second.note)
    async with rules:
        await bus.publish_many([door(1), door(2), Event("motion", "s", data={"door": 2})])
        await first.reach(1)
        await second.reach(1)
        [definition] = await bus.definitions()
        assert definition.context == "chronicle"
        assert first[0].data["key"] == {"door": 2}
        assert [part["name"] for part in first[0].data["parts"]] == ["o", "m"]
        await rules.remove("first")
        assert len(await bus.definitions()) == 1  # the other one hears it
        await rules.remove("second")
        assert await bus.definitions() == []
    assert await bus.consumers() == []


async def test_a_composite_the_node_cannot_define_is_refused_when_started(bus: Any) -> None:
    rules = Rules(bus)
    rules.rule(on="SEQ(no_such, [type = 'a'])", name="r")(Seen().note)
    for _ in range(2):  # the second time, too
        with pytest.raises(DefinitionError, match="no_such"):
            await rules.start()
    await rules.remove("r")
    await rules.close()
    assert await bus.consumers() == []


async def test_a_rule_that_changed_leaves_no_composite_behind(bus: Any) -> None:
    for text in ("SEQ([type = 'a'], [type = 'b'])", "AND([type = 'a'], [type = 'b'])"):
        rules = Rules(bus)
        rules.rule(on=text, name="r")(Seen().note)
        async with rules:
            [definition] = await bus.definitions()
    assert definition.text.startswith("AND")


async def test_either_all_rules_start_or_none(bus: Any) -> None:
    seen, rules = Seen(), Rules(bus)
    rules.rule(on="door.open", name="good")(seen.note)
    rules.rule(on="SEQ(no_such, [type = 'a'])", name="bad")(seen.note)
    with pytest.raises(DefinitionError):
        async with rules:
            pytest.fail("it has started")
    await bus.publish(door(1))
    await testing.settled(bus)
    assert seen == []


async def test_a_rule_may_be_on_a_definition_by_its_name(bus: Any) -> None:
    seen, rules = Seen(), Rules(bus)
    await bus.define("pair", "SEQ([type = 'a'], [type = 'b'])")
    rules.rule(on="pair")(seen.note)
    async with rules:
        await bus.publish_many([Event("a", "s"), Event("b", "s")])
        await seen.reach(1)
    assert seen[0].type == "pair"


async def test_rules_from_a_file_work_without_python(bus: Any, tmp_path: Path) -> None:
    place, out = tmp_path / "rules.toml", tmp_path / "out"
    place.write_text(f"""
[[rule]]
name = "keep"
on = "door.open"
when = "door = 7"
command = {{ run = ["cp", "/dev/stdin", "{out}"] }}
""")
    rules = Rules(bus)
    [loaded] = rules.load(place)
    assert loaded.name == "keep"
    with pytest.raises(RuleError, match="keep already"):
        rules.load(place)
    async with rules:
        await bus.publish_many([door(1), door(7)])
        await until(bus, lambda consumers: consumers[0].settled == 1)
    assert '"door":7' in out.read_text().replace(" ", "")


async def test_names_are_unique_and_objects_unknown(bus: Any) -> None:
    rules = Rules(bus)
    rules.add(rule(on="e", name="r")(Seen().note))
    with pytest.raises(RuleError, match="r already"):
        rules.rule(on="f", name="r")(Seen().note)
    with pytest.raises(RuleError) as caught:
        rules.add(rule(on="e", instance=object(), name="i")(Seen().note))
    assert caught.value.field == "instance"
    with pytest.raises(RuleError, match="no rule x"):
        await rules.remove("x")
    with pytest.raises(RuleError, match="workers"):
        Rules(bus, workers=0)
    with pytest.raises(RuleError, match="retry"):
        Rules(bus, retry=-1)


async def test_a_node_may_go_before_its_rules(clock: Any, caplog: pytest.LogCaptureFixture) -> None:
    begun, go = asyncio.Event(), asyncio.Event()
    async with testing.node(clock=clock) as bus:
        rules = Rules(bus)

        @rules.rule(on="door.open")
        async def waits(event: Event) -> None:
            begun.set()
            await go.wait()

        await rules.start()
        await bus.publish(door(1))
        await begun.wait()
    go.set()
    await rules.close()
    assert "could not settle" in caplog.text


async def test_a_long_action_is_not_taken_for_a_dead_one() -> None:
    seen = Seen()
    async with testing.node() as bus:  # by the machine's clock
        rules = Rules(bus, ack_wait=0.15)

        @rules.rule(on="door.open")
        async def slow(event: Event) -> None:
            await asyncio.sleep(0.5)
            await seen.note(event)

        async with rules:
            await bus.publish(door(1))
            await seen.reach(1)
            await asyncio.sleep(0.2)
        [info] = await bus.consumers()
    assert (len(seen), info.redelivered, info.settled) == (1, 0, 1)


# -- what actions may do


class Odd(BaseException):
    """What nobody expects."""


@pytest.mark.parametrize("raised", [Odd, StopIteration])
async def test_whatever_is_raised_the_rule_goes_on(bus: Any, raised: type[BaseException]) -> None:
    seen = Seen()
    failures: list[str] = []
    rules = Rules(bus, max_deliver=1, on_failure=lambda failure: failures.append(failure.text))
    loop = asyncio.get_running_loop()

    @rules.rule(on="door.open")
    def act(event: Event) -> None:
        if event.data["door"] == 1:
            raise raised
        asyncio.run_coroutine_threadsafe(seen.note(event), loop).result(20)

    async with rules:
        await bus.publish_many([door(1), door(2)])
        await seen.reach(1)
    assert seen.doors == [2]
    assert len(failures) == 1 and raised.__name__ in failures[0]


async def test_removing_a_rule_does_not_wait_for_others(bus: Any) -> None:
    rules, begun, go = Rules(bus), asyncio.Event(), asyncio.Event()

    @rules.rule(on="door.open")
    async def slow(event: Event) -> None:
        begun.set()
        await go.wait()

    rules.add(rule(on="other", name="quick")(lambda event: None))
    async with rules:
        await bus.publish(door(1))
        await begun.wait()
        async with asyncio.timeout(20):
            await rules.remove("quick")
        go.set()


async def test_two_rules_may_remove_themselves_at_once(bus: Any) -> None:
    rules, gone = Rules(bus), Seen()

    def add(name: str) -> None:
        async def act(event: Event) -> None:
            await rules.remove(name)
            await gone.note(event)

        rules.add(rule(on="door.open", name=name)(act))

    add("one")
    add("two")
    async with rules:
        await bus.publish(door(1))
        await gone.reach(2)
    assert rules.rules() == []


async def test_as_many_plain_functions_run_at_a_time_as_there_are_workers(bus: Any) -> None:
    rules, together = Rules(bus, workers=12), threading.Barrier(12)
    seen, loop = Seen(), asyncio.get_running_loop()

    @rules.rule(on="door.open", coupling="detached")
    def act(event: Event) -> None:
        together.wait(20)
        asyncio.run_coroutine_threadsafe(seen.note(event), loop).result(20)

    async with rules:
        await bus.publish_many([door(number) for number in range(12)])
        await seen.reach(12)


async def test_a_rule_may_be_added_while_others_start(bus: Any) -> None:
    rules = Rules(bus)
    for name in ("a", "b", "c"):
        rules.add(rule(on="e", name=name)(lambda event: None))
    starting = asyncio.create_task(rules.start())
    await asyncio.sleep(0)
    rules.add(rule(on="e", name="d")(lambda event: None))
    await starting
    await rules.close()


async def test_removing_a_rule_that_was_not_started_forgets_its_place(bus: Any) -> None:
    made = rule(on="SEQ([type = 'a'], [type = 'b'])", name="r")(lambda event: None)
    before, after = Rules(bus), Rules(bus)
    before.add(made)
    async with before:
        pass
    after.add(made)
    await after.remove("r")
    assert (await bus.consumers(), await bus.definitions()) == ([], [])
