# SPDX-License-Identifier: Apache-2.0
"""From measured servers to a constants file: fit, cross-validation, and what is kept of both."""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import yaml

from aicjax._results import InputError
from aicjax.calibrate import data_rules, score
from aicjax.calibrate.anchor import Corpus, by_fold
from aicjax.calibrate.cross_validation import choose_information, cross_validate, held_out
from aicjax.calibrate.fit import Fitter, Vectors
from aicjax.calibrate.launch import launch_facts
from aicjax.calibrate.mapping import Rules
from aicjax.calibrate.measurements import Flags, Floats, Measurements, shipped_path
from aicjax.calibrate.own_rows import read_servers
from aicjax.calibrate.parameters import read_fit
from aicjax.calibrate.spread import as_plain
from aicjax.calibrate.step_table import StepTable, step_table
from aicjax.constants import section
from aicjax.explore.request import BACKENDS

STAGES = ("before", "after", "held out", "held out, anchored")
_DIGITS = 4  # significant ones of a fitted constant
_OWN_CORRECTIONS = ("prefill_latency_correction", "decode_latency_correction", "ttft_correction")


class Calibration(NamedTuple):
    """What measured servers say of the closed-loop constants.

    Attributes:
        base: Constants that it started from.
        rules: How rows were mapped to configurations.
        fitter: Rows and what is fitted.
        vectors: Numbers of unit prior by engine.
        information: Weight of the rows against the prior.
        held_out_ms: TTFT and TPOT predicted without the row's group [2, row].
        scores: Scores at each of `STAGES`.
        data_hash: SHA-256 of the data files.
    """

    base: str
    rules: Rules
    fitter: Fitter
    vectors: Vectors
    information: float
    held_out_ms: Floats
    scores: Mapping[str, Mapping[str, Any]]
    data_hash: str


def calibrate(
    paths: Sequence[Path] = (), base: str = "reference", rules: Rules = "checkpoint", folds: int | None = None
) -> Calibration:
    """Fits closed-loop constants to measured servers.

    Args:
        paths: Parquet or CSV files with the columns of `configs/silicon/README.md`; the shipped rows by default.
        base: Constants to start from.
        rules: How rows are mapped to configurations.
        folds: Parts of the cross-validation; one for each group of model and system by default.

    Raises:
        InputError: No such file or constants, fewer than two folds or groups, or no row with an answer.
        DataError: A file breaks its schema.
    """
    rows = read_servers(paths)
    rows = rows.take(data_rules.clean(rows))
    table = step_table(rows, base, rules)
    return calibrate_rows(rows, table, base, rules, folds, data_hash=_hash(paths or [shipped_path()]))


def calibrate_rows(
    rows: Measurements,
    table: StepTable,
    base: str,
    rules: Rules = "checkpoint",
    folds: int | None = None,
    data_hash: str = "",
) -> Calibration:
    """Fits closed-loop constants to rows whose step times are known; see `calibrate`."""
    loss, parameters = read_fit()
    fitter = Fitter(rows, table, base, loss, parameters, left_out(rows))
    groups = len(np.unique(fitter.group[fitter.usable]))
    if groups < 2 or (folds is not None and folds < 2):
        allowed = "2 or more, and two or more groups of one model on one system with an answer"
        raise InputError("folds", groups if folds is None else folds, allowed)
    information = choose_information(fitter, loss.information)
    vectors = fitter.fit(fitter.usable, information)
    held_out_ms = np.stack(cross_validate(fitter, information, vectors, folds))
    corpus = Corpus.of(rows, *held_out_ms)
    fold = np.argmax(held_out(fitter, folds), axis=0)
    unanchored, anchored = by_fold(corpus, held_out_ms[0], held_out_ms[1], fold)
    scores = {
        STAGES[0]: score.score(rows, *fitter.predict(fitter.prior)),
        STAGES[1]: score.score(rows, *fitter.predict(vectors)),
        STAGES[2]: score.score(rows, *held_out_ms, corrected=unanchored),
        STAGES[3]: score.score(rows, *held_out_ms, with_anchor=True, corrected=anchored),
    }
    return Calibration(base, rules, fitter, vectors, information, held_out_ms, scores, data_hash)


def left_out(rows: Measurements) -> Flags:
    """Rows that take part in no fit, though in every score: copies, and rows that contradict their load or launch."""
    wrong = launch_facts(rows).wrong != ""
    return data_rules.repeated(rows) | data_rules.contradicts_batch(rows) | wrong


def constants_yaml(found: Calibration) -> str:
    """The constants file of a calibration."""
    fitter = found.fitter
    entries = section(found.base, "loop")
    rows, groups = int(fitter.usable.sum()), len(np.unique(fitter.group[fitter.usable]))
    source = f"fitted to {rows} measured servers of {groups} groups (aicjax calibrate)"
    loop = {}
    for number, parameter in enumerate(fitter.parameters):
        value = {
            backend: _rounded(float(parameter.value(BACKENDS.index(backend), vector[number])))
            for backend, vector in found.vectors.items()
        }
        known = entries[parameter.name]["value"]
        kept = {name: known[name] if isinstance(known, dict) else known for name in BACKENDS if name not in value}
        loop[parameter.name] = {**entries[parameter.name], "value": {**value, **kept}, "source": source}
    corrections = section(found.base, "disagg")
    disagg = {
        name: {**corrections[name], "value": 1, "source": "none: part of section loop"} for name in _OWN_CORRECTIONS
    }
    content = {"base": found.base, "formulas": "closed_loop", "disagg": disagg, "loop": loop, "fit": _metadata(found)}
    head = "# Constants of closed loops, fitted to measured servers by `aicjax calibrate`.\n"
    return head + yaml.safe_dump(content, sort_keys=False, default_flow_style=None, width=120, allow_unicode=True)


def _metadata(found: Calibration) -> dict[str, Any]:
    """What is kept of a fit beside its constants."""
    fitter, parameters = found.fitter, found.fitter.parameters
    covariance = fitter.covariance(found.vectors, found.information)
    widths = np.array([parameter.width for parameter in parameters])
    return {
        "data": {
            "sha256": found.data_hash,
            "rows": int(fitter.usable.sum()),
            "groups": len(np.unique(fitter.group[fitter.usable])),
            "rules": found.rules,
        },
        "loss": {**fitter.loss._asdict(), "information": found.information},
        "parameters": [parameter.name for parameter in parameters],
        "log_covariance": {
            backend: np.round(matrix * np.outer(widths, widths), 6).tolist() for backend, matrix in covariance.items()
        },
        "errors": {
            stage: {name: _errors(scores[name]) for name in ("ttft", "tpot", "throughput")}
            for stage, scores in found.scores.items()
        },
        "errors_of_groups": _group_errors(found),
        "interval_coverage": {stage: found.scores[stage]["interval_coverage"] for stage in STAGES[2:]},
        "spread": as_plain(
            Corpus.of(fitter.rows, *found.held_out_ms).spread(fitter.constants_part(found.vectors, found.information))
        ),
    }


def _group_errors(found: Calibration) -> dict[str, Any]:
    """Errors of each group when it is held out."""
    rows, group = found.fitter.rows, found.fitter.group
    errors = {}
    for number in np.unique(group[np.isfinite(found.held_out_ms).all(axis=0)]):
        chosen = group == number
        scores = score.score(rows.take(chosen), *found.held_out_ms[:, chosen])
        first = int(np.flatnonzero(chosen)[0])
        name = f"{rows.model_family[first]} on {rows.system[first]}"
        errors[name] = {"rows": int(chosen.sum()), **{name: _errors(scores[name]) for name in ("ttft", "tpot")}}
    return errors


def _errors(scores: Mapping[str, Any]) -> dict[str, float | None]:
    digits = {"mape": 2, "median": 2, "bias": 3}
    return {name: None if scores[name] is None else round(scores[name], places) for name, places in digits.items()}


def _rounded(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")


def _hash(paths: Sequence[Path]) -> str:
    content = hashlib.sha256()
    for path in paths:
        content.update(path.read_bytes())
    return content.hexdigest()
