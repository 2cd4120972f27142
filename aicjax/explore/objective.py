# SPDX-License-Identifier: Apache-2.0
"""What is sought, as a number for every replica: most throughput of a GPU budget, or fewest GPUs for a load."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray


def in_flight(concurrency: ArrayLike, seq_per_s: ArrayLike, decode_seq_per_s: ArrayLike) -> NDArray[np.float64]:
    """Requests in flight in a replica at its rate: all that it has room for where its decode workers set that rate.

    Where another side does, a share of them: what arrives at that rate and stays as long.

    Args:
        concurrency: Requests that the decode workers have room for.
        seq_per_s: Requests per second of the replica.
        decode_seq_per_s: Requests per second that its decode workers sustain.
    """
    return np.asarray(concurrency) * np.minimum(1.0, np.asarray(seq_per_s) / decode_seq_per_s)


@dataclass(frozen=True)
class Objective:
    """A budget or a load; exactly one of the three is given.

    Attributes:
        gpus: GPU budget that whole replicas fill.
        request_rate: Load [requests/s].
        concurrency: Load [requests in flight].
    """

    gpus: int | None = None
    request_rate: float | None = None
    concurrency: float | None = None

    def score(self, seq_per_s: ArrayLike, gpus: ArrayLike, concurrency: ArrayLike) -> NDArray[np.float64]:
        """A number that is larger for a better replica; all arguments broadcast.

        For a budget the requests per second of all replicas, so that GPUs that none of them uses count. For a load the
        GPUs that serve it, negative, and below one of them what a GPU yields.

        Args:
            seq_per_s: Requests per second of a replica.
            gpus: GPUs of a replica.
            concurrency: Requests in flight in a replica.
        """
        rate, size = np.asarray(seq_per_s, np.float64), np.asarray(gpus)
        if self.gpus is not None:
            return rate * (self.gpus // size)
        per_gpu = rate / size
        return per_gpu / (1 + per_gpu) - size * self.replicas(rate, concurrency)

    def replicas(self, seq_per_s: ArrayLike, concurrency: ArrayLike) -> NDArray[np.int64]:
        """Replicas that serve the load; at least one."""
        if self.request_rate is not None:
            needed = self.request_rate / np.asarray(seq_per_s)
        else:
            needed = np.asarray(self.concurrency) / np.asarray(concurrency)
        return np.maximum(np.ceil(needed), 1).astype(np.int64)
