# SPDX-License-Identifier: Apache-2.0
"""One run of a load generator, and the checks that every run has to pass."""

from dataclasses import dataclass
from pathlib import Path

from aicjax._results import DataError
from aicjax._units import MS_PER_S

MOST_IN_FLIGHT, LEAST_IN_FLIGHT = 1.3, 0.1  # requests in flight by Little's law, over the concurrency
LEAST_TTFT_STEPS = 0.1  # TTFT over TPOT: a prefill is no shorter than a part of a decode step


@dataclass(frozen=True)
class Run:
    """One run: its load and means over its successful requests.

    Attributes:
        file: Result file.
        tool: Load generator: `aiperf`, `vllm`, `sglang` or `guidellm`.
        version: Its version; "" where the file does not say.
        model: Model as the file names it; "" where it does not.
        concurrency: Requests in flight; None where the file does not say.
        isl, osl: Mean prompt and output tokens.
        ttft_ms: Mean time to first token.
        tpot_ms: Mean time per output token after the first.
        requests_per_s: Successful requests per second.
        requests: Successful requests.
        failed_requests: Requests that failed; None where the file does not say.
    """

    file: Path
    tool: str
    version: str
    model: str
    concurrency: int | None
    isl: float
    osl: float
    ttft_ms: float
    tpot_ms: float
    requests_per_s: float
    requests: int
    failed_requests: int | None

    @property
    def output_tokens_per_s(self) -> float:
        """Output tokens per second of the whole server."""
        return self.requests_per_s * self.osl


def check_units(run: Run, concurrency: int) -> None:
    """Refuses a run whose times cannot be milliseconds, or whose rate cannot be that of its load.

    By Little's law the rate times the latency of a request is what was in flight: at most the concurrency, and less
    where the last requests of a short run had the server to themselves.

    Args:
        run: The run.
        concurrency: Its requests in flight.

    Raises:
        DataError: The times, the rate and the concurrency contradict each other.
    """
    in_flight = run.requests_per_s * (run.ttft_ms + run.tpot_ms * (run.osl - 1)) / MS_PER_S
    share = in_flight / concurrency
    said = f"TTFT {run.ttft_ms:g} ms, TPOT {run.tpot_ms:g} ms and {run.requests_per_s:g} requests/s"
    if not LEAST_IN_FLIGHT <= share <= MOST_IN_FLIGHT:
        raise DataError(
            f"{run.file}: {said} make {in_flight:.3g} requests in flight, not {concurrency}: check load and units"
        )
    if run.ttft_ms < LEAST_TTFT_STEPS * run.tpot_ms:
        raise DataError(f"{run.file}: {said}: a first token takes no less than a decode step: check units")
