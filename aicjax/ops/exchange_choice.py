# SPDX-License-Identifier: Apache-2.0
"""Which measurement answers for an exchange of large expert parallelism, decided when a model is bound."""

from dataclasses import dataclass, replace

from aicjax._results import InputError
from aicjax.interp.ends import Curve
from aicjax.ops.exchange_tables import ANY_FORMAT, BySms, Exchanges, Place
from aicjax.ops.records import MoeAllToAll

PHASES = {  # phases of an exchange by communication library
    "deepep_ht": ("dispatch", "combine"),
    "deepep_ll": ("dispatch", "combine"),
    "deepep_v2_context": ("dispatch", "combine"),
    "deepep_v2_generation": ("dispatch", "combine"),
    "trtllm_deepep_ht": ("dispatch", "combine"),
    "trtllm_deepep_ll": ("dispatch", "combine"),
    "nvlink_two_sided": ("prepare", "dispatch", "combine"),
    "nvlink_one_sided": ("dispatch", "combine"),
}
ONE_NODE_STANDS_IN = ("deepep_ht", "deepep_ll", "trtllm_deepep_ht", "trtllm_deepep_ll")
SURFACE = "deepep_ht"  # the library whose phases share a surface over SMs and tokens
PLAIN_SMS = 20  # SMs that it is given by default: within a node these measurements answer by themselves
OTHER_PHASE = {"dispatch": "combine", "combine": "dispatch"}


@dataclass(frozen=True)
class Choice:
    """What answers: a curve of tokens, or a grid of SMs and tokens.

    Attributes:
        curve: The curve; None where a grid answers.
        grid: The grid; empty where a curve answers.
        other: Grid of the other phase, whose sum with this one answers beyond the measured range; empty for most.
        measured: The exchange that was measured, which may be on fewer ranks.
    """

    curve: Curve | None
    grid: BySms
    other: BySms
    measured: MoeAllToAll


def check_exchange(record: MoeAllToAll) -> None:
    """That the library has the phase.

    Raises:
        InputError: It has not, or there is no such library.
    """
    if record.comm_backend not in PHASES:
        raise InputError("comm_backend", record.comm_backend, f"one of {', '.join(PHASES)}")
    if record.phase not in PHASES[record.comm_backend]:
        allowed = ", ".join(PHASES[record.comm_backend])
        raise InputError("phase", record.phase, f"one of {allowed} for {record.comm_backend}")


def choose_exchange(exchanges: Exchanges, record: MoeAllToAll) -> Choice | None:
    """What answers for a record: what was measured there, else on one node; None when neither was."""
    if (choice := _measured(exchanges, record)) is not None:
        return choice
    if record.nodes <= 1 or record.comm_backend not in ONE_NODE_STANDS_IN:
        return None
    shape = (record.hidden_size, record.topk, record.num_experts)
    formats = exchanges.get((record.comm_backend, record.phase), {})
    ranks = [place.moe_ep for places in formats.values() for place in places if place[1:] == (1, *shape)]
    return _measured(exchanges, replace(record, moe_ep=max(ranks), nodes=1)) if ranks else None


def _measured(exchanges: Exchanges, record: MoeAllToAll) -> Choice | None:
    by_sms = _by_sms(exchanges, record, record.phase)
    if not by_sms:
        return None
    shared = record.comm_backend == SURFACE
    if record.sms in by_sms and (not shared or (record.nodes == 1 and record.sms == PLAIN_SMS)):
        return Choice(by_sms[record.sms], {}, {}, record)
    other = _by_sms(exchanges, record, OTHER_PHASE[record.phase]) if shared else {}
    return None if other is None else Choice(None, by_sms, other, record)


def _by_sms(exchanges: Exchanges, record: MoeAllToAll, phase: str) -> BySms | None:
    """Curves of a phase by SMs, empty when the place was not measured; None when the format was not."""
    formats = exchanges.get((record.comm_backend, phase), {})
    if record.comm_dtype in formats:
        form = record.comm_dtype
    elif record.comm_dtype == "fp8_block" and "fp8" in formats:
        form = "fp8"
    elif set(formats) == {ANY_FORMAT}:
        form = ANY_FORMAT
    else:
        return None
    place = Place(record.moe_ep, record.nodes, record.hidden_size, record.topk, record.num_experts)
    return formats[form].get(place, {})
