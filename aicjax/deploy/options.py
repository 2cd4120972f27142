# SPDX-License-Identifier: Apache-2.0
"""What one worker is told, by canonical names, and then in the words of its engine: arguments, file, environment."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from aicjax.deploy.record import Deployment, Role
from aicjax.deploy.settings import Engine

ANY_HOST = "0.0.0.0"  # a server that other pods and nodes reach
ENGINE_FILE = "{role}_engine.yaml"


@dataclass(frozen=True)
class Ports:
    """Ports of a worker on its host.

    Attributes:
        system: Health and metrics.
        engine: The engine's own processes.
        transfer: Side channel over which a KV cache is handed over.
    """

    system: int
    engine: int
    transfer: int


@dataclass(frozen=True)
class Member:
    """The part of a worker over several nodes that one of them has, where every node starts its own.

    Attributes:
        nodes: Nodes of the worker.
        node: Which of them, from 0.
        head: Address of the first.
        port: Port there at which they meet.
    """

    nodes: int
    node: int
    head: str
    port: int


@dataclass(frozen=True)
class Command:
    """One worker in the words of its engine.

    Attributes:
        module: Python module to run.
        arguments: Its command line.
        engine_file: Content of the engine's file; empty where it has none.
    """

    module: str
    arguments: tuple[str, ...]
    engine_file: dict[str, Any] = field(default_factory=dict)


def command(
    deployment: Deployment, role: Role, engine: Engine, ports: Ports, engine_file: str, member: Member | None = None
) -> Command:
    """How a worker is started.

    Args:
        deployment, role: Which worker.
        engine: Its option names.
        ports: Its ports.
        engine_file: Path of the engine's file where the worker runs.
        member: Which part of a worker over several nodes; None where something else tells it, or for one node.
    """
    values = canonical(deployment, role, engine, member)
    values |= {"port": ports.engine, "engine_file": engine_file}
    if deployment.disaggregated:
        values |= {"transfer_port": ports.transfer}
    arguments = [words for name, option in engine.arguments.items() for words in _argument(option, values.get(name))]
    return Command(engine.module, tuple(arguments), _nested(engine, values))


def variables(deployment: Deployment, engine: Engine) -> dict[str, str]:
    """Variables that every worker of a deployment needs."""
    return dict(engine.unlike_heads) if deployment.unlike_heads else {}


def canonical(deployment: Deployment, role: Role, engine: Engine, member: Member | None = None) -> dict[str, Any]:
    """Settings of a worker by canonical name; a name that is absent has the engine's default."""
    layout = role.layout
    ranks = layout.dp if engine.tensor_covers_attention_dp else 1
    values: dict[str, Any] = {
        **engine.fixed,
        "model": deployment.model,
        "served_name": deployment.model,
        "host": ANY_HOST,
        "tensor_parallel": layout.tp * ranks,
        "pipeline_parallel": layout.pp,
        "attention_dp": layout.dp > 1,
        "expert_parallel": layout.moe_ep > 1,
        "max_step_tokens": _stated(role.max_step_tokens.deployed, engine.token_limit_of, layout.dp),
        "max_prefill_tokens": role.max_step_tokens.deployed,
        "max_length": role.max_length,
        "memory_fraction": role.memory_fraction,
        "kv_cache_format": engine.kv_cache_formats[role.kv_cache_format],
        "kv_block": engine.token_multiple,
        "prefix_cache": role.prefix_cache,
        "no_prefix_cache": not role.prefix_cache,
        "prefix_cache_on": role.prefix_cache,
        "chunked_prefill": role.chunked_prefill,
        "no_overlap": role.name == "prefill",
    }
    if role.name != "prefill" or engine.prefill_states_running_limit:
        running = role.max_running.deployed * engine.stages(layout)
        values["max_running"] = _stated(running, engine.running_limit_of, layout.dp)
    if layout.dp > 1:
        values["data_parallel"] = layout.dp
    if layout.moe_tp * layout.moe_ep > 1:
        values |= {"expert_parallel_size": layout.moe_ep, "expert_tensor_parallel_size": layout.moe_tp}
    if role.graph_sizes:
        tokens = 1 + (deployment.drafts.tokens if deployment.drafts and engine.graphs_count_drafts else 0)
        values |= {"graph_sizes": [size * tokens for size in role.graph_sizes], "graph_padding": True}
    if deployment.drafts:
        values |= _of_drafts(deployment.drafts.tokens, engine)
    if deployment.disaggregated:
        values |= {"role": role.name, "transfer": engine.transfer, "transfer_tokens": role.max_length}
    return values | (_of_member(role, engine, member) if member else {})


def _of_drafts(tokens: int, engine: Engine) -> dict[str, Any]:
    """What the layers of the checkpoint draft: a chain of tokens, which the next step verifies beside its own."""
    values = {"draft_method": engine.draft_method, "drafts": tokens, "draft_branches": 1, "verified": tokens + 1}
    stated = {key: values[name] for key, name in engine.draft_config.items()}
    return {**values, "draft_config": json.dumps(stated, separators=(",", ":"))}


def _of_member(role: Role, engine: Engine, member: Member) -> dict[str, Any]:
    """What joins the parts of a worker: of one rank over all nodes, or of whole ranks shared out over them."""
    rank = engine.rank_gpus(role.layout)
    if rank == role.layout.gpus:
        meeting = {"head_address": member.head, "head_port": member.port, "head": f"{member.head}:{member.port}"}
        return {"nodes": member.nodes, "node": member.node, "follower": member.node > 0, **meeting}
    ranks = role.layout.gpus // member.nodes // rank
    meeting = {"ranks_address": member.head, "ranks_port": member.port}
    return {"ranks_balanced": True, "local_ranks": ranks, "first_rank": ranks * member.node, **meeting}


def member_of(options: Mapping[str, Any], role: Role, engine: Engine) -> Member | None:
    """The part of a worker that options state, None where they state a whole one; what `canonical` makes of a member.

    Raises:
        KeyError, ValueError: Some of the options are missing or no numbers.
    """
    stated = {name: str(options[option]) for name, option in engine.arguments.items() if option in options}
    if "nodes" in stated:
        head, _, port = stated.get("head", "").rpartition(":")
        head, port = head or stated["head_address"], port or stated["head_port"]
        return Member(int(stated["nodes"]), int(stated["node"]), head, int(port))
    if "local_ranks" in stated:
        ranks = int(stated["local_ranks"])
        node, port = int(stated["first_rank"]) // ranks, int(stated["ranks_port"])
        return Member(role.layout.dp // ranks, node, stated["ranks_address"], port)
    return None


def _stated(limit_of_rank: int, stated_of: str, ranks: int) -> int:
    return limit_of_rank * ranks if stated_of == "worker" else limit_of_rank


def _argument(option: str, value: Any) -> list[str]:
    if value is None or value is False:
        return []
    if value is True:
        return [option]
    return [*([option] if option else []), *(str(part) for part in (value if isinstance(value, list) else [value]))]


def _nested(engine: Engine, values: dict[str, Any]) -> dict[str, Any]:
    """The engine's file: dotted keys as nested mappings."""
    content: dict[str, Any] = {}
    for name, key in engine.file.items():
        if name in values:
            *outer, last = key.split(".")
            place = content
            for part in outer:
                place = place.setdefault(part, {})
            place[last] = values[name]
    return content
