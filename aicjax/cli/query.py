# SPDX-License-Identifier: Apache-2.0
"""`aicjax query`: the latency of single operators at given shapes, and how it was obtained.

Every shape flag takes one number or several with commas between; the answer covers all combinations.
"""

import itertools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from aicjax import quant
from aicjax._names import one_of
from aicjax._results import InputError
from aicjax.cli import options

if TYPE_CHECKING:
    from aicjax.ops import records

app = typer.Typer(help="Latency of single operators at given shapes.", no_args_is_help=True)

System = Annotated[str, typer.Option("--system", metavar="NAME", help="GPU system, for example h200_sxm.")]
Backend = Annotated[
    str, typer.Option("--backend", metavar=options.BACKENDS, help="Engine whose kernels were measured.")
]
Mode = Annotated[str, typer.Option("--database-mode", metavar=options.MODES, help="What answers an operator.")]
_NUMBERS = "N[,N...]"


def _shape(*names: str, text: str) -> Any:
    return typer.Option(*names, metavar=_NUMBERS, help=text, show_default=True)


def _format(default: str) -> Any:
    return typer.Option("--quant-mode", metavar="FORMAT", help="Number format.", show_default=default)


Tokens = Annotated[str, _shape("--tokens", "-m", text="Tokens of the pass.")]
Batch = Annotated[str, _shape("--batch-size", "-b", text="Requests.")]
Heads = Annotated[str, _shape("--num-heads", text="Query heads of one GPU.")]
KvHeads = Annotated[str, _shape("--num-kv-heads", text="KV heads of one GPU.")]
HeadSize = Annotated[str, _shape("--head-size", text="Elements of a head.")]
Hidden = Annotated[str, _shape("--hidden-size", text="Elements of a token.")]
Window = Annotated[str, _shape("--window", text="Sliding window in tokens; 0 is none.")]
KvQuant = Annotated[str, typer.Option("--kvcache-quant-mode", metavar="FORMAT", help="Number format of the KV cache.")]
FmhaQuant = Annotated[str, typer.Option("--fmha-quant-mode", metavar="FORMAT", help="Number format of attention.")]


@app.command("gemm")
def gemm(
    system: System,
    m: Tokens,
    n: Annotated[str, _shape("-n", text="Output features.")],
    k: Annotated[str, _shape("-k", text="Input features.")],
    quant_mode: Annotated[str, _format("bfloat16")] = "bfloat16",
    backend: Backend = "trtllm",
    backend_version: options.Version = None,
    database_mode: Mode = "SILICON",
    json: options.Json = False,
) -> None:
    """Matrix product of m tokens by an n x k weight."""
    from aicjax.ops.records import Gemm

    _answer(
        lambda n, k: Gemm("gemm", 1, n, k, _known("gemm", quant_mode)),
        _grid(n=n, k=k),
        _grid(tokens=m),
        (system, backend, backend_version, database_mode),
        json,
    )


@app.command("context-attention")
def context_attention(
    system: System,
    batch: Batch,
    isl: Annotated[str, _shape("--isl", "-s", text="New prompt tokens of a request.")],
    num_heads: Heads,
    num_kv_heads: KvHeads,
    head_size: HeadSize = "128",
    prefix: Annotated[str, _shape("--prefix", text="Cached prompt tokens of a request.")] = "0",
    window: Window = "0",
    kvcache_quant_mode: KvQuant = "bfloat16",
    fmha_quant_mode: FmhaQuant = "bfloat16",
    backend: Backend = "trtllm",
    backend_version: options.Version = None,
    database_mode: Mode = "SILICON",
    json: options.Json = False,
) -> None:
    """Causal attention of a prefill."""
    from aicjax.ops.records import ContextAttention

    _answer(
        lambda num_heads, num_kv_heads, head_size, window: ContextAttention(
            "context_attention",
            1,
            num_heads,
            num_kv_heads,
            head_size,
            _known("kvcache", kvcache_quant_mode),
            _known("fmha", fmha_quant_mode),
            window,
        ),
        _grid(num_heads=num_heads, num_kv_heads=num_kv_heads, head_size=head_size, window=window),
        _grid(batch=batch, length=isl, prefix=prefix),
        (system, backend, backend_version, database_mode),
        json,
    )


@app.command("generation-attention")
def generation_attention(
    system: System,
    batch: Batch,
    kv_len: Annotated[str, _shape("--kv-len", "-s", text="Tokens in the cache of a request.")],
    num_heads: Heads,
    num_kv_heads: KvHeads,
    head_size: HeadSize = "128",
    window: Window = "0",
    kvcache_quant_mode: KvQuant = "bfloat16",
    backend: Backend = "trtllm",
    backend_version: options.Version = None,
    database_mode: Mode = "SILICON",
    json: options.Json = False,
) -> None:
    """Attention of a decode step."""
    from aicjax.ops.records import GenerationAttention

    _answer(
        lambda num_heads, num_kv_heads, head_size, window: GenerationAttention(
            "generation_attention", 1, num_heads, num_kv_heads, head_size, _known("kvcache", kvcache_quant_mode), window
        ),
        _grid(num_heads=num_heads, num_kv_heads=num_kv_heads, head_size=head_size, window=window),
        _grid(batch=batch, length=kv_len),
        (system, backend, backend_version, database_mode),
        json,
    )


@app.command("encoder-attention")
def encoder_attention(
    system: System,
    batch: Batch,
    sequence: Annotated[str, _shape("--sequence", "-s", text="Tokens of a sequence.")],
    num_heads: Heads,
    head_size: HeadSize = "128",
    fmha_quant_mode: FmhaQuant = "bfloat16",
    backend: Backend = "trtllm",
    backend_version: options.Version = None,
    database_mode: Mode = "SILICON",
    json: options.Json = False,
) -> None:
    """Attention without a causal mask."""
    from aicjax.ops.records import EncoderAttention

    _answer(
        lambda num_heads, head_size: EncoderAttention(
            "encoder_attention", 1, num_heads, head_size, _known("fmha", fmha_quant_mode)
        ),
        _grid(num_heads=num_heads, head_size=head_size),
        _grid(batch=batch, length=sequence),
        (system, backend, backend_version, database_mode),
        json,
    )


@app.command("allreduce")
def allreduce(
    system: System,
    tokens: Tokens,
    hidden_size: Hidden,
    tp: Annotated[str, _shape("--tp", text="GPUs of the all-reduce.")],
    quant_mode: Annotated[str, _format("half")] = "half",
    backend: Backend = "trtllm",
    backend_version: options.Version = None,
    database_mode: Mode = "SILICON",
    json: options.Json = False,
) -> None:
    """Tensor-parallel all-reduce of the engine's own kernel."""
    from aicjax.ops.records import AllReduce

    _answer(
        lambda hidden_size, tp: AllReduce("allreduce", 1, hidden_size, tp, _known("comm", quant_mode)),
        _grid(hidden_size=hidden_size, tp=tp),
        _grid(tokens=tokens),
        (system, backend, backend_version, database_mode),
        json,
    )


@app.command("nccl")
def nccl(
    system: System,
    operation: Annotated[str, typer.Option("--operation", metavar="NAME", help="all_gather, all_reduce, ...")],
    tokens: Tokens,
    num_gpus: Annotated[str, _shape("--num-gpus", text="GPUs of the collective.")],
    elements: Annotated[str, _shape("--elements", text="Elements of a token.")] = "1",
    quant_mode: Annotated[str, _format("half")] = "half",
    backend: Backend = "trtllm",
    backend_version: options.Version = None,
    database_mode: Mode = "SILICON",
    json: options.Json = False,
) -> None:
    """NCCL collective."""
    from aicjax.ops.records import Nccl

    _answer(
        lambda elements, num_gpus: Nccl("nccl", 1, operation, elements, num_gpus, _known("comm", quant_mode)),
        _grid(elements=elements, num_gpus=num_gpus),
        _grid(tokens=tokens),
        (system, backend, backend_version, database_mode),
        json,
    )


@app.command("elementwise")
def elementwise(
    system: System,
    tokens: Tokens,
    bytes_per_token: Annotated[str, _shape("--bytes-per-token", text="Bytes read and written for a token.")],
    backend: Backend = "trtllm",
    backend_version: options.Version = None,
    database_mode: Mode = "SILICON",
    json: options.Json = False,
) -> None:
    """Memory-bound operator: norms, activations, residual adds."""
    from aicjax.ops.records import Elementwise

    _answer(
        lambda bytes_per_token: Elementwise("elementwise", 1, bytes_per_token),
        _grid(bytes_per_token=bytes_per_token),
        _grid(tokens=tokens),
        (system, backend, backend_version, database_mode),
        json,
    )


@app.command("embedding")
def embedding(
    system: System,
    tokens: Tokens,
    hidden_size: Hidden,
    vocab_size: Annotated[str, _shape("--vocab-size", text="Rows of the table.")],
    backend: Backend = "trtllm",
    backend_version: options.Version = None,
    database_mode: Mode = "SILICON",
    json: options.Json = False,
) -> None:
    """Look-up of token vectors."""
    from aicjax.ops.records import Embedding

    _answer(
        lambda vocab_size, hidden_size: Embedding("embedding", 1, vocab_size, hidden_size),
        _grid(vocab_size=vocab_size, hidden_size=hidden_size),
        _grid(tokens=tokens),
        (system, backend, backend_version, database_mode),
        json,
    )


@app.command("p2p")
def p2p(
    system: System,
    tokens: Tokens,
    hidden_size: Hidden,
    pp: Annotated[str, _shape("--pp", text="Pipeline stages.")] = "2",
    backend: Backend = "trtllm",
    backend_version: options.Version = None,
    database_mode: Mode = "SILICON",
    json: options.Json = False,
) -> None:
    """Hand-over between pipeline stages."""
    from aicjax.ops.records import P2P

    _answer(
        lambda hidden_size, pp: P2P("p2p", 1, hidden_size, pp),
        _grid(hidden_size=hidden_size, pp=pp),
        _grid(tokens=tokens),
        (system, backend, backend_version, database_mode),
        json,
    )


def _grid(**texts: str) -> dict[str, list[int]]:
    return {name: _numbers(name, text) for name, text in texts.items()}


def _known(role: str, mode: str) -> str:
    """A number format that the operator family of `role` has."""
    if mode not in quant.BY_ROLE[role]:
        raise InputError(f"{role} quant-mode", mode, one_of(mode, quant.BY_ROLE[role]))
    return mode


def _numbers(name: str, text: str) -> list[int]:
    """Whole numbers with commas between."""
    try:
        numbers = [int(part) for part in text.split(",")]
    except ValueError:
        raise InputError(name, text, "whole numbers with commas between") from None
    least = 0 if name in ("prefix", "window") else 1
    if min(numbers) < least:
        raise InputError(name, min(numbers), f"at least {least}")
    return numbers


def _answer(
    record: Callable[..., "records.Op"],
    shapes: Mapping[str, list[int]],
    points: Mapping[str, list[int]],
    where: tuple[str, str, str | None, str],
    as_json: bool,
) -> None:
    """Prints the latency of every combination of operator shapes and coordinates."""
    import numpy as np

    from aicjax.hardware import load_system
    from aicjax.ops.query import operator_latency
    from aicjax.report import operators
    from aicjax.tables import resolve_version

    name, backend, version, mode = where
    system = load_system(name)
    version = resolve_version(system.name, backend, version)
    combinations = np.array(list(itertools.product(*shapes.values(), *points.values())))
    ops = [record(*row) for row in combinations[:, : len(shapes)].tolist()]
    coordinates = dict(zip(points, combinations[:, len(shapes) :].T, strict=True))
    times = operator_latency(system, backend, version, ops, mode=mode, **coordinates)
    columns = dict(zip((*shapes, *points), combinations.T, strict=True))
    words = [f"{name} {value}" for name, value in vars(ops[0]).items() if isinstance(value, str) and name != "name"]
    title = ", ".join([f"{ops[0].name} on {system.name}, {backend} {version}", *words])
    operators.print_times(title, columns, times, as_json=as_json)
