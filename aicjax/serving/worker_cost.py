# SPDX-License-Identifier: Apache-2.0
"""What steps cost beyond their kernels: levels of kernel times and host times, in-flight and on workers of replicas."""

from typing import Any, NamedTuple

from aicjax.constants import LoopConstants


class WorkerCost(NamedTuple):
    """From kernel times to the time of a step: `correction * kernels + host_ms + host_ms_per_request * batch`.

    Attributes:
        correction: Factor on kernel times.
        host_ms: Host time of a step: a prefill, or a decode step.
        host_ms_per_request: Host time for each request of a decode step.
    """

    correction: Any
    host_ms: Any = 0.0
    host_ms_per_request: Any = 0.0

    def prefill_ms(self, kernels_ms: Any) -> Any:
        """Time of a prefill."""
        return kernels_ms * self.correction + self.host_ms

    def decode_ms(self, kernels_ms: Any, batch: Any, steps: Any = 1) -> Any:
        """Time of so many decode steps of a batch."""
        return kernels_ms * self.correction + steps * (self.host_ms + self.host_ms_per_request * batch)

    def times(self, factor: Any) -> "WorkerCost":
        """The cost of steps that take so many times as long."""
        return WorkerCost(*(factor * part for part in self))


KERNELS_ALONE = WorkerCost(1.0)


def step_cost(constants: LoopConstants) -> WorkerCost:
    """What a decode step costs."""
    host_ms = constants.host_ms_per_step, constants.host_ms_per_running_request
    return WorkerCost(constants.decode_level, *host_ms)


def prompt_cost(constants: LoopConstants, layers: Any) -> WorkerCost:
    """What a prefill costs; each of its decoder layers costs host time."""
    return WorkerCost(
        constants.prefill_level, constants.host_ms_per_prefill + constants.host_ms_per_prefill_layer * layers
    )


def decode_worker_cost(constants: LoopConstants, wide: Any = 0.0) -> WorkerCost:
    """What a step of a decode worker of a replica costs; `wide` is 1 where its experts span many GPUs, else 0."""
    return step_cost(constants).times(constants.disagg_decode_level * constants.disagg_wide_decode_level**wide)


def prefill_worker_cost(constants: LoopConstants, layers: Any) -> WorkerCost:
    """What a prefill worker of a replica costs; its level is one of kernels alone."""
    cost = prompt_cost(constants, layers)
    return cost._replace(correction=constants.disagg_prefill_level * cost.correction)
