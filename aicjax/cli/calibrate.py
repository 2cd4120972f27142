# SPDX-License-Identifier: Apache-2.0
"""`aicjax calibrate`: constants from measured servers."""

import json as json_text
from pathlib import Path
from typing import Annotated

from aicjax._results import InputError
from aicjax.cli import options
from aicjax.cli.options import flag
from aicjax.compat import DEFAULT_CONSTANTS


def command(
    anchor: Annotated[
        Path | None,
        flag("--anchor", metavar="FILE", text="CSV or parquet file of your own measurements, one is enough."),
    ] = None,
    out: Annotated[
        Path | None, flag("--out", metavar="FILE", default="none written", text="Constants file to write (.yaml).")
    ] = None,
    constants: options.ConstantsName = None,
    json: options.Json = False,
) -> None:
    """Learn from measured servers: levels of your own, from a few measurements.

    Exit codes: 0 done, 2 bad input, 4 no measured data.
    """
    if anchor is None:
        raise InputError("anchor", None, "a file of measurements")
    if out is not None and out.suffix not in (".yaml", ".yml"):
        raise InputError("out", str(out), "a path that ends in .yaml")

    from aicjax.calibrate.own_rows import read_own
    from aicjax.calibrate.personal import as_yaml, personal_levels, spread_in_force
    from aicjax.calibrate.predict import predict
    from aicjax.report import personal

    base = constants or DEFAULT_CONSTANTS
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
    if out is not None:
        out.write_text(as_yaml(found, base), encoding="utf-8")
