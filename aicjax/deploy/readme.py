# SPDX-License-Identifier: Apache-2.0
"""The page beside the files of a deployment: what it should reach, how it is started, measured and calibrated."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from aicjax.deploy.bench import JOB_FILE
from aicjax.deploy.record import Deployment, Layout, Role
from aicjax.deploy.settings import load_clusters, load_starts
from aicjax.deploy.templates import fill

README_FILE = "README.md"
_OUTPUTS = ("anchored.yaml",)  # files that the commands on the page write
_NAMED = re.compile(r"(?<![\w./*-])[\w.-]+\.(?:sh|sbatch|yaml)\b")
_FILES = {  # by the end of a name, the first that fits
    "deployment.json": "the record that all files come from: limits, prediction, layout",
    "bench.sh": "aiperf, closed loop around the predicted concurrency and open loop by rate",
    "k8s_bench.yaml": "the same script as a Job in the cluster",
    "_engine.yaml": "options of the engine",
    ".sh": "start script of a node",
    ".sbatch": "batch job",
    "llm-d-values.yaml": "values of the chart",
    "kustomization.yaml": "overlay over the guide",
    ".yaml": "what `kubectl` takes",
}


class Figure(NamedTuple):
    """One line of the table of figures, as text."""

    what: str
    predicted: str
    between: str
    limit: str


def readme(deployment: Deployment, target: str, files: Iterable[str]) -> str:
    """The page.

    Args:
        deployment: What is deployed.
        target: What the files are for.
        files: Their names.
    """
    start, names = load_starts()[target], list(files)
    llm_d = load_clusters().llm_d
    words = {
        "name": deployment.name,
        "namespace": f" -n {deployment.site.namespace}" if deployment.site.namespace else "",
        "guide": llm_d.guide_of(deployment.disaggregated),
        "router": llm_d.router_of(deployment.disaggregated),
        "guides_tag": llm_d.guides_tag,
        "chart": llm_d.chart,
        "chart_repository": llm_d.chart_repository,
        "chart_version": llm_d.chart_version,
    }
    limits = [(f"{role.name}, running requests of a rank", role.max_running) for role in deployment.roles]
    limits += [(f"{role.name}, tokens of a step", role.max_step_tokens) for role in deployment.roles]
    return fill(
        "README.md.j2",
        deployment=deployment,
        target=target,
        workload=deployment.workload,
        prediction=deployment.prediction,
        ranges=deployment.prediction.ranges,
        figures=_figures(deployment),
        layouts={role.name: layout_text(role.layout) for role in deployment.roles},
        unlike=[(what, limit) for what, limit in limits if limit.deployed != limit.simulated],
        needs=start["needs"].format(**words),
        commands=[command.format(**words) for command in start["commands"]],
        one_replica=_one_replica(deployment),
        layout_flags=_layout_flags(deployment),
        job=JOB_FILE if JOB_FILE in names else "",
        namespace=words["namespace"],
        mode="disagg" if deployment.disaggregated else "agg",
        contents={name: next(text for end, text in _FILES.items() if name.endswith(end)) for name in names},
    )


def layout_text(layout: Layout) -> str:
    """Parallel sizes above one, such as `tp4` or `tp1 dp8 ep8`."""
    named = {"tp": layout.tp, "pp": layout.pp, "dp": layout.dp, "etp": layout.moe_tp, "ep": layout.moe_ep}
    return " ".join(f"{name}{size}" for name, size in named.items() if size > 1 or name == "tp")


def _figures(deployment: Deployment) -> list[Figure]:
    prediction, workload, ranges = deployment.prediction, deployment.workload, deployment.prediction.ranges

    def between(name: str, unit: str) -> str:
        pair = getattr(ranges, name) if ranges else None
        return f"{pair[0]:g} to {pair[1]:g}{unit}" if pair else ""

    def limit(value: float | None) -> str:
        return f"{value:g} ms" if value is not None else ""

    figures = [
        Figure("TTFT", f"{prediction.ttft_ms:g} ms", between("ttft_ms", " ms"), limit(workload.ttft_limit_ms)),
        Figure("TPOT", f"{prediction.tpot_ms:g} ms", between("tpot_ms", " ms"), limit(workload.tpot_limit_ms)),
        Figure("tokens/s", f"{prediction.tokens_per_s:g}", between("tokens_per_s", ""), ""),
        Figure("requests/s", f"{prediction.requests_per_s:g}", "", ""),
    ]
    if workload.request_latency_limit_ms is not None:
        figures.append(Figure("request latency", "", "", limit(workload.request_latency_limit_ms)))
    return figures


def _one_replica(deployment: Deployment) -> str:
    """How many workers of each kind one replica has; empty for a single replica."""
    if deployment.replicas == 1:
        return ""
    return " and ".join(f"{role.workers // deployment.replicas} {role.name}" for role in deployment.roles)


def _layout_flags(deployment: Deployment) -> str:
    """Flags of `aicjax measure import` that state the layout; empty where it has none for it."""
    if any(role.layout.pp > 1 for role in deployment.roles):
        return ""
    return " ".join(flag for role in deployment.roles for flag in _role_flags(deployment, role))


def _role_flags(deployment: Deployment, role: Role) -> Iterator[str]:
    layout, start = role.layout, f"--{role.name[0]}-" if deployment.disaggregated else "--"
    yield f"{start}tp {layout.tp}"
    yield from (
        f"{start}{name} {size}"
        for name, size in (("dp", layout.dp), ("etp", layout.moe_tp), ("ep", layout.moe_ep))
        if layout.dp * layout.moe_tp * layout.moe_ep > 1
    )
    if deployment.disaggregated:
        yield f"{start}workers {role.workers // deployment.replicas}"


def readme_problems(files: Mapping[str, str]) -> Iterator[str]:
    """A page that names a file that is not there, or leaves one out."""
    text = files.get(README_FILE)
    if text is None:
        yield f"{README_FILE} is missing"
        return
    listed = set(re.findall(r"^- `([^`]+)`:", text, flags=re.MULTILINE))
    written = set(files) - {README_FILE}
    named = {name for name in _NAMED.findall(text) if name not in _OUTPUTS}
    yield from (f"{README_FILE} names {name}, which is not there" for name in sorted((listed | named) - written))
    yield from (f"{README_FILE} does not list {name}" for name in sorted(written - listed))
