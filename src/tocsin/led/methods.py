"""Functions and methods as events: `@led.event("stock.set_price", when="begin")`.

Parameters become fields by their names, defaults included; at the end there is `result`, too. A parameter called `self`
or `cls` is no field: it is the instance. A body that raises has no end, so there is no end event.

Refused: classes, and generators, whose body begins and ends when somebody asks for values. `@classmethod`,
`@staticmethod` and `@property` go above.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable
from typing import Any, Final, Literal, Protocol, TypeVar, cast

from tocsin.errors import RuleError

__all__ = ["Raiser", "When", "check_when", "signalling"]

When = Literal["begin", "end"]
WHENS: Final = ("begin", "end")
F = TypeVar("F", bound=Callable[..., Any])


class Raiser(Protocol):
    """Who hears of it."""

    def cause(self, name: str, params: dict[str, Any], instance: object) -> None:
        """Let an event happen, and wait for its rules."""

    def cause_async(self, name: str, params: dict[str, Any], instance: object) -> Awaitable[None]:
        """Do the same on an event loop."""


def check_when(when: object) -> None:
    """Refuse what is neither begin nor end.

    Raises:
        RuleError: it is neither.
    """
    if when not in WHENS:
        raise RuleError(f"when is {when!r}", field="when", help="give 'begin' or 'end'")


def _check_function(function: Any) -> None:
    if isinstance(function, classmethod | staticmethod | property):
        kind = type(function).__name__
        raise RuleError(f"this is a {kind}, not its function", field="event", help=f"write @{kind} above the event")
    if isinstance(function, type) or not callable(function):
        raise RuleError(f"{function!r} is no function", field="event", help="decorate a function or method")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise RuleError(
            f"{function.__qualname__} is a generator: calling it neither begins nor ends its body",
            field="event",
            help="call raise_ in its body",
        )


def signalling(raiser: Raiser, function: F, name: str, when: When) -> F:
    """A function that does the same, and signals its begin or its end.

    Raises:
        RuleError: it is no function; or it has a parameter `result`, and there would be two.
    """
    _check_function(function)
    signature = inspect.signature(function)
    if when == "end" and "result" in signature.parameters:
        raise RuleError(
            f"{function.__qualname__} has a parameter 'result'",
            field="result",
            help="call it otherwise: at the end, result is what the function returns",
        )

    def given(args: tuple[Any, ...], named: dict[str, Any]) -> tuple[object, dict[str, Any]]:
        bound = signature.bind(*args, **named)
        bound.apply_defaults()
        params = dict(bound.arguments)
        cls = params.pop("cls", None)
        return params.pop("self", cls), params

    if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__):

        @functools.wraps(function)
        async def awaited(*args: Any, **named: Any) -> Any:
            instance, params = given(args, named)
            if when == "begin":
                await raiser.cause_async(name, params, instance)
                return await function(*args, **named)
            result = await function(*args, **named)
            await raiser.cause_async(name, {**params, "result": result}, instance)
            return result

        return cast("F", awaited)

    @functools.wraps(function)
    def called(*args: Any, **named: Any) -> Any:
        instance, params = given(args, named)
        if when == "begin":
            raiser.cause(name, params, instance)
            return function(*args, **named)
        result = function(*args, **named)
        raiser.cause(name, {**params, "result": result}, instance)
        return result

    return cast("F", called)
