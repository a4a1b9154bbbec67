"""Settling together: what is settled while an answer is awaited goes with the next frame."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tocsin.errors import DeliveryError
from tocsin.remote.settling import Settler


class Node:
    """Notes what is sent, and answers when it is told to."""

    def __init__(self) -> None:
        self.sent: list[list[Any]] = []
        self.answers: list[asyncio.Future[None]] = []

    async def settle(self, deliveries: list[Any]) -> None:
        self.sent.append(deliveries)
        self.answers.append(asyncio.get_running_loop().create_future())
        await self.answers[-1]

    async def answer(self, number: int, error: Exception | None = None) -> None:
        if error is None:
            self.answers[number].set_result(None)
        else:
            self.answers[number].set_exception(error)
        await turns()


class Thing:
    """Something to be settled."""

    settled: Any = None


async def turns(count: int = 8) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_what_is_settled_in_one_turn_goes_together_and_at_once() -> None:
    node = Node()
    settler = Settler(node.settle, lambda: 100)  # type: ignore[arg-type]
    done = [settler.settle([1]), settler.settle([2, 3])]  # type: ignore[list-item]
    await turns()
    assert node.sent == [[1, 2, 3]] and settler.gathered == []
    await node.answer(0)
    assert all(each.done() for each in done)


async def test_while_an_answer_is_awaited_the_rest_is_gathered() -> None:
    node = Node()
    settler = Settler(node.settle, lambda: 100)  # type: ignore[arg-type]
    first = settler.settle([1])  # type: ignore[list-item]
    await turns()
    rest = []
    for number in range(2, 6):
        rest.append(settler.settle([number]))  # type: ignore[list-item]
        await turns()
    assert node.sent == [[1]] and settler.gathered == [2, 3, 4, 5]
    await node.answer(0)
    assert first.done() and node.sent == [[1], [2, 3, 4, 5]] and not any(each.done() for each in rest)
    await node.answer(1)
    assert all(each.done() for each in rest)
    settler.settle([6])  # type: ignore[list-item]
    await turns()
    assert node.sent[2:] == [[6]], "nothing is awaited any more"


async def test_no_more_than_a_quarter_of_the_window_is_gathered() -> None:
    node = Node()
    settler = Settler(node.settle, lambda: 12)  # type: ignore[arg-type]
    for number in range(1, 5):
        settler.settle([number])  # type: ignore[list-item]
        await turns()
    assert node.sent == [[1], [2, 3, 4]]


async def test_with_a_window_of_one_nothing_is_held_up() -> None:
    node = Node()
    settler = Settler(node.settle, lambda: 1)  # type: ignore[arg-type]
    for number in range(3):
        settler.settle([number])  # type: ignore[list-item]
        await turns()
    assert node.sent == [[0], [1], [2]]


async def test_one_that_is_refused_spoils_no_other() -> None:
    node = Node()
    settler = Settler(node.settle, lambda: 100)  # type: ignore[arg-type]
    good, bad = Thing(), Thing()
    done = settler.settle([good]), settler.settle([bad])  # type: ignore[list-item]
    await turns()
    await node.answer(0, DeliveryError("not in your hands"))
    await node.answer(1)
    await node.answer(2, DeliveryError("not in your hands"))
    assert node.sent == [[good, bad], [good], [bad]]
    await done[0]
    with pytest.raises(DeliveryError):
        await done[1]


async def test_what_was_gathered_goes_on_after_a_failure() -> None:
    node = Node()
    settler = Settler(node.settle, lambda: 100)  # type: ignore[arg-type]
    first = settler.settle([Thing()])  # type: ignore[list-item]
    await turns()
    second = settler.settle([Thing()])  # type: ignore[list-item]
    await turns()
    await node.answer(0, RuntimeError("a defect"))
    assert len(node.sent) == 2
    await node.answer(1)
    with pytest.raises(RuntimeError):
        await first
    await second
