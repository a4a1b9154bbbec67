"""The rules of an agent, found by the event that triggers them, in the order they were added."""

from __future__ import annotations

from tocsin.errors import RuleError
from tocsin.filters.filter import Filter
from tocsin.led.catalog import Catalog
from tocsin.led.occurrence import Occurrence
from tocsin.rules.contract import composite_name
from tocsin.rules.rule import Rule

__all__ = ["Rulebook"]


class Rulebook:
    """Rules, and the composites that were made for them. Whoever calls it holds the agent's lock."""

    def __init__(self, catalog: Catalog) -> None:
        """Begin with no rules."""
        self._catalog = catalog
        self._rules: dict[str, tuple[str, Rule]] = {}  # with the name of its event; of a filter, nothing
        self._numbers = 0
        self._by_event: dict[str, list[tuple[int, Rule]]] = {}
        self._by_filter: list[tuple[int, Filter, Rule]] = []

    def add(self, rule: Rule) -> None:
        """Add a rule; a composite it is on is detected from now on.

        Raises:
            RuleError: there is one of that name; or it is about an object, and on a composite event.
            DefinitionError: its composite cannot be defined.
        """
        kind, text, definition = rule.trigger
        composites = self._catalog.composites
        if rule.name in self._rules:
            raise RuleError(f"there is a rule {rule.name} already", field="name", help="call it otherwise")
        event = ""
        if definition is not None:
            event = composite_name(text, definition.context)
        elif kind == "event":
            event = text
        if definition is not None or event in composites:
            _check(rule)
        elif event in self._catalog.remotes:
            self._check_remote(rule)
        if definition is not None and event not in composites:
            self._catalog.define(event, text, definition.context, anonymous=True)
        elif event in composites:
            self._catalog.also_in(event, rule.context)
        self._numbers += 1
        self._rules[rule.name] = event, rule
        if event:
            self._by_event.setdefault(event, []).append((self._numbers, rule))
        else:
            self._by_filter.append((self._numbers, Filter(text), rule))

    def remove(self, name: str) -> None:
        """Remove a rule, and what was detected for it alone.

        Raises:
            RuleError: there is no such rule.
        """
        if name not in self._rules:
            raise RuleError(f"there is no rule {name}", field="name", help="see rules()")
        event, rule = self._rules.pop(name)
        self._by_filter = [each for each in self._by_filter if each[2] is not rule]
        left = [each for each in self._by_event.pop(event, ()) if each[1] is not rule]
        if left:
            self._by_event[event] = left
        composite = self._catalog.composites.get(event)
        if composite is not None and composite.anonymous and not left:
            self._catalog.undefine(event)
        elif composite is not None:
            self._catalog.keep_only(event, {each.context for _, each in left if each.context is not None})

    def check_composite(self, name: str) -> None:
        """Look whether an event that rules are on may become a composite.

        Raises:
            RuleError: one of them is about an object.
        """
        for _, rule in self._by_event.get(name, ()):
            _check(rule)

    def check_remote(self, name: str) -> None:
        """Look whether an event that rules are on may become a remote one.

        Raises:
            RuleError: one of them is about an object.
        """
        for _, rule in self._by_event.get(name, ()):
            self._check_remote(rule)

    @staticmethod
    def _check_remote(rule: Rule) -> None:
        if rule.instance is not None:
            raise RuleError(
                f"rule {rule.name} is about an object, and {rule.on} comes from elsewhere, without objects",
                field="instance",
                help="use when=",
            )

    def has_become_composite(self, name: str) -> None:
        """Detect it in the contexts that rules want."""
        for _, rule in self._by_event.get(name, ()):
            self._catalog.also_in(name, rule.context)

    def of(self, occurrence: Occurrence) -> list[Rule]:
        """The rules that an occurrence triggers."""
        by_event = self._by_event.get(occurrence.name, ())
        if occurrence.context is not None:
            composite = self._catalog.composites.get(occurrence.name)  # None: undefined while it was on its way
            own = composite.context if composite is not None else None
            return [rule for _, rule in by_event if (rule.context or own) == occurrence.context]
        found = [(at, rule) for at, rule in by_event if rule.instance is None or rule.instance is occurrence.instance]
        for at, filter, rule in self._by_filter:
            if (rule.instance is None or rule.instance is occurrence.instance) and filter.matches(occurrence.event):
                found.append((at, rule))
        return [rule for _, rule in sorted(found, key=lambda each: each[0])]

    def all(self) -> list[Rule]:
        """All rules, in the order they were added."""
        return [rule for _, rule in self._rules.values()]

    def events(self) -> list[tuple[str, str | None]]:
        """Names of the events that rules are on, each with the context the rule wants."""
        return [(event, rule.context) for event, rule in self._rules.values() if event]


def _check(rule: Rule) -> None:
    if rule.instance is not None:
        raise RuleError(
            f"rule {rule.name} is about an object, and {rule.on} is composite: each of its parts may have another",
            field="instance",
            help="use when=, or a rule on a primitive event",
        )
