# SPDX-License-Identifier: Apache-2.0
"""`aicjax estimate`: one serving point, without a search."""

from typing import Annotated

from typer import Context

from aicjax._results import InputError
from aicjax.cli import layout_options as layout
from aicjax.cli import options
from aicjax.cli.options import flag, switch

_AFD = "Attention and feed-forward apart (afd)"
_WORKLOAD = "Workload"
_OUTPUT = {"as_json": "json", "plain": "no_color", "explain": "explain"}  # arguments of the printer by flag


def _encoder(name: str, text: str, *, default: str | bool = "1") -> object:
    return flag(f"--encoder-{name}", panel="Images", default=default, text=text)


def _afd(name: str, text: str, *, default: str | bool = False, metavar: str = "N") -> object:
    return flag(f"--{name}", panel=_AFD, default=default, metavar=metavar, text=text)


def command(
    ctx: Context,
    model_path: options.Model = None,
    system: options.System = None,
    mode: Annotated[
        str | None,
        flag(
            "--estimate-mode",
            default="agg",
            metavar="agg|disagg|afd|static|static_ctx|static_gen",
            text="Serving mode of the point.",
        ),
    ] = None,
    backend: Annotated[
        str | None, flag("--backend", default="trtllm", metavar=options.BACKENDS, text="Engine.")
    ] = None,
    decode_system: options.DecodeSystem = None,
    batch_size: Annotated[
        str | None,
        flag("--batch-size", "--bs", panel=layout.LAYOUT, default="128", text="Requests in flight of one rank."),
    ] = None,
    ctx_tokens: Annotated[
        str | None,
        flag("--ctx-tokens", panel=layout.LAYOUT, default="isl", text="Prompt tokens of a mixed step (agg)."),
    ] = None,
    tp_size: layout.TpSize = None,
    pp_size: Annotated[
        str | None, flag("--pp-size", "--pp", panel=layout.LAYOUT, default="1", text="Pipeline stages.")
    ] = None,
    attention_dp_size: layout.AttentionDpSize = None,
    moe_tp_size: layout.MoeTpSize = None,
    moe_ep_size: layout.MoeEpSize = None,
    stride: Annotated[
        str | None,
        flag("--stride", panel=layout.LAYOUT, default="32", text="Decode steps priced by one evaluation (static)."),
    ] = None,
    prefill_tp_size: layout.PrefillTpSize = None,
    prefill_pp_size: Annotated[str | None, layout.role("prefill", "pp-size", "pp", "pipeline stages")] = None,
    prefill_attention_dp_size: layout.PrefillAttentionDpSize = None,
    prefill_moe_tp_size: layout.PrefillMoeTpSize = None,
    prefill_moe_ep_size: layout.PrefillMoeEpSize = None,
    prefill_batch_size: Annotated[str | None, layout.role("prefill", "batch-size", "bs", "requests of a batch")] = None,
    prefill_num_workers: layout.PrefillNumWorkers = None,
    prefill_free_gpu_memory_fraction: Annotated[
        str | None, layout.role("prefill", "free-gpu-memory-fraction", None, "share of memory for the KV cache")
    ] = None,
    prefill_max_seq_len: Annotated[str | None, layout.role("prefill", "max-seq-len", None, "longest sequence")] = None,
    decode_tp_size: layout.DecodeTpSize = None,
    decode_pp_size: Annotated[str | None, layout.role("decode", "pp-size", "pp", "pipeline stages")] = None,
    decode_attention_dp_size: layout.DecodeAttentionDpSize = None,
    decode_moe_tp_size: layout.DecodeMoeTpSize = None,
    decode_moe_ep_size: layout.DecodeMoeEpSize = None,
    decode_batch_size: Annotated[str | None, layout.role("decode", "batch-size", "bs", "requests of a batch")] = None,
    decode_num_workers: layout.DecodeNumWorkers = None,
    decode_free_gpu_memory_fraction: Annotated[
        str | None, layout.role("decode", "free-gpu-memory-fraction", None, "share of memory for the KV cache")
    ] = None,
    decode_max_seq_len: Annotated[str | None, layout.role("decode", "max-seq-len", None, "longest sequence")] = None,
    n_a_nodes: Annotated[str | None, _afd("n-a-nodes", "Nodes of attention workers.")] = None,
    n_f_nodes: Annotated[str | None, _afd("n-f-nodes", "Nodes of the feed-forward pool.")] = None,
    a_tp_size: Annotated[
        str | None, _afd("a-tp-size", "Tensor parallel GPUs of an attention worker.", default="1")
    ] = None,
    a_batch_size: Annotated[
        str | None, _afd("a-batch-size", "Requests in flight of an attention worker.", default="128")
    ] = None,
    f_moe_ep_size: Annotated[
        str | None, _afd("f-moe-ep-size", "Expert parallel GPUs of the feed-forward pool.", default="1")
    ] = None,
    num_microbatches: Annotated[str | None, _afd("num-microbatches", "Microbatches of a batch.", default="3")] = None,
    pipeline_model: Annotated[
        str | None,
        _afd(
            "pipeline-model",
            "How the pools and the transfers between them overlap.",
            default="optimistic",
            metavar="optimistic|conservative|serial",
        ),
    ] = None,
    comm_overhead_factor: Annotated[
        str | None, _afd("comm-overhead-factor", "Factor on the transfers between the pools.", default="1")
    ] = None,
    afd_phase: Annotated[
        str | None,
        _afd("afd-phase", "Phases that run that way.", default="decode", metavar="prefill|decode|both"),
    ] = None,
    afd_combined_with_pd: Annotated[
        bool | None,
        flag(
            "--afd-combined-with-pd/--no-afd-combined-with-pd",
            panel=_AFD,
            default="on",
            text="Whether an ordinary worker runs the other phase: its batch and layout are the shared ones.",
        ),
    ] = None,
    boundary_on_ffn: Annotated[
        bool,
        switch(
            "--boundary-on-ffn", panel=_AFD, text="Run norms between the sides and the logits on the feed-forward pool."
        ),
    ] = False,
    isl: Annotated[str | None, flag("--isl", panel=_WORKLOAD, default="1024", text="Prompt tokens.")] = None,
    osl: Annotated[str | None, flag("--osl", panel=_WORKLOAD, default="1024", text="Output tokens.")] = None,
    prefix: options.Prefix = None,
    image_height: options.ImageHeight = None,
    image_width: options.ImageWidth = None,
    num_images_per_request: options.NumImages = None,
    disable_encoder_dp: options.DisableEncoderDp = False,
    enable_epd: options.EnableEpd = False,
    encoder_tp: Annotated[str | None, _encoder("tp", "GPUs of an encode worker.", default=False)] = None,
    encoder_batch_size: Annotated[
        str | None, _encoder("batch-size", "Requests that an encode worker takes together.")
    ] = None,
    encoder_num_workers: Annotated[str | None, _encoder("num-workers", "Encode workers.")] = None,
    load: Annotated[
        str | None,
        flag(
            "--load",
            panel=_WORKLOAD,
            default="steady",
            metavar="steady|closed|open",
            text="Requests in flight: a number without end, a run that sends all of them at once at first, or as many "
            "as a rate makes (agg).",
        ),
    ] = None,
    request_rate: Annotated[
        str | None,
        flag("--request-rate", panel=_WORKLOAD, metavar="REQ/S", text="Requests that arrive per second (--load open)."),
    ] = None,
    arrivals: Annotated[
        str | None,
        flag(
            "--arrivals",
            panel=_WORKLOAD,
            default="poisson",
            metavar="poisson|even",
            text="Whether they arrive at random or evenly spaced (--load open).",
        ),
    ] = None,
    waves: options.Waves = None,
    length_low: options.LengthLow = None,
    nextn: options.Nextn = None,
    nextn_accepted: options.NextnAccepted = None,
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
    kv_transfer_gb_per_s: options.KvTransfer = None,
    detail: Annotated[
        str | None,
        flag(
            "--detail",
            panel="Output",
            default="memory",
            metavar="SECTIONS",
            text="What to print below the summary: memory, time, source or all, with commas between.",
        ),
    ] = None,
    explain: options.Explain = False,
    no_interval: options.NoInterval = False,
    json: options.Json = False,
    no_color: options.NoColor = False,
) -> None:
    """Predict one configuration: latencies, throughput, memory and where each number comes from."""
    given = options.given(ctx)
    sections = _sections(given.pop("detail", "memory"))
    output = {name: given.pop(flag, False) for name, flag in _OUTPUT.items()}
    output["interval"] = not given.pop("no_interval", False)
    if afd_combined_with_pd is False:
        given["afd_combined_with_pd"] = False
    if given.pop("boundary_on_ffn", False):
        given["afd_boundary_on_attn"] = False

    from aicjax.explore import EstimateRequest

    request = EstimateRequest(**given)

    from aicjax.explore import estimate
    from aicjax.report import point

    point.print_point(estimate(request), sections=("summary", *sections), **output)


def _sections(text: str) -> tuple[str, ...]:
    known = ("memory", "time", "source")
    wanted = tuple(word.strip() for word in text.split(","))
    for word in wanted:
        if word not in (*known, "summary", "all"):
            raise InputError("detail", word, f"one of summary, {', '.join(known)}, all")
    return known if "all" in wanted else wanted
