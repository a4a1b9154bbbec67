"""What was sent ahead and nobody has taken, in the order it is to be handed out.

Highest priority first, lowest offset within it; in journal order the lowest offset. A share of turns (`fair`) goes to
the lowest priority there is. What is dropped leaves at once; its place in the heap is cleared when it comes up.
"""

from __future__ import annotations

import heapq

from tocsin.delivery.handles import Delivery
from tocsin.delivery.owners import Options

__all__ = ["Buffer"]


_Place = tuple[int, int, int]  # a rank, an offset, a number


class Buffer:
    """Deliveries of one subscription by their numbers."""

    def __init__(self) -> None:
        """Begin empty."""
        self._held: dict[int, Delivery] = {}
        self._urgent: list[_Place] = []
        self._lowest: list[_Place] = []  # the same, the other way round; only if turns are shared
        self._since_fair = 0.0

    def __len__(self) -> int:
        """How many wait."""
        return len(self._held)

    def __contains__(self, number: int) -> bool:
        """Does this one wait?"""
        return number in self._held

    def put(self, number: int, delivery: Delivery, options: Options) -> None:
        """One has come."""
        self._held[number] = delivery
        level = delivery.event.priority if options.order == "priority" else 0
        heapq.heappush(self._urgent, (-level, delivery.offset, number))
        if options.fair:
            heapq.heappush(self._lowest, (level, delivery.offset, number))

    def pop(self, options: Options) -> Delivery | None:
        """The next to be handed out."""
        heap = self._urgent
        if options.fair and self._held:
            self._since_fair += options.fair
            if self._since_fair >= 1:
                self._since_fair -= 1
                heap = self._lowest
        while heap:
            number = heapq.heappop(heap)[2]
            if (delivery := self._held.pop(number, None)) is not None:
                return delivery
        return None

    def drop(self, number: int) -> bool:
        """One is not to be handed out; was it here?"""
        return self._held.pop(number, None) is not None

    def offset(self, number: int) -> int:
        """Of one that waits; 0: it does not."""
        return self._held[number].offset if number in self._held else 0

    def offsets(self) -> list[int]:
        """Of all that wait."""
        return [delivery.offset for delivery in self._held.values()]

    def clear(self) -> None:
        """Everything is the node's again."""
        self._held.clear()
        self._urgent.clear()
        self._lowest.clear()
