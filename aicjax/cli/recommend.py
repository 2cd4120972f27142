# SPDX-License-Identifier: Apache-2.0
"""`aicjax recommend`: the fewest GPUs that serve a load."""

from typing import Annotated

from typer import Context

from aicjax._results import InputError
from aicjax.cli import options
from aicjax.cli.options import flag
from aicjax.cli.output import Output, present

_WORKLOAD = "Workload"


def command(
    ctx: Context,
    model_path: options.Model = None,
    system: options.System = None,
    target_request_rate: options.TargetRate = None,
    target_concurrency: options.TargetConcurrency = None,
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
    load: options.LoadShape = None,
    waves: options.Waves = None,
    length_low: options.LengthLow = None,
    nextn: options.Nextn = None,
    nextn_accepted: options.NextnAccepted = None,
    backend: options.Backend = None,
    enable_chunked_prefill: options.ChunkedPrefill = False,
    grid: options.Grid = None,
    backend_version: options.Version = None,
    database_mode: options.RecommendMode = None,
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
    json: options.Json = False,
    quiet: options.Quiet = False,
    no_color: options.NoColor = False,
) -> None:
    """Find the fewest GPUs that serve a request rate or a number of concurrent requests.

    Exit codes: 0 found, 2 bad input, 3 nothing meets the limits, 4 no measured data.
    """
    from aicjax.explore.request import RECOMMENDING, SearchRequest

    given = options.given(ctx)
    output = Output.take(given)
    request = SearchRequest(**{"database_mode": RECOMMENDING, **given})
    if not request.has_load_target:
        raise InputError("target_request_rate", None, "given, or target_concurrency instead")
    present(request, output)
