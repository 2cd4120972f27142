# SPDX-License-Identifier: Apache-2.0
"""The workers of a search: model, number formats and layouts of each role, bound to the tables once."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

from numpy.typing import ArrayLike

from aicjax._results import AicjaxError, InputError
from aicjax.constants import Constants, load_constants
from aicjax.explore.request import EstimateRequest, SearchRequest, check_accepted
from aicjax.explore.result import Refusal
from aicjax.explore.space import Role
from aicjax.forward.encoder import EncoderTimes, encoder_times
from aicjax.forward.memory import WorkerMemory, bind_memory
from aicjax.hardware import System, load_system
from aicjax.models import (
    ModelConfig,
    Parallel,
    Quantisation,
    load_model,
    op_lists,
    request_images,
    resolve_quantisation,
    with_encoder,
    without_encoder,
)
from aicjax.ops.records import OpLists
from aicjax.serving.backends import BackendRules, load_backend
from aicjax.serving.load import Load
from aicjax.tables import resolve_version


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
        rules: Switches of the engine.
        constants: Empirical numbers of the engine.
        load: The requests.
        database_mode: How operators without measurements are answered.
        attention_backend: Attention kernel to prefer.
        hosts_encoder: Whether the vision encoder runs on these workers.
        encoder_dp: Whether their ranks then share out the images, rather than slices of the encoder.
    """

    role: Role
    model: ModelConfig
    system: System
    backend: str
    version: str
    quantisation: Quantisation
    rules: BackendRules
    constants: Constants
    load: Load
    database_mode: str
    attention_backend: str | None
    hosts_encoder: bool = False
    encoder_dp: bool = True


@dataclass(frozen=True)
class Worker:
    """A role in all its layouts.

    Attributes:
        deployment: Where and how it runs.
        layouts: Layouts that can be priced.
        op_lists: Operators of each layout.
        memory: Memory of each layout.
        refused: Layouts that cannot.
    """

    deployment: Deployment
    layouts: tuple[Parallel, ...]
    op_lists: tuple[OpLists, ...]
    memory: WorkerMemory
    refused: tuple[Refusal, ...]

    def encoder(self, batches: ArrayLike) -> EncoderTimes | None:
        """The vision encoder of each layout over batches; None where it does not run on these workers."""
        at, images = self.deployment, self.deployment.load.images
        if not at.hosts_encoder or images is None:
            return None
        where = at.system, at.backend, at.version
        return encoder_times(*where, self.op_lists, images, batches, mode=at.database_mode, constants=at.constants)


def resolve_load(request: SearchRequest | EstimateRequest, model: ModelConfig) -> Load:
    """The requests of a search, with the draft depth of the checkpoint where `nextn` is `auto`."""
    nextn = model.draft_layers if request.nextn == "auto" else int(request.nextn)
    check_accepted(nextn, request.nextn_accepted)
    images = None
    if request.has_images:
        sides = request.image_height, request.image_width
        images = request_images(model, request.num_images_per_request, *sides)
    isl = request.isl + (0 if images is None else images.prompt_tokens)
    return Load(isl, request.osl, request.cached_tokens, nextn, request.nextn_accepted or 0.0, images)


def deploy(request: SearchRequest | EstimateRequest, role: Role, backend: str) -> Deployment:
    """A role of a request on one engine.

    Raises:
        InputError: An unknown model, system, version or format.
    """
    model = load_model(request.model_path, compat=request.switches)
    system = load_system(request.of_role(role, "system"))
    version = resolve_version(system.name, backend, request.of_role(role, "backend_version"))
    constants = load_constants(backend, request.constants)
    if isinstance(request, SearchRequest):
        disagg = dataclasses.replace(constants.disagg, **request.corrections)
        constants = dataclasses.replace(constants, disagg=disagg)
    quantisation = resolve_quantisation(
        model,
        system,
        backend,
        version,
        request.quant_modes(role),
        role_runs_prefill=role != "decode",
        searched=isinstance(request, SearchRequest),
    )
    return Deployment(
        role=role,
        model=model,
        system=system,
        backend=backend,
        version=version,
        quantisation=quantisation,
        rules=load_backend(backend),
        constants=constants,
        load=resolve_load(request, model),
        database_mode=request.database_mode,
        attention_backend=request.attention_backend,
        hosts_encoder=request.has_images and role != "decode" and not request.enable_epd,
        encoder_dp=request.enable_encoder_dp,
    )


def worker(deployment: Deployment, layouts: Sequence[Parallel], refused: Sequence[Refusal] = ()) -> Worker:
    """A role with the layouts that its model can be cut into.

    Raises:
        InputError: None of the layouts is valid, or there is none; the first refusal is the reason.
    """
    kept: list[Parallel] = []
    lists: list[OpLists] = []
    refusals = list(refused)
    for layout in layouts:
        try:
            lists.append(_operators(deployment, layout))
        except InputError as error:
            refusals.append(Refusal.of(layout, deployment.role, error))
        else:
            kept.append(layout)
    if not kept:
        raise _nothing_to_try(deployment, refusals)
    memory = bind_memory(
        deployment.system,
        deployment.backend,
        deployment.version,
        deployment.model,
        kept,
        lists,
        deployment.quantisation,
        deployment.constants.memory,
        deployment.load.nextn,
    )
    return Worker(deployment, tuple(kept), tuple(lists), memory, tuple(refusals))


def _operators(deployment: Deployment, layout: Parallel) -> OpLists:
    """Operators of one layout, with the vision encoder where the workers host it."""
    model = deployment.model
    lists = op_lists(model, layout, deployment.quantisation, deployment.backend, deployment.load.nextn)
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
