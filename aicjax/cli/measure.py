# SPDX-License-Identifier: Apache-2.0
"""`aicjax measure`: result files of load generators to a table of measurements, and predictions beside it."""

import json as json_text
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Context

from aicjax._names import one_of
from aicjax._results import InputError
from aicjax.cli import layout_options as layout
from aicjax.cli import options
from aicjax.cli.flags import flag, takes
from aicjax.compat import DEFAULT_CONSTANTS

app = typer.Typer(help="Measured servers: read benchmark results, compare them with predictions.", no_args_is_help=True)

MODES = ("agg", "disagg")
_SIZES = {"tp_size": "tp", "attention_dp_size": "dp", "moe_tp_size": "moe_tp", "moe_ep_size": "moe_ep"}  # by flag
_NOT_MEASURED = ("pp_size", "batch_size", "free_gpu_memory_fraction", "max_seq_len")  # flags that no column has
_NOT_COLUMNS = ("pp_size", *(f"{role}_{name}" for role in ("prefill", "decode") for name in _NOT_MEASURED))
_LOAD = "What result files may not say"


class _Load:
    """The load, where files do not say it, and how the table is shown."""

    isl: Annotated[str | None, flag("--isl", panel=_LOAD, default="each run's mean", text="Nominal prompt tokens.")]
    osl: Annotated[str | None, flag("--osl", panel=_LOAD, default="each run's mean", text="Nominal output tokens.")]
    concurrency: Annotated[
        str | None, flag("--concurrency", panel=_LOAD, default="the file's", text="Requests in flight.")
    ]
    json: options.Json


@app.command("import")
@takes(layout.Worker, layout.Prefill, layout.Decode, _Load, without=_NOT_COLUMNS)
def import_(
    ctx: Context,
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Result files of load generators.")],
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="Table to write (.csv or .parquet).")],
    system: options.System = None,
    backend: Annotated[str | None, flag("--backend", metavar=options.BACKENDS, text="Engine.")] = None,
    model_path: Annotated[
        str | None,
        flag("--model", "--model-path", metavar="NAME|DIR", default="the file's", text="Model that was served."),
    ] = None,
    mode: Annotated[
        str | None, flag("--estimate-mode", "--mode", default="agg", metavar="agg|disagg", text="Serving mode.")
    ] = None,
) -> None:
    """Read results of aiperf, vllm bench serve, SGLang bench_serving or GuideLLM into a table of measurements.

    The table is what `aicjax calibrate --anchor`, `aicjax calibrate --data` and `aicjax measure compare` take.
    Exit codes: 0 done, 2 bad input.
    """
    from aicjax.hardware import load_system
    from aicjax.measure import Deployment, Lengths, check_out, measured_table, read_runs, write_table
    from aicjax.report import runs as reports

    check_out(out)
    given = options.given(ctx)
    for name, value in (("system", system), ("backend", backend)):
        if value is None:
            raise InputError(name, "", "stated: result files do not name it")
    load_system(system or "")
    backends = options.BACKENDS.split("|")
    if backend not in backends:
        raise InputError("backend", backend, one_of(backend, backends))
    mode = mode or "agg"
    if mode not in MODES:
        raise InputError("mode", mode, one_of(mode, MODES))
    deployment = Deployment(model_path or "", system or "", backend or "", mode, _layout(given, mode))
    lengths = Lengths(**{name: _count(name, given[name]) for name in ("isl", "osl", "concurrency") if name in given})
    found = [run for file in files for run in read_runs(file)]
    table = measured_table(found, deployment, lengths)
    write_table(table, out)
    if "json" in given:
        print(json_text.dumps(table.to_pylist(), indent=2, allow_nan=False))
    else:
        print("\n".join([*reports.lines(table), f"{len(table)} measurements -> {out}"]))


@app.command("compare")
def compare(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Table of measurements (.csv or .parquet).")],
    constants: options.ConstantsName = None,
    json: options.Json = False,
    no_color: options.NoColor = False,
) -> None:
    """Compare predictions with measurements: TTFT, TPOT and throughput, errors in %, and whether ranges held.

    Exit codes: 0 done, 2 bad input.
    """
    from aicjax.calibrate.compare import compare as compared
    from aicjax.calibrate.own_rows import read_own
    from aicjax.report import measured

    found = compared(read_own(file), constants or DEFAULT_CONSTANTS)
    if json:
        print(json_text.dumps(measured.as_dict(found), indent=2, allow_nan=False))
    else:
        measured.print_comparison(found, plain=no_color)


def _layout(given: dict[str, Any], mode: str) -> dict[str, int]:
    """Sizes by column of the table; a role has the shared ones that it does not state itself."""
    shared = {column: _count(name, given[name]) for name, column in _SIZES.items() if name in given}
    own = [name for name in given if name.startswith(("prefill_", "decode_"))]
    if mode == "agg":
        if own:
            raise InputError(own[0], given[own[0]], "left out unless --estimate-mode is disagg")
        return shared
    found: dict[str, int] = {}
    for role in ("prefill", "decode"):
        names = {f"{role}_{name}": f"{role}_{column}" for name, column in _SIZES.items()}
        names[f"{role}_num_workers"] = f"{role}_workers"
        found |= {f"{role}_{column}": size for column, size in shared.items()}
        found |= {column: _count(name, given[name]) for name, column in names.items() if name in given}
    return found


def _count(name: str, text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise InputError(name, text, "a whole number, 1 or more")
    return int(text)
