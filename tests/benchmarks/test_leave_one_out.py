# SPDX-License-Identifier: Apache-2.0
"""The bench of interpolation rules: its lines, its limits, and the published precision that it is held to."""

import json

import numpy as np
import pytest

from aicjax.calibrate.leave_one_out import OWN_RULE, REFERENCE_RULE, Errors
from aicjax.calibrate.measured_curves import Place
from aicjax.hardware import load_system
from benchmarks.leave_one_out import main, scores

GEMM_INTERIOR, GEMM_SITE = 4.87, 3.63  # median errors [%] that AIConfigurator 0.12.0 states for its rules


def test_scores_of_hand_made_errors():
    place = Place(load_system("h200_sxm"), "vllm", "1")
    parts = [
        Errors("gemm", "interior", OWN_RULE, place, "fp8", np.log(np.array([1.1, 0.9], np.float32))),
        Errors("gemm", "interior", OWN_RULE, place, "nvfp4", np.log(np.array([1.3], np.float32))),
    ]
    (line,) = scores(parts)
    assert line["points"] == 3
    assert line["median"] == pytest.approx(10, rel=1e-5)
    assert line["bias"] == pytest.approx(np.log(1.1), rel=1e-5)
    assert line["by_system"]["h200_sxm"]["median"] == line["median"]


def test_products_of_a_system_are_within_the_published_precision(capsys):
    assert main(["--system", "h200_sxm", "--family", "gemm", "--json"]) == 0
    lines = {(line["kind"], line["rule"]): line for line in json.loads(capsys.readouterr().out)}
    assert lines["interior", OWN_RULE]["median"] < GEMM_INTERIOR
    assert lines["site", OWN_RULE]["median"] < GEMM_SITE < lines["site", REFERENCE_RULE]["median"]
    assert lines["last", OWN_RULE]["median"] < lines["last", REFERENCE_RULE]["median"]


def test_report_names_every_rule_and_transfer(capsys):
    assert main(["--system", "a100_sxm", "--family", "comm", "mla_bmm", "--rules", "--transfers"]) == 0
    text = capsys.readouterr().out
    for word in ("comm", "mla_bmm", "interior", "log_utilization", "pchip", "empirical", "sol", "a100_sxm"):
        assert word in text


@pytest.mark.parametrize("arguments", [["--system", "h900"], ["--family", "gems"]])
def test_unknown_names_are_refused_in_one_line(arguments, capsys):
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert arguments[1] in error
    assert error.count("\n") == 1
