# SPDX-License-Identifier: Apache-2.0
"""Deployments with attention and feed-forward layers apart: a row is one estimate, with or without ordinary workers."""

from typing import Any

import numpy as np

from aicjax._results import AicjaxError
from aicjax.explore import EstimateRequest, estimate
from aicjax.explore.columns import AFD
from benchmarks.parity_cases.comparison import OK, Comparison, outcome_of
from benchmarks.parity_cases.stored import StoredRows

_INPUT = "in_"
_HALF_UNIT = 0.5001  # of the last decimal stored
_DECIMALS: dict[str, int] = dict.fromkeys(
    ("tokens/s", "tokens/s/gpu", "tokens/s/user", "memory", "(a)memory", "(f)memory"), 2
)
_TEXTS = ("parallel", "pipeline_model", "(p)impl", "(d)impl")
_FLAGS = tuple(f"{phase}comm_hidden" for phase in ("", "prefill_", "decode_"))
# Beside an ordinary worker the stored rate of requests is that of the pools alone, ours that of the deployment.
_NOT_COMPARED = ("power_w", "request_rate")


def afd(rows: StoredRows) -> Comparison:
    """Deployments, stored with two or three decimals."""
    comparison = Comparison(np.full(len(rows), OK, object))
    for at, stored in enumerate(rows.records(np.arange(len(rows)))):
        row = np.array([at])
        try:
            found = estimate(_request(stored)).row
        except AicjaxError as error:
            comparison.fail(row, outcome_of(error))
            continue
        _compare(comparison, row, stored, found)
    return comparison


def _request(stored: dict[str, Any]) -> EstimateRequest:
    inputs = {name.removeprefix(_INPUT): value for name, value in stored.items() if name.startswith(_INPUT)}
    given = {name: _whole(value) for name, value in inputs.items() if value == value and value is not None}
    return EstimateRequest(
        model_path=stored["model"],
        system=stored["system"],
        backend_version=stored["version"],
        mode="afd",
        compat="reference",
        **given,
    )


def _compare(comparison: Comparison, row: np.ndarray, stored: dict[str, Any], found: dict[str, Any]) -> None:
    for name in AFD:
        if name in _NOT_COMPARED or name not in stored:
            continue
        wanted = stored[name]
        if name in _TEXTS:
            comparison.same(row, name, [wanted], found[name] or "")
        elif name in _FLAGS:
            flags = [np.nan if value in (None, "") else float(value) for value in (wanted, found[name])]
            comparison.number(row, name, [flags[0]], [flags[1]])
        elif not isinstance(wanted, str):
            absent = found[name] is None
            slack = _HALF_UNIT * 10.0 ** -_DECIMALS.get(name, 3)
            comparison.number(row, name, [wanted], [np.nan if absent else found[name]], slack=slack)


def _whole(value: Any) -> Any:
    """A count that the file stores as a fraction since it can be absent."""
    return int(value) if isinstance(value, float) and value.is_integer() else value
