"""A process that is a server: what it changes, and what it leaves to who has chosen."""

from __future__ import annotations

import os
import subprocess
import sys

import pyarrow as pa
import pytest

PROGRAM = """
import pyarrow as pa
from tocsin.net.process import as_process

async def main():
    print(pa.default_memory_pool().backend_name)

as_process(main())
"""


@pytest.mark.parametrize(("chosen", "used"), [(None, "jemalloc"), ("system", "system")], ids=["usual", "chosen"])
def test_arrow_takes_memory_that_need_not_be_cleared_unless_somebody_has_chosen(chosen: str | None, used: str) -> None:
    if "jemalloc" not in pa.supported_memory_backends():
        used = chosen or pa.default_memory_pool().backend_name
    environ = {name: value for name, value in os.environ.items() if name != "ARROW_DEFAULT_MEMORY_POOL"}
    if chosen is not None:
        environ["ARROW_DEFAULT_MEMORY_POOL"] = chosen
    said = subprocess.run([sys.executable, "-c", PROGRAM], env=environ, capture_output=True, text=True, check=True)
    assert said.stdout.split() == [used]
