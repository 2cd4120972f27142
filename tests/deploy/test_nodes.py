# SPDX-License-Identifier: Apache-2.0
"""Workers over several nodes: where they are placed, how their parts meet, and what no target can start."""

import itertools
from typing import Any

import pytest
import yaml

from aicjax._results import InputError
from aicjax.deploy.build import build
from aicjax.deploy.checks import problems
from aicjax.deploy.placement import place
from aicjax.deploy.record import Deployment, Site
from aicjax.deploy.render import render
from aicjax.deploy.settings import load_engine, load_runtime
from tests.deploy.rows import INPUTS, result_row, wide_row

ENGINES = ("vllm", "sglang", "trtllm")
GRAPHS = ("dynamo", "dynamo-v1alpha1")
SITE = Site(namespace="serving", image="registry:5000/team/engine:2.1", secret="hub-token", model_cache="models")
GRID = [
    case
    for case in itertools.product(("bare-metal", *GRAPHS), ENGINES, (False, True), (False, True), (1, 2, 4))
    if not (case[0] == "bare-metal" and case[1] == "trtllm" and case[4] > 1)
]


def _deployment(engine: str, gpus: int, rules: str = "production", site: Site = SITE, **row: Any) -> Deployment:
    kinds = 2 if row.get("disaggregated") else 1
    inputs = {**INPUTS, "total_gpus": gpus * kinds}
    return build(wide_row(engine, gpus, **row), inputs, rules=rules, site=site)


@pytest.mark.parametrize(("target", "engine", "experts", "disaggregated", "nodes"), GRID)
def test_workers_over_nodes_pass_every_check_and_are_the_same_twice(
    target: str, engine: str, experts: bool, disaggregated: bool, nodes: int
):
    rules = "benchmark" if nodes == 2 else "production"
    deployment = _deployment(engine, 8 * nodes, rules, experts=experts, disaggregated=disaggregated)
    files = render(deployment, target)
    assert problems(files) == []
    assert files == render(deployment, target)
    scripts = [name for name in files if name.startswith("run_node")]
    assert len(scripts) == (nodes * len(deployment.roles) if target == "bare-metal" else 0)


def test_nodes_are_those_of_hosts_and_a_rack_is_one_nvlink_domain():
    deployment = _deployment("sglang", 16, system="gb200")
    assert (deployment.gpus_per_node, deployment.gpus_per_rack) == (4, 72)
    domain, graph = yaml.safe_load_all(render(deployment, "dynamo")["deploy.yaml"])
    worker = graph["spec"]["components"][1]
    pod = worker["podTemplate"]["spec"]
    assert domain["spec"]["numNodes"] == worker["multinode"]["nodeCount"] == 4
    assert pod["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": "4"}
    template = domain["spec"]["channel"]["resourceClaimTemplate"]["name"]
    assert pod["resourceClaims"] == [{"name": "nvlink", "resourceClaimTemplateName": template}]
    assert pod["containers"][0]["resources"]["claims"] == [{"name": "nvlink"}]
    assert len(place(deployment, load_engine("sglang"), load_runtime())) == 4


@pytest.mark.parametrize("target", GRAPHS)
@pytest.mark.parametrize("wrong", [("resourceClaimTemplateName", "other"), ("kind: ComputeDomain", "kind: ConfigMap")])
def test_nodes_of_a_rack_that_nothing_joins_are_found(target: str, wrong: tuple[str, str]):
    files = render(_deployment("sglang", 16, system="gb200"), target)
    files["deploy.yaml"] = files["deploy.yaml"].replace(*wrong)
    assert problems(files)


@pytest.mark.parametrize("target", GRAPHS)
def test_nodes_without_a_rack_have_no_domain(target: str):
    assert "ComputeDomain" not in render(_deployment("sglang", 16), target)["deploy.yaml"]


def test_wide_workers_have_nodes_of_their_own_and_small_ones_share():
    row = {**wide_row("sglang", 16, disaggregated=True), "(p)tp": 4, "(p)workers": 3, "num_total_gpus": 28}
    deployment = build(row, {**INPUTS, "total_gpus": 28})
    placed = place(deployment, load_engine("sglang"), load_runtime())
    assert [(part.role.name, part.node, part.gpus[0]) for part in placed] == [
        ("decode", 0, 0),
        ("decode", 1, 0),
        ("prefill", 2, 0),
        ("prefill", 2, 4),
        ("prefill", 3, 0),
    ]
    assert [part.member and (part.member.node, part.member.head) for part in placed[:3]] == [
        (0, "${ADDRESS[0]}"),
        (1, "${ADDRESS[0]}"),
        None,
    ]


@pytest.mark.parametrize(
    ("engine", "row", "gpus", "problem"),
    [
        ("vllm", {}, 12, "a multiple of it"),
        ("vllm", {"experts": True}, 10, "a multiple of it"),
        ("sglang", {}, 20, "a multiple of it"),
    ],
)
@pytest.mark.parametrize("target", ["bare-metal", "slurm", *GRAPHS])
def test_worker_that_does_not_fill_its_nodes_is_refused(target: str, engine: str, row: dict, gpus: int, problem: str):
    with pytest.raises(InputError, match=problem):
        render(_deployment(engine, gpus, **row), target)


def test_data_parallel_ranks_wider_than_a_node_are_refused():
    row = {**wide_row("vllm", 32), "tp": 16, "dp": 2}
    with pytest.raises(InputError, match="32 in ranks of 16"):
        render(build(row, {**INPUTS, "total_gpus": 32}), "dynamo")


def test_engine_that_needs_mpi_is_refused_on_bare_metal():
    with pytest.raises(InputError, match="slurm or dynamo"):
        render(_deployment("trtllm", 16), "bare-metal")


def test_pipeline_over_nodes_states_both_sizes():
    files = render(_deployment("vllm", 16, pp=2), "bare-metal")
    assert "--tensor-parallel-size 8 \\\n    --pipeline-parallel-size 2" in files["run_node1.sh"]
    assert problems(files) == []


@pytest.mark.parametrize(
    ("engine", "told"),
    [("vllm", "--max-num-seqs 42"), ("sglang", "--max-running-requests 42"), ("trtllm", "max_batch_size: 21")],
)
def test_requests_of_all_pipeline_stages_may_run(engine: str, told: str):
    deployment = _deployment(engine, 8, pp=2)
    files = render(deployment, "bare-metal")
    assert any(told in text for text in files.values())
    assert problems(files) == []


def test_step_takes_as_many_tokens_as_requests_of_all_stages():
    row = {**wide_row("vllm", 8, pp=4), "bs": 512, "num_tokens": 600}
    limit = build(row, INPUTS).roles[0].max_step_tokens
    assert (limit.simulated, limit.deployed) == (600, 2048)
    assert "all stages" in limit.reason


def _unlike(model: str) -> Deployment:
    row = {**result_row("sglang", experts=False, disaggregated=True), "(p)tp": 2, "num_total_gpus": 10, "model": model}
    return build(row, {**INPUTS, "total_gpus": 10})


@pytest.mark.parametrize("target", ["bare-metal", "slurm", *GRAPHS])
def test_heads_over_unlike_numbers_of_gpus_go_through_a_buffer(target: str):
    files = render(_unlike("Qwen/Qwen3-32B"), target)
    assert problems(files) == []
    file = next(name for name, text in files.items() if "SGLANG_DISAGG_STAGING_BUFFER" in text)
    changed = files[file].replace("SGLANG_DISAGG_STAGING_BUFFER", "OTHER", 1)
    assert "SGLANG_DISAGG_STAGING_BUFFER is not set, not 1" in "; ".join(problems({**files, file: changed}))


def test_latent_vectors_have_no_heads_to_place():
    assert not _unlike("deepseek-ai/DeepSeek-R1").unlike_heads
    assert not any("STAGING" in text for text in render(_unlike("deepseek-ai/DeepSeek-R1"), "dynamo").values())


def _pods(text: str) -> list[dict[str, Any]]:
    """Specs of the pods of both versions of a graph, containers in their place."""
    graph = list(yaml.safe_load_all(text))[-1]["spec"]
    if "components" in graph:
        return [component["podTemplate"]["spec"] for component in graph["components"]]
    pods = [service["extraPodSpec"] for service in graph["services"].values()]
    return [{**pod, "containers": [pod["mainContainer"]]} for pod in pods]


@pytest.mark.parametrize("target", GRAPHS)
def test_graph_says_what_the_cluster_has(target: str):
    text = render(_deployment("trtllm", 8, disaggregated=True), target)["deploy.yaml"]
    for pod in _pods(text):
        (container,) = pod["containers"]
        assert container["image"] == "registry:5000/team/engine:2.1"
        assert {"name": "HF_HOME", "value": "/model-cache"} in container["env"]
        assert {"name": "model-cache", "mountPath": "/model-cache"} in container["volumeMounts"]
        assert {"name": "model-cache", "persistentVolumeClaim": {"claimName": "models"}} in pod["volumes"]
        assert container["readinessProbe"]["httpGet"]["path"] == "/health"
    assert text.count('namespace: "serving"') == 2
    assert text.count('"hub-token"') == 3
    assert text.count("startupProbe") == 2


@pytest.mark.parametrize("target", GRAPHS)
def test_both_versions_start_the_same_workers(target: str):
    deployment = _deployment("vllm", 16, disaggregated=True)
    alike = [_pods(render(deployment, version)["deploy.yaml"]) for version in ("dynamo", target)]
    first, second = ([(pod["containers"][0].get("args"), pod["volumes"]) for pod in pods] for pods in alike)
    assert first == second


def test_old_version_states_gpus_as_text_and_roles_as_kinds():
    text = render(_deployment("vllm", 16, disaggregated=True), "dynamo-v1alpha1")["deploy.yaml"]
    services = yaml.safe_load(text)["spec"]["services"]
    assert list(services) == ["Frontend", "prefill", "decode"]
    assert services["decode"]["resources"]["limits"]["gpu"] == "8"
    assert services["decode"]["multinode"] == {"nodeCount": 2}
    assert [services[name].get("subComponentType") for name in services] == [None, "prefill", "decode"]
    assert services["decode"]["envFromSecret"] == "hub-token"


@pytest.mark.parametrize("gpus", [8, 16])
def test_names_leave_room_for_those_of_pods(gpus: int):
    row = wide_row("trtllm", gpus, disaggregated=True)
    inputs = {**INPUTS, "total_gpus": gpus * 2}
    longest = 45 - (len("frontend") if gpus == 8 else len("prefillprefill-ldr"))
    assert problems(render(build(row, inputs, name="a" * longest), "dynamo")) == []
    found = problems(render(build(row, inputs, name="a" * (longest + 1)), "dynamo"))
    assert any(f"longer than {longest} characters" in problem for problem in found)


@pytest.mark.parametrize(
    ("target", "engine", "file", "right", "wrong", "problem"),
    [
        ("dynamo", "vllm", "deploy.yaml", "nodeCount: 2", "nodeCount: 3", "24 GPUs, not 16"),
        ("dynamo-v1alpha1", "vllm", "deploy.yaml", 'gpu: "8"', 'gpu: "16"', "32 GPUs, not 16"),
        ("dynamo-v1alpha1", "vllm", "deploy.yaml", '"--max-num-seqs"', '"--other"', "unknown option --other"),
        ("bare-metal", "vllm", "run_node1.sh", "--node-rank 1", "--node-rank 0", "not on 2 nodes"),
        ("bare-metal", "vllm", "run_node1.sh", "--headless", "", "--headless is False"),
        ("bare-metal", "sglang", "run_node1.sh", "[0]}:29500", "[1]}:29500", "not on 2 nodes"),
        ("bare-metal", "sglang", "run_node1.sh", "--nnodes 2", "--nnodes two", "cannot be read back"),
        ("dynamo", "vllm", "deploy.yaml", 'type: "decode"', 'type: "worker"', "its kind is worker"),
        (
            "dynamo-v1alpha1",
            "vllm",
            "deploy.yaml",
            'ComponentType: "decode"',
            'ComponentType: "prefill"',
            "its kind is",
        ),
        ("dynamo", "vllm", "deploy.yaml", "port: 9090", "port: 9091", "its startupProbe does not ask"),
        ("dynamo-v1alpha1", "vllm", "deploy.yaml", "port: 8000", "port: 8001", "its livenessProbe does not ask"),
        ("dynamo", "vllm", "k8s_bench.yaml", "/bench/bench.sh", "/bench/other.sh", "another script than bench.sh"),
        ("dynamo", "vllm", "k8s_bench.yaml", "-frontend:8000", "-front:8000", "not the address of the frontend"),
        ("dynamo", "vllm", "k8s_bench.yaml", "aiperf:0.12.0", "aiperf:main", "no pinned tag"),
        ("dynamo", "vllm", "k8s_bench.yaml", "ROUNDS:-10", "ROUNDS:-5", "another script than bench.sh"),
        ("dynamo", "vllm", "bench.sh", "CONCURRENCIES:-16 ", "CONCURRENCIES:-8 ", "another script than bench.sh"),
    ],
)
def test_mistake_in_files_of_several_nodes_is_found(
    target: str, engine: str, file: str, right: str, wrong: str, problem: str
):
    files = render(_deployment(engine, 16, site=Site(), disaggregated="ecode" in right), target)
    assert right in files[file]
    files[file] = files[file].replace(right, wrong)
    assert problem in "; ".join(problems(files))


def test_missing_script_of_a_part_is_found():
    files = render(_deployment("sglang", 16), "bare-metal")
    del files["run_node1.sh"]
    assert "its 2 parts are not on 2 nodes" in "; ".join(problems(files))
