"""`tocsin up`: a node on a port, with a journal of its own and a Spark pipeline beside it, until SIGTERM or Ctrl-C.

It says where it listens once it does, and does not wait for Spark, which takes some seconds. Told to end, it takes no
more connections, finishes what was begun, ends the pipeline, closes the journal, and ends with 0. What it holds is in
one directory: `journal.db`, what SQLite keeps beside it, the lake, what the pipeline keeps (`spark`), and the tokens of
those who are let in, if there are any.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Annotated, Any

import typer

from tocsin import client
from tocsin.cli.logs import LogFormat, log_to_stderr
from tocsin.cli.output import AsJson, examples, show, wants_json
from tocsin.cli.places import NODE, command
from tocsin.errors import JournalLockedError, NetworkError, TocsinError
from tocsin.security.tokens import FILE as TOKENS

__all__ = ["DATA", "Data", "register", "up"]

DATA = "tocsin-data"
JOURNAL, LAKE, SPARK = "journal.db", "lake", "spark"
ANYWHERE = ("0.0.0.0", "::")  # to listen on, not to speak to
Data = Annotated[
    Path,
    typer.Option(
        "--data", envvar="TOCSIN_DATA", metavar="DIR", help="Where everything is kept; made if it is not there."
    ),
]


def register(app: typer.Typer) -> None:
    """Add this verb to the command."""
    app.command(
        epilog=examples(
            "tocsin up",
            "tocsin up --data /var/lib/tocsin --port 9000 --no-spark",
            "tocsin up --master spark://host:7077",
            "tocsin up --port 0 --json | jq -r .url",
        )
    )(up)


def up(
    context: typer.Context,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65535, envvar="TOCSIN_PORT", help="The port; 0: any that is free.")
    ] = 8420,
    data: Data = Path(DATA),
    master: Annotated[
        str, typer.Option(envvar="TOCSIN_MASTER", metavar="M", help="The Spark master that runs the pipeline.")
    ] = "local[*]",
    no_spark: Annotated[
        bool,
        typer.Option("--no-spark", envvar="TOCSIN_NO_SPARK", help="Run the node without a Spark pipeline beside it."),
    ] = False,
    token: Annotated[
        str,
        typer.Option(
            envvar="TOCSIN_TOKEN", metavar="T", show_default=False, help="What lets executors in, if there are tokens."
        ),
    ] = "",
    advertise: Annotated[
        str,
        typer.Option(
            envvar="TOCSIN_ADVERTISE",
            metavar="URL",
            show_default=False,
            help="Where executors on other machines reach this node, as https://host:8420.",
        ),
    ] = "",
    ca: Annotated[
        str,
        typer.Option(
            envvar="TOCSIN_CA",
            metavar="FILE",
            show_default=False,
            help="Certificates that executors trust, where they are.",
        ),
    ] = "",
    tls_cert: Annotated[Path | None, typer.Option(metavar="FILE", help="A certificate (PEM): listen with TLS.")] = None,
    tls_key: Annotated[Path | None, typer.Option(metavar="FILE", help="Its key (PEM).")] = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Listen off this machine also without TLS or tokens.")
    ] = False,
    log_format: Annotated[
        LogFormat, typer.Option(envvar="TOCSIN_LOG_FORMAT", help="How lines of the log on stderr look.")
    ] = LogFormat.TEXT,
    as_json: AsJson = False,
) -> int:
    """Run a node and its Spark pipeline until Ctrl-C.

    Programs reach it at ws://HOST:PORT. Composite events are looked for by the pipeline, which also archives the
    journal; `tocsin pipeline status` says how it is. SIGTERM ends it as well: what was begun is finished, then the exit
    code is 0.
    """
    if (tls_cert is None) != (tls_key is None):
        raise typer.BadParameter("a certificate and its key belong together", param_hint="--tls-cert, --tls-key")
    if advertise and not advertise.startswith(("http://", "https://")):
        raise typer.BadParameter(f"{advertise} is no url; write https://host:8420", param_hint="--advertise")
    is_json = wants_json(context, as_json)
    journal = data / JOURNAL
    tls = (tls_cert, tls_key) if tls_cert is not None and tls_key is not None else None
    try:
        data.mkdir(mode=0o700, parents=True, exist_ok=True)
    except FileExistsError:
        raise typer.BadParameter(f"{data} is a file; name a directory", param_hint="--data") from None
    except OSError as error:
        help = "choose a directory that you may write to: --data DIR"
        raise TocsinError(f"{data} cannot be made: {error.strerror}", field="data", help=help) from None
    log_to_stderr(log_format)
    try:
        from tocsin.net.process import as_process
        from tocsin.net.server import run
        from tocsin.net.supervisor import Pipeline
        from tocsin.web import page
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("tocsin"):
            raise  # not an extra that is missing, but a defect
        raise TocsinError(f"{error.name} is not installed", help="pip install 'tocsin[server]'") from None

    def ready(server: Any) -> None:
        value = {"url": server.url, "data": str(data.resolve()), "pid": os.getpid()}
        show(value, _lines(server.url, host, journal, server.node.head), is_json)

    try:
        opening = client.connect(f"file:{journal}", name="node")
        place = data.resolve()
        kept = (str(place / JOURNAL), str(place / SPARK), master, str(place / LAKE))
        pipeline = Pipeline(*kept, token or None, advertise or None, ca or None)
        as_process(
            run(
                opening,
                host,
                port,
                tls=tls,
                tokens=data / TOKENS,
                insecure=insecure,
                pipeline=None if no_spark else pipeline,
                page=page(),
                ready=ready,
            )
        )
    except JournalLockedError as error:
        help = "is a node up already? then use it, stop it, or choose another --data"
        raise JournalLockedError(error.message, path=str(journal), holder=error.holder, help=help) from None
    except NetworkError as error:
        if error.field != "port":
            raise
        help = "is a node up already? tocsin doctor says who listens; or choose another --port"
        raise NetworkError(error.message, field="port", help=help) from None
    return 0


def _lines(url: str, host: str, journal: Path, head: int) -> list[str]:
    reached = url.replace(host, socket.gethostname(), 1) if host in ANYWHERE else url
    where, tocsin = "" if url == NODE else f" --url {reached}", command()
    return [
        f"Tocsin listens at {url}; its journal is {journal} ({head:,} events so far). Ctrl-C ends it.",
        f"Its page for people:     {reached.replace('ws', 'http', 1)}/",
        f"""In another terminal:     {tocsin} sub "value > 9" --past 10{where}""",
        f"""and in a third:          {tocsin} pub machine.value '{{"machine": "m7", "value": 9.2}}'{where}""",
    ]
