# SPDX-License-Identifier: Apache-2.0
"""The page of which bundled models run where: every model on every measured system and engine.

    python -m aicjax.report.support_page [--jobs N] docs/support.md

About ten minutes on two cores, nearly all of it compilation: one program for each pair of system and engine.
"""

import argparse
import multiprocessing
import os
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from aicjax.hardware import system_names
from aicjax.models import model_names
from aicjax.tables import available

if TYPE_CHECKING:
    from aicjax.explore.support import Support

BACKENDS = ("trtllm", "sglang", "vllm")
_UNOPTIMISED = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"  # programs that run once
_INTRODUCTION = """\
# Which models run where

Made by `make support` from the measured tables; `aicjax support` says the same of one model, with the reason in full.

| cell | meaning |
|---|---|
| yes | a layout that a default search tries (up to 64 GPUs) fits, and every operator of its steps is measured |
| memory | no such layout fits, not even with one short request |
| format | the GPU has no peak for a number format of the checkpoint |
| layout | the model has no valid layout on the engine |
| others | what kind of operator is not measured in the shape or format of the model, in the smallest layout that fits |

`--database-mode HYBRID` estimates operators that are not measured; `--gemm-quant-mode` and the like choose formats.
"""


def cell(verdict: "Support") -> str:
    """A verdict in a word or few."""
    modes = [mode for mode, reason in verdict.reasons.items() if reason is None]
    if modes:
        return "yes" if len(modes) == len(verdict.reasons) else modes[0]
    if verdict.lacks != "data":
        return verdict.lacks
    return ", ".join(dict.fromkeys(name.rpartition("_")[2] for name in verdict.unmeasured)) or "data"


def page(verdicts: Sequence["Support"]) -> str:
    """The page, a table for each engine.

    Args:
        verdicts: Of every model on every pair of system and engine that has tables.
    """
    return "\n".join([_INTRODUCTION, *(_section(backend, verdicts) for backend in BACKENDS)])


def _section(backend: str, verdicts: Sequence["Support"]) -> str:
    cells = {(verdict.model, verdict.system): verdict for verdict in verdicts if verdict.backend == backend}
    models, systems = dict.fromkeys(model for model, _ in cells), dict.fromkeys(system for _, system in cells)
    heads = [f"{system} {max(cells[model, system].version for model in models)}" for system in systems]
    counts = [str(sum(cell(cells[model, system]) == "yes" for model in models)) for system in systems]
    rows = [
        ["model", *heads],
        ["---"] * (1 + len(heads)),
        *([model, *(cell(cells[model, system]) for system in systems)] for model in models),
        [f"yes, of {len(models)}", *counts],
    ]
    return "\n".join([f"## {backend}", "", *(f"| {' | '.join(row)} |" for row in rows), ""])


def pairs() -> Iterator[tuple[str, str]]:
    """Systems and engines with measured tables."""
    for system in system_names():
        yield from ((system, backend) for backend in BACKENDS if backend in available(system))


def matrix(jobs: int) -> list["Support"]:
    """Verdicts of all bundled models on all pairs, in `jobs` processes."""
    context = multiprocessing.get_context("spawn")
    # A process for each pair: compiled programs are never given back.
    with ProcessPoolExecutor(jobs, context, initializer=_start, max_tasks_per_child=1) as pool:
        return [verdict for part in pool.map(_of_pair, pairs()) for verdict in part]


def _start() -> None:
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {_UNOPTIMISED}".strip()


def _of_pair(pair: tuple[str, str]) -> list["Support"]:
    from aicjax.explore.support import support  # with jax, which must find the flags set

    return support(model_names(), *pair)


def main(arguments: Sequence[str] | None = None) -> int:
    """Writes the page; returns the exit code."""
    parser = argparse.ArgumentParser(prog="support_page", description="Write the page of which models run where.")
    parser.add_argument("page", type=Path, help="file to write")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, metavar="N", help="processes; default: cores")
    options = parser.parse_args(arguments)
    options.page.write_text(page(matrix(options.jobs)), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
