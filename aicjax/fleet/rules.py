# SPDX-License-Identifier: Apache-2.0
"""What the fleet reference (vllm-sr-sim) does otherwise, as named switches; docs/fleet-parity.md has the reasons."""

from typing import NamedTuple


class Rules(NamedTuple):
    """Switches of formulas; all off is what this project means. Hashable: a static argument of compiled functions.

    Attributes:
        whole_chunks: A prompt's last chunk costs a full one, and every chunk sees the mean history.
        final_length: Every step of a request is priced at its final length instead of its mean length.
        extra_decode_step: Decoding takes a step per output token, though the prompt's last step gives the first.
        prefill_without_compute: Time to first token leaves out compute and length: chunks times an iteration.
        whole_model_kv: KV bytes of a token are not divided by tp, so that a computed replica has tp times too few
            blocks; a model that does not fit has one slot.
        expert_shortcuts: Experts take the time of one GPU at a fixed few tokens, whatever shares or runs, two of their
            three matrices where not measured; beside them attention weights alone are read, and `ep` has no effect.
        halving_inverse: The inverse of a power law by twenty halvings that stop one request short.
        least_integer_load: Power is read at the running requests rounded down, at least one.
        cut_of_nominal: Demand response cuts nominal power, not that with every slot in use.
        steady_phases: Prefill and decode replicas run all slots whatever comes: no wait, no transfer, a prompt chunk of
            every slot in an iteration, a factor from the time of a prompt to the TTFT.
        spill_by_requests: Spillover compares requests per replica, those that wait included, with its limit, not the
            share of slots in use.
        any_context: Random and least-loaded routing take pools whose context the request does not fit.
        two_moment_wait: Waits have one exponential from two moments, TTFT is their quantile plus the mean prefill, and
            a count is the least, beyond a spare replica, whose wait alone meets the limit.
        strict_front: A fleet is off the front of cost and TTFT only where another is better in both.
    """

    whole_chunks: bool = False
    final_length: bool = False
    extra_decode_step: bool = False
    prefill_without_compute: bool = False
    whole_model_kv: bool = False
    expert_shortcuts: bool = False
    halving_inverse: bool = False
    least_integer_load: bool = False
    cut_of_nominal: bool = False
    steady_phases: bool = False
    spill_by_requests: bool = False
    any_context: bool = False
    two_moment_wait: bool = False
    strict_front: bool = False


SANE = Rules()
FLEET_REFERENCE = Rules(*(True for _ in Rules._fields))
