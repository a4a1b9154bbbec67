"""The notebook runs from top to bottom, its node and Spark agree, and the outputs it is kept with are those it gives.

    python -m tests.examples.test_notebook     # after a change: runs it and keeps the new outputs

It has a Spark of its own, in its kernel's process; `tests/conftest.py` has it wait for others that start one.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOK = ROOT / "examples" / "history_on_spark.ipynb"


def executed() -> Any:
    """The notebook with the outputs of now; a cell that fails raises, and says which."""
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(NOTEBOOK, as_version=4)
    NotebookClient(notebook, timeout=240, record_timing=False).execute(cwd=str(NOTEBOOK.parent))
    notebook.metadata.language_info = {"name": "python"}  # not which Python this was
    return notebook


def printed(notebook: Any) -> list[str]:
    return ["".join(output.text) for cell in notebook.cells for output in cell.get("outputs", []) if "text" in output]


def pictures(notebook: Any) -> int:
    return sum("image/png" in output.get("data", {}) for cell in notebook.cells for output in cell.get("outputs", []))


@pytest.mark.spark
@pytest.mark.timeout(400)
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")  # Jupyter's own habits
def test_it_gives_the_outputs_it_is_kept_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nbformat = pytest.importorskip("nbformat", reason="nbclient is not installed; `make setup` installs it")
    pytest.importorskip("pyspark", reason="PySpark is not installed; `make setup` installs it")
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "src"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    now = executed()
    assert "".join(printed(now)).count("equal to the node's: True") == 2
    assert "as often as the node found: True" in "".join(printed(now))
    assert pictures(now) == 2
    kept = nbformat.read(NOTEBOOK, as_version=4)
    assert printed(now) == printed(kept), "run `python -m tests.examples.test_notebook`, and look at what has changed"
    assert pictures(kept) == 2
    assert not list(tmp_path.glob("tocsin-notebook-*"))


if __name__ == "__main__":
    import nbformat

    os.environ["PYTHONPATH"] = str(ROOT / "src")
    nbformat.write(executed(), NOTEBOOK)
