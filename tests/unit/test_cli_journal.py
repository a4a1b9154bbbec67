"""`tocsin journal …` as people run it: its output and its exit code.

Mostly in a process of its own (`tests/commands.py`), or as `python -m tocsin.cli`; what only varies the arguments runs
here (`here`).
"""

from __future__ import annotations

import io
import json
import os
import pty
import sqlite3
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

import pytest

import tocsin
from tests import commands
from tests.past import NOON, SECOND
from tocsin.cli import app as cli
from tocsin.clock import as_datetime
from tocsin.journal.contract import Request
from tocsin.journal.sqlite import SqliteJournal
from tocsin.model import Event, time_text

BLOCKS, EACH = 4, 50
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("TOCSIN_")}


def run(*arguments: str | Path, stdin: bytes = b"", **environment: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of a command. It never shows a traceback."""
    code, out, err = commands.done([*map(str, arguments)], stdin, ENVIRONMENT | environment)
    assert "Traceback" not in err, err
    return code, out, err


def answer(*arguments: str | Path, **more: Any) -> dict[str, Any]:
    """What a command that must succeed says in JSON."""
    code, out, err = run(*arguments, "--json", **more)
    assert (code, err) == (0, "")
    found: dict[str, Any] = json.loads(out)
    return found


class Here(Protocol):
    def __call__(self, *arguments: str | Path) -> tuple[int, str, str]: ...


@pytest.fixture
def here(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Here:
    """As `run`, without a process."""
    monkeypatch.delenv("TOCSIN_URL", raising=False)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO()))

    def call(*arguments: str | Path) -> tuple[int, str, str]:
        code = cli.run([*map(str, arguments)])
        return code, *capfd.readouterr()

    return call


def moment(number: int) -> str:
    return time_text(as_datetime(NOON + number * SECOND))


@pytest.fixture
def plant(tmp_path: Path) -> Path:
    """A journal of 200 events in four blocks, a second between two blocks."""
    path = tmp_path / "plant.db"
    with SqliteJournal(path, merge=False) as journal:
        for block in range(BLOCKS):
            events = [
                Event("machine.value", "line/7", f"{block}-{n}", data={"n": block * EACH + n}) for n in range(EACH)
            ]
            journal.submit(Request(NOON + block * SECOND, events))
            journal.append([])  # waits, so that each has a commit and a block of its own
    return path


def spoil(path: Path, block: int) -> None:
    """Change the bytes of a block, counted from 0."""
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("UPDATE blocks SET data = zeroblob(length(data)) WHERE first = ?", (block * EACH + 1,))
    db.close()


# -- the command itself


def test_the_version_in_words_and_in_json() -> None:
    command = [sys.executable, "-m", "tocsin.cli", "--version"]
    shown = subprocess.run(command, capture_output=True, env=ENVIRONMENT, text=True, timeout=60, check=True)
    code, out, err = run("--version")
    assert (code, out, err) == (0, shown.stdout, shown.stderr)
    assert out.startswith(f"tocsin {tocsin.__version__} ")
    assert answer("--version")["version"] == tocsin.__version__


def test_the_script_is_the_command() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    module, _, name = project["scripts"]["tocsin"].partition(":")
    assert callable(getattr(import_module(module), name))


@pytest.mark.parametrize(
    "verb", ["", "journal", *(f"journal {v}" for v in ("check", "repair", "import", "export", "stats"))]
)
def test_help_has_an_example(verb: str, here: Here) -> None:
    code, out, err = here(*verb.split(), "--help")
    assert (code, err) == (0, "")
    assert f"tocsin {verb}".strip() in out.partition("Example")[2]
    assert "--json" in out or verb == "journal"


def test_no_verb_shows_the_help(here: Here) -> None:
    for arguments in ((), ("journal",)):
        code, out, err = here(*arguments)
        assert (code, err) == (2, "")
        assert "Usage: tocsin" in out


@pytest.mark.parametrize("library", ["typer", "rich"])
def test_without_the_extra_one_line_says_what_to_install(library: str) -> None:
    program = f"import sys; sys.modules[{library!r}] = None; import tocsin.cli; sys.exit(tocsin.cli.main())"
    done = subprocess.run([sys.executable, "-c", program, "--version"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    assert "pip install 'tocsin[server]'" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        ("bogus", "No such command"),
        ("journal check", "set TOCSIN_URL"),
        ("journal check ws://host:8420", "names no journal"),
        ("journal check memory:", "names no journal"),
        ("journal import only.jsonl", "set TOCSIN_URL"),
        ("journal import plant.db what.xls", "--format"),
        ("journal import plant.db - --format parquet", "stdin"),
        ("journal export plant.db --since yesterday", "--since"),
        ("journal export plant.db --until 2026-01-31", "timezone"),
        ("journal export plant.db --format csv", "csv"),
        ("journal export plant.db --to out.xls", "--format"),
        ("journal export plant.db --to plant.db --format lines", "the journal itself"),
        ("journal export plant.db --to plant.db-wal --format lines", "the journal itself"),
    ],
)
def test_what_is_not_understood(
    plant: Path, arguments: str, part: str, here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(plant.parent)
    before = plant.read_bytes()
    code, out, err = here(*arguments.split())
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert part in err
    assert "--help" in err
    assert plant.read_bytes() == before


def test_usage_errors_are_json_too() -> None:
    code, out, err = run("journal", "bogus", "--json")
    assert (code, out) == (2, "")
    assert json.loads(err)["error"] == "UsageError"


# -- check and repair


def test_check_of_a_good_file(plant: Path) -> None:
    code, out, err = run("journal", "check", plant)
    assert (code, err) == (0, "")
    assert "200 events in 4 blocks" in out
    assert "everything is as it was written" in out
    assert answer("journal", "check", f"file:{plant}") == {
        "path": str(plant), "first": 1, "head": 200, "blocks": 4, "events": 200,
        "damaged": [], "lost": [], "problems": [], "ok": True,
    }  # fmt: skip


def test_a_torn_tail_is_found_and_cut(plant: Path) -> None:
    spoil(plant, 3)
    code, out, _ = run("journal", "check", plant)
    assert code == 1
    assert "damaged: offsets 151 to 200 (at the end)" in out
    code, out, _ = run("journal", "check", plant, "--json")
    assert code == 1
    assert not json.loads(out)["ok"]
    done = answer("journal", "repair", plant)
    assert [(each["first"], each["last"]) for each in done["removed"]] == [(151, 200)]
    assert Path(done["copy"]).exists()
    after = answer("journal", "check", plant)
    assert (after["lost"], after["head"], after["events"]) == ([[151, 200]], 200, 150)
    found = answer("journal", "stats", plant)
    assert (found["events"], found["lost"]) == (150, 50)


def test_damage_in_the_middle_needs_force(plant: Path) -> None:
    spoil(plant, 1)
    code, out, _ = run("journal", "repair", plant)
    assert code == 1
    assert "left (use --force to remove it): offsets 51 to 100" in out
    code, out, _ = run("journal", "repair", plant, "--force")
    assert code == 0
    assert "removed: offsets 51 to 100" in out
    code, out, _ = run("journal", "repair", plant)
    assert (code, out) == (0, "nothing had to be removed\n")


def test_what_cannot_be_repaired_is_not_called_repaired(plant: Path, here: Here) -> None:
    db = sqlite3.connect(plant, isolation_level=None)
    db.execute("UPDATE blocks SET publishers = x'c1' WHERE first = 51")
    db.close()
    assert here("journal", "check", plant)[0] == 1
    code, out, _ = here("journal", "repair", plant, "--force")
    assert code == 1
    assert "problem that cannot be repaired: the block of offsets 51 to 100" in out
    assert "export what can be read" in out
    code, out, _ = here("journal", "repair", plant, "--json")
    assert (code, json.loads(out)["ok"]) == (1, False)


def test_a_file_that_is_missing_or_no_journal(tmp_path: Path, here: Here) -> None:
    (tmp_path / "letter.db").write_text("Dear Sir or Madam, " * 1000)
    for name in ("nothing.db", "letter.db"):
        for verb in ("check", "repair", "stats", "export"):
            code, out, err = here("journal", verb, tmp_path / name)
            assert (code, out) == (1, ""), verb
            assert err.startswith("error: ")
            assert name in err
    assert sorted(path.name for path in tmp_path.iterdir() if not path.name.endswith(".lock")) == ["letter.db"]


# -- beside a writer


def test_writers_are_told_who_has_the_lock_and_readers_need_none(plant: Path) -> None:
    with SqliteJournal(plant) as journal:
        journal.append([Event("machine.value", "line/7", "new", data={"n": 200})])
        for arguments in (("repair", plant), ("import", plant, "-")):
            code, out, err = run("journal", *arguments)
            assert (code, out) == (1, "")
            assert f"is open for writing by process {os.getpid()} on " in err
            assert " help: " in err
        code, _, err = run("journal", "repair", plant, "--json")
        assert code == 1
        error = json.loads(err)
        assert error["error"] == "JournalLockedError"
        assert set(error) == {"error", "message", "field", "position", "help"}
        assert answer("journal", "check", plant)["events"] == 201
        found = answer("journal", "stats", plant)
        assert (found["events"], found["closed"]) == (201, False)
        code, out, _ = run("journal", "export", plant, "--since", "201")
        assert (code, json.loads(out)["id"]) == (0, "new")


# -- out and in


def test_bounds_of_an_export_are_included(plant: Path, here: Here) -> None:
    def exported(*options: str) -> list[int]:
        code, out, err = here("journal", "export", plant, *options)
        numbers = [json.loads(line)["data"]["n"] for line in out.splitlines()]
        assert (code, err) == (0, f"{len(numbers)} events written to stdout\n")
        return numbers

    assert exported() == list(range(200))
    assert exported("--since", "10", "--until", "12") == [9, 10, 11]
    assert exported("--since", moment(1), "--until", moment(2)) == list(range(50, 150))
    assert exported("--since", "2030-01-01T00:00:00+01:00") == []
    assert exported("--until", "1999-12-31T00:00:00Z") == []
    assert exported("--since", "0", "--until", "1") == [0]


@pytest.mark.parametrize("name", ["events.jsonl", "events.parquet"])
def test_there_and_back(plant: Path, tmp_path: Path, name: str, here: Here) -> None:
    file, copy = tmp_path / name, tmp_path / "copy.db"
    kind = "lines" if name.endswith("jsonl") else "parquet"
    assert answer("journal", "export", plant, "--to", file) == {"events": 200, "to": str(file), "format": kind}
    assert [path.name for path in tmp_path.glob("*.part*")] == []
    done = {"stored": 200, "known": 0, "hidden": 0, "head": 200}
    assert answer("journal", "import", copy, file) == done
    assert answer("journal", "import", copy, file) == done | {"stored": 0, "known": 200}
    assert here("journal", "check", copy)[0] == 0
    assert here("journal", "export", copy)[1] == here("journal", "export", plant)[1]


def test_through_pipes_and_with_the_journal_in_the_environment(plant: Path, tmp_path: Path) -> None:
    code, out, err = run("journal", "export", "--since", "191", TOCSIN_URL=f"file:{plant}")
    assert (code, err) == (0, "10 events written to stdout\n")
    copy = f"file:{tmp_path / 'copy.db'}"
    assert answer("journal", "import", "-", stdin=out.encode(), TOCSIN_URL=copy)["stored"] == 10
    code, out, _ = run("journal", "stats", TOCSIN_URL=copy)
    assert code == 0
    assert "1 to 10" in out
    code, out, err = run("journal", "stats", plant, TOCSIN_URL=copy)
    assert "1 to 200" in out, "what is named counts more"


def test_parquet_may_be_piped(plant: Path, tmp_path: Path) -> None:
    with (tmp_path / "piped.parquet").open("wb") as target:
        command = [sys.executable, "-m", "tocsin.cli", "journal", "export", str(plant), "--format", "parquet"]
        subprocess.run(command, stdout=target, env=ENVIRONMENT, check=True, timeout=60, stderr=subprocess.DEVNULL)
    assert answer("journal", "import", tmp_path / "copy.db", tmp_path / "piped.parquet")["stored"] == 200


def test_a_bad_line_is_named(tmp_path: Path) -> None:
    good = {"specversion": "1.0", "type": "t", "source": "s", "id": "1", "time": moment(1)}
    lines = [json.dumps(good), json.dumps(good | {"id": "2", "time": moment(0)})]
    code, out, err = run("journal", "import", tmp_path / "new.db", "-", stdin="\n".join(lines).encode())
    assert (code, out) == (1, "")
    assert err.startswith("error: line 2: ")
    assert " help: sort the file by time" in err
    code, _, err = run("journal", "import", tmp_path / "new.db", "-", "--json", stdin=b"{")
    assert code == 1
    assert json.loads(err)["error"] == "EventError"
    code, _, err = run("journal", "import", tmp_path / "new.db", tmp_path / "gone.jsonl")
    assert code == 1
    assert "gone.jsonl: No such file" in err


def test_an_export_that_fails_leaves_nothing_and_harms_nothing(plant: Path, tmp_path: Path, here: Here) -> None:
    spoil(plant, 2)
    old = tmp_path / "old.jsonl"
    old.write_text("kept")
    for target in (old, tmp_path / "new.jsonl", tmp_path / "new.parquet"):
        code, out, err = here("journal", "export", plant, "--to", target)
        assert (code, out) == (1, "")
        assert "101" in err
    assert old.read_text() == "kept"
    assert not [path for path in tmp_path.iterdir() if "new" in path.name or "part" in path.name]


def test_a_reader_that_goes_away(plant: Path) -> None:
    with SqliteJournal(plant) as journal:
        journal.append([Event("t", "s", str(n), data="x" * 1000) for n in range(2000)])  # more than a pipe holds
    command = [sys.executable, "-m", "tocsin.cli", "journal", "export", str(plant)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENVIRONMENT) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline()
        process.stdout.close()
        assert process.wait(60) == 1
        assert process.stderr.read() == b""


def test_progress_is_shown_on_a_terminal_only(plant: Path, tmp_path: Path) -> None:
    command = ["journal", "export", str(plant), "--to", str(tmp_path / "out.jsonl")]
    assert run(*command)[2] == ""
    ours, theirs = pty.openpty()
    try:
        subprocess.run(
            [sys.executable, "-m", "tocsin.cli", *command],
            stdout=subprocess.DEVNULL,
            stderr=theirs,
            env=ENVIRONMENT | {"TERM": "xterm"},
            check=True,
            timeout=60,
        )
        os.close(theirs)
        shown = b""
        while True:
            try:
                more = os.read(ours, 65536)
            except OSError:  # how Linux says that the other end is closed
                break
            if not more:
                break
            shown += more
    finally:
        os.close(ours)
    assert b"exporting" in shown
    assert b"200/200" in shown
