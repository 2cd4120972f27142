# SPDX-License-Identifier: Apache-2.0
"""The record between a result row and the files of a target: everything that the files say, each thing once."""

from dataclasses import asdict, dataclass
from typing import Any

FORMAT = 1
LABEL_LENGTH = 63  # of an RFC 1123 label


@dataclass(frozen=True)
class Layout:
    """Parallel sizes of one worker.

    Attributes:
        tp, pp, dp: Tensor, pipeline and attention data parallel sizes.
        moe_tp, moe_ep: Tensor and expert parallel sizes of the experts; both 1 for a dense model.
    """

    tp: int
    pp: int
    dp: int
    moe_tp: int
    moe_ep: int

    @property
    def gpus(self) -> int:
        """GPUs of one worker."""
        return self.tp * self.pp * self.dp


@dataclass(frozen=True)
class Limit:
    """A limit of an engine rank as it was simulated and as it is deployed.

    Attributes:
        simulated: What the prediction holds for.
        deployed: What the files say.
        reason: Why the two differ and what that does to the prediction; empty where they agree.
    """

    simulated: int
    deployed: int
    reason: str = ""


@dataclass(frozen=True)
class Use:
    """How much of a worker the prediction uses.

    Attributes:
        memory_gib: Memory in use on a GPU.
        memory_headroom: Share of the GPU's memory that stays free.
        rate_share: Share that they get of the requests that workers of this kind can take; None where they do all.
    """

    memory_gib: float
    memory_headroom: float
    rate_share: float | None


@dataclass(frozen=True)
class Role:
    """One kind of worker.

    Attributes:
        name: `agg`, `prefill` or `decode`.
        workers: Workers of this kind in the whole deployment.
        layout: Parallel sizes of one.
        max_running: Requests that a rank runs at once, in each of its pipeline stages.
        max_step_tokens: Tokens of one step of a rank.
        max_length: Longest sequence [tokens].
        memory_fraction: The engine's memory fraction, as simulated.
        kv_cache_format: Number format of the KV cache.
        graph_sizes: Batches with a CUDA graph; empty for a prefill worker.
        prefix_cache: Whether prompts that begin alike share KV cache.
        chunked_prefill: Whether a prompt may be split, for engines that ask.
        use: How much of one the prediction uses; None where the row does not say.
    """

    name: str
    workers: int
    layout: Layout
    max_running: Limit
    max_step_tokens: Limit
    max_length: int
    memory_fraction: float
    kv_cache_format: str
    graph_sizes: tuple[int, ...]
    prefix_cache: bool
    chunked_prefill: bool
    use: Use | None = None


@dataclass(frozen=True)
class Drafts:
    """Speculation with the layers of the checkpoint that draft.

    Attributes:
        tokens: Draft tokens that a decode step verifies beside its own.
        accepted: Mean number of them that the prediction takes as accepted.
    """

    tokens: int
    accepted: float


@dataclass(frozen=True)
class Workload:
    """The load and the limits that the row was searched for.

    Attributes:
        isl, osl, prefix: Prompt, output and cached prompt tokens of a request.
        ttft_limit_ms: Limit on the time to first token.
        tpot_limit_ms: Limit on the time per output token; None where one on the request replaces it.
        request_latency_limit_ms: Limit on the whole request; None without one.
    """

    isl: int
    osl: int
    prefix: int
    ttft_limit_ms: float
    tpot_limit_ms: float | None
    request_latency_limit_ms: float | None


@dataclass(frozen=True)
class Ranges:
    """Ranges that 8 of 10 measured servers would lie in, low and high.

    Attributes:
        ttft_ms, tpot_ms: Latencies; `tpot_ms` is None for a single output token.
        tokens_per_s: Output of the whole deployment.
        limits_met: Probability that the limits of the workload are met.
    """

    ttft_ms: tuple[float, float]
    tpot_ms: tuple[float, float] | None
    tokens_per_s: tuple[float, float]
    limits_met: float | None


@dataclass(frozen=True)
class Prediction:
    """What the search predicts for the whole deployment.

    Attributes:
        ttft_ms, tpot_ms: Latencies.
        tokens_per_s: Output.
        requests_per_s: Requests.
        concurrency: Requests in flight.
        ranges: How sure that is; None where nothing is known of the errors.
    """

    ttft_ms: float
    tpot_ms: float
    tokens_per_s: float
    requests_per_s: float
    concurrency: int
    ranges: Ranges | None = None


@dataclass(frozen=True)
class Site:
    """What the cluster of the user is called and has; None leaves a fact to the defaults of the target.

    Attributes:
        namespace: Kubernetes namespace; `kubectl` decides without one.
        image: Container image of the workers, tag pinned; that of the engine's release without one.
        secret: Kubernetes secret with the token of the model hub.
        model_cache: Persistent volume claim that holds downloaded models; every pod downloads without one.
    """

    namespace: str | None = None
    image: str | None = None
    secret: str | None = None
    model_cache: str | None = None


@dataclass(frozen=True)
class Deployment:
    """One result row, ready to be rendered for any target.

    Attributes:
        name: Of the deployment, an RFC 1123 label.
        site: The user's cluster.
        model: Hugging Face name or directory.
        system: GPU system.
        engine: `vllm`, `sglang` or `trtllm`.
        engine_version: Release that the files are written for.
        simulated_version: Release whose measurements the prediction rests on.
        runtime_version: Release of Dynamo.
        rules: Rule set, `production` or `benchmark`.
        gpus_per_node: GPUs of a node.
        gpus_per_rack: GPUs that NVLink joins over several nodes; None where nodes are joined by a network only.
        gpu_budget: GPUs that may be used.
        replicas: Copies of the searched row.
        roles: Kinds of workers, prefill before decode.
        workload: What the row was searched for.
        prediction: What it should reach.
        drafts: Speculation; None without.
        unlike_heads: Whether prefill and decode split the heads of the KV cache over unlike numbers of GPUs.
    """

    name: str
    site: Site
    model: str
    system: str
    engine: str
    engine_version: str
    simulated_version: str
    runtime_version: str
    rules: str
    gpus_per_node: int
    gpus_per_rack: int | None
    gpu_budget: int
    replicas: int
    roles: tuple[Role, ...]
    workload: Workload
    prediction: Prediction
    drafts: Drafts | None = None
    unlike_heads: bool = False

    @property
    def gpus(self) -> int:
        """GPUs in use."""
        return sum(role.workers * role.layout.gpus for role in self.roles)

    @property
    def config_map(self) -> str:
        """Name of the Kubernetes object that holds the engines' files."""
        return f"{self.name}-engine"

    @property
    def disaggregated(self) -> bool:
        """Whether prefill and decode have workers of their own."""
        return len(self.roles) > 1


def as_dict(deployment: Deployment) -> dict[str, Any]:
    """The record as JSON values; what is absent is left out."""
    return {"format": FORMAT, **_present(asdict(deployment))}


def _present(values: Any) -> Any:
    if isinstance(values, dict):
        return {name: _present(value) for name, value in values.items() if value is not None}
    return [_present(value) for value in values] if isinstance(values, list | tuple) else values


def from_dict(values: dict[str, Any]) -> Deployment:
    """The record of `as_dict`.

    Raises:
        KeyError, TypeError: It is not one.
    """
    values = {name: value for name, value in values.items() if name != "format"}
    roles = tuple(_role(role) for role in values.pop("roles"))
    absent: dict[str, Any] = {"tpot_limit_ms": None, "request_latency_limit_ms": None}
    workload = Workload(**absent | values.pop("workload"))
    predicted = values.pop("prediction")
    prediction = Prediction(**{**predicted, "ranges": _ranges(predicted.get("ranges"))})
    site = Site(**values.pop("site"))
    values.setdefault("gpus_per_rack", None)
    drafts = Drafts(**values.pop("drafts")) if "drafts" in values else None
    return Deployment(**values, site=site, roles=roles, workload=workload, prediction=prediction, drafts=drafts)


def _role(values: dict[str, Any]) -> Role:
    limits: dict[str, Any] = {name: Limit(**values[name]) for name in ("max_running", "max_step_tokens")}
    parts: dict[str, Any] = {"layout": Layout(**values["layout"]), "graph_sizes": tuple(values["graph_sizes"])}
    if "use" in values:
        parts["use"] = Use(**{"rate_share": None, **values["use"]})
    return Role(**{**values, **limits, **parts})


def _ranges(values: dict[str, Any] | None) -> Ranges | None:
    if values is None:
        return None
    pairs: dict[str, Any] = {name: tuple(pair) for name, pair in values.items() if name != "limits_met"}
    return Ranges(**{"tpot_ms": None, "limits_met": values.get("limits_met"), **pairs})
