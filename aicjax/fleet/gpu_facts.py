# SPDX-License-Identifier: Apache-2.0
"""GPUs of computed profiles: those of `configs/fleet/gpus.yaml`."""

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from aicjax._names import one_of
from aicjax._paths import configs_dir
from aicjax._results import DataError, InputError


@dataclass(frozen=True)
class Gpu:
    """What a computed profile needs of a GPU.

    Attributes:
        name: What it is called.
        memory_bandwidth_bytes_per_s: Peak.
        memory_bytes: All of it.
        fp16_flops_per_s, fp8_flops_per_s: Dense peaks; 0 where it has no such arithmetic.
        power_w: Power limit.
        price_per_hour: Price of one.
        other_memory_bytes: Reserve of the serving runtime.
        nccl_memory_bytes: Communication buffers by number of GPUs.
    """

    name: str
    memory_bandwidth_bytes_per_s: float
    memory_bytes: int
    fp16_flops_per_s: float
    fp8_flops_per_s: float
    power_w: float
    price_per_hour: float
    other_memory_bytes: int
    nccl_memory_bytes: Mapping[int, int] = field(hash=False)

    def nccl_bytes(self, gpus: int) -> int:
        """Communication buffers of a group; those of the largest stated group where it has another size."""
        return self.nccl_memory_bytes.get(gpus, self.nccl_memory_bytes[max(self.nccl_memory_bytes)])

    def flops_per_s(self, dtype_bytes: float) -> float:
        """Peak for weights of so many bytes: that of fp8 up to one byte, where the GPU has it."""
        return self.fp8_flops_per_s if dtype_bytes <= 1 and self.fp8_flops_per_s > 0 else self.fp16_flops_per_s


def gpu(name: str) -> Gpu:
    """A GPU of the catalogue, in any letter case and with `-`, `_` or spaces.

    Raises:
        InputError: No such GPU.
    """
    keys = _catalogue()
    key = name.lower().replace("-", "_").replace(" ", "_")
    if key not in keys:
        raise InputError("gpu", name, one_of(name, keys))
    return keys[key]


def gpu_names() -> list[str]:
    """Names of the GPUs in the catalogue, sorted."""
    return sorted({entry.name for entry in _catalogue().values()})


@functools.cache
def _catalogue() -> Mapping[str, Gpu]:
    path = configs_dir() / "fleet" / "gpus.yaml"
    stated: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    keys: dict[str, Gpu] = {}
    for key, facts in stated["gpus"].items():
        others = facts.pop("other_keys")
        try:
            entry = Gpu(**stated["shared"], **facts)
        except TypeError as error:
            raise DataError(f"{path}: GPU {key}: {error}") from None
        keys |= dict.fromkeys((key, *others), entry)
    return keys
