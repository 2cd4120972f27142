# SPDX-License-Identifier: Apache-2.0
"""Predictions against measured servers, beside AIConfigurator's on the same rows.

    python -m benchmarks.silicon [FILE ...] [--constants NAME] [--rules RULES] [--anchored] [--peer FILE] [--json]

FILE is a parquet or CSV file of measured servers with the columns of `configs/silicon/README.md`; without one the
shipped rows are scored, train and validation. Clean rows only; TTFT not where requests waited for a place.

- mape, median: mean and median of |predicted / measured - 1| in %; bias: mean of ln(predicted / measured).
- throughput: output tokens per second and GPU by Little's law, concurrency osl / (ttft + tpot (osl - 1)) / GPUs.
- coverage: share of the rows with an answer.
- tau: Kendall tau of that throughput at fixed concurrency. A set is all rows of one family, system, isl, osl and
  concurrency; its members are configurations (backend, precision, recorded formats, mode, GPUs, layouts), repeats
  averaged, at least three. tau of a set is (concordant - discordant) / pairs; sets weigh alike.
- --anchored: the middle concurrency of each curve (rows that share all but the load) is known and not scored. The
  others are scaled by it, TTFT and TPOT apart; constants with a fitted spread take it by empirical Bayes instead.
- interval_coverage: share of measured times between the 10 % and the 90 % quantile of their prediction, where the
  constants have a fitted spread.
"""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from aicjax._results import AicjaxError
from aicjax.calibrate.mapping import BASES
from aicjax.calibrate.measurements import Floats, Measurements, peer_times, read_measurements
from aicjax.cli.device import prepare
from aicjax.compat import DEFAULT_CONSTANTS

if TYPE_CHECKING:
    from aicjax.calibrate.anchor import Corrected
    from aicjax.calibrate.spread import Spread

GROUPS = ("backend", "mode", "system", "model_family", "split")
QUANTITIES = ("ttft", "tpot", "throughput")
PEER = "AIConfigurator 0.12.0"


def main(arguments: Sequence[str] | None = None) -> int:
    """Scores and prints; returns the exit code."""
    parser = argparse.ArgumentParser("benchmarks.silicon", description="Scores predictions against measured servers.")
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE")
    parser.add_argument("--constants", default=DEFAULT_CONSTANTS, help="name under configs/constants/, or a file")
    parser.add_argument("--rules", choices=tuple(BASES), default="checkpoint", help="how rows become configurations")
    parser.add_argument("--anchored", action="store_true", help="scale each curve by one measured point")
    parser.add_argument("--peer", type=Path, help="stored predictions of AIConfigurator, joined by row")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    prepare()
    try:
        result = run(options.files, options.constants, options.rules, options.anchored, options.peer)
    except AicjaxError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    print(json.dumps(result, indent=1) if options.json else report(result))
    return 0


def run(files: Sequence[Path], constants: str, rules: Any, with_anchor: bool, peer: Path | None) -> dict[str, Any]:
    """Predicts and scores the clean rows of the files."""
    from aicjax.calibrate import data_rules
    from aicjax.calibrate.predict import predict
    from aicjax.calibrate.spread import from_plain
    from aicjax.constants import fitted

    stored = fitted(constants).get("spread")
    spread = None if stored is None else from_plain(stored)
    rows = read_measurements(files)
    rows = rows.take(data_rules.clean(rows))
    prediction = predict(rows, constants, rules)
    result = {
        "constants": constants,
        "rules": rules,
        "anchored": with_anchor,
        **_scores(rows, prediction.ttft_ms, prediction.tpot_ms, with_anchor, spread),
        "attempts": {
            str(k): int(v) for k, v in zip(*np.unique(prediction.attempt, return_counts=True), strict=True) if k
        },
        "refusals": prediction.refusals,
        "flagged": dict(data_rules.flagged(rows, prediction)),
    }
    sound = ~data_rules.contradicts_load(rows, prediction) & ~data_rules.repeated(rows)
    times = prediction.ttft_ms[sound], prediction.tpot_ms[sound]
    result["without_flagged"] = _score(rows.take(sound), *times, with_anchor, spread)
    if peer is not None:
        ttft_ms, tpot_ms = peer_times(peer, rows)
        both = np.isfinite(tpot_ms) & np.isfinite(ttft_ms) & prediction.answered
        result["peer"] = _scores(rows, ttft_ms, tpot_ms, with_anchor)
        result["on_rows_of_both"] = {
            "ours": _score(rows.take(both), prediction.ttft_ms[both], prediction.tpot_ms[both], with_anchor, spread),
            "peer": _score(rows.take(both), ttft_ms[both], tpot_ms[both], with_anchor),
        }
    return result


def report(result: Mapping[str, Any]) -> str:
    """The scores as text: all rows, then each group, ours above AIConfigurator's."""
    head = f"{'':34}" + "".join(f"{name + ' mape':>16}{'median':>8}{'bias':>7}" for name in QUANTITIES)
    lines = [f"{head}{'coverage':>10}{'tau':>7}{'ttft in range':>15}{'tpot':>7}"]
    named = {"all": result, "all but flagged": {"rows": result["without_flagged"]["rows"], **result["without_flagged"]}}
    lines += [_line(name, values) for name, values in named.items()]
    if "peer" in result:
        lines.append(_line(PEER, result["peer"]))
        lines += [_line(f"rows of both: {name}", values) for name, values in result["on_rows_of_both"].items()]
    for group in GROUPS:
        lines.append(f"by {group}")
        for value, scores in result["by"][group].items():
            lines.append(_line(f"  {value}", scores))
            if "peer" in result:
                lines.append(_line(f"    {PEER}", result["peer"]["by"][group][value]))
    for title in ("attempts", "refusals", "flagged"):
        lines += [title, *(f"  {count:5d}  {name}" for name, count in result[title].items())]
    return "\n".join(lines)


def _score(
    rows: Measurements, ttft_ms: Floats, tpot_ms: Floats, with_anchor: bool, spread: "Spread | None" = None
) -> dict[str, Any]:
    from aicjax.calibrate import score

    known = _corrected(rows, ttft_ms, tpot_ms, with_anchor, spread)
    scores = score.score(rows, ttft_ms, tpot_ms, with_anchor=with_anchor, corrected=known)
    return {"rows": len(rows), **scores}


def _scores(
    rows: Measurements, ttft_ms: Floats, tpot_ms: Floats, with_anchor: bool, spread: "Spread | None" = None
) -> dict[str, Any]:
    """Scores of all rows and of each group."""
    from aicjax.calibrate import score

    known = _corrected(rows, ttft_ms, tpot_ms, with_anchor, spread)
    options: dict[str, Any] = {"with_anchor": with_anchor, "corrected": known}
    by = {name: score.grouped(rows, ttft_ms, tpot_ms, name, **options) for name in GROUPS}
    return {"rows": len(rows), **score.score(rows, ttft_ms, tpot_ms, **options), "by": by}


def _corrected(
    rows: Measurements, ttft_ms: Floats, tpot_ms: Floats, with_anchor: bool, spread: "Spread | None"
) -> "Corrected | None":
    """Predictions with their errors, given the anchors where they are known; None without a fitted spread."""
    from aicjax.calibrate.anchor import Corpus, corrected

    if spread is None:
        return None
    return corrected(Corpus.of(rows, ttft_ms, tpot_ms), ttft_ms, tpot_ms, spread, with_anchor=with_anchor)


def _line(name: str, scores: Mapping[str, Any]) -> str:
    def number(value: float | None, width: int, form: str) -> str:
        return f"{'-' if value is None else format(value, form):>{width}}"

    cells = "".join(
        number(scores[q]["mape"], 16, ".1f")
        + number(scores[q]["median"], 8, ".1f")
        + number(scores[q]["bias"], 7, "+.2f")
        for q in QUANTITIES
    )
    inside = scores["interval_coverage"] or {}
    ranges = number(inside.get("ttft"), 15, ".3f") + number(inside.get("tpot"), 7, ".3f")
    return f"{name:34}{cells}{number(scores['coverage'], 10, '.3f')}{number(scores['tau'], 7, '.3f')}{ranges}"


if __name__ == "__main__":
    sys.exit(main())
