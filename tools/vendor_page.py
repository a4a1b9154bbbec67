"""Fetch the third-party modules of the page from npm, and note what was taken: `python tools/vendor_page.py`.

The page needs no build step and no other host, so the few modules it uses lie beside it as they were published. This
script is how they got there, and how a newer version comes in: change `TAKEN`, run it, look at the diff, run the tests
of `tests/page/`. What it writes is told by `VENDORED.json`, which a test compares with the files.
"""

from __future__ import annotations

import hashlib
import io
import json
import sys
import tarfile
import urllib.request
from pathlib import Path

REGISTRY = "https://registry.npmjs.org"
VENDOR = Path(__file__).resolve().parents[1] / "src" / "tocsin" / "web" / "static" / "vendor"
TAKEN = {
    # Preact, its hooks and htm in one module: components without a compiler.
    ("htm", "3.1.1", "Apache-2.0"): {"preact/standalone.module.js": "preact.js", "LICENSE": "LICENSE-htm.txt"},
    # Only its licence: the module above holds its code.
    ("preact", "10.27.2", "MIT"): {"LICENSE": "LICENSE-preact.txt"},
    ("uplot", "1.6.32", "MIT"): {
        "dist/uPlot.esm.js": "uPlot.js",
        "dist/uPlot.min.css": "uPlot.css",
        "LICENSE": "LICENSE-uPlot.txt",
    },
}
"""Package, version, licence: which of its files, under which name here."""


def main() -> int:
    """Write every file anew, and the list of them."""
    VENDOR.mkdir(parents=True, exist_ok=True)
    listed = {}
    for (package, version, licence), files in TAKEN.items():
        url = f"{REGISTRY}/{package}/-/{package}-{version}.tgz"
        with urllib.request.urlopen(url, timeout=60) as answer:
            packed = answer.read()
        with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
            for inside, name in files.items():
                member = archive.extractfile(f"package/{inside}")
                if member is None:
                    raise SystemExit(f"{url} has no file {inside}")
                content = member.read()
                (VENDOR / name).write_bytes(content)
                listed[name] = {
                    "package": package,
                    "version": version,
                    "licence": licence,
                    "file": inside,
                    "sha256": hashlib.sha256(content).hexdigest(),
                }
    (VENDOR / "VENDORED.json").write_text(json.dumps(listed, indent=2) + "\n")
    print(f"{len(listed)} files in {VENDOR}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
