# SPDX-License-Identifier: Apache-2.0
"""Which measured shapes answer for another one: gate, waiver, coverage by segment, ties, weights."""

import itertools

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from aicjax.interp.sites import (
    NO_SITE,
    SiteChoice,
    choose_sites,
    fitted_utilization,
    plane_weights,
    token_segments,
)
from tests import strategies
from tests.oracles import sites as oracle

EXACT = 1e-12  # relative, float64 against float64
LONG: oracle.Curve = dict.fromkeys((1, 64, 4096), 1.0)
SHORT: oracle.Curve = dict.fromkeys((1, 64), 1.0)


def chosen(curves: dict[oracle.Shape, oracle.Curve], shape: oracle.Shape, tokens: float) -> dict[oracle.Shape, float]:
    """Shapes that answer at `tokens`, nearest first, with their weights."""
    sites = np.array(list(curves))
    first, last = (np.array([int(end(curve)) for curve in curves.values()]) for end in (min, max))
    breaks = token_segments(first, last)
    choice: SiteChoice = choose_sites(sites, first, last, breaks, shape)
    segment = np.searchsorted(breaks, tokens, side="right")
    used = choice.site[segment] != NO_SITE
    shapes = map(tuple, sites[choice.site[segment][used]].tolist())
    assert not choice.weight[segment][~used].any()
    assert choice.measured == (shape in curves)
    return dict(zip(shapes, choice.weight[segment][used].tolist(), strict=True))


def shapes_asked(curves: dict[oracle.Shape, oracle.Curve]) -> list[oracle.Shape]:
    """Shapes near measured ones, between them, and beyond them on one axis, on both, below them."""
    (n, k), *_ = curves
    most = [max(s[axis] for s in curves) for axis in (0, 1)]
    return [
        (n, k),
        (2 * n, k),
        (n, 4 * k),
        (3 * n, 5 * k),
        (32 * most[0], k),
        (n, 32 * most[1]),
        (32 * most[0], 32 * most[1]),
        (1, k),
        (0, k),
    ]


def check_against_oracle(rows: list[oracle.Row]) -> None:
    curves = oracle.curves_by_rank(rows)
    tokens = np.unique(np.floor(strategies.around(np.array(sorted({m for m, *_ in rows}), float))))
    for shape in shapes_asked(curves):
        for m in tokens.tolist():
            got = chosen(curves, shape, m)
            if shape in curves:
                assert got == {shape: 1.0}
                continue
            want = oracle.neighbours(curves, shape, m) if min(shape) > 0 else []
            assert list(got) == want, (shape, m)
            assert list(got.values()) == pytest.approx(oracle.weights(want, shape), rel=EXACT)


@settings(max_examples=25)
@given(strategies.product_rows(powers_of_two=True))
def test_choice_equals_the_oracle_among_ties(rows):
    check_against_oracle(rows)


@settings(max_examples=15)
@given(strategies.product_rows(powers_of_two=False))
def test_choice_equals_the_oracle_among_any_shapes(rows):
    curves = oracle.curves_by_rank(rows)
    for shape in shapes_asked(curves):
        far = sorted(oracle.octaves(s, shape) for s in curves) if min(shape) > 0 else []
        assume(all(b - a > 1e-9 for a, b in itertools.pairwise(far)))
    check_against_oracle(rows)


def test_tie_at_the_cut_goes_to_the_shape_first_met():
    """One shape an octave away and four equally far behind it: three of those answer, the last one met does not."""
    ring = [(128, 128), (128, 32), (32, 128), (32, 32)]
    for order in (ring, ring[::-1]):
        assert list(chosen(dict.fromkeys([*order, (64, 128)], LONG), (64, 64), 8)) == [(64, 128), *order[:3]]


def test_weights_are_inverse_squares_of_octaves():
    got = chosen(dict.fromkeys([(128, 64), (64, 16)], LONG), (64, 64), 8)
    assert got == pytest.approx({(128, 64): 0.8, (64, 16): 0.2})


def test_gate_is_two_octaves_and_includes_them():
    assert set(chosen({(256, 64): LONG}, (64, 64), 8)) == {(256, 64)}
    assert not chosen({(257, 64): LONG}, (64, 64), 8), "below the only shape, and too far"
    near_and_far = dict.fromkeys([(16, 64), (15, 64)], LONG)
    assert set(chosen(near_and_far, (64, 64), 8)) == {(16, 64)}


@pytest.mark.parametrize(
    ("shape", "answers"),
    [
        ((4096, 64), True),  # beyond all on n alone, on the spot on k
        ((4096, 300), True),  # ... a bit above k, though still within its range
        ((4096, 2048), False),  # beyond all on both axes
        ((4096, 32), False),  # beyond on one, below on the other
        ((8, 64), False),  # smaller than anything measured
    ],
)
def test_waiver_is_for_shapes_beyond_the_frontier_on_one_axis(shape, answers):
    curves = dict.fromkeys([(128, 64), (256, 512)], LONG)
    assert bool(chosen(curves, shape, 8)) == answers


def test_waiver_keeps_those_near_on_the_other_axis():
    curves = dict.fromkeys([(128, 64), (256, 512)], LONG)
    assert set(chosen(curves, (4096, 64), 8)) == {(128, 64)}


def test_curves_that_do_not_span_the_tokens_drop_out_unless_none_does():
    curves = {(128, 64): SHORT, (64, 128): LONG}
    assert set(chosen(curves, (64, 64), 64)) == {(128, 64), (64, 128)}
    assert set(chosen(curves, (64, 64), 65)) == {(64, 128)}
    assert set(chosen(curves, (64, 64), 4096)) == {(64, 128)}
    assert set(chosen(curves, (64, 64), 4097)) == {(128, 64), (64, 128)}


def test_waiver_looks_at_the_curves_that_span_the_tokens():
    """(8192, 64) exceeds the long curves alone: the short one reaches as far, but not at these tokens."""
    curves = {(16384, 64): SHORT, (128, 64): LONG}
    assert set(chosen(curves, (8192, 64), 8)) == {(16384, 64)}
    assert set(chosen(curves, (8192, 64), 512)) == {(128, 64)}


@given(st.lists(st.tuples(st.integers(1, 50), st.integers(0, 50)), min_size=1, max_size=6))
def test_the_same_curves_span_all_tokens_of_a_segment(spans):
    first = np.array([low for low, _ in spans])
    last = first + np.array([width for _, width in spans])
    breaks = token_segments(first, last)
    tokens = np.arange(0, 120)
    spanning = (first <= tokens[:, None]) & (tokens[:, None] <= last)
    segment = np.searchsorted(breaks, tokens, side="right")
    for index in np.unique(segment):
        assert len(np.unique(spanning[segment == index], axis=0)) == 1


offsets = st.lists(st.tuples(st.floats(-2, 2), st.floats(-2, 2)), min_size=1, max_size=16).map(np.array)


@given(offsets, st.floats(-3, 3))
def test_weights_of_a_plane_sum_to_one(offset, level):
    assume((np.abs(offset).max(-1) > 0.05).all())
    weights = plane_weights(offset)
    assert weights.sum() == pytest.approx(1.0, abs=1e-6)
    assert weights @ np.full(len(offset), level) == pytest.approx(level, abs=1e-5)
    used = np.arange(len(offset)) < len(offset) - 1
    if used.any():
        assert plane_weights(offset, used) == pytest.approx(np.append(plane_weights(offset[:-1]), 0.0), abs=1e-6)


def test_a_plane_is_seen_through_where_a_mean_leans_to_the_denser_side():
    offset = np.array([[-0.5, 0.0], [-1.0, 0.0], [-1.5, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
    tilted = offset @ [0.3, -0.1]
    assert abs(plane_weights(offset) @ tilted) < 0.01  # the ridge holds the slope back a little
    near = 1 / (offset**2).sum(-1)
    assert abs(near @ tilted / near.sum()) > 0.05


def fitted(curves: dict[oracle.Shape, oracle.Curve], shape: oracle.Shape) -> np.ndarray:
    """Utilisation of a shape from curves of utilisation, at 1, 64 and 4096 tokens."""
    knots = np.array([1.0, 64.0, 4096.0])
    utilization = np.array([[curve.get(int(m), np.nan) for m in knots] for curve in curves.values()])
    return fitted_utilization(np.array(list(curves)), knots, utilization, shape)


def test_fit_stays_within_the_sites_that_span_the_tokens():
    curves = {(128, 64): {1: 0.2, 64: 0.4}, (256, 64): {1: 0.4, 64: 0.8}, (128, 128): dict.fromkeys((1, 64, 4096), 0.4)}
    inside = fitted(curves, (181, 64))  # half an octave from the first two
    assert 0.2 < inside[0] < 0.4
    assert inside[2] == 0.4  # one curve alone spans these tokens
    assert fitted(curves, (1024, 64))[1] == pytest.approx(0.8)  # the plane rises beyond; no site does


@pytest.mark.parametrize("shape", [(8, 64), (4096, 2048), (0, 64)])
def test_fit_has_no_answer_where_no_site_is_near(shape):
    assert np.isnan(fitted(dict.fromkeys([(128, 64), (256, 512)], LONG), shape)).all()


def test_fit_of_tokens_that_no_curve_spans_has_no_answer():
    assert np.isnan(fitted({(128, 64): {1: 0.5}, (256, 64): {4096: 0.5}}, (181, 64))).tolist() == [False, True, False]
