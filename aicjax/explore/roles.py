# SPDX-License-Identifier: Apache-2.0
"""The workers of a search: model, number formats and layouts of each role, bound to the tables once."""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from numpy.typing import ArrayLike

from aicjax._results import AicjaxError, InputError, MissingData
from aicjax._units import GB, MS_PER_S
from aicjax.constants import Constants, DisaggConstants, load_constants
from aicjax.explore.request import EstimateRequest, SearchRequest, check_accepted
from aicjax.explore.result import Refusal
from aicjax.explore.space import Role
from aicjax.forward.encoder import EncoderTimes, encoder_times
from aicjax.forward.kv_curve import KvCurve
from aicjax.forward.memory import WorkerMemory, bind_memory
from aicjax.hardware import System, load_system
from aicjax.models import (
    Coverage,
    LargeEp,
    ModelConfig,
    Parallel,
    Quantisation,
    choose_large_ep,
    kv_cache,
    large_ep_formats,
    load_model,
    measured_exchanges,
    op_lists,
    request_images,
    resolve_quantisation,
    with_encoder,
    without_encoder,
)
from aicjax.ops.database import INTERPOLATING
from aicjax.ops.records import OpLists
from aicjax.serving.backends import BackendRules, load_backend
from aicjax.serving.load import Load
from aicjax.serving.replica import replica_constants, worker_cost
from aicjax.serving.worker_cost import WorkerCost
from aicjax.tables import resolve_version

Spread = Literal["measured", "nodes", "never"]


@dataclass(frozen=True)
class Deployment:
    """Where and how a model runs, before its layouts are chosen.

    Attributes:
        role: `agg`, `prefill` or `decode`.
        model: The model.
        system: GPU system.
        backend: Engine.
        version: Version of the measured tables.
        quantisation: Number formats.
        bound_formats: Formats in which operators are bound: those of a worker that runs prefills too, so that all roles
            share one evaluation. They differ where a worker that runs none keeps a prefill format that it never uses.
        stated: Formats that the request states, by role.
        coverage: Where an exchange between experts over many GPUs is measured.
        rules: Switches of the engine.
        constants: Empirical numbers of the engine.
        load: The requests.
        database_mode: How operators without measurements are answered.
        transfer_policy: What an estimate may borrow from.
        attention_backend: Attention kernel to prefer.
        mega_moe: Whether dispatch, experts and combine run in one kernel.
        balanced: Whether a load balancer moves experts that span many GPUs.
        slots: Places for such experts over all GPUs; 0 for as many as there are.
        hosts_encoder: Whether the vision encoder runs on these workers.
        encoder_dp: Whether their ranks then share out the images, rather than slices of the encoder.
        expert_spread: Where exchanges of experts over many GPUs are taken: wherever they are measured, for experts that
            span nodes alone, or never.
    """

    role: Role
    model: ModelConfig
    system: System
    backend: str
    version: str
    quantisation: Quantisation
    bound_formats: Quantisation
    stated: Mapping[str, str]
    coverage: Coverage
    rules: BackendRules
    constants: Constants
    load: Load
    database_mode: str
    transfer_policy: str | None
    attention_backend: str | None
    mega_moe: bool = False
    balanced: bool = False
    slots: int = 0
    hosts_encoder: bool = False
    encoder_dp: bool = True
    expert_spread: Spread = "measured"

    @property
    def disagg(self) -> DisaggConstants:
        """Constants of replicas, by the formulas in force."""
        return replica_constants(self.constants)

    def cost(self, role: Literal["prefill", "decode"]) -> WorkerCost:
        """What a worker of a replica costs beyond its kernels."""
        return worker_cost(self.constants, role, self.model.layers)

    @property
    def phases(self) -> tuple[str, ...]:
        """Phases whose operators say what a worker costs: the weights of a decode worker are those of its prefill."""
        return ("context",) if self.role == "prefill" else ("context", "generation")

    def exchange(self, layout: Parallel) -> LargeEp | None:
        """How a layout exchanges tokens between experts over many GPUs; None where it uses ordinary collectives.

        Raises:
            InputError: Experts that span nodes are cut by tensor parallelism.
            MissingData: Experts span nodes and no exchange is measured there.
        """
        if self.mega_moe or self.expert_spread == "never":
            return None
        within_node = self.expert_spread == "measured"
        plan = choose_large_ep(self.model, layout, self.coverage, phases=self.phases, within_node=within_node)
        return plan and dataclasses.replace(plan, slots=self.slots, balanced=self.balanced)

    def formats(self, exchange: LargeEp | None, *, bound: bool = False) -> Quantisation:
        """Number formats of a layout, or those in which its operators are bound."""
        formats = self.bound_formats if bound else self.quantisation
        return formats if exchange is None else large_ep_formats(formats, self.model, self.backend, self.stated)


@dataclass(frozen=True)
class Worker:
    """A role in all its layouts.

    Attributes:
        deployment: Where and how it runs.
        layouts: Layouts that can be priced.
        exchanges: How each exchanges tokens between experts over many GPUs; None for ordinary collectives.
        op_lists: Operators of each layout.
        memory: Memory of each layout.
        refused: Layouts that cannot.
    """

    deployment: Deployment
    layouts: tuple[Parallel, ...]
    exchanges: tuple[LargeEp | None, ...]
    op_lists: tuple[OpLists, ...]
    memory: WorkerMemory
    refused: tuple[Refusal, ...]

    @property
    def formats(self) -> tuple[Quantisation, ...]:
        """Number formats of each layout."""
        return tuple(self.deployment.formats(exchange) for exchange in self.exchanges)

    @property
    def libraries(self) -> dict[str, dict[str, str]]:
        """Libraries by phase of the layouts that exchange tokens between experts over many GPUs, by their labels."""
        return {
            layout.label: {phase: exchange.library(phase) for phase in self.deployment.phases}
            for layout, exchange in zip(self.layouts, self.exchanges, strict=True)
            if exchange is not None
        }

    def encoder(self, batches: ArrayLike) -> EncoderTimes | None:
        """The vision encoder of each layout over batches; None where it does not run on these workers."""
        at, images = self.deployment, self.deployment.load.images
        if not at.hosts_encoder or images is None:
            return None
        where = at.system, at.backend, at.version
        options = {"mode": at.database_mode, "transfer_policy": at.transfer_policy, "constants": at.constants}
        options["compat"] = at.model.compat
        return encoder_times(*where, self.op_lists, images, batches, **options)


def resolve_load(request: SearchRequest | EstimateRequest, model: ModelConfig) -> Load:
    """The requests of a search, with the draft depth of the checkpoint where `nextn` is `auto`.

    Of a prompt that is cached whole, engines compute the last token again.
    """
    nextn = model.draft_layers if request.nextn == "auto" else int(request.nextn)
    check_accepted(nextn, request.nextn_accepted)
    images = None
    if request.has_images:
        sides = request.image_height, request.image_width
        images = request_images(model, request.num_images_per_request, *sides)
    isl = request.isl + (0 if images is None else images.prompt_tokens)
    return Load(
        isl=isl,
        osl=request.osl,
        prefix=min(request.prefix, isl - 1),
        nextn=nextn,
        accepted=request.nextn_accepted or 0.0,
        images=images,
        waves=request.load_waves,
        least_share=request.least_share,
    )


def deploy(request: SearchRequest | EstimateRequest, role: Role, backend: str) -> Deployment:
    """A role of a request on one engine.

    Raises:
        InputError: An unknown model, system, version or format.
    """
    model = load_model(request.model_path, request.family, request.switches)
    system = load_system(request.of_role(role, "system"))
    version = resolve_version(system.name, backend, request.of_role(role, "backend_version"))
    stated, searched = request.quant_modes(role), isinstance(request, SearchRequest)
    shared = request.database_mode in INTERPOLATING
    options = {"searched": searched, "shared": shared, "mega_moe": request.mega_moe}
    resolve = functools.partial(resolve_quantisation, model, system, backend, version, stated, **options)
    quantisation = resolve(role_runs_prefill=role != "decode")
    load = resolve_load(request, model)
    return Deployment(
        role=role,
        model=model,
        system=system,
        backend=backend,
        version=version,
        quantisation=quantisation,
        bound_formats=resolve() if role == "decode" and "fmha" not in stated else quantisation,
        stated=stated,
        coverage=measured_exchanges(model, system, backend, version, quantisation.moe, shared=shared),
        rules=load_backend(backend),
        constants=_constants(request, backend, system, model, quantisation, load),
        load=load,
        database_mode=request.database_mode,
        transfer_policy=request.transfer_policy,
        attention_backend=request.attention_backend,
        mega_moe=request.mega_moe,
        balanced=request.of_role(role, "enable_eplb"),
        slots=request.wideep_num_slots or 0,
        hosts_encoder=request.has_images and role != "decode" and not request.enable_epd,
        encoder_dp=request.enable_encoder_dp,
        expert_spread=_expert_spread(request),
    )


def _constants(
    request: SearchRequest | EstimateRequest,
    backend: str,
    system: System,
    model: ModelConfig,
    quantisation: Quantisation,
    load: Load,
) -> Constants:
    """Empirical numbers of the engine, with what the request states of disaggregated serving."""
    constants = load_constants(backend, request.constants_name, model=request.model_path, system=system.name)
    if request.load != "steady" and constants.formulas != "closed_loop":
        known = f"steady with constants {request.constants_name}, whose formulas know no other load"
        raise InputError("load", request.load, known)
    stated = request.corrections if isinstance(request, SearchRequest) else {}
    if request.kv_transfer_gb_per_s is not None:
        moved = prompt_kv_bytes(model, quantisation, backend, load)
        stated = stated | {"handover_ms": moved / (request.kv_transfer_gb_per_s * GB) * MS_PER_S}
    disagg = dataclasses.replace(constants.disagg, **stated)
    if constants.formulas == "closed_loop" and disagg.prefill_degradation >= 1:
        share = disagg.prefill_degradation
        raise InputError("rate_match_prefill_degradation", share, "below 1: prompts wait for a busy worker")
    return dataclasses.replace(constants, disagg=disagg)


def prompt_kv_bytes(model: ModelConfig, quantisation: Quantisation, backend: str, load: Load) -> float:
    """KV cache of one prompt, of all ranks together."""
    cache = kv_cache(model, Parallel(), quantisation, backend, load.nextn)
    return float(KvCurve.stack([cache], model.context_length).bytes(load.isl)[0, 0])


def _expert_spread(request: SearchRequest | EstimateRequest) -> Spread:
    if isinstance(request, SearchRequest) or not request.switches.estimates_apart_from_searches:
        return "measured"
    return "never" if request.mode == "agg" else "nodes"


def worker(deployment: Deployment, layouts: Sequence[Parallel], refused: Sequence[Refusal] = ()) -> Worker:
    """A role with the layouts that its model can be cut into.

    Raises:
        InputError: None of the layouts is valid, or there is none; the first refusal is the reason.
        MissingData: None is valid, and for one no exchange between nodes is measured.
    """
    kept: list[tuple[Parallel, LargeEp | None, OpLists]] = []
    refusals, unmeasured = list(refused), None
    for layout in layouts:
        try:
            exchange = deployment.exchange(layout)
            kept.append((layout, exchange, _operators(deployment, layout, exchange)))
        except (InputError, MissingData) as error:
            refusals.append(Refusal.of(layout.label, deployment.role, error))
            unmeasured = unmeasured or (error if isinstance(error, MissingData) else None)
    if not kept:
        raise unmeasured or _nothing_to_try(deployment, refusals)
    layouts, exchanges, lists = zip(*kept, strict=True)
    memory = bind_memory(
        deployment.system,
        deployment.backend,
        deployment.version,
        deployment.model,
        layouts,
        lists,
        [deployment.formats(exchange) for exchange in exchanges],
        deployment.constants.memory,
        deployment.load.nextn,
    )
    return Worker(deployment, layouts, exchanges, lists, memory, tuple(refusals))


def _operators(deployment: Deployment, layout: Parallel, exchange: LargeEp | None) -> OpLists:
    """Operators of one layout, with the vision encoder where the workers host it."""
    model, formats = deployment.model, deployment.formats(exchange, bound=True)
    nextn, mega_moe = deployment.load.nextn, deployment.mega_moe
    lists = op_lists(model, layout, formats, deployment.backend, nextn, exchange, mega_moe)
    if not deployment.hosts_encoder:
        return without_encoder(lists)
    return with_encoder(lists, model, layout.tp, data_parallel=deployment.encoder_dp)


def _nothing_to_try(deployment: Deployment, refusals: Sequence[Refusal]) -> AicjaxError:
    where = f"{deployment.model.name} on {deployment.backend}"
    if not refusals:
        return InputError(
            f"{deployment.role} candidates",
            "none",
            f"lists of which some combination has an allowed number of GPUs within the budget ({where})",
        )
    first, others = refusals[0], f" ({len(refusals) - 1} more refused)" if len(refusals) > 1 else ""
    return InputError("layout", first.layout, f"valid for {where}: {first.reason}{others}")
