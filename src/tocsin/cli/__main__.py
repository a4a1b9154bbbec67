"""`python -m tocsin.cli`: the same as `tocsin`."""

from __future__ import annotations

import sys

from tocsin.cli.entry import main

sys.exit(main())
