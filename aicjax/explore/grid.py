# SPDX-License-Identifier: Apache-2.0
"""Candidate lists and cut-offs of a search, read from `configs/grids/` and checked."""

import functools
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from aicjax import _paths
from aicjax._results import DataError, InputError

DEFAULT = "full"
REFERENCE = "reference"
_EXTENDS = "extends"  # key that names the grid whose lists stand where a file has none


def _listed(counts: Any) -> Any:
    """The counts of a range that is written as its first and last one; anything else as it is."""
    if isinstance(counts, dict) and set(counts) == {"first", "last"}:
        return list(range(int(counts["first"]), int(counts["last"]) + 1))
    return counts


Counts = Annotated[tuple[Annotated[int, Field(ge=1)], ...], Field(min_length=1), BeforeValidator(_listed)]
Times = Annotated[tuple[Annotated[float, Field(gt=0)], ...], Field(min_length=1)]
Count = Annotated[int, Field(ge=1)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ContextTokenRule(_Section):
    """How the prompt tokens of a mixed step are listed for a prompt length.

    Attributes:
        normal_max: End of the fine strides, and least end of the list.
        max_prompts: Prompts that a step may hold at most, when that is more than `normal_max` tokens.
        small_steps: Fine strides up to `normal_max`.
        large_steps: Coarse strides up to the end.
        large_stride_min: Least coarse stride.
        fill: Least stride of further entries between these over the whole range; None for none.
    """

    normal_max: Count
    max_prompts: Count
    small_steps: Count
    large_steps: Count
    large_stride_min: Count
    fill: Count | None = None

    def values(self, isl: int, *, chunked: bool) -> list[int]:
        """The list for prompts of `isl` tokens, ascending; without chunked prefill a stride holds whole prompts."""
        filled = range(0)
        if self.fill is not None:
            step = self.fill if chunked else -(-self.fill // isl) * isl
            filled = range(step, max(self.normal_max, self.max_prompts * isl) + 1, step)
        return sorted({*self._coarse(isl, chunked=chunked), *filled})

    def _coarse(self, isl: int, *, chunked: bool) -> set[int]:
        end = max(self.normal_max, self.max_prompts * isl)
        small = self.normal_max // self.small_steps
        large = max(self.large_stride_min, small, end // self.large_steps)
        if not chunked:
            small, large = max(isl, small), -(-large // isl) * isl
        fine = range(small, min(self.normal_max + small - 1, end) + 1, small)
        coarse = range(fine[-1] + large, end + 1, large) if fine and fine[-1] >= self.normal_max else range(0)
        return {*fine, *coarse, *(isl * prompts for prompts in range(1, self.max_prompts + 1))}


class AggGrid(_Section):
    """Axes and cut-off of an in-flight batching sweep."""

    batch: Counts
    context_tokens: ContextTokenRule
    keep_per_target: Count


class DisaggGrid(_Section):
    """Axes and cut-offs of a disaggregated sweep.

    Attributes:
        decode_batch: Batches of a decode worker; `all` for every one.
        prefill_max_batch: Largest batch of a prefill worker where a request states none.
        decode_stride: Decode steps that one evaluation stands for.
        keep_prefill, keep_decode_per_layout, keep_per_target: Cut-offs; see the file.
        replica_gpus: GPU counts of a replica.
        large_ep_max_replica_gpus: Largest replica with wide expert parallelism, which may have any size.
    """

    decode_batch: Counts | Literal["all"]
    prefill_max_batch: Count
    decode_stride: Count
    keep_prefill: Count
    keep_decode_per_layout: Count
    keep_per_target: Count
    replica_gpus: Counts
    large_ep_max_replica_gpus: Count

    def decode_batches(self, max_batch: int) -> list[int]:
        """Batches of a decode worker up to `max_batch`; one beyond the list joins it."""
        if self.decode_batch == "all":
            return list(range(1, max_batch + 1))
        beyond = [max_batch] if max_batch > max(self.decode_batch) else []
        return [batch for batch in self.decode_batch if batch <= max_batch] + beyond

    def replica_sizes(self, total_gpus: int, *, large_ep: bool, sizes: tuple[int, ...] | None = None) -> list[int]:
        """GPU counts a replica may have within a budget: `sizes` if stated, any with wide expert parallelism."""
        if sizes is None and large_ep:
            return list(range(1, min(total_gpus, self.large_ep_max_replica_gpus) + 1))
        return [size for size in sizes or self.replica_gpus if size <= total_gpus]


class EncoderGrid(_Section):
    """Choices of a worker that runs the vision encoder alone, and how many of them go with how many others."""

    tp: Counts
    batch: Counts
    max_batch: Count
    max_workers: Count
    max_agg_workers: Count


class AfdGrid(_Section):
    """Axes of a sweep over deployments with attention and feed-forward layers apart.

    Attributes:
        attention_tp: Tensor parallel sizes of an attention worker, besides a whole node.
        ffn_ep: Expert parallel sizes of the feed-forward pool: numbers, its nodes, or its GPUs.
        microbatches: Microbatches of a batch.
        pipelines: How pools and transfers overlap.
        batch_step: The largest batch that meets a target is sought in multiples of this.
        low_batches: Batches tried beside it.
        prefill_batches: Batches of the prefill workers.
    """

    attention_tp: Counts
    ffn_ep: tuple[Annotated[int, Field(ge=1)] | Literal["n_f_nodes", "tp_f"], ...]
    microbatches: Counts
    pipelines: tuple[Literal["optimistic", "conservative", "serial"], ...]
    batch_step: Count
    low_batches: Counts
    prefill_batches: Counts


class TargetGrid(_Section):
    """Latency targets that a sweep tries [ms]."""

    tpot_ms: Times
    request_ttft_ms: Times
    request_ttft_shares: Times


class LargePipeline(_Section):
    """Layouts that join the lists for large models on large budgets."""

    families: tuple[str, ...]
    min_sm_version: int
    min_total_gpus: int
    lists: dict[str, Counts]


class MegaMoe(_Section):
    """Lists where dispatch, experts and combine run in one kernel: within a node, or in a rack with enough GPUs."""

    node: dict[str, Counts]
    rack: dict[str, Counts]
    min_rack_gpus: Count


class LayoutGrid(_Section):
    """Lists of the parallel axes."""

    dense: dict[str, Counts]
    moe: dict[str, Counts]
    dense_by_system: dict[str, dict[str, Counts]]
    context_parallel: Counts
    large_ep: dict[str, dict[str, dict[str, Counts]]]
    mega_moe: MegaMoe
    large_pipeline: LargePipeline


class Grid(_Section):
    """All candidate lists and cut-offs of a search.

    Attributes:
        name: Its name.
        exhaustive: Whether every point is judged on its own and nothing that can win is cut: the walk and the cut-offs
            (`keep_*`) of in-flight and disaggregated sweeps do not apply.
        base: The grid that this one extends; its lists are parts of an exhaustive one.
    """

    name: str
    exhaustive: bool = False
    base: "Grid | None" = None
    agg: AggGrid
    disagg: DisaggGrid
    encoder: EncoderGrid
    afd: AfdGrid
    targets: TargetGrid
    layouts: LayoutGrid
    recommend_max_worker_gpus: Count


@functools.cache
def load_grid(name: str = REFERENCE) -> Grid:
    """The grid in `configs/grids/<name>.yaml`.

    Raises:
        InputError: No such file.
        DataError: The file breaks its schema, or an exhaustive grid leaves out what the grid has that it extends.
    """
    stated, base = _stated(name)
    try:
        grid = Grid.model_validate(stated | {"name": name, "base": base})
    except ValidationError as refusal:
        first = refusal.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        raise DataError(f"configs/grids/{name}.yaml: {place}: {first['msg']}") from None
    if grid.exhaustive:
        _check_contains_base(grid)
    return grid


def grid_files(name: str) -> list[Path]:
    """The files that a grid is read from: its own, then that of the grid it extends, and so on."""
    path = _paths.configs_dir() / "grids" / f"{name}.yaml"
    if not path.is_file():
        raise InputError("grid", name, f"one of {sorted(p.stem for p in path.parent.glob('*.yaml'))}")
    base = yaml.safe_load(path.read_text()).get(_EXTENDS)
    return [path, *(grid_files(base) if base is not None else [])]


def _stated(name: str) -> tuple[dict[str, Any], Grid | None]:
    """What a grid consists of, and the grid that it extends."""
    path, *others = grid_files(name)
    own = yaml.safe_load(path.read_text())
    if not others:
        return own, None
    base = own.pop(_EXTENDS)
    return _joined(_stated(base)[0], own), load_grid(base)


def _joined(base: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    """The entries of `base`, replaced by those of `own`; sections are joined entry by entry."""
    sections = {k: _joined(base[k], v) for k, v in own.items() if isinstance(v, dict) and isinstance(base.get(k), dict)}
    return base | own | sections


def _check_contains_base(grid: Grid) -> None:
    def lists(of: Grid) -> dict[str, set[int]]:
        return {
            "agg.batch": set(of.agg.batch),
            "disagg.decode_batch": set(of.disagg.decode_batch if of.disagg.decode_batch != "all" else ()),
            "disagg.prefill_max_batch": set(range(of.disagg.prefill_max_batch)),
            "disagg.replica_gpus": set(of.disagg.replica_gpus),
        }

    if grid.base is None:
        raise DataError(f"configs/grids/{grid.name}.yaml: exhaustive: needs a grid to extend")
    own = lists(grid)
    for place, counts in lists(grid.base).items():
        everything = place == "disagg.decode_batch" and grid.disagg.decode_batch == "all"
        if not everything and (lacking := counts - own[place]):
            raise DataError(
                f"configs/grids/{grid.name}.yaml: {place}: lacks {sorted(lacking)[0]}, which {grid.base.name} has"
            )
