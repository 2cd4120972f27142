# SPDX-License-Identifier: Apache-2.0
"""Fits of closed-loop constants: gradients, planted constants, folds that do not leak, and the file that is written."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from aicjax._results import DataError, InputError
from aicjax.calibrate import calibration
from aicjax.calibrate.cross_validation import choose_information, cross_validate, held_out
from aicjax.calibrate.fit import Fitter, robust, row_weights
from aicjax.calibrate.loop_rows import loop_constants
from aicjax.calibrate.measurements import Measurements, read_measurements
from aicjax.calibrate.parameters import Parameter, constants_at, read_fit
from aicjax.calibrate.predict import predict_table
from aicjax.calibrate.step_table import GRID, NO_LIMIT, SHARED_PROMPTS, StepTable, StepTimes
from aicjax.cli import app
from aicjax.constants import fitted, load_constants
from aicjax.explore.request import BACKENDS

LOSS, PARAMETERS = read_fit()
STRONG = 3000.0  # weight of rows without noise against the prior
PLANTED = {"host_ms_per_step": 1.0, "request_ms": -0.8, "prefill_level": 0.7, "steps_waited": 0.5}
"""Numbers of unit prior."""


@pytest.fixture(scope="module")
def rows() -> Measurements:
    shipped = read_measurements()
    kept = [
        np.flatnonzero(shipped.clean & ~shipped.queue_saturated & (shipped.backend == backend) & (shipped.mode == mode))
        for backend, mode in [*((backend, "agg") for backend in BACKENDS), ("trtllm", "disagg")]
    ]
    return shipped.take(np.concatenate([at[:: max(len(at) // 40, 1)] for at in kept]))


@pytest.fixture(scope="module")
def table(rows: Measurements) -> StepTable:
    """Step times by simple rules: as if a model had been priced."""
    count, ranks = len(rows), np.maximum(np.where(rows.is_agg, rows.agg.dp, rows.decode.dp * rows.decode.count), 1)
    most = np.maximum(rows.concurrency / ranks, 1.0)
    gathers = (np.arange(count) % 3 == 0) | (most == 1)  # lone clients too: nobody comes to them
    batches = np.maximum(most[:, None] * 2.0 ** (-np.arange(GRID)[::-1] / 2), 1.0)
    prompt_ms = rows.isl / 100.0
    times = StepTimes(
        isl=rows.isl.astype(float),
        osl=rows.osl.astype(float),
        concurrency=rows.concurrency.astype(float),
        waves=np.where(rows.harness == "unknown", 0.0, 10.0),
        least_share=np.full(count, 0.8),
        layers=np.full(count, 40.0),
        ranks=ranks.astype(float),
        prefill_ranks=np.where(rows.is_agg, 0.0, np.maximum(rows.prefill.dp * rows.prefill.count, 1)),
        wide=(np.arange(count) % 2).astype(float),
        slots=np.full(count, np.inf),
        prompts=np.zeros(count),
        receive_steps=np.ones(count),
        gather_steps=np.where(gathers, 20.0, 0.0),
        gather_prompts=np.where(gathers, 16.0, 1.0),
        kv_tokens=np.full(count, NO_LIMIT),
        batches=batches,
        decode_ms=4.0 + 0.05 * batches,
        increment_ms=0.9 * prompt_ms[:, None] + 0.0 * batches,
        prefill_ms=prompt_ms,
        shared_prefill_ms=prompt_ms[:, None] * (0.8 + 0.2 / SHARED_PROMPTS),
    )
    backend = np.array([BACKENDS.index(name) for name in rows.backend])
    return StepTable(times, backend, rows.is_agg, np.full(count, "SILICON"), np.full(count, ""))


@pytest.fixture(scope="module")
def fitter(rows: Measurements, table: StepTable) -> Fitter:
    return Fitter(rows, table, "reference", LOSS, PARAMETERS)


def _planted(fitter: Fitter) -> dict[str, np.ndarray]:
    names = [parameter.name for parameter in PARAMETERS]
    return {backend: np.array([PLANTED.get(name, 0.0) for name in names]) for backend in fitter.prior}


def _measured(rows: Measurements, times: tuple[np.ndarray, np.ndarray]) -> Measurements:
    return dataclasses.replace(rows, ttft_ms=times[0], tpot_ms=times[1])


@pytest.fixture(scope="module")
def of_planted(rows: Measurements, table: StepTable, fitter: Fitter) -> Fitter:
    """The rows as the formulas have them at planted constants."""
    return Fitter(_measured(rows, fitter.predict(_planted(fitter))), table, "reference", LOSS, PARAMETERS)


def test_planted_constants_are_recovered(of_planted: Fitter):
    everything = np.ones(len(of_planted.rows), bool)
    found = of_planted.fit(everything, STRONG)
    ttft_ms, tpot_ms = of_planted.predict(found)
    np.testing.assert_allclose(ttft_ms, of_planted.rows.ttft_ms, rtol=0.02)
    np.testing.assert_allclose(tpot_ms, of_planted.rows.tpot_ms, rtol=0.01)
    for backend, vector in _planted(of_planted).items():
        for number, parameter in enumerate(PARAMETERS):
            if parameter.name in PLANTED:
                assert found[backend][number] == pytest.approx(vector[number], abs=0.2), (backend, parameter.name)


@pytest.mark.parametrize("backend", ["trtllm", "sglang"])
def test_gradient_is_that_of_differences(fitter: Fitter, rows: Measurements, backend: str):
    step = 1e-4
    with jax.enable_x64(True):
        fit, at = fitter.engines[backend], np.linspace(-0.5, 0.5, len(PARAMETERS))
        weights = row_weights(rows, fitter.usable, LOSS, 1.0).take(fitter.places[backend])
        _, gradient = fit.loss_and_gradient(at, weights)
        for number in range(len(PARAMETERS)):
            moved = np.zeros(len(PARAMETERS))
            moved[number] = step
            above, below = (fit.loss_and_gradient(at + sign * moved, weights)[0] for sign in (1, -1))
            difference = (above - below) / (2 * step)
            assert gradient[number] == pytest.approx(difference, rel=1e-4, abs=1e-5), PARAMETERS[number].name


@pytest.mark.parametrize("backend", BACKENDS)
def test_gradient_is_finite_in_single_precision(fitter: Fitter, rows: Measurements, backend: str):
    weights = row_weights(rows, fitter.usable, LOSS, 1.0).take(fitter.places[backend])
    loss, gradient = fitter.engines[backend].loss_and_gradient(np.zeros(len(PARAMETERS)), weights)
    assert np.isfinite(loss)
    assert np.isfinite(gradient).all()


def test_a_fold_never_sees_its_rows(rows: Measurements, table: StepTable, fitter: Fitter):
    start = fitter.fit(fitter.usable, 1.0)
    held = held_out(fitter, folds=3)[0]
    expected = cross_validate(fitter, 1.0, start, folds=3)
    slower = _measured(rows, (np.where(held, 7.0, 1.0) * rows.ttft_ms, np.where(held, 5.0, 1.0) * rows.tpot_ms))
    found = cross_validate(Fitter(slower, table, "reference", LOSS, PARAMETERS), 1.0, start, folds=3)
    for one, other in zip(expected, found, strict=True):
        np.testing.assert_allclose(one[held], other[held], rtol=1e-5)
        assert not np.allclose(one[~held], other[~held], rtol=1e-3)


@pytest.mark.parametrize("folds", [None, 2, 5, 1000])
def test_groups_are_held_out_whole_and_once(fitter: Fitter, folds: int | None):
    found = held_out(fitter, folds)
    assert np.sum(found, axis=0).tolist() == [1] * len(fitter.rows)
    assert len(found) == min(folds or 1000, len(np.unique(fitter.group)))
    for held in found:
        assert not set(fitter.group[held]) & set(fitter.group[~held])


def test_rows_left_out_are_predicted_but_not_fitted(rows: Measurements, table: StepTable, fitter: Fitter):
    out = np.arange(len(rows)) % 3 == 0
    odd = _measured(rows, (np.where(out, 100.0, 1.0) * rows.ttft_ms, np.where(out, 0.01, 1.0) * rows.tpot_ms))
    everything = np.ones(len(rows), bool)
    without = [Fitter(r, table, "reference", LOSS, PARAMETERS, out).fit(everything, 1.0) for r in (rows, odd)]
    for backend in BACKENDS:
        np.testing.assert_allclose(without[0][backend], without[1][backend], atol=1e-4)
    assert np.isfinite(fitter.predict(without[0])).all()


def test_groups_weigh_less_than_their_rows(rows: Measurements):
    part = rows.backend != "vllm"
    weights = row_weights(rows, part, LOSS, 2.0)
    assert weights.tpot.sum() == pytest.approx(2 * part.sum())
    assert not weights.tpot[~part].any()
    np.testing.assert_allclose(weights.ttft, LOSS.ttft_weight * weights.tpot)
    group = rows.codes(("model_family", "system"))[part]
    total = np.bincount(group, weights.tpot[part])
    size = np.bincount(group)
    large = int(np.argmax(size))
    small = int(np.flatnonzero(size)[np.argmin(size[size > 0])])
    exponent = 1 - LOSS.group_exponent
    assert total[large] / total[small] == pytest.approx((size[large] / size[small]) ** exponent)


def test_large_errors_count_linearly():
    errors = jnp.array([0.001, 10.0, 20.0])
    loss = np.asarray(robust(errors, 0.1)) ** 2 / 2
    assert loss[0] == pytest.approx(0.001**2 / 2, rel=1e-4)
    assert loss[2] / loss[1] == pytest.approx(2, rel=0.02)


def test_validation_chooses_the_weight_of_the_rows(of_planted: Fitter):
    assert choose_information(of_planted, (1e-3, STRONG)) == STRONG
    none = dataclasses.replace(of_planted.rows, split=np.full(len(of_planted.rows), "train"))
    fitter = Fitter.__new__(Fitter)
    fitter.rows, fitter.usable = none, of_planted.usable
    assert choose_information(fitter, (1.0, 2.0, 3.0)) == 2.0


@pytest.mark.parametrize("backend", BACKENDS)
def test_priors_are_where_vectors_of_zeros_are(backend: str):
    constants = constants_at(
        load_constants(backend, "reference").loop, PARAMETERS, BACKENDS.index(backend), jnp.zeros(len(PARAMETERS))
    )
    for parameter in PARAMETERS:
        assert float(getattr(constants, parameter.name)) == pytest.approx(
            parameter.prior[BACKENDS.index(backend)], rel=1e-6
        )


def test_ranges_are_kept():
    share = Parameter("kv_answer_share", (0.5,) * 3, 1.0, "share")
    waves = Parameter("unknown_waves", (10.0,) * 3, 1.0, "above_one")
    assert 0 < float(share.value(0, -9.0)) < float(share.value(0, 9.0)) < 1
    assert float(waves.value(0, -9.0)) > 1


@pytest.mark.parametrize(
    "change", [{"name": "colour"}, {"width": 0.0}, {"prior": (1.0,)}, {"kind": "share"}, {"kind": "odd"}]
)
def test_parameters_out_of_schema_are_refused(change):
    known = Parameter("request_ms", (20.0,) * 3, 1.0)
    with pytest.raises(DataError, match=r"fit\.yaml"):
        dataclasses.replace(known, **change)


def test_file_holds_what_was_fitted(rows: Measurements, table: StepTable, tmp_path):
    found = calibration.calibrate_rows(rows, table, "reference", folds=3)
    path = tmp_path / "own.yaml"
    path.write_text(calibration.constants_yaml(found))
    constants = {backend: load_constants(backend, str(path)) for backend in BACKENDS}
    for backend, vector in found.vectors.items():
        assert constants[backend].formulas == "closed_loop"
        assert constants[backend].disagg.ttft_correction == 1
        for number, parameter in enumerate(PARAMETERS):
            value = float(parameter.value(BACKENDS.index(backend), vector[number]))
            assert getattr(constants[backend].loop, parameter.name) == pytest.approx(value, rel=1e-3)
    prediction = predict_table(table, loop_constants(str(path)))
    np.testing.assert_allclose(prediction.ttft_ms, found.fitter.predict(found.vectors)[0], rtol=5e-3)
    left = fitted(str(path))
    assert left["data"]["rows"] == found.fitter.usable.sum()
    assert np.linalg.eigvalsh(np.array(left["log_covariance"]["vllm"])).min() > -1e-5
    assert set(left["errors"]) == set(calibration.STAGES)
    assert left["errors"]["after"]["tpot"]["mape"] < left["errors"]["before"]["tpot"]["mape"]
    assert left["spread"]["kinds"]


def test_one_group_is_not_enough(rows: Measurements, table: StepTable):
    group = rows.codes(("model_family", "system"))
    one = group == group[0]
    with pytest.raises(InputError, match="folds"):
        calibration.calibrate_rows(rows.take(one), table.take(one), "reference")


@pytest.mark.parametrize(
    "arguments",
    [
        ["--data", "none.csv"],
        ["--rules", "guesses"],
        ["--folds", "1"],
        ["--folds", "many"],
        ["--out", "own.txt"],
        ["--constants", "none"],
        ["--anchor", "own.csv", "--data", "more.csv"],
    ],
)
def test_program_refuses_in_one_line(arguments: list[str], capsys):
    assert app.run(["calibrate", *arguments]) == 2
    assert capsys.readouterr().err.count("\n") == 1
