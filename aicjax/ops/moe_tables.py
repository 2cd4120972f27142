# SPDX-License-Identifier: Apache-2.0
"""Measured routed experts: which curve of tokens answers for a format, a distribution of load and a shape."""

import functools
from dataclasses import dataclass

import numpy as np

from aicjax.hardware import System
from aicjax.interp.ends import Curve
from aicjax.ops.expert_work import ExpertShape
from aicjax.ops.keyed_curves import keyed_curves
from aicjax.tables import Rows, read_rows
from aicjax.tables.rows import first_seen

TABLE = "moe_perf"
LOW_LATENCY_KERNEL = "moe_torch_flow_min_latency"  # measured apart: it runs for few tokens only
LOW_LATENCY_TOKENS = 128  # most tokens of a pool that the low-latency kernel takes
LOW_LATENCY_FORMAT = "nvfp4"
KERNEL_FORMATS = {  # formats that two kernels share in the table and no server confuses
    ("w4a8_mxfp4_mxfp8", "sglang_mxfp4_flashinfer_trtllm_moe"): "w4a8_mxfp4_mxfp8_trtllm",
    ("w4a16_mxfp4", "sglang_flashinfer_cutlass_moe"): "w4a16_mxfp4_cutlass",
}
SPARE_DISTRIBUTION = "uniform"  # answers for a distribution that was not measured

Shapes = dict[ExpertShape, Curve]
Formats = dict[str, dict[str, Shapes]]


@dataclass(frozen=True)
class MoeTable:
    """Curves by format, distribution and shape; formats as first met, shapes ascending.

    Attributes:
        main: All kernels but one.
        low_latency: The low-latency kernel.
    """

    main: Formats
    low_latency: Formats


NO_TABLE = MoeTable({}, {})


@functools.lru_cache(maxsize=32)
def load_moe(system: System, backend: str, version: str, shared: bool) -> MoeTable:
    """Curves of the fused expert table; empty when nothing was measured."""
    rows = read_rows(system.name, backend, version, TABLE, shared)
    if rows is None:
        return NO_TABLE
    low_latency = rows.is_in("kernel_source", (LOW_LATENCY_KERNEL,))
    return MoeTable(_formats(rows.select(~low_latency)), _formats(rows.select(low_latency)))


def _formats(rows: Rows) -> Formats:
    form, forms = _kernel_formats(rows)
    distribution, distributions = rows.text("distribution")
    shape = [rows.number(column) for column in ("topk", "num_experts", "hidden_size", "inter_size")]
    ranks = [rows.number(column) for column in ("moe_tp_size", "moe_ep_size")]
    curves = keyed_curves((form, distribution, *shape, *ranks), rows.number("num_tokens"), rows.number("latency"))
    found: Formats = {}
    for (form_code, distribution_code, *key), curve in curves.items():
        by_distribution = found.setdefault(forms[form_code], {})
        by_distribution.setdefault(distributions[distribution_code], {})[ExpertShape(*key)] = curve
    return found


def _kernel_formats(rows: Rows) -> tuple[np.ndarray, tuple[str, ...]]:
    """Codes and words of the formats, told apart by kernel where two kernels share one; words as first met."""
    form, forms = rows.text("moe_dtype")
    form = form.copy()
    for (name, kernel), own in KERNEL_FORMATS.items():
        forms = forms if own in forms else (*forms, own)
        form[rows.is_in("moe_dtype", (name,)) & rows.is_in("kernel_source", (kernel,))] = forms.index(own)
    return first_seen(form, forms)


def shapes_of(formats: Formats, form: str, distribution: str) -> Shapes:
    """Measured shapes of a format under a distribution, under the spare one where it was not measured."""
    known = formats.get(form, {})
    return known.get(distribution, known.get(SPARE_DISTRIBUTION, {}))
