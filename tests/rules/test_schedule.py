"""In which order rules run, and what a failing one does to the others: nothing."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from typing import Any

import pytest

from tocsin import Event
from tocsin.errors import RuleDepthError
from tocsin.rules import Failure, Rule, Scheduler, Triggered, rule

EVENT = Event("e", "s", data={"n": 1})


class Log:
    """Rules that write down when they run."""

    def __init__(self, **options: Any) -> None:
        self.ran: list[str] = []
        self.failures: list[Failure] = []
        self.scheduler = Scheduler(self.report, **options)

    def report(self, failure: Failure) -> list[Triggered]:
        self.failures.append(failure)
        return []

    def rule(self, name: str, action: Any = None, **options: Any) -> Triggered:
        def note(what: Any) -> None:
            self.ran.append(name)

        return Triggered(Rule(name, "e", action or note, **options), EVENT, EVENT)


def test_off_rules_run_as_triggered_whatever_their_priority() -> None:
    log = Log()
    log.scheduler.run([log.rule("r1", priority=1), log.rule("r2", priority=9), log.rule("r3")])
    assert log.ran == ["r1", "r2", "r3"]


def test_on_the_highest_priority_runs_first() -> None:
    log = Log(on=True)
    log.scheduler.run([log.rule("r1", priority=1), log.rule("r2", priority=9), log.rule("r3")])
    assert log.ran == ["r2", "r3", "r1"]


def test_on_equal_priorities_run_together_and_the_lower_wait() -> None:
    log = Log(on=True)
    both = threading.Barrier(2, timeout=10)  # passes only if both are there

    def meet(what: Any) -> None:
        both.wait()
        log.ran.append("met")

    log.scheduler.run([log.rule("low", priority=1), log.rule("a", meet), log.rule("b", meet)])
    assert log.ran == ["met", "met", "low"]
    assert not log.failures


async def test_on_a_loop_equal_priorities_are_tasks() -> None:
    log = Log(on=True)
    here, there = asyncio.Event(), asyncio.Event()

    async def one(what: Any) -> None:
        here.set()
        await there.wait()

    async def other(what: Any) -> None:
        there.set()
        await here.wait()
        log.ran.append("met")

    await asyncio.wait_for(log.scheduler.run_async([log.rule("one", one), log.rule("other", other)]), 10)
    assert log.ran == ["met"]


def test_a_condition_decides_and_may_be_a_function_a_coroutine_or_a_filter() -> None:
    log = Log()

    async def yes(what: Any) -> bool:
        return True

    log.scheduler.run(
        [
            log.rule("filter", when="n = 1"),
            log.rule("not", when="n = 2"),
            log.rule("function", when=lambda event: event.data["n"] == 1),
            log.rule("neither", when=lambda event: False),
            log.rule("coroutine", when=yes),
        ]
    )
    assert log.ran == ["filter", "function", "coroutine"]


def test_a_raising_condition_or_action_is_reported_and_stops_nobody() -> None:
    log = Log()

    def wrong(what: Any) -> None:
        raise ValueError("no")

    log.scheduler.run([log.rule("c", when=wrong), log.rule("a", wrong), log.rule("last")])
    assert log.ran == ["last"]
    assert [(each.rule, each.event.id, each.text) for each in log.failures] == [
        ("c", EVENT.id, "ValueError: no"),
        ("a", EVENT.id, "ValueError: no"),
    ]


def test_coroutine_actions_run_to_their_end_without_a_loop() -> None:
    log = Log()

    async def slowly(what: Any) -> None:
        await asyncio.sleep(0)
        log.ran.append("slowly")

    log.scheduler.run([log.rule("r", slowly), log.rule("then")])
    assert log.ran == ["slowly", "then"]


async def test_coroutine_actions_run_to_their_end_when_blocking_code_is_called_on_a_loop() -> None:
    log = Log()

    async def slowly(what: Any) -> None:
        await asyncio.sleep(0)
        log.ran.append("slowly")

    log.scheduler.run([log.rule("r", slowly), log.rule("then")])
    assert log.ran == ["slowly", "then"]


def test_an_action_whose_wait_was_cancelled_has_failed_and_cancels_nobody() -> None:
    log = Log()

    async def waits(what: Any) -> None:
        future = asyncio.get_running_loop().create_future()
        future.cancel()
        await future

    log.scheduler.run([log.rule("r", waits), log.rule("after")])
    asyncio.run(log.scheduler.run_async([log.rule("r", waits), log.rule("after")]))
    assert log.ran == ["after", "after"]
    assert [each.text for each in log.failures] == ["RuleError: what it waited for was cancelled"] * 2


async def test_cancelling_whoever_runs_rules_cancels_them() -> None:
    log, begun = Log(), asyncio.Event()

    async def waits(what: Any) -> None:
        begun.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(log.scheduler.run_async([log.rule("r", waits), log.rule("after")]))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (log.ran, log.failures) == ([], [])


def test_deferred_rules_wait_for_commit_and_rollback_drops_them() -> None:
    log = Log()
    log.scheduler.run([log.rule("later", coupling="deferred"), log.rule("now")])
    assert (log.ran, log.scheduler.deferred) == (["now"], 1)
    assert log.scheduler.commit() == 1
    assert log.ran == ["now", "later"]
    log.scheduler.run([log.rule("never", coupling="deferred")])
    assert log.scheduler.rollback() == 1
    assert log.scheduler.commit() == 0
    assert log.ran == ["now", "later"]


def test_on_deferred_rules_run_by_priority() -> None:
    log = Log(on=True)
    log.scheduler.run([log.rule("low", coupling="deferred", priority=2)])
    log.scheduler.run([log.rule("high", coupling="deferred", priority=8)])
    log.scheduler.commit()
    assert log.ran == ["high", "low"]


def test_what_a_deferred_rule_defers_runs_in_the_same_commit() -> None:
    log = Log()
    second = log.rule("second", coupling="deferred")

    def first(what: Any) -> None:
        log.scheduler.run([second])

    log.scheduler.run([log.rule("first", first, coupling="deferred")])
    assert log.scheduler.commit() == 2
    assert log.ran == ["second"]


def test_detached_rules_run_on_their_own_and_their_failures_are_reported() -> None:
    log = Log()
    go, threads = threading.Event(), []

    def waits(what: Any) -> None:
        assert go.wait(10)
        threads.append(threading.current_thread())
        raise ValueError("detached")

    log.scheduler.run([log.rule("own", waits, coupling="detached"), log.rule("now")])
    assert log.ran == ["now"]  # it was not waited for
    go.set()
    log.scheduler.drain()
    assert [each.text for each in log.failures] == ["ValueError: detached"]
    assert threads != [threading.current_thread()]
    log.scheduler.close()


async def test_detached_rules_are_tasks_on_a_loop() -> None:
    log = Log()
    go = asyncio.Event()

    async def waits(what: Any) -> None:
        await go.wait()
        log.ran.append("own")

    await log.scheduler.run_async([log.rule("own", waits, coupling="detached"), log.rule("now")])
    assert log.ran == ["now"]
    go.set()
    await log.scheduler.drain_async()
    assert log.ran == ["now", "own"]


@pytest.mark.parametrize("on", [False, True])
def test_children_are_done_before_their_parent_goes_on(on: bool) -> None:
    log = Log(on=on)
    child = log.rule("child")

    def parent(what: Any) -> None:
        log.scheduler.run([child])
        log.ran.append("parent")

    log.scheduler.run([log.rule("parent", parent), log.rule("other", priority=1)])
    assert log.ran == ["child", "parent", "other"]


@pytest.mark.parametrize("on", [False, True])
def test_rules_that_trigger_themselves_end_with_a_typed_error(on: bool) -> None:
    log = Log(max_depth=5, on=on)
    runs: list[int] = []

    def again(what: Any) -> None:
        runs.append(1)
        log.scheduler.run([log.rule("again", again)])

    log.scheduler.run([log.rule("again", again), log.rule("after", priority=1)])
    assert len(runs) == 5
    assert [type(each.error) for each in log.failures] == [RuleDepthError]
    assert log.ran == ["after"]


async def test_depth_counts_across_tasks_and_threads() -> None:
    log = Log(max_depth=4, on=True)
    runs: list[int] = []

    async def again(what: Any) -> None:
        runs.append(1)
        await log.scheduler.run_async([log.rule("a", again), log.rule("b")])

    await log.scheduler.run_async([log.rule("again", again)])
    assert len(runs) == 4
    assert [type(each.error) for each in log.failures] == [RuleDepthError]


def test_a_deferred_rule_that_defers_itself_ends() -> None:
    log = Log(max_depth=6)

    def again(what: Any) -> None:
        log.scheduler.run([log.rule("again", again, coupling="deferred")])

    log.scheduler.run([log.rule("again", again, coupling="deferred")])
    assert log.scheduler.commit() == 6
    assert [type(each.error) for each in log.failures] == [RuleDepthError]


def test_a_detached_rule_that_ends_its_thread_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    def act(what: Any) -> None:
        raise SystemExit

    scheduler = Scheduler(lambda failure: [])
    made = rule(on="e", coupling="detached", name="r")(act)
    scheduler.run([Triggered(made, Event("e", "s"), None)])
    scheduler.close()
    assert "SystemExit" in caplog.text


def test_detached_rules_run_while_the_program_ends() -> None:
    program = """
from tocsin.led import Agent
agent = Agent("test")
agent.rule(on="one", coupling="detached", name="r1")(lambda happened: (end.wait(), agent.raise_("two")))
agent.rule(on="two", coupling="detached", name="r2")(lambda happened: print("done"))
import subprocess
import sys
import threading
end = threading.Event()
agent.raise_("one")
threading.Timer(0.2, end.set).start()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("done\n", "")


def test_what_a_broken_commit_has_not_begun_waits_for_the_next() -> None:
    ran: list[int] = []

    def act(number: int) -> None:
        ran.append(number)
        if number == 1:
            raise KeyboardInterrupt

    scheduler = Scheduler(lambda failure: [])
    made = rule(on="e", coupling="deferred", name="r")(act)
    scheduler.run([Triggered(made, EVENT, number) for number in (1, 2, 3)])
    with pytest.raises(KeyboardInterrupt):
        scheduler.commit()
    assert (scheduler.commit(), ran) == (2, [1, 2, 3])
