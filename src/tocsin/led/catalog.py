"""Which events an agent knows, and what they are made of.

    primitive   its own: declared by a method, or just raised
    remote      of another application, under a name of its own here
    composite   made of others; detected on the node if all of them are remote, else here

A composite is detected in the context it was defined with, and beside that in every other one a rule asks for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from tocsin.composite.detector import Detector
from tocsin.composite.expression import CONTEXTS, Definition, Leaf, leaves
from tocsin.composite.language import parse
from tocsin.errors import DefinitionError, RuleError
from tocsin.led.methods import When
from tocsin.led.names import GlobalName, Request, heard_as, rewritten
from tocsin.rules.contract import composite_name
from tocsin.rules.rule import FAILED, check_name

__all__ = ["Catalog", "Composite", "NodeDefinition", "Wants"]

_IN_CONTEXT: Final = tuple(f".in-{context}" for context in CONTEXTS)
"""How the detector's names end for a composite in another context than its own."""


@dataclass(frozen=True)
class Composite:
    """A composite event, as it was written: with names."""

    name: str
    definition: Definition
    on_node: bool
    """All its parts are remote."""
    anonymous: bool
    """Made for a rule, and gone with it."""

    @property
    def context(self) -> str:
        """The context it was defined with."""
        return self.definition.context

    @property
    def made_of(self) -> list[str]:
        """Names of its parts; filters have none."""
        return [leaf.definition for leaf in leaves(self.definition.expression) if leaf.definition is not None]


@dataclass(frozen=True)
class NodeDefinition:
    """A composite as the node is to define it."""

    name: str
    text: str
    context: str


@dataclass
class Wants:
    """What an agent wants of a node."""

    events: dict[GlobalName, list[str]] = field(default_factory=dict)
    """Events to be heard, and their names here."""
    composites: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    """Composites to be heard by their name on the node; name and context here."""
    definitions: dict[str, NodeDefinition] = field(default_factory=dict)
    """What the node is to define, each after what it is made of."""
    requests: set[Request] = field(default_factory=set)
    """What producers are to be asked for."""


class Catalog:
    """The events of an agent. Whoever calls it holds the agent's lock."""

    def __init__(self, detector: Callable[[], Detector]) -> None:
        """Begin with none; composites that are detected here are defined in that detector."""
        self._detector = detector
        self.resolve: Callable[[GlobalName], GlobalName] = lambda name: name
        """Where an event is found now."""
        self.declared: dict[str, When] = {}
        self.remotes: dict[str, GlobalName] = {}
        self.composites: dict[str, Composite] = {}
        self.detected: dict[str, tuple[str, str]] = {}
        """What the detector calls it: name and context."""

    # -- making

    def declare(self, name: str, when: When) -> None:
        """A primitive event at the begin or the end of a method.

        Raises:
            RuleError: it is declared otherwise.
        """
        check_name(name, "the name of an event")
        if name in self.composites or name in self.remotes or self.declared.get(name, when) != when:
            raise RuleError(f"there is another event {name}", field="name", help="call it otherwise")
        self.declared[name] = when

    def add_remote(self, name: str, of: GlobalName) -> None:
        """An event of another application.

        Raises:
            RuleError: the name is taken.
        """
        check_name(name, "the name of an event")
        if self.remotes.get(name) == of:
            return
        if (
            name == FAILED
            or name in self.composites
            or name in self.remotes
            or name in self.declared
            or self._users(name)
        ):
            raise RuleError(f"there is another event {name}", field="name", help="say as_=, and before it is used")
        self.remotes[name] = of

    def define(self, name: str, text: str, context: str, *, anonymous: bool = False) -> Composite:
        """A composite event.

        Raises:
            DefinitionError: it cannot be read, or the name is taken.
        """
        definition = parse(name, text, context)
        if name.endswith(_IN_CONTEXT):
            raise DefinitionError(f"{name} means another event in that context", field="name", help="call it otherwise")
        if name == FAILED or name in self.composites or name in self.remotes or name in self.declared:
            raise DefinitionError(f"there is an event {name} already", field="name", help="call it otherwise")
        if users := self._users(name):
            raise DefinitionError(
                f"{', '.join(users)} is made of {name} as an event of its own", field="name", help="define parts first"
            )
        parts = leaves(definition.expression)
        if any(leaf.definition == name for leaf in parts):
            raise DefinitionError(f"{name} is made of itself", field="name", help="take it out")
        on_node = all(leaf.definition is not None and self._is_elsewhere(leaf.definition) for leaf in parts)
        composite = Composite(name, definition, on_node, anonymous)
        if not on_node:
            self._detect(composite, context)
        self.composites[name] = composite
        return composite

    def undefine(self, name: str) -> None:
        """Remove a composite, in all contexts.

        Raises:
            DefinitionError: there is none, or others are made of it.
        """
        if name not in self.composites:
            raise DefinitionError(f"there is no composite event {name}", field="name", help="see definitions()")
        if users := self._users(name):
            raise DefinitionError(f"{', '.join(users)} is made of {name}", field="name", help="undefine that first")
        for called in [called for called, (known, _) in self.detected.items() if known == name]:
            self._drop(called)
        del self.composites[name]

    def also_in(self, name: str, context: str | None) -> None:
        """Detect a composite in a context, too."""
        composite = self.composites[name]
        if context is not None and not composite.on_node and (name, context) not in self.detected.values():
            self._detect(composite, context)

    def keep_only(self, name: str, contexts: set[str]) -> None:
        """Detect a composite in these contexts and its own, no more."""
        own = self.composites[name].context
        for called, (known, context) in list(self.detected.items()):
            if known == name and context != own and context not in contexts:
                self._drop(called)

    def _detect(self, composite: Composite, context: str) -> None:
        def leaf_of(part: str) -> Leaf:
            other = self.composites.get(part)
            return Leaf(definition=part) if other is not None and not other.on_node else heard_as(part)

        called = composite.name if context == composite.context else f"{composite.name}.in-{context}"
        self._detector().define(called, rewritten(composite.definition, leaf_of), context)
        self.detected[called] = composite.name, context

    def _drop(self, called: str) -> None:
        self._detector().undefine(called)
        del self.detected[called]

    # -- asking

    def _users(self, name: str) -> list[str]:
        return [each.name for each in self.composites.values() if name in each.made_of]

    def _is_elsewhere(self, name: str) -> bool:
        return name in self.remotes or (name in self.composites and self.composites[name].on_node)

    def wants(self, roots: Iterable[tuple[str, str | None]]) -> Wants:
        """What is wanted of a node so that these events are heard, each in a context; None: its own."""
        wants = Wants()
        for name, context in dict.fromkeys(roots):
            self._want(wants, name, context)
        return wants

    def _want(self, wants: Wants, name: str, context: str | None) -> None:
        composite = self.composites.get(name)
        if composite is None:
            if name in self.remotes:
                of = self.resolve(self.remotes[name])
                names = wants.events.setdefault(of, [])
                if name not in names:
                    names.append(name)
                wants.requests.add(Request(of, context or CONTEXTS[0]))
            return
        context = context or composite.context
        if composite.on_node:
            called = self._on_node(wants, composite, context)
            heard = wants.composites.setdefault(called, [])
            if (name, context) not in heard:
                heard.append((name, context))
            return
        for part in composite.made_of:
            self._want(wants, part, None if part in self.composites else context)

    def _on_node(self, wants: Wants, composite: Composite, context: str) -> str:
        """What a composite is called on the node; it and what it is made of are wanted there."""

        def leaf_of(part: str) -> Leaf:
            other = self.composites.get(part)
            if other is not None:
                return Leaf(definition=self._on_node(wants, other, other.context))
            of = self.resolve(self.remotes[part])
            wants.requests.add(Request(of, context))
            return Leaf(filter=of.filter)

        text = rewritten(composite.definition, leaf_of)
        called = composite_name(text, context)
        wants.definitions.setdefault(called, NodeDefinition(called, text, context))
        return called
