# SPDX-License-Identifier: Apache-2.0
"""How one worker splits a model over GPUs."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Parallel:
    """The layout of one worker.

    Attributes:
        tp: Tensor parallel size of attention and dense layers.
        pp: Pipeline stages.
        dp: Data parallel size of attention.
        moe_tp: Tensor parallel size of the experts.
        moe_ep: Expert parallel size.
        cp: Context parallel size of the prefill.

    Examples:
        >>> layout = Parallel(tp=2, dp=4, moe_ep=8)
        >>> layout.gpus, layout.label
        (8, 'tp2pp1dp4etp1ep8')
    """

    tp: int = 1
    pp: int = 1
    dp: int = 1
    moe_tp: int = 1
    moe_ep: int = 1
    cp: int = 1

    @property
    def gpus(self) -> int:
        """GPUs of one worker."""
        return self.tp * self.pp * self.dp * self.cp

    @property
    def label(self) -> str:
        """The layout as one word, e.g. `tp4pp1dp1etp1ep1`."""
        word = f"tp{self.tp}pp{self.pp}dp{self.dp}etp{self.moe_tp}ep{self.moe_ep}"
        return f"{word}cp{self.cp}" if self.cp > 1 else word
