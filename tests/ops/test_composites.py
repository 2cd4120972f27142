# SPDX-License-Identifier: Apache-2.0
"""Operators made of others: which chain of a fallback runs in each mode, and the chains of overlaps."""

import pytest

from aicjax.hardware import load_system
from aicjax.ops.composites import chains
from aicjax.ops.database import Database
from aicjax.ops.records import Elementwise, Fallback, Gemm, MlaModuleContext, MoeDispatch, Overlap

A, B, C, D = (Elementwise(name, 1.0, 2.0) for name in "abcd")
GRANULAR = Gemm("projection", 1.0, 4096, 4096, "bfloat16")


def block(gemm: str) -> Fallback:
    """A whole block, measured with 16-bit projections alone, or its parts."""
    whole = MlaModuleContext("whole", 1.0, 16, 128, "bfloat16", "bfloat16", gemm)
    return Fallback("block", whole, (GRANULAR,))


def database(mode: str) -> Database:
    return Database(load_system("h200_sxm"), "trtllm", "1.3.0rc20", mode)


@pytest.mark.parametrize(
    ("mode", "measured", "not_measured"),
    [
        ("SILICON", "whole", "projection"),
        ("HYBRID", "whole", "projection"),  # measured parts before an estimate of the whole
        ("EMPIRICAL", "whole", "whole"),
        ("SOL", "whole", "whole"),
    ],
)
def test_a_fallback_is_its_parts_where_tables_interpolate_and_lack_the_whole(mode, measured, not_measured):
    for gemm, name in (("bfloat16", measured), ("int8_wo", not_measured)):
        assert [[op.name for op in chain] for chain in chains(database(mode), (block(gemm),))] == [[name]]


@pytest.mark.parametrize(
    ("items", "names"),
    [
        ((A, B), ["ab"]),
        ((A, Overlap("o", (B,), (C,)), D), ["abd", "acd"]),
        ((Overlap("o", (A, Overlap("i", (B,), (C,))), (D,)),), ["ab", "ac", "d"]),
        ((Overlap("o", (A,), (B,)), Overlap("p", (C,), (D,))), ["ac", "ad", "bc", "bd"]),
        ((Overlap("o", (), (A,)),), ["", "a"]),
        ((), [""]),
    ],
)
def test_overlaps_are_alternatives_of_which_the_longest_counts(items, names):
    assert ["".join(op.name for op in chain) for chain in chains(database("SILICON"), items)] == names


def test_a_fallback_may_hold_overlaps():
    held = Fallback("block", block("int8_wo").primary, (A, Overlap("o", (B,), (C,))))
    assert [[op.name for op in chain] for chain in chains(database("HYBRID"), (held,))] == [["a", "b"], ["a", "c"]]


def test_an_exchange_is_its_collectives_under_its_name():
    exchange = MoeDispatch("exchange", 3.0, 4096, 8, 128, 1, 8, 1, True, "bfloat16")
    (chain,) = chains(database("SILICON"), (exchange,))
    assert [(op.name, op.scale) for op in chain] == [("exchange", 3.0)]
