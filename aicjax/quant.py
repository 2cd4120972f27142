# SPDX-License-Identifier: Apache-2.0
"""Quantisation modes of operators: bytes per element, relative compute class and the peak they run at."""

from dataclasses import dataclass


@dataclass(frozen=True)
class QuantMode:
    """One number format of one operator family.

    Attributes:
        name: The name used in tables and on the command line.
        bytes: Bytes per element, in rooflines and in weight sizes.
        factor: Relative compute class; ranks formats by nearness, never scales a peak.
        dtype: Which peak of the system it runs at (`bfloat16`, `int8`, `fp8` or `fp4`).
    """

    name: str
    bytes: float
    factor: float
    dtype: str


def _modes(*rows: tuple[str, float, float, str]) -> dict[str, QuantMode]:
    return {name: QuantMode(name, size, factor, dtype) for name, size, factor, dtype in rows}


_NVFP4_BYTES = 9 / 16  # 4-bit values with one 8-bit scale for every 16 of them

GEMM = _modes(
    ("bfloat16", 2, 1, "bfloat16"),
    ("int8_wo", 1, 1, "bfloat16"),
    ("int4_wo", 0.5, 1, "bfloat16"),
    ("fp8", 1, 2, "fp8"),
    ("fp8_static", 1, 2, "fp8"),
    ("sq", 1, 2, "int8"),
    ("fp8_block", 1, 2, "fp8"),
    ("fp8_ootb", 1, 2, "fp8"),
    ("nvfp4", _NVFP4_BYTES, 4, "fp4"),
    ("nvfp4_wo", _NVFP4_BYTES, 1, "bfloat16"),
    ("w4a16_nvfp4", _NVFP4_BYTES, 1, "bfloat16"),
)
MOE = _modes(
    ("bfloat16", 2, 1, "bfloat16"),
    ("fp8", 1, 2, "fp8"),
    ("fp8_block", 1, 2, "fp8"),
    ("int4_wo", 0.5, 1, "bfloat16"),
    ("w4a16_mxfp4", 0.5, 1, "bfloat16"),
    ("w4a16_mxfp4_cutlass", 0.5, 1, "bfloat16"),
    ("w4afp8", 0.5, 2, "fp8"),
    ("w4a8_mxfp4_mxfp8", 0.5, 2, "fp8"),
    ("w4a8_mxfp4_mxfp8_trtllm", 0.5, 2, "fp8"),
    ("nvfp4", _NVFP4_BYTES, 4, "fp4"),
    ("nvfp4_wo", _NVFP4_BYTES, 1, "bfloat16"),
    ("w4a16_nvfp4", _NVFP4_BYTES, 1, "bfloat16"),
)
FMHA = _modes(
    ("bfloat16", 2, 1, "bfloat16"),
    ("float16", 2, 1, "bfloat16"),
    ("fp8", 1, 2, "fp8"),
    ("fp8_block", 1, 2, "fp8"),
)
KVCACHE = _modes(("bfloat16", 2, 1, "bfloat16"), ("int8", 1, 1, "bfloat16"), ("fp8", 1, 2, "fp8"))
COMM = _modes(("half", 2, 1, "bfloat16"), ("int8", 1, 1, "bfloat16"), ("fp8", 1, 1, "bfloat16"))

BY_ROLE = {"gemm": GEMM, "moe": MOE, "fmha": FMHA, "kvcache": KVCACHE, "comm": COMM}
