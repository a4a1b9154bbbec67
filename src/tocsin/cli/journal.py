"""`tocsin journal`: check, repair, import, export and stats of a journal's file.

Check, export and stats read, and work beside a node that is writing. Repair and import write: they need the lock, and
say who has it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from enum import StrEnum
from typing import IO, Annotated, Any, cast

import msgspec
import typer

from tocsin.cli import figures
from tocsin.cli.output import AsJson, examples, progress, show, wants_json
from tocsin.cli.places import journal_path
from tocsin.clock import as_micros
from tocsin.errors import EventError
from tocsin.journal import transfer
from tocsin.journal.check import check as check_file
from tocsin.journal.contract import Journal
from tocsin.journal.reader import Reader, open_reader
from tocsin.journal.repair import repair as repair_file
from tocsin.journal.sqlite import SqliteJournal
from tocsin.model import parse_time

__all__ = ["app"]

_EXTENSIONS = {".jsonl": "lines", ".ndjson": "lines", ".json": "lines", ".parquet": "parquet", ".pq": "parquet"}


class Format(StrEnum):
    """How events are written in a file."""

    LINES = "lines"
    PARQUET = "parquet"


File = Annotated[
    str,
    typer.Argument(envvar="TOCSIN_URL", metavar="FILE", show_default=False, help="The journal: a path, or file:path."),
]
System = Annotated[bool, typer.Option("--system", help="The node's own records too.")]

app = typer.Typer(
    help="Look after a journal's file.", no_args_is_help=True, epilog=examples("tocsin journal stats plant.db")
)


@app.command(epilog=examples("tocsin journal check plant.db", "tocsin journal check plant.db --json"))
def check(context: typer.Context, file: File = "", as_json: AsJson = False) -> int:
    """Verify every block; nothing is changed. Exit code 1 if there is damage.

    It may run while a node is writing.
    """
    with progress("checking"):
        report = check_file(journal_path(file))
    show(msgspec.to_builtins(report) | {"ok": report.ok}, report.lines(), wants_json(context, as_json))
    return 0 if report.ok else 1


@app.command(epilog=examples("tocsin journal repair plant.db", "tocsin journal repair plant.db --force"))
def repair(
    context: typer.Context,
    file: File = "",
    force: Annotated[bool, typer.Option("--force", help="Take out damage in the middle as well.")] = False,
    as_json: AsJson = False,
) -> int:
    """Cut a torn tail. Exit code 1 if damage is left.

    What is taken out is copied to a file beside the journal first. The node must be stopped.
    """
    path = journal_path(file)
    with progress("repairing"):
        done = repair_file(path, force=force)
        after = check_file(path)  # not all that can be wrong is in blocks, and only blocks can be taken out
    lines = [*done.lines(), *(f"problem that cannot be repaired: {each}" for each in after.problems)]
    if after.problems:
        lines.append("export what can be read, and import it into a new journal")
    found = msgspec.to_builtins(done) | {"problems": after.problems, "ok": after.ok}
    show(found, lines, wants_json(context, as_json))
    return 0 if after.ok else 1


@app.command(
    "import",
    epilog=examples(
        "tocsin journal import plant.db history.jsonl",
        "zcat history.jsonl.gz | tocsin journal import plant.db -",
        "TOCSIN_URL=file:plant.db tocsin journal import history.parquet",
    ),
)
def import_(
    context: typer.Context,
    places: Annotated[
        list[str],
        typer.Argument(
            metavar="[FILE] SOURCE",
            help="The journal (made if there is none; TOCSIN_URL if left out), and a file of JSON lines or Parquet, "
            "or - for lines from stdin.",
        ),
    ],
    format: Annotated[Format | None, typer.Option(help="What SOURCE holds, if its name does not tell.")] = None,
    writer: Annotated[str | None, typer.Option(help="Name under which the place in SOURCE is kept.")] = None,
    system: System = False,
    as_json: AsJson = False,
) -> None:
    """Store events of a file with their own times as journal time.

    Times must not go backward. An import that was cut off goes on where it was when it is repeated; nothing is stored
    twice. The node must be stopped.
    """
    file, source = _two(places)
    kind = _format(source, format, "SOURCE")
    if source == "-" and kind == "parquet":
        raise typer.BadParameter("Parquet cannot be read from stdin; name a file", param_hint="SOURCE")
    take, unit = (transfer.import_lines, "bytes") if kind == "lines" else (transfer.import_parquet, "events")
    with ExitStack() as stack:
        events = sys.stdin.buffer if source == "-" else stack.enter_context(open(source, "rb"))
        journal = stack.enter_context(SqliteJournal(journal_path(file)))
        told = stack.enter_context(progress("importing", unit=unit))
        done = take(journal, events, writer=writer, system=system, progress=told)
        head = journal.head
    passed = f", {done.hidden:,} system records passed over" if done.hidden else ""
    text = f"{done.stored:,} events stored, {done.known:,} known already{passed}; the newest offset is {head:,}"
    show(done._asdict() | {"head": head}, [text], wants_json(context, as_json))


@app.command(
    epilog=examples(
        "tocsin journal export plant.db --to today.parquet --since 2026-01-31T00:00:00Z",
        "tocsin journal export plant.db --since 1000 --until 1999 | jq .data",
    )
)
def export(
    context: typer.Context,
    file: File = "",
    to: Annotated[str, typer.Option(metavar="PATH", help="A file; - is stdout.")] = "-",
    since: Annotated[
        str | None, typer.Option(metavar="OFFSET|TIME", help="From this offset or ISO time on, itself included.")
    ] = None,
    until: Annotated[
        str | None, typer.Option(metavar="OFFSET|TIME", help="Up to this offset or ISO time, itself included.")
    ] = None,
    format: Annotated[Format | None, typer.Option(help="JSON lines unless the name of PATH says Parquet.")] = None,
    system: System = False,
    as_json: AsJson = False,
) -> None:
    """Write events to a file or to stdout.

    It may run while a node is writing. A file is there whole or not at all. When events go to stdout, the answer goes
    to stderr.
    """
    path, kind = journal_path(file), _format(to, format, "--to")
    bounds = _moment(since, "since"), _moment(until, "until")
    if to == "-" and kind == "parquet" and sys.stdout.isatty():
        raise typer.BadParameter("Parquet is not for a terminal; name a file with --to", param_hint="--format")
    put = transfer.export_lines if kind == "lines" else transfer.export_parquet
    with open_reader(path) as reader:
        first, last = _range(reader, *bounds)
        with (
            _target(to, reader.path) as target,
            progress("exporting", unit="events", visible=to != "-" or not sys.stdout.isatty()) as told,
        ):
            count = put(cast(Journal, reader), target, first, last, system=system, progress=told)
    place = "stdout" if to == "-" else to
    show(
        {"events": count, "to": None if to == "-" else to, "format": kind},
        [f"{count:,} events written to {place}"],
        wants_json(context, as_json),
        target=sys.stderr if to == "-" else None,
    )


@app.command(epilog=examples("tocsin journal stats plant.db", "tocsin journal stats file:plant.db --json"))
def stats(context: typer.Context, file: File = "", as_json: AsJson = False) -> None:
    """Show what a journal holds, and what it takes on the disk.

    It may run while a node is writing.
    """
    with open_reader(journal_path(file)) as reader:
        found = figures.figures(reader)
    show(found, figures.lines(found), wants_json(context, as_json))


def _two(places: list[str]) -> tuple[str, str]:
    """FILE and SOURCE; FILE may be left to the environment."""
    known = os.environ.get("TOCSIN_URL")
    match places:
        case [source] if known:
            return known, source
        case [file, source]:
            return file, source
    raise typer.BadParameter("give the journal and a source, or set TOCSIN_URL", param_hint="FILE SOURCE")


def _format(name: str, given: Format | None, what: str) -> str:
    """`lines` or `parquet`: what was said, else what the file's name tells."""
    if given is not None:
        return given.value
    if name == "-":
        return "lines"
    kind = _EXTENSIONS.get(os.path.splitext(name)[1].lower())
    if kind is None:
        known = ", ".join(_EXTENSIONS)
        raise typer.BadParameter(f"{name!r} ends in none of {known}; give --format", param_hint=what)
    return kind


def _moment(text: str | None, name: str) -> tuple[str, int] | None:
    """What an option means: an offset, or microseconds of journal time."""
    if text is None:
        return None
    if text.isascii() and text.isdigit():
        return "offset", int(text)
    try:
        return "time", as_micros(parse_time(text, name))
    except EventError as error:
        help = "give an offset, or a time such as 2026-01-31T12:00:00Z"
        raise typer.BadParameter(f"{error.message}; {help}", param_hint=f"--{name}") from None


def _range(reader: Reader, since: tuple[str, int] | None, until: tuple[str, int] | None) -> tuple[int, int | None]:
    """First and last offset; both bounds are included."""
    first, last = 1, None
    if since is not None:
        first = max(1, since[1]) if since[0] == "offset" else reader.offset_at(since[1])
    if until is not None:
        last = until[1] if until[0] == "offset" else reader.offset_at(until[1] + 1) - 1
    return first, last


@contextmanager
def _target(to: str, journal: str) -> Iterator[IO[bytes]]:
    """The file to be written; it takes its name when all is in it."""
    if to == "-":
        yield cast(Any, sys.stdout.buffer)
        sys.stdout.buffer.flush()
        return
    real = os.path.realpath(to)
    if real.startswith(journal) and real.removeprefix(journal) in ("", "-wal", "-shm", ".lock"):
        raise typer.BadParameter(f"{to!r} is part of the journal itself", param_hint="--to")
    if os.path.exists(real) and not os.path.isfile(real):  # a pipe or a device, which must not be replaced
        with open(real, "wb") as target:
            yield target
        return
    draft = f"{real}.part-{os.getpid()}"
    try:
        with open(draft, "wb") as target:
            yield target
            target.flush()
            os.fsync(target.fileno())
        os.replace(draft, real)
    except BaseException:
        if os.path.exists(draft):
            os.remove(draft)
        raise
