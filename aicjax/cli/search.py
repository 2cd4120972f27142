# SPDX-License-Identifier: Apache-2.0
"""`aicjax search`: the best layouts, batches and worker counts for a GPU budget."""

import sys
from pathlib import Path
from typing import Annotated

from typer import Context

from aicjax.cli import options
from aicjax.cli.options import flag, switch
from aicjax.cli.output import Output, present

_WORKLOAD = "Workload"
_SPACE = "What to compare"


def _encoder(name: str, *, default: str, text: str, metavar: str = "N") -> object:
    return flag(f"--encoder-{name}", panel="Images", default=default, metavar=metavar, text=text)


def command(
    ctx: Context,
    model_path: options.Model = None,
    system: options.System = None,
    total_gpus: Annotated[str | None, flag("--total-gpus", text="GPU budget; or give a load target.")] = None,
    decode_system: options.DecodeSystem = None,
    isl: Annotated[str | None, flag("--isl", panel=_WORKLOAD, default="4000", text="Prompt tokens.")] = None,
    osl: Annotated[str | None, flag("--osl", panel=_WORKLOAD, default="1000", text="Output tokens.")] = None,
    prefix: options.Prefix = None,
    ttft: options.Ttft = None,
    tpot: options.Tpot = None,
    request_latency: options.RequestLatency = None,
    strict_sla: options.StrictSla = False,
    image_height: options.ImageHeight = None,
    image_width: options.ImageWidth = None,
    num_images_per_request: options.NumImages = None,
    disable_encoder_dp: options.DisableEncoderDp = False,
    enable_epd: options.EnableEpd = False,
    encoder_tp_candidates: Annotated[
        str | None,
        _encoder("tp", default="1,2,4,8", text="GPUs that an encode worker may have, with commas between."),
    ] = None,
    encoder_system: Annotated[
        str | None, _encoder("system", default="--system", metavar="NAME", text="GPU system of encode workers.")
    ] = None,
    encoder_latency_correction: Annotated[
        str | None,
        _encoder("latency-correction", default="1", metavar="FACTOR", text="Factor on the latency of encode workers."),
    ] = None,
    inclusive_tpot: Annotated[
        bool, switch("--inclusive-tpot", panel=_WORKLOAD, text="Report TPOT with the first token counted in.")
    ] = False,
    target_request_rate: options.TargetRate = None,
    target_concurrency: options.TargetConcurrency = None,
    load: options.LoadShape = None,
    waves: options.Waves = None,
    length_low: options.LengthLow = None,
    nextn: options.Nextn = None,
    nextn_accepted: options.NextnAccepted = None,
    backend: options.Backend = None,
    serving_mode: Annotated[
        str | None,
        flag(
            "--serving-mode",
            panel=_SPACE,
            default="auto",
            metavar="auto|all|agg|disagg|afd",
            text="Ways of serving to compare.",
        ),
    ] = None,
    enable_chunked_prefill: options.ChunkedPrefill = False,
    afd_max_a_batch_size: Annotated[
        str | None,
        flag(
            "--afd-max-a-batch-size", panel=_SPACE, default="1024", text="Most requests of an attention worker (afd)."
        ),
    ] = None,
    afd_max_candidates: Annotated[
        str | None,
        flag("--afd-max-candidates", panel=_SPACE, default="10000", text="Most deployments to try (afd)."),
    ] = None,
    afd_candidate_overflow: Annotated[
        str | None,
        flag(
            "--afd-candidate-overflow",
            panel=_SPACE,
            default="error",
            metavar="error|truncate",
            text="What happens where there are more.",
        ),
    ] = None,
    grid: options.Grid = None,
    backend_version: options.Version = None,
    database_mode: options.Mode = None,
    transfer_policy: options.TransferPolicy = None,
    constants: options.ConstantsName = None,
    compat: options.Compat = None,
    family: options.Family = None,
    gemm_quant_mode: options.GemmQuant = None,
    moe_quant_mode: options.MoeQuant = None,
    kvcache_quant_mode: options.KvCacheQuant = None,
    fmha_quant_mode: options.FmhaQuant = None,
    comm_quant_mode: options.CommQuant = None,
    free_gpu_memory_fraction: options.MemoryFraction = None,
    max_seq_len: options.MaxSeqLen = None,
    attention_backend: options.AttentionBackend = None,
    moe_backend: options.MoeBackend = None,
    kv_transfer_gb_per_s: options.KvTransfer = None,
    top_n: options.TopN = None,
    explain: options.Explain = False,
    no_interval: options.NoInterval = False,
    save_dir: options.SaveDir = None,
    deployment_target: options.DeploymentTarget = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
    no_color: options.NoColor = False,
    manifest: Annotated[
        Path | None,
        flag(
            "--from",
            metavar="MANIFEST",
            text="Repeat the search of a manifest.json that --save-dir wrote; flags given beside it win.",
        ),
    ] = None,
) -> None:
    """Find the best configurations for a GPU budget: aggregated, disaggregated, attention and feed-forward apart.

    Exit codes: 0 found, 2 bad input, 3 nothing meets the limits, 4 no measured data.
    """
    from aicjax.explore import SearchRequest
    from aicjax.report import manifest as manifests

    given = options.given(ctx)
    output = Output.take(given)
    if manifest is not None:
        given = {**manifests.read_inputs(manifest), **given}
        del given["manifest"]
        if changed := manifests.changed_since(manifest):
            print(f"aicjax: changed since the manifest was written: {', '.join(changed)}", file=sys.stderr)
    request = SearchRequest(**given)
    if request.total_gpus is not None and request.has_load_target:
        print("aicjax: the load target is not used: --total-gpus fixes the number of GPUs", file=sys.stderr)
    present(request, output)
