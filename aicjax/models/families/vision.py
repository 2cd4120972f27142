# SPDX-License-Identifier: Apache-2.0
"""The vision encoder of a multimodal model: its operators, and what an image costs in patches and tokens."""

import dataclasses
from dataclasses import dataclass

from aicjax._results import InputError
from aicjax.models.families.blocks import BYTES_16BIT
from aicjax.models.model import ModelConfig
from aicjax.ops.records import AllReduce, Elementwise, EncoderAttention, Gemm, Nccl, Op, OpLists

_ON_TOKENS = ("encoder_projector", "encoder_dp")  # names of operators on merged patches begin so


@dataclass(frozen=True)
class Images:
    """The images of one request.

    Attributes:
        count: Images of a request.
        patches: Patches of one image, what the encoder sees.
        tokens: Tokens of one image, what the language model sees.
    """

    count: int
    patches: int
    tokens: int

    @property
    def prompt_tokens(self) -> int:
        """Tokens that all of them add to the prompt."""
        return self.count * self.tokens


def request_images(model: ModelConfig, count: int, height: int, width: int) -> Images:
    """Images of so many pixels, after each is resized to whole blocks of merged patches.

    Raises:
        InputError: The model has no vision encoder, or a number is not positive.
    """
    if "vision_depth" not in model.extra:
        raise InputError("model", model.name, "a model with a vision encoder where images are given")
    for name, value in (("num_images_per_request", count), ("image_height", height), ("image_width", width)):
        if value < 1:
            raise InputError(name, value, "1 or more")
    merge = model.extra["vision_spatial_merge_size"]
    block = model.extra["vision_patch_size"] * merge
    tokens = max(1, round(height / block)) * max(1, round(width / block))  # half to even, as engines round
    return Images(count, tokens * merge**2, tokens)


def with_encoder(lists: OpLists, model: ModelConfig, tp: int, *, data_parallel: bool = True) -> OpLists:
    """The lists of a worker that hosts the encoder; arguments and errors as `encoder_ops`."""
    ops = encoder_ops(model, tp, data_parallel=data_parallel)
    return dataclasses.replace(lists, encoder=ops, image_ranks=tp if data_parallel else 1)


def without_encoder(lists: OpLists) -> OpLists:
    """The lists of a worker of the language model alone."""
    return dataclasses.replace(lists, encoder=(), image_ranks=1)


def encoder_stages(ops: tuple[Op, ...]) -> tuple[tuple[Op, ...], tuple[Op, ...]]:
    """The operators of an encoder that run on the patches of an image, and those that run on its tokens."""
    on_tokens = tuple(op for op in ops if op.name.startswith(_ON_TOKENS))
    return tuple(op for op in ops if op not in on_tokens), on_tokens


def encoder_ops(model: ModelConfig, tp: int, *, data_parallel: bool = True) -> tuple[Op, ...]:
    """Operators of the encoder on one GPU, in order; none where the config describes no encoder.

    Args:
        model: The model.
        tp: Tensor-parallel size of the worker.
        data_parallel: Whether ranks share out the images and each holds the whole encoder, rather than slices of it.

    Raises:
        InputError: Heads or feed-forward cannot be cut into `tp` slices.
    """
    if not model.extra:
        return ()
    facts, ranks = model.extra, 1 if data_parallel else tp
    for size in ("num_heads", "intermediate_size"):
        if facts[f"vision_{size}"] % ranks:
            raise InputError("encoder_tp", tp, f"a divisor of {size} = {facts[f'vision_{size}']} of the vision encoder")
    gathered = facts["vision_out_hidden_size"] * facts["vision_projectors"] * tp
    exchange = Nccl("encoder_dp_all_gather", 1.0, "all_gather", float(gathered), tp)
    return (
        *_transformer(model, ranks),
        *_projector(model, ranks),
        *((exchange,) if data_parallel and tp > 1 else ()),
    )


def _gemm(name: str, scale: float, n: int, k: int, *, low: bool = False) -> Gemm:
    return Gemm(f"encoder_{name}", scale, n, k, "bfloat16", low_precision_input=low)


def _elementwise(name: str, scale: float, read: int, write: int) -> Elementwise:
    return Elementwise(f"encoder_{name}", scale, BYTES_16BIT * (read + write))


def _transformer(model: ModelConfig, ranks: int) -> tuple[Op, ...]:
    facts = model.extra
    depth, hidden, heads = float(facts["vision_depth"]), facts["vision_hidden_size"], facts["vision_num_heads"]
    head_dim = hidden // heads
    width, ffn = heads * head_dim // ranks, facts["vision_intermediate_size"] // ranks
    rotated = 6 * width
    return (
        _elementwise("add_norm_1", depth, 2 * hidden, 2 * hidden),
        _gemm("qkv_gemm", depth, 3 * width, hidden),
        EncoderAttention("encoder_attention", depth, heads // ranks, head_dim),
        _gemm("proj_gemm", depth, hidden, width, low=True),
        AllReduce("encoder_ar_1", depth, hidden, ranks),
        _elementwise("add_norm_2", depth, 2 * hidden, 2 * hidden),
        _gemm("ffn1_gemm", depth, ffn, hidden),
        _elementwise("act", depth, ffn, ffn),
        _gemm("ffn2_gemm", depth, hidden, ffn, low=True),
        AllReduce("encoder_ar_2", depth, hidden, ranks),
        _elementwise("rope_apply", depth, rotated, rotated),
    )


def _projector(model: ModelConfig, ranks: int) -> tuple[Op, ...]:
    """From merged patches to the width of the language model, once for each tapped layer."""
    facts = model.extra
    times, out = float(facts["vision_projectors"]), facts["vision_out_hidden_size"]
    merged = facts["vision_hidden_size"] * facts["vision_spatial_merge_size"] ** 2
    return (
        _gemm("projector_fc0_gemm", times, merged // ranks, merged),
        _elementwise("projector_fc0_act", times, merged // ranks, merged // ranks),
        _gemm("projector_fc1_gemm", times, out, merged // ranks),
        AllReduce("encoder_projector_ar", times, out, ranks),
    )
