"""What a rule is: on which event, under which condition, what is done. A value; hosts run it.

`on` is the name of an event, a filter in brackets, or a composite text; `trigger` tells which. `when` is a filter over
the event or a function; the action is a function. Functions take one argument, may be coroutine functions, and may
fail: whoever runs the rule reports that as a `Failure`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple

from tocsin.composite.builder import Pattern, text_of
from tocsin.composite.expression import CONTEXTS, Definition, Leaf
from tocsin.composite.language import parse
from tocsin.errors import RuleError
from tocsin.filters.filter import Filter
from tocsin.model import DEFAULT_PRIORITY, MAX_PRIORITY, MIN_PRIORITY, Event

__all__ = ["COUPLINGS", "FAILED", "Condition", "Failure", "Rule", "Trigger", "check_name", "rule", "trigger"]

Coupling = Literal["immediate", "deferred", "detached"]
COUPLINGS: Final = ("immediate", "deferred", "detached")
FAILED: Final = "rule.failed"
"""The type of the event that tells of a rule that failed."""
Condition = str | Filter | Callable[[Any], Any] | None
_LONGEST: Final = 500
"""Characters of an error that are told."""
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:[.-][A-Za-z0-9_]+)*")


class Trigger(NamedTuple):
    """What a rule waits for."""

    kind: Literal["event", "filter", "composite"]
    text: str
    """The name of an event, the canonical text of a filter, or that of a definition."""
    definition: Definition | None = None
    """Of a composite."""


@dataclass(frozen=True, eq=False)
class Rule:
    """A rule. It can still be called like the function it was made of."""

    name: str
    """Unique among the rules of a host."""
    on: str
    action: Callable[[Any], Any]
    when: Condition = None
    priority: int = DEFAULT_PRIORITY
    """1 to 10; 10 runs first where rules have an order."""
    coupling: Coupling = "immediate"
    context: str | None = None
    """Of a composite; None: as it was defined, else recent."""
    instance: object = None
    """Only events of this object; None: of any. For agents only."""
    trigger: Trigger = field(init=False)

    def __post_init__(self) -> None:
        """Check it.

        Raises:
            RuleError: something of it means nothing; `field` says what.
            DefinitionError, FilterError: `on` or `when` cannot be read.
        """
        check_name(self.name, "the name of a rule")
        priority: Any = self.priority
        if type(priority) is not int or not MIN_PRIORITY <= priority <= MAX_PRIORITY:
            raise RuleError(
                f"rule {self.name}: priority is {priority!r}",
                field="priority",
                help=f"give a whole number from {MIN_PRIORITY} to {MAX_PRIORITY}; the highest runs first",
            )
        if self.coupling not in COUPLINGS:
            raise RuleError(
                f"rule {self.name}: there is no coupling {self.coupling!r}",
                field="coupling",
                help=f"there are {', '.join(COUPLINGS)}",
            )
        if self.context is not None and self.context not in CONTEXTS:
            raise RuleError(
                f"rule {self.name}: there is no context {self.context!r}",
                field="context",
                help=f"there are {', '.join(CONTEXTS)}",
            )
        if not callable(self.action):
            raise RuleError(f"rule {self.name} has no action", field="action", help="give a function of one argument")
        if isinstance(self.when, str):
            object.__setattr__(self, "when", Filter(self.when))
        object.__setattr__(self, "trigger", trigger(self.on, self.context))

    def __call__(self, what: Any) -> Any:
        """Do what its action does."""
        return self.action(what)


class Failure(NamedTuple):
    """A rule has failed: its condition or its action raised."""

    rule: str
    event: Event
    error: Exception
    attempt: int = 1

    @property
    def text(self) -> str:
        """The error in words, on one line, as every journal takes it."""
        said = type(self.error).__name__
        try:
            said += f": {self.error}"
        except Exception:  # what users raise may not even be able to say what it is
            said += ", which cannot be shown"
        return "".join(each if each.isprintable() else " " for each in said[:_LONGEST])


def rule(
    on: str | Pattern,
    *,
    when: Condition = None,
    priority: int = DEFAULT_PRIORITY,
    coupling: Coupling = "immediate",
    context: str | None = None,
    instance: object = None,
    name: str | None = None,
) -> Callable[[Callable[[Any], Any]], Rule]:
    """Make a rule of a function: `@rule(on="door.open", when="door = 7")`. Hosts take it by `add`.

    Args:
        on: the name of an event, a filter in brackets, or a composite text or pattern.
        when: a condition: a filter, or a function of what the action gets.
        priority: 1 to 10; 10 runs first where rules have an order.
        coupling: `immediate`: the event waits for it; `deferred`: at `commit()`; `detached`: on its own.
        context: of a composite: recent, chronicle, continuous or cumulative.
        instance: only events of this object; for agents.
        name: what it is called; the function's name if left out.

    Raises:
        RuleError, DefinitionError, FilterError: see `Rule`.
    """

    def make(action: Callable[[Any], Any]) -> Rule:
        called = name if name is not None else getattr(action, "__name__", type(action).__name__)
        return Rule(called, text_of(on), action, when, priority, coupling, context, instance)

    return make


def trigger(on: str, context: str | None = None) -> Trigger:
    """Tell what a text waits for: an event by its name, events by a filter, or a composite event.

    Raises:
        DefinitionError: it is none of these.
    """
    if _NAME.fullmatch(on.strip()) is not None:
        return Trigger("event", on.strip())
    definition = parse("on", on, context if context is not None else "recent")
    expression = definition.expression
    if isinstance(expression, Leaf) and expression.filter is not None and not definition.by and not definition.where:
        return Trigger("filter", expression.filter)
    return Trigger("composite", definition.text, definition)


def check_name(name: object, what: str) -> str:
    """Refuse a name that could not stand in a composite text.

    Raises:
        RuleError: it is not letters, digits, `_`, `.` and `-`, or begins like a name of the node's own.
    """
    if not isinstance(name, str) or _NAME.fullmatch(name) is None or len(name) > 200 or name.startswith("tocsin."):
        raise RuleError(
            f"{name!r} cannot be {what}",
            field="name",
            help="use letters, digits, _ . and -, beginning with a letter, up to 200; not tocsin.…",
        )
    return name
