# SPDX-License-Identifier: Apache-2.0
"""Memory of a vision encoder on the GPUs of the worker that hosts it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from aicjax.models import Images, ModelConfig
from aicjax.models.families.blocks import BYTES_16BIT
from aicjax.ops.records import OpLists

if TYPE_CHECKING:
    from aicjax.constants import MemoryConstants


@dataclass(frozen=True)
class EncoderMemory:
    """What an encoder needs in each layout.

    Attributes:
        weights_bytes: Weights on one GPU, float64 [config].
        ranks: Ranks that share out the images, int64 [config].
        patch_bytes: Activations of one patch.
        token_bytes: Results of one token of an image.
        floor_bytes: Least activations of an encoder that has an image.
    """

    weights_bytes: np.ndarray
    ranks: np.ndarray
    patch_bytes: float
    token_bytes: float
    floor_bytes: float

    def activations(self, batch: np.ndarray, images: Images) -> np.ndarray:
        """Activations of the images of a batch [bytes], float64 [config, point].

        Args:
            batch: Requests of one rank of attention, int [point].
            images: Images of each request.
        """
        everywhere = batch * images.count
        own = -(-everywhere // self.ranks[:, None])
        used = own * images.patches * self.patch_bytes + everywhere * images.tokens * self.token_bytes
        return np.maximum(used, self.floor_bytes)


def bind_encoder(model: ModelConfig, op_lists: Sequence[OpLists], constants: "MemoryConstants") -> EncoderMemory | None:
    """The encoder of a model in each layout; None for workers without one."""
    if not op_lists[0].encoder:
        return None
    facts = model.extra
    return EncoderMemory(
        weights_bytes=np.array([sum(op.weight_bytes for op in lists.encoder) for lists in op_lists]),
        ranks=np.array([lists.image_ranks for lists in op_lists]),
        patch_bytes=BYTES_16BIT * constants.encoder_values_per_patch * facts["vision_hidden_size"],
        token_bytes=BYTES_16BIT * facts["vision_out_hidden_size"] * facts["vision_projectors"],
        floor_bytes=constants.encoder_floor_bytes,
    )
