# SPDX-License-Identifier: Apache-2.0
"""How serving engines differ beyond their numbers, from `configs/backends.yaml`."""

import functools
from dataclasses import dataclass, fields

import yaml

from aicjax import _paths
from aicjax._names import one_of
from aicjax._results import DataError, InputError
from aicjax.models import Parallel


@dataclass(frozen=True)
class BackendRules:
    """Switches of one engine.

    Attributes:
        spread_decode_rows: When prompts outlast the answers, decode rows spread evenly over the steps of a cycle.
        littles_law_cap: The rate of a worker may not exceed its batch over the request latency.
        same_tp_handover: A KV cache goes only between workers of the same tensor parallel size.
        attention_dp_with_tp: Attention data parallelism and tensor parallelism combine.
        mixed_expert_parallel: Tensor and expert parallelism of experts combine.
    """

    spread_decode_rows: bool
    littles_law_cap: bool
    same_tp_handover: bool
    attention_dp_with_tp: bool
    mixed_expert_parallel: bool

    def runs(self, layout: Parallel) -> bool:
        """Whether the engine runs a layout, as far as its own rules go."""
        if layout.dp > 1 and layout.tp > 1 and not self.attention_dp_with_tp:
            return False
        return self.mixed_expert_parallel or layout.moe_tp == 1 or layout.moe_ep == 1


@functools.cache
def load_backend(name: str) -> BackendRules:
    """Rules of one engine.

    Raises:
        InputError: No such engine.
        DataError: The file breaks its schema.
    """
    engines = yaml.safe_load((_paths.configs_dir() / "backends.yaml").read_text())
    if name not in engines:
        raise InputError("backend", name, one_of(name, engines))
    wanted = {field.name for field in fields(BackendRules)}
    if set(engines[name]) != wanted or not all(isinstance(value, bool) for value in engines[name].values()):
        raise DataError(f"configs/backends.yaml: {name} must have exactly {sorted(wanted)}, each true or false")
    return BackendRules(**engines[name])
