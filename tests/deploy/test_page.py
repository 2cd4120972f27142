# SPDX-License-Identifier: Apache-2.0
"""The documentation of deployment files: the files, targets and refusals that it names are those of the program."""

import itertools
import re
from pathlib import Path

import pytest

from aicjax._results import InputError
from aicjax.deploy.build import build
from aicjax.deploy.render import render
from aicjax.deploy.settings import load_clusters, load_engine, load_runtime
from aicjax.deploy.targets import TARGETS
from tests.deploy.rows import INPUTS, result_row

PAGE = (Path(__file__).parents[2] / "docs" / "deploy.md").read_text(encoding="utf-8")
ENGINES = {"vllm": "vLLM", "sglang": "SGLang", "trtllm": "TensorRT-LLM"}
FILE = re.compile(r"`([\w<>.-]+\.(?:sh|sbatch|yaml|json|md))`")


def _table(heading: str) -> list[list[str]]:
    """Cells of the first table under a heading, without its head."""
    section = PAGE.split(f"## {heading}\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def _files(target: str, engine: str, disaggregated: bool) -> set[str] | None:
    """Names of the files of a row, the numbers of nodes as the page writes them; None when it is refused."""
    row = result_row(engine, experts=False, disaggregated=disaggregated)
    try:
        return {re.sub(r"node\d+", "node<N>", name) for name in render(build(row, INPUTS), target)}
    except InputError:
        return None


def _stated(cell: str) -> list[str]:
    return re.findall(r"`([\w-]+)`", cell)


def test_files_of_every_target_are_those_of_the_table():
    engine_files = set(FILE.findall(PAGE.split("TensorRT-LLM reads options from a file:")[1].split(";")[0]))
    rows = _table("Targets")
    everywhere = set(FILE.findall(rows[-1][1]))
    assert [target for row in rows[:-1] for target in _stated(row[0])] == list(TARGETS)
    for row in rows[:-1]:
        (target,) = _stated(row[0])
        written: set[str] = set()
        for engine, disaggregated in itertools.product(ENGINES, (False, True)):
            written |= _files(target, engine, disaggregated) or set()
        assert written - engine_files == everywhere | set(FILE.findall(row[1])), target
    assert engine_files == {"agg_engine.yaml", "prefill_engine.yaml", "decode_engine.yaml"}


@pytest.mark.parametrize("target", TARGETS)
def test_table_of_what_is_supported_is_that_of_the_program(target: str):
    (row,) = [row for row in _table("What is supported") if target in _stated(row[0])]
    for engine, cell in zip(ENGINES, row[1:4], strict=True):
        written = [
            mode for mode, apart in (("agg", False), ("disagg", True)) if _files(target, engine, apart) is not None
        ]
        assert cell == (", ".join(written) or "refused"), engine


def test_versions_are_those_of_the_data():
    versions = {row[0]: row[1] for row in _table("Versions, and what was checked against what")}
    engines = ", ".join(load_engine(engine).version for engine in ENGINES)
    assert versions["Dynamo"] == load_runtime().version
    assert versions["vLLM, SGLang, TensorRT-LLM"].startswith(engines)
    assert versions["llm-d-modelservice"] == load_clusters().llm_d.chart_version
    assert versions["guides of llm-d"] == load_clusters().llm_d.guides_tag
    assert versions["aiperf"] == load_runtime().benchmark_client["version"]


def test_every_file_that_the_page_names_is_written_somewhere():
    named = {name for name in FILE.findall(PAGE) if "/" not in name}
    grid = itertools.product(TARGETS, ENGINES, (False, True))
    written: set[str] = set().union(*(_files(*cell) or set() for cell in grid))
    assert named - written == set()
