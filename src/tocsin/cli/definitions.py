"""`tocsin define`, `undefine`, `definitions`, `explain`, `graph`: composite events of a node.

A node that is up is asked. Of a journal's file: `define` and `undefine` change it, need its lock, and say who has it;
the others read, and work beside a node that is writing, with figures as of its last snapshot.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Annotated, Any, cast

import msgspec
import typer

from tocsin.cli.output import AsJson, examples, show, wants_json, warn
from tocsin.cli.places import Token, Url, ask, is_remote, journal_path, place_of, reader_of
from tocsin.composite.detector import Detector
from tocsin.composite.language import parse
from tocsin.journal import bounds
from tocsin.journal.contract import Journal
from tocsin.node.definitions import PLACES, DefinitionInfo, explain_stored, stored
from tocsin.node.watcher import Stored, stored_definitions

__all__ = ["define", "definitions", "explain", "graph", "register", "undefine"]


class Drawing(StrEnum):
    """How a graph is drawn."""

    TEXT = "text"
    DOT = "dot"
    SVG = "svg"


Name = Annotated[str, typer.Argument(help="The type of what is detected.", show_default=False)]


def register(app: typer.Typer) -> None:
    """Add these verbs to the command."""
    app.command(
        epilog=examples(
            "tocsin define pair \"SEQ([type = 'a'], [type = 'b']) WITHIN 2 MINUTES BY door\"",
            "tocsin define stop \"PLUS([type = 'machine.value'] AS v, 30 SECONDS) BY machine\" --past 1h",
        )
    )(define)
    app.command(epilog=examples("tocsin undefine pair", "tocsin undefine pair --url file:plant.db"))(undefine)
    app.command(
        epilog=examples("tocsin definitions", "tocsin definitions --url file:plant.db", "tocsin definitions --json")
    )(definitions)
    app.command(epilog=examples("tocsin explain 5d0c6a3f8e1b4c2f9a7d6e5c4b3a2918"))(explain)
    app.command(
        epilog=examples(
            "tocsin graph --url file:plant.db", "tocsin graph pair --format svg > pair.svg", "tocsin graph --json"
        )
    )(graph)


def define(
    context: typer.Context,
    name: Name,
    text: Annotated[str, typer.Argument(help="What to look for; see docs/COMPOSITE.md.", show_default=False)],
    url: Url = "",
    token: Token = "",
    parameter_context: Annotated[
        str, typer.Option("--context", help="Which occurrences go together: recent, chronicle, continuous, cumulative.")
    ] = "recent",
    semantics: Annotated[str, typer.Option(help="detection, or interval.")] = "detection",
    placement: Annotated[str, typer.Option(help="Where it runs: auto, node or spark.")] = "auto",
    past: Annotated[
        str | None, typer.Option(metavar="BOUND", help="Begin as if it had been there: 1h, 100, since:4711, retained.")
    ] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Take the place of a definition of this name.")] = False,
    max_open: Annotated[
        int | None, typer.Option(metavar="N", help="The most openers that each of its operations keeps.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Have a combination of events looked for.

    Each time it occurs there is an event whose type is NAME. The same definition again changes nothing.
    """
    bound, place = bounds.parse(past) if past is not None else None, place_of(url)
    if not is_remote(place) and not os.path.exists(journal_path(place)):
        warn(f"there is no journal {journal_path(place)}; it is made now")
    made = ask(
        place,
        lambda bus: bus.define(
            name, text, parameter_context, placement, bound, semantics=semantics, replace=replace, max_open=max_open
        ),
        token=token,
        makes=True,
    )
    for warning in made.warnings:
        warn(warning)
    show(_as_dict(made), [f"{made.name} is defined: {made.text}"], wants_json(context, as_json))


def undefine(context: typer.Context, name: Name, url: Url = "", token: Token = "", as_json: AsJson = False) -> None:
    """Remove a definition, and what it alone has half detected."""
    ask(place_of(url), lambda bus: bus.undefine(name), token=token)
    show({"undefined": name}, [f"{name} is not looked for any more"], wants_json(context, as_json))


def definitions(context: typer.Context, url: Url = "", token: Token = "", as_json: AsJson = False) -> None:
    """Show what is looked for, and how often it was found.

    Of a file it may run while a node is writing.
    """
    place = place_of(url)
    if is_remote(place):
        found = ask(place, lambda bus: bus.definitions(), token=token)
    else:
        with reader_of(place) as reader:
            found = stored(reader)
    value = {"definitions": [_as_dict(each) for each in found]}
    show(value, _lines(found) if found else ["there are no definitions"], wants_json(context, as_json))


def explain(
    context: typer.Context,
    id: Annotated[str, typer.Argument(help="The id of an event that a definition made.", show_default=False)],
    url: Url = "",
    token: Token = "",
    as_json: AsJson = False,
) -> None:
    """Say why an event that a definition made is there.

    Shows its parts, the rule, what was used up, and why it was not earlier. Of a file it may run while a node writes.
    """
    place = place_of(url)
    if is_remote(place):
        found = ask(place, lambda bus: bus.explain(id), token=token)
    else:
        with reader_of(place) as reader:
            found = explain_stored(cast(Journal, reader), stored_definitions(reader)[0].whole, id)
    show(msgspec.to_builtins(found), [str(found)], wants_json(context, as_json))


def graph(
    context: typer.Context,
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME]...", help="Which definitions; all if left out.")
    ] = None,
    url: Url = "",
    token: Token = "",
    format: Annotated[Drawing, typer.Option(help="How it is drawn.")] = Drawing.TEXT,
    as_json: AsJson = False,
) -> None:
    """Draw definitions as the graph that detects them.

    Of a file it may run while a node is writing, and shows what each node of the graph has open.
    """
    place = place_of(url)
    if is_remote(place):
        detector = _again(ask(place, lambda bus: bus.definitions(), token=token))
    else:
        with reader_of(place) as reader:
            detector = _stored(reader)
    drawn = detector.draw(format.value, names or None, figures=not is_remote(place))
    show({"format": format.value, "graph": drawn}, [drawn], wants_json(context, as_json))


def _again(found: Iterable[DefinitionInfo]) -> Detector:
    """A detector of the same definitions."""
    return Detector.of(parse(each.name, each.text, each.context, each.semantics) for each in found)


def _stored(reader: Stored) -> Detector:
    """The node's detector with what it has open; if some run elsewhere, all definitions, and nothing of that."""
    placements, here = stored_definitions(reader)
    whole = placements.whole
    return here if here is not None and len(here.definitions()) == len(whole.definitions()) else whole


def _as_dict(info: DefinitionInfo) -> dict[str, Any]:
    value: dict[str, Any] = msgspec.to_builtins(info)
    return value


def _lines(found: Iterable[DefinitionInfo]) -> Iterator[str]:
    for each in found:
        counts = [f"{each.detected:,} detected", f"{each.open:,} open"]
        counts += [f"{each.expired:,} too late"] if each.expired else []
        counts += [f"{each.dropped:,} given up, too many were open"] if each.dropped else []
        way = each.context if each.semantics == "detection" else f"{each.context}, {each.semantics}"
        yield f"{each.name}  ({way}; on {PLACES[each.placement]}, from offset {each.since:,})"
        yield f"    {each.text}"
        yield f"    {', '.join(counts)}"
        if each.halted is not None:
            yield f"    halted: {each.halted}"
        yield from (f"    warning: {warning}" for warning in each.warnings)
