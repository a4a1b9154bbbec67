"""Is anybody tracing? Traces are OpenTelemetry's, and cost nothing where no program has set a provider.

`begin` is asked once, when a node or a connection is opened: it gives what makes spans (`spans.Traces`), or None. Who
sets a provider does so before. OpenTelemetry itself is imported only then; Tocsin needs no more of it than its API.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from tocsin.model import Event

if TYPE_CHECKING:
    from tocsin.spans import Context, Traces

__all__ = ["begin", "context_of"]


def begin() -> Traces | None:
    """What makes spans, if a provider was set by now; None: nobody is tracing."""
    # Who has set a provider has imported this; and the variable has the API set one by itself.
    if "opentelemetry.trace" not in sys.modules and "OTEL_PYTHON_TRACER_PROVIDER" not in os.environ:
        return None
    try:
        from tocsin.spans import traces
    except ImportError:  # the variable is set, but OpenTelemetry is not installed
        return None
    return traces()


def context_of(event: Event) -> Context:
    """The context an event carries, to go on in its trace where it is handled; an empty one if it has none."""
    from tocsin.spans import context_in

    return context_in(event.attributes)
