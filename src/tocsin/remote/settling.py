"""Settling together: one frame and one answer for much that is settled.

What is settled in one turn of the loop goes together. While the answer to that is awaited, what else is settled is
gathered, and goes when the answer has come: who settles one by one, without waiting for each, would else send as many
frames as there are events, and each costs the node as much as ten settled by one. Who waits for each is not held up.

Never gathered: more than a quarter of the window, so that it does not run dry.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from tocsin.delivery.handles import Delivery
from tocsin.errors import DeliveryError

__all__ = ["Settler", "has_failed"]


class Settler:
    """Settles deliveries of one subscription."""

    def __init__(self, send: Callable[[list[Delivery]], Awaitable[None]], window: Callable[[], int]) -> None:
        """Begin with nothing.

        Args:
            send: settles at the node, all or none; returns when it is answered.
            window: how many deliveries may be out.
        """
        self._send, self._window = send, window
        self._calls: list[tuple[asyncio.Future[None], list[Delivery]]] = []
        self._count = 0  # deliveries in them
        self._is_due = False  # are they about to be sent?
        self._tasks: set[asyncio.Task[None]] = set()  # those that wait for an answer, or are about to

    def settle(self, deliveries: list[Delivery]) -> asyncio.Future[None]:
        """Settle these; done when it is answered."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        done.add_done_callback(has_failed)  # who waits for it may have been cancelled, and looks no more
        self._calls.append((done, deliveries))
        self._count += len(deliveries)
        if not self._tasks or self._count >= self._window() // 4:
            self._send_soon()
        return done

    @property
    def gathered(self) -> list[Delivery]:
        """What is settled, and was not sent yet."""
        return [each for _, mine in self._calls for each in mine]

    def _send_soon(self) -> None:
        if self._calls and not self._is_due:
            self._is_due = True
            task = asyncio.ensure_future(self._send_gathered())
            self._tasks.add(task)
            task.add_done_callback(self._is_sent)

    def _is_sent(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._send_soon()

    async def _send_gathered(self) -> None:
        calls, self._calls = self._calls, []
        self._count, self._is_due = 0, False
        try:
            await self._send([each for _, mine in calls for each in mine])
        except DeliveryError as error:
            if len(calls) == 1:
                _tell(calls[0][0], error)
                return
            for done, mine in calls:  # one of them is refused, and that need not be the others' fault
                for delivery in mine:
                    delivery.settled = done
            for done, mine in calls:
                try:
                    await self._send(mine)
                except Exception as refusal:
                    _tell(done, refusal)
                else:
                    _tell(done)
        except BaseException as error:
            for done, _ in calls:
                _tell(done, error)
        else:
            for done, _ in calls:
                _tell(done)


def _tell(done: asyncio.Future[None], error: BaseException | None = None) -> None:
    if done.done():
        return
    if error is None:
        done.set_result(None)
    elif isinstance(error, asyncio.CancelledError):
        done.cancel()
    else:
        done.set_exception(error)


def has_failed(done: asyncio.Future[None]) -> bool:
    """Has it come to a bad end?"""
    return done.done() and (done.cancelled() or done.exception() is not None)
