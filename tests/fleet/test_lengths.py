# SPDX-License-Identifier: Apache-2.0
"""Laws of lengths: exact expectations, parts, mixtures, files."""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aicjax._results import DataError, InputError
from aicjax.fleet import lengths
from aicjax.fleet.cdf import Knots, bundled_lengths, load_lengths, parse_knots, share
from aicjax.fleet.lengths import Lengths
from aicjax.fleet.presets import preset
from aicjax.fleet.rules import FLEET_REFERENCE
from aicjax.fleet.service_times import moments, service_law

SPLIT = ("azure", "lmsys", "lmsys_multiturn", "agent_heavy")
JOINT = ("azure_conv", "azure_code", "arxiv")
EXACT = 1e-9
MERGED = 1e-6  # of expectations over merged cells


def every_length(knots: Knots, input_share: float = 0.8) -> Lengths:
    """The law that merging starts from."""
    total = np.arange(1, int(knots.tokens[-1]) + 1)
    below = np.interp(total, np.append(0, knots.tokens), np.append(0, knots.shares))
    isl, osl = lengths.split(total.astype(float), input_share)
    return Lengths(isl, osl, np.diff(below, prepend=0.0))


@pytest.mark.parametrize("name", SPLIT)
@pytest.mark.parametrize("chunk", [256, 512, 1024])
def test_merging_keeps_means_chunks_and_products(name: str, chunk: int):
    merged, exact = lengths.named(name), every_length(load_lengths(name).knots)
    assert len(merged.isl) < 4_000
    for expected in (
        lambda law: law.isl,
        lambda law: law.osl,
        lambda law: np.ceil(law.isl / chunk),
        lambda law: law.osl * (law.isl + law.osl),
        lambda law: (law.isl + law.osl) ** 2,
    ):
        ours = np.sum(expected(merged) * merged.weight)
        assert ours == pytest.approx(np.sum(expected(exact) * exact.weight), rel=MERGED)


@pytest.mark.parametrize("name", SPLIT)
def test_moments_of_service_are_those_of_every_length(name: str):
    with jax.enable_x64(True):
        ours, exact = (
            moments(service_law(preset("a100"), law, 65_536, rules=FLEET_REFERENCE))
            for law in (lengths.named(name), every_length(load_lengths(name).knots))
        )
        assert float(ours[0]) == pytest.approx(float(exact[0]), rel=MERGED)
        assert float(ours[1]) == pytest.approx(float(exact[1]), rel=1e-4)  # fourth powers of lengths


@pytest.mark.parametrize("name", JOINT)
def test_counts_give_the_means_that_the_file_states(name: str):
    stated = load_lengths(name).joint
    assert stated is not None
    isl, osl = lengths.mean(lengths.named(name))
    assert float(isl) == pytest.approx(stated["mean_isl"], rel=0.03)  # cells are wide
    assert float(osl) == pytest.approx(stated["mean_osl"], rel=0.12)


@pytest.mark.parametrize("name", [*SPLIT, *JOINT])
def test_laws_ascend_and_sum_to_one(name: str):
    law = lengths.named(name)
    assert law.weight.sum() == pytest.approx(1.0, abs=EXACT)
    assert (np.diff(law.total) >= 0).all()
    assert (law.isl >= 1).all()
    assert (law.osl > 0).all()


def test_every_bundled_name_has_a_source():
    assert set(bundled_lengths()) == {*SPLIT, *JOINT}
    assert all(load_lengths(name).source for name in bundled_lengths())


@given(st.floats(2.0, 70_000.0))  # a request has a token on either side
def test_share_below_is_the_distribution(tokens: float):
    knots = load_lengths("azure").knots
    with jax.enable_x64(True):
        ours = lengths.share_below(every_length(knots), tokens)
        assert float(ours) == pytest.approx(float(share(knots, tokens)), abs=EXACT)


@given(st.integers(1, 40_000), st.integers(1, 40_000))
def test_parts_and_the_rest_are_the_whole(low: int, more: int):
    law = lengths.named("agent_heavy")
    with jax.enable_x64(True):
        parts = [lengths.within(law, a, b) for a, b in ((0.0, low), (low, low + more), (low + more, np.inf))]
        assert float(sum(part for _, part in parts)) == pytest.approx(1.0, abs=EXACT)
        isl = sum(part * lengths.mean(inside)[0] for inside, part in parts)
        assert float(isl) == pytest.approx(float(lengths.mean(law)[0]), rel=EXACT)


@pytest.mark.parametrize(("tokens", "share_of_all"), [(65_536, 0.5), (65_537, 1.0), (1_000, 0.0), (1_001, 0.5)])
def test_lengths_that_stand_alone_count_whole(tokens: int, share_of_all: float):
    law = lengths.from_pairs([1_000, 65_536], [1, 1])
    assert float(lengths.share_below(law, tokens)) == share_of_all


def test_share_has_a_gradient_in_the_threshold():
    law = lengths.named("azure")
    with jax.enable_x64(True):
        slope = jax.grad(lambda t: lengths.within(law, 100.0, t)[1])(1_500.5)
        density = (0.6568742238779492 - 0.40447046301224054) / 512.0  # between the knots 1024 and 1536
        assert float(slope) == pytest.approx(density, rel=1e-6)


def test_nothing_within_has_share_zero_and_no_nan():
    law, part = lengths.within(lengths.named("azure"), 50_000.0, 60_000.0)
    assert float(part) == 0.0
    assert np.isfinite(law.weight).all()


def test_a_mixture_keeps_the_correlation_of_each_law():
    """Short prompts with long answers and the reverse: the marginal law of totals alone would lose this."""
    laws = [lengths.constant(100.0, 900.0), lengths.constant(900.0, 100.0)]
    profile = preset("a100")
    with jax.enable_x64(True):
        both = lengths.mixture(laws, [3.0, 1.0])
        mean_s, cv2 = moments(service_law(profile, both, 8192, rules=FLEET_REFERENCE))
        each = np.array([float(moments(service_law(profile, law, 8192, rules=FLEET_REFERENCE))[0]) for law in laws])
        wanted = 0.75 * each[0] + 0.25 * each[1]
        assert float(mean_s) == pytest.approx(wanted, rel=EXACT)
        assert float(cv2) == pytest.approx((0.75 * each[0] ** 2 + 0.25 * each[1] ** 2) / wanted**2 - 1.0, rel=1e-6)
        split = lengths.from_cdf(Knots(np.array([999.0, 1000.0]), np.array([0.0, 1.0])), 0.3)
        assert float(moments(service_law(profile, split, 8192, rules=FLEET_REFERENCE))[1]) == pytest.approx(
            0.0, abs=EXACT
        )


def test_a_mixture_is_ascending_and_differentiable_in_its_shares():
    laws = [lengths.named("azure"), lengths.named("arxiv")]
    law = lengths.mixture(laws, [1.0, 1.0])
    assert (np.diff(law.isl + law.osl) >= 0).all()
    slope = jax.grad(lambda x: lengths.mean(lengths.mixture(laws, jnp.stack([1.0 - x, x])))[0])(0.3)
    assert float(slope) == pytest.approx(float(lengths.mean(laws[1])[0] - lengths.mean(laws[0])[0]), rel=1e-4)


def test_recorded_pairs_are_counted():
    law = lengths.from_pairs([10, 10, 20, 5], [1, 1, 2, 50])
    assert law.isl.tolist() == [10.0, 20.0, 5.0]
    assert law.weight.tolist() == [0.5, 0.25, 0.25]


def test_draws_have_the_frequencies_of_the_law():
    law = lengths.named("azure")
    isl, osl = lengths.sample(jax.random.key(0), law, 200_000)
    assert isl.dtype == jnp.int32
    assert float(isl.mean()) == pytest.approx(float(lengths.mean(law)[0]), rel=0.01)
    assert float(osl.mean()) == pytest.approx(float(lengths.mean(law)[1]), rel=0.01)
    assert float((isl + osl <= 1024).mean()) == pytest.approx(0.40447, abs=0.005)


def test_a_file_is_read_like_a_name(tmp_path: Path):
    path = tmp_path / "mine.json"
    path.write_text(json.dumps({"cdf": [[100, 0.5], [200, 1.0]], "input_share": 0.5}))
    isl, osl = lengths.mean(lengths.named(str(path)))
    assert float(isl) == pytest.approx(float(osl), abs=0.51)
    path.with_name("rows.json").write_text("[[100, 0.5], [200, 1.0]]")
    assert load_lengths(str(path.with_name("rows.json"))).input_share == 0.8


@pytest.mark.parametrize(
    "rows",
    [[], [[1, 2, 3]], [[0, 0.5]], [[10, 0.5], [10, 1.0]], [[10, 0.9], [20, 0.5]], [[10, 1.2]], ["x"], [[1.5, 1]]],
)
def test_knots_that_are_no_distribution_are_refused(rows: list):
    with pytest.raises(DataError, match="here"):
        parse_knots(rows, "here")


def test_unknown_names_and_broken_files_are_refused(tmp_path: Path):
    with pytest.raises(InputError, match="did you mean azure"):
        load_lengths("azur")
    with pytest.raises(InputError, match="readable"):
        load_lengths(str(tmp_path / "none.json"))
    (tmp_path / "bad.json").write_text("{")
    with pytest.raises(DataError, match="JSON"):
        load_lengths(str(tmp_path / "bad.json"))
    (tmp_path / "empty.json").write_text("{}")
    with pytest.raises(DataError, match="cdf"):
        load_lengths(str(tmp_path / "empty.json"))
