# SPDX-License-Identifier: Apache-2.0
"""Benchmarks of sweeps: they check what they find, and say so where there is no GPU."""

import numpy as np
import pytest

from aicjax.sweeps.cases import enumerate_cases
from aicjax.sweeps.kept import Kept, Points
from aicjax.sweeps.run import sweep
from aicjax.sweeps.spec import SweepSpec
from benchmarks import gpu, sweeps


def test_a_wrong_answer_is_found_out():
    axes = {**sweeps.SIZES["1e5"], "batch": {"last": 40}, "database_mode": "SOL"}
    found = sweep(SweepSpec(**axes))
    assert sweeps.checked(found)["wrong"] == 0
    found.kept.tops[0, 0, 0] = found.kept.tops[0, 0, 0].take(np.arange(1, found.spec.top_k))
    found.kept.counts[0, 0] += 1
    assert sweeps.checked(found)["wrong"] == 2


@pytest.mark.parametrize(("size", "points"), [("1e5", 1e5), ("3e6", 3e6)])
def test_sizes_are_about_what_they_are_called(size, points):
    found = enumerate_cases(SweepSpec(**sweeps.SIZES[size]))
    assert 0.5 * points < found.points < 2 * points


def test_without_a_gpu_it_says_so(capsys):
    assert gpu.main([]) == 0
    assert capsys.readouterr().out == "No GPU: nothing measured.\n"


@pytest.mark.parametrize(
    ("kind", "peak"), [("NVIDIA H200", 4.8e12), ("NVIDIA A100-SXM4-80GB", 2.039e12), ("cpu", None)]
)
def test_a_gpu_has_the_peak_of_its_system(kind, peak):
    assert gpu.peak_of(kind) == peak


def test_differences_of_what_two_devices_keep():
    def kept(value: float, number: int) -> Kept:
        some = np.array([value])
        found = Kept(1)
        found.offer((0, 0, 0), Points(np.array([number]), some, some, some, some, some))
        found.count((0, 0), np.array([5]))
        return found

    assert set(gpu.kept_differences(kept(2.0, 7), kept(2.0, 7)).values()) == {1, 0}
    other = gpu.kept_differences(kept(3.0, 8), kept(2.0, 7))
    assert other["points of another number"] == 1
    assert other["largest relative difference of a value"] == 0.5
