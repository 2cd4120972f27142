# SPDX-License-Identifier: Apache-2.0
"""`aicjax calibrate`: constants from measured servers."""

import json as json_text
from pathlib import Path
from typing import Annotated, Any

from aicjax._names import one_of
from aicjax._results import InputError
from aicjax.cli import options
from aicjax.cli.flags import flag
from aicjax.compat import DEFAULT_CONSTANTS

RULES = ("labels", "checkpoint", "measurements")
FIT_BASE = "reference"


def command(
    data: Annotated[
        list[Path] | None,
        flag("--data", metavar="FILE", default="the shipped rows", text="Measured servers to fit; may be repeated."),
    ] = None,
    anchor: Annotated[
        Path | None,
        flag("--anchor", metavar="FILE", text="CSV or parquet file of your own measurements, one is enough; no fit."),
    ] = None,
    rules: Annotated[
        str | None,
        flag("--rules", metavar="|".join(RULES), default="checkpoint", text="How rows become configurations."),
    ] = None,
    folds: Annotated[
        str | None,
        flag("--folds", default="one for each model and system", text="Parts of the cross-validation of a fit."),
    ] = None,
    out: Annotated[
        Path | None, flag("--out", metavar="FILE", default="none written", text="Constants file to write (.yaml).")
    ] = None,
    constants: options.ConstantsName = None,
    json: options.Json = False,
) -> None:
    """Learn from measured servers: all constants of the closed loop, or with --anchor levels of your own servers.

    Exit codes: 0 done, 2 bad input, 4 no measured data.
    """
    if out is not None and out.suffix not in (".yaml", ".yml"):
        raise InputError("out", str(out), "a path that ends in .yaml")
    if anchor is None:
        text = _fit(data or [], constants or FIT_BASE, rules or "checkpoint", _folds(folds), json=json)
    else:
        for name, value in (("data", data), ("rules", rules), ("folds", folds)):
            if value:
                raise InputError(name, value, "left out beside --anchor")
        text = _levels(anchor, constants or DEFAULT_CONSTANTS, json=json)
    if out is not None:
        out.write_text(text, encoding="utf-8")


def _folds(text: str | None) -> int | None:
    if text is None:
        return None
    if not text.isdecimal() or int(text) < 2:
        raise InputError("folds", text, "a whole number, 2 or more")
    return int(text)


def _fit(data: list[Path], base: str, rules: Any, folds: int | None, *, json: bool) -> str:
    """Fits and prints; returns the constants file."""
    if rules not in RULES:
        raise InputError("rules", rules, one_of(rules, RULES))
    from aicjax.calibrate.calibration import calibrate, constants_yaml
    from aicjax.report import calibration

    found = calibrate(data, base, rules, folds)
    if json:
        print(json_text.dumps(calibration.as_dict(found), indent=2, allow_nan=False))
    else:
        print("\n".join(calibration.lines(found)))
    return constants_yaml(found)


def _levels(anchor: Path, base: str, *, json: bool) -> str:
    """Learns levels of a user's own servers and prints them; returns the constants file."""
    from aicjax.calibrate.own_rows import read_own
    from aicjax.calibrate.personal import as_yaml, personal_levels, spread_in_force
    from aicjax.calibrate.predict import predict
    from aicjax.report import personal

    spread = spread_in_force(base)
    rows = read_own(anchor)
    prediction = predict(rows, base)
    if not prediction.answered.any():
        raise InputError("anchor", str(anchor), f"at least one server with a prediction ({prediction.reason[0]})")
    found = personal_levels(rows, prediction.ttft_ms, prediction.tpot_ms, spread)
    if json:
        print(json_text.dumps(personal.as_dict(found), indent=2, allow_nan=False))
    else:
        print("\n".join(personal.lines(found)))
    return as_yaml(found, base)
