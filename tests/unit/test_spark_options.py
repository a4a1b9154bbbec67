"""Options of the Spark source and sink: what they mean, and what is said about those that mean nothing."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tocsin.clock import as_micros
from tocsin.errors import OptionError
from tocsin.model import parse_time

pytest.importorskip("pyspark", reason="PySpark is not installed; `make setup` installs it")

from tocsin.spark.options import read_options, suggestion, write_options

URL = {"url": "file:/var/plant.db"}


def test_nothing_but_a_url_reads_everything() -> None:
    found = read_options(URL)
    assert found.url == "file:/var/plant.db"
    assert (found.start, found.since, found.latest, found.end, found.until) == (None, None, False, None, None)
    assert found.events_per_partition is None
    assert not (found.system or found.allow_gaps or found.pushdown)
    assert (found.max_events, found.filter, found.lake, found.filters, found.token) == (None,) * 5


def test_every_option_has_its_effect() -> None:
    found = read_options(
        {
            "URL": "file:///var/a%20b.db",
            "startingoffset": " 17 ",
            "ENDINGOFFSET": "20",
            "eventsPerPartition": "100",
            "System": "TRUE",
            "filter": "type = 'a'",
            "allowGaps": "yes",
            "pushdown": "1",
            "lake": "/lake/",
            "filters": "/set",
            "token": "secret",
        }
    )
    assert found.url == "file:/var/a b.db"
    assert (found.start, found.end, found.events_per_partition) == (17, 20, 100)
    assert found.system and found.allow_gaps and found.pushdown
    assert (found.filter, found.lake, found.filters, found.token) == ("type = 'a'", "/lake", "/set", "secret")
    stream = read_options({**URL, "startingOffset": "latest", "maxEventsPerTrigger": "5"}, streaming=True)
    assert stream.latest and stream.max_events == 5
    assert read_options({**URL, "startingOffset": "Earliest", "endingOffset": "latest"}).start is None


def test_times_are_instants() -> None:
    found = read_options({**URL, "startingTime": "2026-01-31T12:00:00+01:00", "endingTime": "2026-01-31T12:00:00.5Z"})
    assert found.since == as_micros(parse_time("2026-01-31T11:00:00Z", "t"))
    assert found.until == as_micros(parse_time("2026-01-31T12:00:00.500000Z", "t"))


def test_relative_places_are_taken_from_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = read_options({"url": "file:plant.db", "lake": "lake", "filters": "sets/a"})
    here = os.getcwd()
    assert (found.url, found.lake, found.filters) == (f"file:{here}/plant.db", f"{here}/lake", f"{here}/sets/a")
    assert write_options({"url": "file:plant.db"}).staging == f"{here}/plant.db.staging"


def test_other_urls_are_left_to_who_opens_them() -> None:
    assert read_options({"url": "http://host:8420"}).url == "http://host:8420"


@pytest.mark.parametrize(
    ("options", "streaming", "field", "words"),
    [
        ({}, None, "url", "url is missing; .*file:plant.db"),
        ({"path": "file:plant.db"}, None, "url", "url is missing, and the path 'file:plant.db' does not count; say"),
        ({"url": " "}, None, "url", "url is empty"),
        ({"url": "file://elsewhere/x.db"}, None, "url", "another machine"),
        ({**URL, "startingOfset": "1"}, None, "startingOffset", "no option startingofset; did you mean startingOffset"),
        ({**URL, "zzz": "1"}, None, "zzz", "no option zzz; for reading there are url, startingOffset"),
        ({**URL, "writer": "w"}, None, "writer", "writer is for writing only"),
        ({**URL, "startingOffset": "0"}, None, "startingOffset", "'0'; write earliest, latest or an offset from 1 on"),
        ({**URL, "startingOffset": "first"}, None, "startingOffset", "'first'"),
        ({**URL, "startingOffset": "1.5"}, None, "startingOffset", "'1.5'"),
        ({**URL, "startingOffset": str(1 << 63)}, None, "startingOffset", "9223372036854775808"),
        ({**URL, "startingOffset": "latest"}, False, "startingOffset", "read nothing"),
        ({**URL, "endingOffset": "earliest"}, False, "endingOffset", "'earliest'; write latest or an offset"),
        ({**URL, "endingOffset": "5"}, True, "endingOffset", "no meaning for a stream"),
        ({**URL, "endingTime": "2026-01-01T00:00:00Z"}, True, "endingTime", "no meaning for a stream"),
        ({**URL, "maxEventsPerTrigger": "5"}, False, "maxEventsPerTrigger", "streams only"),
        ({**URL, "maxEventsPerTrigger": "-5"}, True, "maxEventsPerTrigger", "whole number above 0"),
        ({**URL, "eventsPerPartition": "many"}, None, "eventsPerPartition", "'many'; write a whole number above 0"),
        ({**URL, "startingTime": "2026-01-01T00:00:00"}, None, "startingTime", "no timezone.*; write ISO text"),
        ({**URL, "startingTime": "yesterday"}, None, "startingTime", "not a time"),
        (
            {**URL, "startingTime": "2026-01-01T00:00:00Z", "startingOffset": "earliest"},
            None,
            "startingTime",
            "both given",
        ),
        ({**URL, "endingTime": "2026-01-01T00:00:00Z", "endingOffset": "3"}, None, "endingTime", "both given"),
        ({**URL, "system": "perhaps"}, None, "system", "'perhaps'; write true or false"),
        ({**URL, "filter": "type == 'a' AND"}, None, "filter", "no filter"),
        ({**URL, "token": ""}, None, "token", "token is empty"),
    ],
)
def test_what_is_wrong_is_named_and_mended(
    options: dict[str, str], streaming: bool | None, field: str, words: str
) -> None:
    with pytest.raises(OptionError) as caught:
        read_options(options, streaming=streaming)
    assert caught.value.field == field
    assert caught.value.help
    assert re.search(words, str(caught.value), re.DOTALL), str(caught.value)


def test_sparks_own_options_pass() -> None:
    read_options({**URL, "path": "x", "checkpointLocation": "y", "spark.sql.x": "z"})
    write_options({**URL, "path": "x", "checkpointLocation": "y", "queryName": "q"})


def test_options_of_writing() -> None:
    found = write_options(
        {**URL, "writer": "w", "batch": "3", "staging": "/s", "extraColumns": "attributes", "token": "t"}
    )
    assert (found.writer, found.staging, found.extra_columns, found.token) == ("w", "/s", True, "t")
    plain = write_options(URL)
    assert (plain.writer, plain.staging, plain.extra_columns) == (None, "/var/plant.db.staging", False)
    for options, words in (
        ({}, "url is missing"),
        (URL, 'writer is missing; name the writer, as in .option("writer"'),
        ({**URL, "writer": "w", "extraColumns": "drop"}, "'drop'; write attributes"),
        ({**URL, "writer": "w", "startingOffset": "1"}, "for reading only"),
        ({**URL, "writr": "w"}, "did you mean writer"),
    ):
        with pytest.raises(OptionError, match=re.escape(words).replace("\\ ", " ")):
            write_options(options, streaming=True)


def test_a_name_that_is_far_from_all_suggests_none() -> None:
    assert suggestion("startofset", ["startingOffset", "url"]) == "startingOffset"
    assert suggestion("TYPE", ["type"]) == "type"
    assert suggestion("qwertz", ["startingOffset", "url"]) is None
