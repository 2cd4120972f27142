# SPDX-License-Identifier: Apache-2.0
"""Which models run where: verdicts known from elsewhere, and the page that lists them all."""

import functools
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from aicjax._results import InputError
from aicjax.explore import search
from aicjax.explore.support import MODES, Support, support
from aicjax.models import model_names
from aicjax.report import support_page

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "support.md"
PAIR = ("a100_sxm", "vllm")
STORED = pq.read_table(ROOT / "tests" / "references" / "support.parquet").to_pylist()
LACKS = {  # on an A100: no 8-bit floats, 80 GiB, and 16-bit tables of common shapes
    "Qwen/Qwen3-8B": "",
    "mistralai/Mixtral-8x7B-v0.1": "",
    "Qwen/Qwen3-32B-FP8": "format",
    "meta-llama/Meta-Llama-3.1-405B": "memory",
    "openai/gpt-oss-20b": "data",
}


@functools.cache
def verdicts() -> dict[str, Support]:
    names = dict.fromkeys([*LACKS, *(row["model"] for row in STORED)])
    return {verdict.model: verdict for verdict in support(names, *PAIR)}


@pytest.mark.parametrize("name", LACKS)
def test_a_model_lacks_what_is_known_to_be_lacking(name):
    verdict = verdicts()[name]
    assert verdict.lacks == LACKS[name]
    assert [verdict.reasons[mode] is None for mode in MODES] == [not LACKS[name]] * 2
    times = np.array([verdict.prefill_ms, verdict.decode_ms])
    assert (times > 0).all() if verdict.runs else np.isnan(times).all()


def test_verdicts_are_those_of_the_published_matrix():
    different = [row["model"] for row in STORED if verdicts()[row["model"]].runs != (row["status"] == "PASS")]
    assert different == []


@pytest.mark.parametrize("name", ["Qwen/Qwen3-8B", pytest.param("openai/gpt-oss-20b", marks=pytest.mark.slow)])
def test_a_search_comes_to_the_same_verdict(name):
    system, backend = PAIR
    task = search(
        model_path=name, system=system, backend=backend, total_gpus=2, serving_mode="agg", ttft=1e9, tpot=1e9
    ).tasks["agg"]
    assert (task.error is None) == verdicts()[name].runs
    assert all(name in str(task.error) for name in verdicts()[name].unmeasured)


def test_a_pair_without_tables_lacks_them():
    (verdict,) = support(["Qwen/Qwen3-8B"], "b60", "trtllm")
    assert (verdict.lacks, verdict.runs, verdict.version) == ("tables", False, "")
    with pytest.raises(InputError, match="system"):
        support(["Qwen/Qwen3-8B"], "h900", "trtllm")


def test_a_cell_says_what_is_lacking():
    def cell(agg, disagg, *lacking):
        return support_page.cell(Support("m", "s", "b", "1", {"agg": agg, "disagg": disagg}, *lacking))

    assert [cell(None, None), cell("why", None), cell("why", "why", "memory")] == ["yes", "disagg", "memory"]
    assert cell("why", "why", "data", ("gdn_moe", "full_moe", "qkv_gemm")) == "moe, gemm"


def page_cells(backend: str) -> dict[tuple[str, str], str]:
    """Cells of an engine's table on the page by model and system."""
    section = PAGE.read_text(encoding="utf-8").split(f"\n## {backend}\n")[1].split("\n## ")[0]
    rows = [[word.strip() for word in line.strip("|").split("|")] for line in section.splitlines() if "|" in line]
    systems = [head.split()[0] for head in rows[0][1:]]
    models = {row[0]: row[1:] for row in rows[2:-1]}
    return {
        (model, system): text for model, texts in models.items() for system, text in zip(systems, texts, strict=True)
    }


def test_the_page_has_every_model_on_every_pair():
    for backend in support_page.BACKENDS:
        systems = [system for system, engine in support_page.pairs() if engine == backend]
        assert list(page_cells(backend)) == [(model, system) for model in model_names() for system in systems]


def test_the_page_is_up_to_date():  # where it is quick to tell
    system, backend = PAIR
    cells = page_cells(backend)
    assert {name: cells[name, system] for name in verdicts()} == {
        name: support_page.cell(verdict) for name, verdict in verdicts().items()
    }


@pytest.mark.slow
@pytest.mark.matrix
def test_every_cell_of_the_page_is_evaluated():
    """Binds every layout of every model on every pair and evaluates a prefill and a decode step of each."""
    found = support_page.matrix(jobs=2)
    assert support_page.page(found) == PAGE.read_text(encoding="utf-8")
    for verdict in found:
        times = np.array([verdict.prefill_ms, verdict.decode_ms])
        if verdict.lacks:
            assert np.isnan(times).all()
            assert all(reason and "\n" not in reason for reason in verdict.reasons.values())
        else:
            assert (times > 0).all() and np.isfinite(times).all()
            assert verdict.reasons["agg"] is None and verdict.layout
