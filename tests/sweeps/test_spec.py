# SPDX-License-Identifier: Apache-2.0
"""Sweeps as their users state them: files, fields, and what is refused."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from aicjax._results import InputError
from aicjax.report.sweep_json import spec_dict
from aicjax.sweeps.spec import LONGEST_AXIS, Drafts, Limits, SweepSpec, load_spec, parse_changes

ROOT = Path(__file__).parents[2]
LEAST: dict[str, Any] = {"models": "Qwen/Qwen3-8B", "systems": "h200_sxm"}

REFUSED = [
    ({"modle": "x"}, "`modle`", "the nearest is `models`"),
    ({"models": []}, "`models`", "not empty"),
    ({"models": None}, "`models`", "string"),
    ({"backends": "tgi"}, "`backends`", "'trtllm', 'sglang' or 'vllm'"),
    ({"batch": 0}, "`batch`", "at least 1"),
    ({"batch": [1.5]}, "`batch`", "a whole number"),
    ({"batch": [4, 4]}, "`batch`", "different values"),
    ({"batch": {"first": 10, "last": 5}}, "`last`", "1 to"),
    ({"batch": {"last": 10**9}}, "`last`", f"{LONGEST_AXIS}"),
    ({"batch": {"step": 4}}, "`last`", "given"),
    ({"limits": [{"ttft": -1}]}, "`ttft`", "above 0"),
    ({"limits": [{"ttft": float("inf")}]}, "`ttft`", "finite"),
    ({"limits": [{"tttf": 1}]}, "`tttf`", "the nearest is `ttft`"),
    ({"limits": [{}, {}]}, "`limits`", "different values"),
    ({"objectives": "speed"}, "`objectives`", "'tokens/s/gpu'"),
    ({"objectives": "ttft"}, "`objectives`", "a throughput first"),
    ({"objectives": "tokens/$"}, "`gpu_hour_price`", "a price for h200_sxm"),
    ({"gpu_hour_price": {"h200_sxm": 0}}, "`gpu_hour_price`", "above 0"),
    ({"prefix": 9999}, "`prefix`", "at most the longest prompt"),
    ({"group_by": "modl"}, "`group_by`", "'model'"),
    ({"memory_fraction": 2}, "`memory_fraction`", "at most 1"),
    ({"drafts": {"nextn": -1}}, "`nextn`", "at least 0"),
    ({"formats": [{"gem": "fp8"}]}, "`formats`", "'gemm'"),
    ({"parallel": {"ep": [1]}}, "`parallel`", "'moe_ep'"),
    ({"top_k": 0}, "`top_k`", "at least 1"),
]


@pytest.mark.parametrize(("fields", "argument", "allowed"), REFUSED, ids=[str(fields) for fields, *_ in REFUSED])
def test_bad_field_is_refused_by_name_in_one_line(fields: dict, argument: str, allowed: str):
    with pytest.raises(InputError) as refusal:
        SweepSpec(**(LEAST | fields))
    text = str(refusal.value)
    assert argument in text
    assert allowed in text
    assert "\n" not in text


@pytest.mark.parametrize(
    ("text", "allowed"),
    [
        ("[1, 2]", "a YAML mapping"),
        ("models: [", "a YAML file"),
        ("1: 2", "keys are all names"),
        ("models: a\nsystems: b\nbatch: {on: 3}", "keys are all names"),
        ("limits: [{1: 2}]", "keys are all names"),
    ],
)
def test_bad_file_is_refused_in_one_line(text: str, allowed: str, tmp_path: Path):
    path = tmp_path / "sweep.yaml"
    path.write_text(text)
    with pytest.raises(InputError, match=allowed) as refusal:
        load_spec(path)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("content", [None, b"\xff\xfe\x00"])
def test_unreadable_file_is_refused(content: bytes | None, tmp_path: Path):
    path = tmp_path / "sweep.yaml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError, match=r"sweep\.yaml"):
        load_spec(path)


def test_single_values_stand_for_lists_of_one():
    single = {"isl": 1000, "limits": {"ttft": 100}, "group_by": "model", "memory_fraction": 0.5, "batch": 8}
    spec = SweepSpec(**(LEAST | single))
    assert spec.models == ("Qwen/Qwen3-8B",)
    assert (spec.isl, spec.limits, spec.group_by) == ((1000,), (Limits(ttft=100),), ("model",))
    assert (spec.memory_fraction, spec.batch) == ((0.5,), (8,))


@pytest.mark.parametrize(
    ("axis", "counts"),
    [
        ({"last": 4}, (1, 2, 3, 4)),
        ({"last": 10, "step": 3}, (3, 6, 9)),
        ({"first": 2, "last": 10, "step": 4}, (2, 6, 10)),
        ([7, 3], (7, 3)),
    ],
)
def test_axis_is_a_list_or_a_span(axis: Any, counts: tuple[int, ...]):
    assert SweepSpec(**LEAST, batch=axis).batch == counts


def test_workloads_are_crossed_without_prefixes_that_are_too_long():
    lists = {"isl": [100, 1000], "osl": [1, 2], "prefix": [0, 500], "drafts": [{}, {"nextn": 1, "accepted": 0.5}]}
    spec = SweepSpec(**(LEAST | lists))
    assert [workload.label for workload in spec.workloads if workload.drafts == Drafts()] == [
        *("100/1", "100/2", "1000/1", "1000/1 prefix 500", "1000/2", "1000/2 prefix 500"),
    ]
    assert len(spec.workloads) == 12
    assert spec.workloads[-1].label == "1000/2 prefix 500 nextn 1 (0.5)"


def test_changes_win_over_the_file():
    changes = parse_changes(["batch={last: 4}", "isl=[100, 200]", "gpu_hour_price={h200_sxm: 1, h100_sxm: 2}"])
    spec = load_spec(ROOT / "configs" / "sweeps" / "example.yaml", changes)
    assert (spec.batch, spec.isl, spec.gpu_hour_price["h100_sxm"]) == ((1, 2, 3, 4), (100, 200), 2.0)
    assert spec.osl == (500,)


@pytest.mark.parametrize("assignment", ["batch", "=3", "batch=[1", "batch=a: b: c"])
def test_change_that_is_none_is_refused(assignment: str):
    with pytest.raises(InputError, match="`set`"):
        parse_changes([assignment])


def test_page_has_every_field_and_a_file_that_is_valid():
    page = (ROOT / "docs" / "sweeps.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    assert SweepSpec(**yaml.safe_load(block)).top_k == 10
    rows = "\n".join(line.split("|")[1] for line in page.splitlines() if line.startswith("| `"))
    assert [name for name in SweepSpec.model_fields if f"`{name}`" not in rows] == []


def test_spec_comes_back_from_its_json():
    spec = load_spec(ROOT / "configs" / "sweeps" / "example.yaml", {"batch": [1, 2, 4, 8]})
    content = spec_dict(spec)
    assert content["ctx_tokens"] == {"first": 512, "last": 8192, "step": 512}
    assert content["batch"] == [1, 2, 4, 8]
    assert SweepSpec(**content) == spec.model_copy(update={"constants": content["constants"]})
