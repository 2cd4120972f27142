# SPDX-License-Identifier: Apache-2.0
"""The answer to a disaggregated sizing."""

import math

import jax
import numpy as np

from aicjax._units import GB, HOURS_PER_YEAR, MS_PER_S
from aicjax.fleet import lengths
from aicjax.fleet.disagg import DisaggEstimate, Limits, Load, Transfer, disagg_sweep
from aicjax.fleet.disagg_choice import front
from aicjax.fleet.fleet_constants import load_fleet_constants
from aicjax.fleet.fleet_rows import asked_of, finite_ms
from aicjax.fleet.inputs import law_of, load_of, profile_of
from aicjax.fleet.lengths import Lengths
from aicjax.fleet.phase_answers import DisaggAnswer, DisaggRow
from aicjax.fleet.requests import DisaggRequest


def disagg(request: DisaggRequest) -> DisaggAnswer:
    """Counts of prefill and decode replicas that serve a rate within both limits, cheapest first.

    Raises:
        InputError: A name that is not known.
        DataError: A file breaks its rules.
        MissingData: A deployment of an engine has no measured data.
    """
    law = _stated(request, law_of(request))
    prefill, decode = profile_of(request.prefill), profile_of(request.decode)
    transfer = None
    if request.kv_transfer_gb_per_s is not None and request.kv_bytes_per_token is not None:
        transfer = Transfer(request.kv_bytes_per_token, request.kv_transfer_gb_per_s * GB)
    sweep = disagg_sweep(
        prefill,
        decode,
        request.max_prefill,
        request.max_decode,
        Load(load_of(request)[0], law, float(request.max_tokens)),
        Limits(request.ttft_ms / MS_PER_S, request.tpot_ms / MS_PER_S, request.quantile),
        load_fleet_constants().disagg,
        transfer,
    )
    sweep = jax.tree.map(np.asarray, sweep)
    places = front(sweep)
    binding = None
    if not places:
        places, binding = [_nearest(sweep, request)], _binding(sweep, request)
    rows = [_row(sweep, place, float(prefill.price_per_hour), float(decode.price_per_hour)) for place in places]
    rows.sort(key=lambda row: (row.price_per_hour, row.gpus))
    return DisaggAnswer(asked_of(request, law), request.tpot_ms, prefill.name, decode.name, tuple(rows), binding)


def _stated(request: DisaggRequest, law: Lengths) -> Lengths:
    """The law with stated means: every length in proportion."""
    means = [float(mean) for mean in lengths.mean(law)]
    stated = (request.mean_isl, request.mean_osl)
    isl, osl = (
        np.maximum(np.asarray(leaf) * (mean if wanted is None else wanted) / mean, 1.0)
        for leaf, mean, wanted in zip(law[:2], means, stated, strict=True)
    )
    return law._replace(isl=isl, osl=osl)


def _row(
    sweep: DisaggEstimate, place: tuple[int, int], prefill_usd_per_hour: float, decode_usd_per_hour: float
) -> DisaggRow:
    at = jax.tree.map(lambda leaf: leaf[place], sweep)
    prefill, decode = int(at.prefill_replicas), int(at.decode_replicas)
    per_hour = prefill * prefill_usd_per_hour + decode * decode_usd_per_hour
    return DisaggRow(
        prefill=prefill,
        decode=decode,
        gpus=int(at.gpus),
        price_per_hour=per_hour,
        price_per_year=per_hour * HOURS_PER_YEAR,
        capacity_per_s=float(at.capacity_per_s),
        per_gpu_per_s=float(at.per_gpu_per_s),
        prefill_utilization=float(at.prefill_utilization),
        decode_utilization=float(at.decode_utilization),
        ttft_ms=finite_ms(float(at.ttft_s)),
        tpot_ms=finite_ms(float(at.tpot_s)),
        bottleneck="prefill" if at.prefill_utilization > at.decode_utilization else "decode",
        meets=bool(at.met),
    )


def _nearest(sweep: DisaggEstimate, request: DisaggRequest) -> tuple[int, int]:
    """The fleet that exceeds its limits least, in proportion; the cheapest of equals."""
    excess = np.maximum(sweep.ttft_s * MS_PER_S / request.ttft_ms, sweep.tpot_s * MS_PER_S / request.tpot_ms)
    excess = np.maximum(np.where(np.isfinite(excess), excess, np.inf), 1.0)
    order = np.lexsort((sweep.usd_per_hour.ravel(), excess.ravel()))
    row, column = np.unravel_index(order[0], excess.shape)
    return int(row), int(column)


def _binding(sweep: DisaggEstimate, request: DisaggRequest) -> str:
    """The limit that no fleet of so many replicas meets."""
    if sweep.ttft_s.min() * MS_PER_S > request.ttft_ms:
        return "TTFT" if math.isfinite(sweep.ttft_s.min()) else f"prefill rate of {request.max_prefill} replicas"
    if sweep.tpot_s.min() * MS_PER_S > request.tpot_ms:
        return "TPOT" if math.isfinite(sweep.tpot_s.min()) else f"decode rate of {request.max_decode} replicas"
    return "the capacity of the phases"
