"""`tocsin pipeline status`: how the Spark pipeline beside a node is.

Exit code 0: it runs, or has not come up yet · 1: it does not, and what went wrong is shown with what helps.
"""

from __future__ import annotations

import os
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from tocsin.cli.output import AsJson, examples, show, wants_json
from tocsin.cli.places import Token, Url, is_remote, place_of
from tocsin.errors import NetworkError, TocsinError

__all__ = ["app", "status"]

app = typer.Typer(
    help="The Spark pipeline beside a node.", no_args_is_help=True, epilog=examples("tocsin pipeline status")
)
_PATIENCE = 10.0
_STATES = {
    "up": "the pipeline is up",
    "starting": "the pipeline is starting; Spark takes some seconds",
    "waiting": "the pipeline has ended, and will be started again",
    "unfit": "Spark cannot run here; composite events are looked for on the node",
    "ended": "the pipeline has ended, as the node does",
    "none": "this node has no pipeline; composite events are looked for on the node",
}


@app.command(
    epilog=examples(
        "tocsin pipeline status", "tocsin pipeline status --json | jq .lag", "tocsin pipeline status --filters filters"
    )
)
def status(
    context: typer.Context,
    url: Url = "",
    token: Token = "",
    filters: Annotated[
        list[Path] | None, typer.Option(metavar="DIR", help="Also show how this live filter set is divided.")
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Show how the Spark pipeline is: how far behind, how long a batch takes, its shards, and what went wrong last.

    With --filters also the shards of a live filter set of yours: how busy each is, and when they were split or merged.
    """
    place = place_of(url)
    if not is_remote(place):
        raise typer.BadParameter("a pipeline belongs to a node that is up; name it: ws://host:8420", param_hint="--url")
    found = _asked(place, token)
    lines = list(_lines(found))
    if filters:
        divided = {str(path): _divided(path) for path in filters}
        found["filters"] = divided
        lines += [line for path, each in divided.items() for line in _shards(f"{path}, ", each)]
    show(found, lines, wants_json(context, as_json))
    return 1 if found["state"] in ("waiting", "unfit") else 0


def _asked(place: str, token: str) -> dict[str, Any]:
    where = f"{place.replace('ws', 'http', 1).rstrip('/')}/pipeline"
    request = urllib.request.Request(where, headers={"authorization": f"Bearer {token}"} if token else {})
    trusted = ssl.create_default_context(cafile=os.environ.get("TOCSIN_CA")) if where.startswith("https") else None
    try:
        with urllib.request.urlopen(request, timeout=_PATIENCE, context=trusted) as answer:
            value: dict[str, Any] = msgspec.json.decode(answer.read())
            return value
    except urllib.error.HTTPError as error:
        with error:
            raise _refused(error) from None
    except OSError as error:
        help = "start one: tocsin up; or say where it is: --url ws://host:8420"
        raise NetworkError(f"{place} cannot be reached: {error}", field="url", help=help) from None


def _refused(error: urllib.error.HTTPError) -> TocsinError:
    try:
        said = msgspec.json.decode(error.read())
        return TocsinError(said["message"], field=said.get("field"), help=said.get("help"))
    except (msgspec.MsgspecError, KeyError, TypeError):
        help = "is it a node of Tocsin, of this version?"
        return NetworkError(f"the node answered {error.code}", field="url", help=help)


def _lines(found: dict[str, Any]) -> Iterator[str]:
    state = found["state"]
    yield _STATES.get(state, state)
    if state == "none":
        return
    spark = f"Spark {found['spark']}, " if found["spark"] else ""
    yield f"    {spark}master {found['master']}, started again {found['restarts']:,} times"
    if found["next_start"] is not None:
        yield f"    it is started again in {found['next_start']:g} s"
    yield f"    {found['definitions']:,} definitions run there; {found['detected']:,} detected"
    if found["lag"] is not None:
        behind = f", {found['lag_seconds']:g} s" if found["lag"] else ""
        yield f"    looked at {found['offset']:,} of {found['head']:,}: {found['lag']:,} events behind{behind}"
    if found["batch_seconds"] is not None:
        rows, size = found["state_rows"] or 0, (found["state_bytes"] or 0) / (1 << 20)
        yield f"    last batch {found['batch_seconds']:g} s; state of {rows:,} entries, {size:.1f} MiB in memory"
    if found["subscriptions"] or found["matching"] is not None:
        yield f"    {found['subscriptions']:,} subscriptions are matched there"
    if found["matching"] is not None:
        for line in _shards("their filters, ", found["matching"]):
            yield f"    {line}"
    if (archived := found["archived"]) is not None:
        yield f"    archived up to {archived['last']:,}, {archived['events']:,} since it came up"
    if (trouble := found["trouble"]) is not None:
        yield f"    {trouble['at']}: {trouble['message']}"
        if trouble["help"]:
            yield f"        help: {trouble['help']}"


def _divided(path: Path) -> dict[str, Any]:
    """How a live filter set is divided, and what its elastic query has done."""
    try:
        from tocsin.spark import elastic
    except ImportError as error:
        raise TocsinError(f"Spark is not installed: {error}", help="pip install 'tocsin[spark]'") from None
    value: dict[str, Any] = msgspec.to_builtins(elastic.status(str(path)))
    return value


def _shards(whose: str, found: dict[str, Any]) -> Iterator[str]:
    shards, changes = found["shards"], found["changes"]
    yield f"{whose}version {found['version']:,}: {len(shards):,} shards"
    for shard in shards:
        said = "not measured" if shard["filters"] is None else f"{shard['filters']:,} filters"
        if shard["seconds"]:
            said += f", busy for {', '.join(f'{each:.3f}' for each in shard['seconds'])} s"
        yield f"    {shard['name']}: {said}"
    if found["measured"] is not None:
        yield f"    split {found['splits']:,} times, merged {found['merges']:,} times since the query began"
    if changes:
        yield f"    last change: {changes[-1]['what']}, {changes[-1]['time']}"
