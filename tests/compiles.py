# SPDX-License-Identifier: Apache-2.0
"""Counts of what jax traces and compiles, from its own monitoring events."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

import jax

_TRACE, _COMPILE = "/jax/core/compile/jaxpr_trace_duration", "/jax/core/compile/backend_compile_duration"


@dataclass
class Counts:
    """Programs traced and compiled so far."""

    traced: int = 0
    compiled: int = 0


@contextlib.contextmanager
def counted() -> Iterator[Counts]:
    """What the block traces and compiles."""
    counts = Counts()

    def listen(event: str, duration_secs: float, **_: str | int) -> None:
        counts.traced += event == _TRACE
        counts.compiled += event == _COMPILE

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        yield counts
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)
