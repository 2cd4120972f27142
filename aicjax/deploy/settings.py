# SPDX-License-Identifier: Apache-2.0
"""The data of the generator, from `configs/deploy/`: option names of the engines, rule sets, runtime and ports."""

import dataclasses
import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from aicjax import _paths
from aicjax._names import one_of
from aicjax._results import DataError, InputError
from aicjax.deploy.record import Layout


@dataclass(frozen=True)
class Server:
    """The engine's own server, for targets without Dynamo: what differs from the worker of Dynamo.

    Attributes:
        image: Container image of the engine's project, tag pinned.
        command: Words before the options.
        arguments: Options that differ or are new, by canonical name; an empty one stands for a positional argument.
        without: Canonical names that the server has no option for.
        health: HTTP path that answers once the model is loaded.
        transfer_port: Port over which the place of a KV cache is told.
        router: Words that start the router between prefill and decode; empty where the image has none.
    """

    image: str
    command: list[str]
    arguments: Mapping[str, str]
    without: list[str]
    health: str
    transfer_port: int
    router: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Engine:
    """How one release of an engine is told what to do; the fields are those of `configs/deploy/engines/*.yaml`.

    Attributes:
        engine, version: Name and release.
        module: Python module of its Dynamo worker.
        image: Container image, tag pinned.
        tensor_covers_attention_dp: Whether the tensor parallel size counts the ranks of data parallel attention.
        running_limit_of, token_limit_of: Whether a limit is stated for a `rank` or for the `worker`.
        running_limit_counts_stages: Whether a limit on requests counts those in all pipeline stages, else those of one.
        token_multiple: What token limits are rounded up to.
        prefill_states_running_limit: Whether a prefill worker states how many requests it runs.
        decode_takes_prompts: Whether a decode worker must take a whole prompt in a step.
        kv_cache_formats: Names of number formats of the KV cache.
        transfer: Value of the option for the transfer of KV caches.
        mixed_experts: Whether experts may be split by tensor and by expert at once.
        environment: Environment variables, by what they are for.
        unlike_heads: Variables where prefill and decode split the heads of the KV cache over unlike numbers of GPUs.
        draft_method: Its name for drafting with the layers of the checkpoint; empty where it is not deployed.
        draft_config: Keys of the option in JSON that states drafts, with canonical names for values.
        token_limit_counts_drafts: Whether draft tokens count in the limit on tokens of a step.
        graphs_count_drafts: Whether a size of a CUDA graph counts draft tokens, else requests only.
        mpi_launcher: Words before the command that start its ranks in an MPI world; empty where none is needed.
        arguments: Command-line options, by canonical name.
        file: Keys of the engine's file, by canonical name; empty where it has none.
        fixed: Values that never change, by canonical name.
        server: The engine without Dynamo.
    """

    engine: str
    version: str
    module: str
    image: str
    tensor_covers_attention_dp: bool
    running_limit_of: str
    token_limit_of: str
    running_limit_counts_stages: bool
    token_multiple: int
    prefill_states_running_limit: bool
    decode_takes_prompts: bool
    kv_cache_formats: Mapping[str, str]
    transfer: str
    mixed_experts: bool
    environment: Mapping[str, str]
    arguments: Mapping[str, str]
    server: Server
    file: Mapping[str, str] = field(default_factory=dict)
    fixed: Mapping[str, str] = field(default_factory=dict)
    unlike_heads: Mapping[str, str] = field(default_factory=dict)
    draft_method: str = ""
    draft_config: Mapping[str, str] = field(default_factory=dict)
    token_limit_counts_drafts: bool = False
    graphs_count_drafts: bool = False
    mpi_launcher: str = ""

    @property
    def asks_for_chunks(self) -> bool:
        """Whether it splits a prompt only when told, and else refuses one that is longer than a step."""
        return "chunked_prefill" in self.arguments or "chunked_prefill" in self.file

    def stages(self, layout: Layout) -> int:
        """Pipeline stages whose requests a limit on them counts together."""
        return layout.pp if self.running_limit_counts_stages else 1

    def rank_gpus(self, layout: Layout) -> int:
        """GPUs that hold one copy of the weights of the attention part: ranks that share no GPU are counted once."""
        return layout.gpus if self.tensor_covers_attention_dp else layout.tp * layout.pp


@dataclass(frozen=True)
class Rules:
    """A rule set; meaning in `configs/deploy/rules.yaml`."""

    length_factor: float
    length_extra: int
    prefix_cache: bool
    chunked_prefill: bool
    graph_doubling_to: int
    graph_step: int


@dataclass(frozen=True)
class Runtime:
    """What surrounds the engines; meaning in `configs/deploy/runtime.yaml`."""

    version: str
    frontend_module: str
    secret: str
    shared_memory: str
    ports: Mapping[str, int]
    model_cache_path: str
    probes: Mapping[str, Mapping[str, Mapping[str, Any]]]
    benchmark_client: Mapping[str, str]
    benchmark: Mapping[str, Any]


@dataclass(frozen=True)
class LlmD:
    """Chart, guides and ports of llm-d; meaning in `configs/deploy/clusters.yaml`."""

    engines: list[str]
    chart: str
    chart_version: str
    chart_repository: str
    chart_proxy: str
    guides: str
    guides_tag: str
    guides_proxy: str
    guide: Mapping[str, str]
    base: str
    container: str
    proxy_container: str
    service_port: int
    target_port: int
    connectors: Mapping[str, str]
    secret: str
    router: str
    model_folder: str
    model_size: str

    def guide_of(self, disaggregated: bool) -> str:
        """The guide that a deployment follows."""
        return self.guide["disagg" if disaggregated else "agg"]

    def router_of(self, disaggregated: bool) -> str:
        """Service of the router of that guide."""
        return self.router.format(guide=self.guide_of(disaggregated))


@dataclass(frozen=True)
class Clusters:
    """Kubernetes without Dynamo; meaning in `configs/deploy/clusters.yaml`."""

    probes: Mapping[str, int]
    longest_set_name: int
    llm_d: LlmD


def templates_dir() -> Path:
    """Where the templates lie."""
    return _paths.configs_dir() / "deploy" / "templates"


@functools.cache
def load_engine(name: str) -> Engine:
    """Option names of an engine.

    Raises:
        InputError: No such engine.
        DataError: The file breaks its schema.
    """
    names = sorted(path.stem for path in (_paths.configs_dir() / "deploy" / "engines").glob("*.yaml"))
    if name not in names:
        raise InputError("backend", name, one_of(name, names))
    file, values = f"engines/{name}.yaml", _read(f"engines/{name}.yaml")
    return _built(Engine, file, {**values, "server": _built(Server, file, values.get("server") or {})})


@functools.cache
def load_server(name: str) -> Engine:
    """Option names of an engine's own server, and its image.

    Raises:
        InputError: No such engine.
        DataError: The file breaks its schema.
    """
    engine = load_engine(name)
    server = engine.server
    arguments = {**engine.arguments, **server.arguments}
    kept = {what: option for what, option in arguments.items() if what not in server.without}
    return dataclasses.replace(engine, module=" ".join(server.command), image=server.image, arguments=kept)


@functools.cache
def load_rules(name: str) -> Rules:
    """A rule set.

    Raises:
        InputError: No such set.
        DataError: The file breaks its schema.
    """
    sets = _read("rules.yaml")
    if name not in sets:
        raise InputError("rules", name, one_of(name, sets))
    return _built(Rules, "rules.yaml", sets[name])


@functools.cache
def load_runtime() -> Runtime:
    """Runtime, ports and load client.

    Raises:
        DataError: The file breaks its schema.
    """
    return _built(Runtime, "runtime.yaml", _read("runtime.yaml"))


@functools.cache
def load_clusters() -> Clusters:
    """Probes, and what llm-d needs.

    Raises:
        DataError: The file breaks its schema.
    """
    values = _read("clusters.yaml")
    return _built(Clusters, "clusters.yaml", {**values, "llm_d": _built(LlmD, "clusters.yaml", values["llm_d"])})


@functools.cache
def load_starts() -> dict[str, dict[str, Any]]:
    """What every target needs, and the commands that start it."""
    return _read("starts.yaml")


def _read(name: str) -> dict[str, Any]:
    return yaml.safe_load((_paths.configs_dir() / "deploy" / name).read_text(encoding="utf-8"))


def _built(kind: Any, name: str, values: dict[str, Any]) -> Any:
    try:
        return kind(**values)
    except TypeError as error:
        raise DataError(f"configs/deploy/{name}: {error}") from None
