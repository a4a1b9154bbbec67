"""The shape of the source: who may import whom, what stays pure, how long a file may be.

The rules are the data below; the tests read every module of the package as an AST and compare. A new module at the
top of the package needs a line in LAYERS (and in ARCHITECTURE.md, which has its own test).
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[1] / "src"

LAYERS = {
    # 0: values, the exception tree, clocks
    "errors": 0, "clock": 0, "crashpoints": 0, "payload": 0, "model": 0, "cloudevents": 0, "tracing": 0, "spans": 0,
    # 1: what is wanted, what combinations mean
    "filters": 1, "composite": 1,
    # 2: what happened
    "journal": 2,
    # 3: who gets it, who is there
    "delivery": 3, "peers": 3, "security": 3,
    # 4: the pipeline; detection and rules inside an application
    "node": 4, "led": 4, "rules": 4,
    # 5: how it travels
    "net": 5,
    # 6: how people use it; the same meaning at scale
    "client": 6, "embedded": 6, "remote": 6, "sync": 6, "sync_peers": 6, "cli": 6, "web": 6, "testing": 6, "spark": 6,
    "demo": 6,
}  # fmt: skip
TOP = 6

SIDEWAYS = {
    "payload": {"errors"},
    "model": {"errors", "clock", "payload"},
    "clock": {"errors"},
    "cloudevents": {"model", "payload", "errors"},
    "spans": {"model"},
    "tracing": {"model", "spans"},
    "composite": {"filters"},
    "led": {"rules"},
    "cli": {"spark", "client", "sync", "demo", "web"},
    "client": {"remote", "embedded"},
    "sync": {"client", "sync_peers"},
    "testing": {"client"},
    "demo": {"client", "spark"},
}
"""Imports allowed inside one layer. They must not form a circle."""

ONLY_IN = {
    "pyspark": ("tocsin.spark",),
    "py4j": ("tocsin.spark",),
    "typer": ("tocsin.cli",),
    "starlette": ("tocsin.net",),
    "uvicorn": ("tocsin.net",),
    "websockets": ("tocsin.remote", "tocsin.net.framing"),
    "opentelemetry": ("tocsin.spans",),
}
"""Library → where it may be imported, wherever in the file."""

_INDEX = ("batch_kernels", "columns", "kernels", "native", "pointers", "sweeps")
KERNELS = {f"tocsin.filters.index.{name}" for name in _INDEX} | {"tocsin.journal.transcode"}
"""Modules that may import numba when loaded; all others must do without, or ask a kernel module."""

PURE = ("tocsin.filters", "tocsin.composite")
PURE_EXCEPT = {"tocsin.filters.warm"}
"""Commands that live beside what they serve: they may look at the clock and print."""
IMPURE_MODULES = {
    *("asyncio", "selectors", "select", "socket", "socketserver", "ssl", "http", "urllib", "ftplib", "smtplib"),
    *("httpx", "requests", "aiohttp", "websockets", "starlette", "uvicorn", "nats", "grpc"),
    *("sqlite3", "dbm", "shelve", "duckdb", "mmap", "fcntl", "pathlib", "shutil", "tempfile", "glob", "fileinput"),
    *("subprocess", "multiprocessing", "pty", "signal", "logging", "pickle", "time"),
}
IMPURE_CALLS = {"open", "input", "print"}
OS_ALLOWED = {"environ", "getenv"}
"""A switch in the environment is a setting; anything else of `os` is I/O."""
CLOCK_READS = {"now", "utcnow", "today"}

MAX_LINES = 600


@dataclass
class Module:
    """What one source file imports."""

    name: str
    path: Path
    tree: ast.Module
    imports: set[str] = field(default_factory=set)
    """Every module named in an import statement, anywhere in the file."""
    on_load: set[str] = field(default_factory=set)
    """Those of them imported when the module is loaded: not inside a function, not for type checkers only."""

    @property
    def part(self) -> str:
        """First name below the package: `filters` for `tocsin.filters.language`; empty for the package itself."""
        return part_of(self.name)


def part_of(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


def inside(module: str, package: str) -> bool:
    return module == package or module.startswith(package + ".")


def read(source: Path) -> dict[str, Module]:
    """Every module of the package under `source`, by dotted name, with its imports resolved."""
    modules = {}
    for path in sorted(source.glob("tocsin/**/*.py")):
        parts = path.relative_to(source).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        modules[name] = Module(name, path, ast.parse(path.read_text(), filename=str(path)))
    for module in modules.values():
        for node, on_load in import_statements(module.tree, on_load=True):
            targets = set(imported(node, module, modules.keys()))
            module.imports |= targets
            module.on_load |= targets if on_load else set()
    return modules


def import_statements(node: ast.AST, on_load: bool) -> Iterator[tuple[ast.Import | ast.ImportFrom, bool]]:
    """All import statements under `node`, each with whether it runs when the module is loaded."""
    if isinstance(node, ast.Import | ast.ImportFrom):
        yield node, on_load
    elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
        for child in node.body:
            yield from import_statements(child, False)
        for child in node.orelse:
            yield from import_statements(child, on_load)
    else:
        later = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for child in ast.iter_child_nodes(node):
            yield from import_statements(child, on_load and not later)


def imported(node: ast.Import | ast.ImportFrom, module: Module, known: Collection[str]) -> Iterator[str]:
    """Modules an import statement names; `from package import name` means the submodule where there is one."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
        return
    base = node.module or ""
    if node.level:
        package = module.name.split(".") if module.path.name == "__init__.py" else module.name.split(".")[:-1]
        base = ".".join([*package[: len(package) - node.level + 1], *filter(None, [node.module])])
    for alias in node.names:
        submodule = f"{base}.{alias.name}"
        yield submodule if submodule in known else base


MODULES = read(SOURCE)


def layer_faults(modules: dict[str, Module]) -> list[str]:
    """Imports that go up, or sideways without leave."""
    faults = []
    for module in modules.values():
        if module.name == "tocsin":  # the facade shows every layer
            continue
        if module.part not in LAYERS:
            faults.append(f"{module.name}: '{module.part}' has no layer; add it to LAYERS in tests/test_layers.py")
            continue
        here = LAYERS[module.part]
        for target in sorted(name for name in module.imports if inside(name, "tocsin")):
            there = part_of(target)
            if there == module.part or there in SIDEWAYS.get(module.part, ()):
                continue
            if there == "":
                if here < TOP:
                    faults.append(f"{module.name} imports the package's facade; name the module that defines it")
            elif LAYERS.get(there, TOP + 1) >= here:
                faults.append(f"{module.name} (layer {here}) imports {target} (layer {LAYERS.get(there, '?')})")
    return faults


def purity_faults(module: Module) -> list[str]:
    """What makes a module depend on anything but its arguments."""
    faults = [f"imports {name}" for name in sorted(module.imports) if name.split(".")[0] in IMPURE_MODULES]
    for node in ast.walk(module.tree):
        text = ""
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in IMPURE_CALLS:
            text = f"calls {node.func.id}()"
        elif isinstance(node, ast.Attribute):
            owner = ast.unparse(node.value).rsplit(".", 1)[-1]
            if node.attr in CLOCK_READS and owner in {"datetime", "date", "dt"}:
                text = f"reads the clock: {owner}.{node.attr}"
            elif owner == "os" and node.attr not in OS_ALLOWED:
                text = f"uses os.{node.attr}"
        if text:
            faults.append(f"line {node.lineno} {text}")
    return faults


def beyond_reexport(module: Module) -> list[str]:
    """Statements of an `__init__` that are neither docstring, import, tried import, `__all__` nor `__version__`."""
    faults = []
    for index, node in enumerate(module.tree.body):
        docstring = index == 0 and isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        names = [ast.unparse(target) for target in node.targets] if isinstance(node, ast.Assign) else []
        # An import that may fail, to say which extra is missing.
        tried = isinstance(node, ast.Try) and all(isinstance(each, ast.Import | ast.ImportFrom) for each in node.body)
        if not (
            docstring
            or tried
            or isinstance(node, ast.Import | ast.ImportFrom)
            or names in (["__all__"], ["__version__"])
        ):
            faults.append(f"line {node.lineno}: {ast.unparse(node)[:60]}")
    return faults


def every(names: Collection[str]) -> pytest.MarkDecorator:
    """Run the test once per module."""
    return pytest.mark.parametrize("name", names)


def test_imports_point_down() -> None:
    assert not layer_faults(MODULES)


def test_sideways_imports_stay_in_one_layer_and_form_no_circle() -> None:
    for part, others in SIDEWAYS.items():
        assert {LAYERS[other] for other in others} == {LAYERS[part]}
    list(TopologicalSorter(SIDEWAYS).static_order())


def test_modules_load_in_an_order() -> None:
    graph = {name: (module.on_load & MODULES.keys()) - {name} for name, module in MODULES.items()}
    try:
        list(TopologicalSorter(graph).static_order())
    except CycleError as error:
        pytest.fail("modules import each other in a circle: " + " → ".join(error.args[1]))


@every([name for name in MODULES if any(inside(name, package) for package in PURE) and name not in PURE_EXCEPT])
def test_pure_module_does_no_input_output_and_reads_no_clock(name: str) -> None:
    assert not purity_faults(MODULES[name])


@every(MODULES)
def test_heavy_libraries_stay_in_their_place(name: str) -> None:
    module = MODULES[name]
    for library, homes in ONLY_IN.items():
        if any(inside(target, library) for target in module.imports):
            assert any(inside(name, home) for home in homes), f"{name} imports {library}, which belongs to {homes}"
    if any(inside(target, "numba") for target in module.on_load):
        assert name in KERNELS, f"{name} imports numba when loaded; only {', '.join(sorted(KERNELS))} may"


@every(MODULES)
def test_module_fits_in_one_sitting(name: str) -> None:
    lines = len(MODULES[name].path.read_text().splitlines())
    assert lines <= MAX_LINES, f"{name} has {lines} lines: split it by idea"


@every([name for name, module in MODULES.items() if module.path.name == "__init__.py"])
def test_package_only_reexports(name: str) -> None:
    assert not beyond_reexport(MODULES[name])


def test_the_rules_catch_what_they_forbid(tmp_path: Path) -> None:
    """The checks themselves, on a small package that breaks each rule once."""
    files = {
        "__init__.py": '"""Facade."""\nfrom tocsin.model import Event\n__all__ = ["Event"]\nx = 1\n',
        "model.py": "from __future__ import annotations\nfrom .errors import TocsinError\nfrom tocsin import filters\n",
        "errors.py": "class TocsinError(Exception): ...\n",
        "extra.py": "",
        "filters/__init__.py": "def f():\n    from tocsin.composite import graph\n",
        "filters/clock.py": "import time, os\nfrom datetime import date\ndate.today()\nos.remove('x')\nopen('x')\n",
        "composite/__init__.py": "",
        "composite/graph.py": "from tocsin.filters import clock\nfrom typing import TYPE_CHECKING\n"
        "if TYPE_CHECKING:\n    import numba\n",
    }
    for name, text in files.items():
        path = tmp_path / "tocsin" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    modules = read(tmp_path)
    assert layer_faults(modules) == [
        "tocsin.extra: 'extra' has no layer; add it to LAYERS in tests/test_layers.py",
        "tocsin.filters (layer 1) imports tocsin.composite.graph (layer 1)",
        "tocsin.model (layer 0) imports tocsin.filters (layer 1)",
    ]
    assert sorted(purity_faults(modules["tocsin.filters.clock"])) == [
        "imports time",
        "line 3 reads the clock: date.today",
        "line 4 uses os.remove",
        "line 5 calls open()",
    ]
    assert beyond_reexport(modules["tocsin"]) == ["line 4: x = 1"]
    assert modules["tocsin.filters"].on_load == set()
    assert modules["tocsin.composite.graph"].on_load == {"tocsin.filters.clock", "typing"}
