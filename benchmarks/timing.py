# SPDX-License-Identifier: Apache-2.0
"""Wall and CPU time of calls, time spent compiling, and peak memory of this process."""

import platform
import resource
import statistics
import sys
import time
from collections.abc import Callable
from typing import NamedTuple, TypeVar

import jax

_T = TypeVar("_T")
_COMPILE_EVENTS = "/jax/core/compile/"  # tracing, lowering and compiling of kernels


class Timing(NamedTuple):
    """Time of one call [s]: on the wall, and of all threads of this process."""

    wall_s: float
    cpu_s: float


class CompileClock:
    """Seconds that jax spends on compiling, from when the clock is made."""

    def __init__(self) -> None:
        self.seconds = 0.0
        jax.monitoring.register_event_duration_secs_listener(self._add)

    def _add(self, event: str, duration_secs: float, **kwargs: str | int) -> None:
        if event.startswith(_COMPILE_EVENTS):
            self.seconds += duration_secs


def timed(call: Callable[[], _T]) -> tuple[_T, Timing]:
    """The result of a call and its time; waits for results that are still on the device."""
    wall, cpu = time.perf_counter(), time.process_time()
    result = jax.block_until_ready(call())
    return result, Timing(time.perf_counter() - wall, time.process_time() - cpu)


def median_time(call: Callable[[], _T], repeats: int) -> tuple[_T, Timing]:
    """The last result of several calls, and the medians of their times."""
    results = [timed(call) for _ in range(repeats)]
    times = [time for _, time in results]
    return results[-1][0], Timing(
        statistics.median(time.wall_s for time in times), statistics.median(time.cpu_s for time in times)
    )


def peak_memory_bytes() -> int:
    """Largest resident memory of this process so far."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def machine() -> dict[str, object]:
    """What the numbers were measured on."""
    device = jax.devices()[0]
    return {
        "platform": platform.platform(),
        "device": device.device_kind,
        "devices": jax.device_count(),
        "python": platform.python_version(),
        "jax": jax.__version__,
    }
