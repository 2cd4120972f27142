# SPDX-License-Identifier: Apache-2.0
"""Folders with deployments: files of an earlier one, a failed check, files that cannot be read, edits by hand."""

import itertools
import os
import re
from pathlib import Path
from typing import Any

import pytest

from aicjax._results import InputError
from aicjax.deploy.build import build
from aicjax.deploy.checks import FailedCheck, problems
from aicjax.deploy.record import Site
from aicjax.deploy.render import render
from aicjax.deploy.targets import TARGETS
from aicjax.deploy.write import check_directory, write, write_all
from tests.deploy.rows import INPUTS, result_row


def _files(target: str, engine: str = "vllm", *, disaggregated: bool = True, **site: str) -> dict[str, str]:
    row = result_row(engine, experts=False, disaggregated=disaggregated)
    return render(build(row, INPUTS, site=Site(**site)), target)


def _contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_failed_check_leaves_an_earlier_deployment_alone(tmp_path: Path):
    write(_files("dynamo"), tmp_path / "a")
    before = _contents(tmp_path / "a")
    bad = {**_files("dynamo", "sglang"), "bench.sh": "None\n"}
    with pytest.raises(FailedCheck):
        write_all({tmp_path / "b": _files("slurm"), tmp_path / "a": bad})
    assert _contents(tmp_path / "a") == before
    assert not (tmp_path / "b").exists()


def test_files_of_an_earlier_deployment_are_set_aside_and_those_of_the_user_kept(tmp_path: Path):
    write(_files("bare-metal", "trtllm"), tmp_path)
    (tmp_path / "notes.txt").write_text("mine", encoding="utf-8")
    script = (tmp_path / "run_node1.sh").read_text(encoding="utf-8")
    write(_files("dynamo"), tmp_path)
    assert list(check_directory(tmp_path).values()) == [[]]
    assert (tmp_path / "run_node1.sh.old").read_text(encoding="utf-8") == script
    assert (tmp_path / "notes.txt").read_text(encoding="utf-8") == "mine"
    assert {path.name for path in tmp_path.iterdir() if path.suffix != ".old"} == {"notes.txt", *_files("dynamo")}


@pytest.mark.parametrize("where", ["file", "file/below", "a\0b"])
def test_folder_that_cannot_be_written_is_named(where: str, tmp_path: Path):
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(InputError, match="save_dir"):
        write(_files("dynamo"), tmp_path / where)


@pytest.mark.parametrize("name", sorted(_files("dynamo")))
@pytest.mark.parametrize("content", [b"\xff\xfe", b"", b"\0", b"null", b"[]", b"- a", b"[" * 50_000])
def test_broken_file_is_a_problem_of_the_folder(name: str, content: bytes, tmp_path: Path):
    write(_files("dynamo"), tmp_path)
    (tmp_path / name).write_bytes(content)
    (found,) = check_directory(tmp_path).values()
    assert found
    assert all("\n" not in problem for problem in found)


def test_aliases_that_stand_for_too_much_are_not_followed(tmp_path: Path):
    write(_files("dynamo"), tmp_path)
    lines = [
        "a: &a [x, x]",
        *(f"{new}: &{new} [*{old}, *{old}, *{old}]" for old, new in itertools.pairwise("abcdefghijklm")),
    ]
    (tmp_path / "more.yaml").write_text("\n".join(lines), encoding="utf-8")
    (found,) = check_directory(tmp_path).values()
    assert found[0] == "more.yaml: *a is an alias: write it out"


def test_links_and_folders_among_the_files_are_passed_over(tmp_path: Path):
    write(_files("dynamo"), tmp_path)
    os.symlink(tmp_path / "nothing", tmp_path / "broken.yaml")
    os.symlink(tmp_path, tmp_path / "loop")
    (tmp_path / "folder.yaml").mkdir()
    assert check_directory(tmp_path)[str(tmp_path)] == []


@pytest.mark.parametrize("target", [name for name in TARGETS if name != "bare-metal"])
@pytest.mark.parametrize(
    "image",
    ["vllm", "vllm:latest", "vllm:main", "host:5000/vllm", "a b:1", "$(x):1", "Team/vllm:1.0", "vllm@sha256:ab", ""],
)
def test_image_that_is_not_pinned_or_none_is_refused(target: str, image: str):
    """Every target; the plain servers of kubernetes are those of the engine's own image."""
    engine = "vllm" if target.startswith("llm-d") else "sglang"
    assert any("pinned" in problem for problem in problems(_files(target, engine, image=image)))


@pytest.mark.parametrize("target", [name for name in TARGETS if name != "bare-metal"])
def test_image_with_a_digest_is_taken(target: str):
    engine = "vllm" if target.startswith("llm-d") else "sglang"
    assert problems(_files(target, engine, image="team.io:5000/vllm@sha256:" + "a" * 64)) == []


SECRET = "env: [{name: A, valueFrom: {secretKeyRef: {name: s, key: k}}}]"
POD_FIELDS = [
    "nodeSelector: {gpu: h200}",
    "tolerations: [{key: gpu, operator: Exists, effect: NoSchedule}]",
    "priorityClassName: high",
    "imagePullSecrets: [{name: registry}]",
]


@pytest.mark.parametrize("field", POD_FIELDS)
@pytest.mark.parametrize(
    ("target", "file", "before"),
    [
        ("dynamo", "deploy.yaml", "        containers:\n"),
        ("dynamo-v1alpha1", "deploy.yaml", "        mainContainer:\n"),
        ("kubernetes", "kubernetes.yaml", "      containers:\n"),
        ("llm-d-helm", "llm-d-values.yaml", "  containers:\n"),
        ("llm-d-kustomize", "patch-decode.yaml", "      containers:\n"),
    ],
)
def test_what_users_add_to_pods_passes(target: str, file: str, before: str, field: str):
    files = _files(target, disaggregated=target != "kubernetes")
    assert before in files[file]
    added = " " * (len(before) - len(before.lstrip())) + field + "\n"
    assert problems({**files, file: files[file].replace(before, added + before)}) == []


@pytest.mark.parametrize(
    ("right", "wrong", "problem"),
    [
        ("replicas: 3", "replicas: 4", "1 worker prefill too many: 4 in the files, 3 in"),
        ('- "--max-model-len"', '- "--enforce-eager"\n          - "--max-model-len"', "--enforce-eager is not"),
        ("failureThreshold: 720", "failureThreshold: 7", "startupProbe does not ask /live on port 9090, or gives"),
        ("failureThreshold: 720", "failureThreshold: 1440", ""),
        ("          envFrom:", f"          {SECRET}\n          envFrom:", ""),
    ],
)  # fmt: skip
def test_edit_by_hand_is_named_in_words_of_the_record(right: str, wrong: str, problem: str):
    files = _files("dynamo")
    assert right in files["deploy.yaml"]
    found = problems({**files, "deploy.yaml": files["deploy.yaml"].replace(right, wrong)})
    assert problem in "; ".join(found) if problem else found == []


@pytest.mark.parametrize(
    ("place", "value", "problem"),
    [
        ('"runtime_version": "1.3.0"', '"runtime_version": "1.0.0"', "written for Dynamo 1.0.0"),
        ('"rules": "production"', '"rules": "other"', "deployment.json: Argument `rules`"),
        ('"system": "h200_sxm"', '"system": "h9"', "deployment.json: Argument `system`"),
        ('"target": "dynamo"', '"target": "other"', "deployment.json: Argument `target`"),
        ('"concurrency": 62', '"concurrency": 620', "bench.sh: CONCURRENCIES is 16 31 59 62 65, not 155"),
        ('"isl": 4000', '"isl": 3000', "bench.sh: ISL is 4000, not 3000"),
        ('"replicas": 1', '"replicas": 2', "workers that are not those of 2 replicas"),
    ],
)
def test_edited_record_is_found(place: str, value: str, problem: str):
    files = _files("dynamo")
    assert place in files["deployment.json"]
    found = problems({**files, "deployment.json": files["deployment.json"].replace(place, value)})
    assert problem in "; ".join(found)


def test_deployment_larger_than_any_cluster_is_refused():
    inputs: dict[str, Any] = {**INPUTS, "total_gpus": 10**12}
    with pytest.raises(InputError, match="total_gpus"):
        build(result_row("vllm", experts=False, disaggregated=False), inputs)


@pytest.mark.parametrize("target", [name for name in TARGETS if name != "bare-metal"])
@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        (r"namespace: \"?team\"?", "namespace: other"),
        (r"(llm-d-)?hf-token(-secret)?", "other-token"),
        (r"my-cache", "other-cache"),
        (r"(/(?:\w+-runtime|sglang|llm-d-[\w-]+sidecar)):v?[\d.]+", r"\1:9.9.9"),
        (r'(value: "http://[\w.-]+)[^"]*"', r'\1-other"'),
        (r"nats-server --jetstream --port \d+", "nats-server --jetstream --port 1"),
    ],
)
def test_one_file_for_another_cluster_or_release_is_found(target: str, right: str, wrong: str):
    """Every place where a file names its namespace, secret, claim, image or service is tried by itself."""
    engine = "vllm" if target.startswith("llm-d") else "sglang"
    files = _files(target, engine, namespace="team", model_cache="my-cache")
    assert problems(files) == []
    for name, text in files.items():
        for place in re.finditer(right, text) if name.endswith((".yaml", ".sbatch")) else ():
            changed = text[: place.start()] + place.expand(wrong) + text[place.end() :]
            assert problems({**files, name: changed}), (name, place[0])
