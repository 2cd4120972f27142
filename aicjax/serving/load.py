# SPDX-License-Identifier: Apache-2.0
"""What one request asks of a worker: prompt, answer, cached part and speculative progress."""

import math
from dataclasses import dataclass, replace

from aicjax.models import Images


@dataclass(frozen=True)
class Load:
    """The requests of one serving estimate, all alike.

    Attributes:
        isl: Prompt tokens, those of images included.
        osl: Output tokens.
        prefix: Prompt tokens served from the cache; less than `isl`.
        nextn: Draft tokens that a decode step verifies beside its own.
        accepted: Mean accepted drafts of a step, from 0 to `nextn`.
        images: Images of a request; None for requests of text.
        waves: Requests of a run relative to those in flight, which a run of a closed loop sends at once at first;
            infinite for a steady load.
        least_share: Lengths are uniform from this share of `isl` and `osl` to all of them; > 0, <= 1.
    """

    isl: int
    osl: int
    prefix: int = 0
    nextn: int = 0
    accepted: float = 0.0
    images: Images | None = None
    waves: float = math.inf
    least_share: float = 1.0

    @property
    def starts_at_once(self) -> bool:
        """Whether there is a first wave."""
        return math.isfinite(self.waves)

    @property
    def mean(self) -> "Load":
        """The mean request: what time depends on. Memory holds the longest one."""
        if self.least_share == 1:
            return self
        share = (1 + self.least_share) / 2
        osl = max(1, round(self.osl * share))
        text = max(1, round(self.text_tokens * share))
        isl = self.isl - self.text_tokens + text
        return replace(self, isl=isl, osl=osl, prefix=min(self.prefix, isl - 1))

    @property
    def text_tokens(self) -> int:
        """Prompt tokens of text."""
        return self.isl - (0 if self.images is None else self.images.prompt_tokens)

    @property
    def new_tokens(self) -> int:
        """Prompt tokens that a prefill computes."""
        return self.isl - self.prefix

    @property
    def progress(self) -> float:
        """Output tokens of a decode step, on average."""
        return 1.0 + (self.accepted if self.nextn > 0 else 0.0)

    @property
    def query_rows(self) -> int:
        """Query rows of one request in a decode step: its token and the drafts."""
        return self.nextn + 1

    @property
    def iterations(self) -> float:
        """Decode iterations of a request; the prefill gives the first token."""
        return 1.0 + max(self.osl - 1, 0) / self.progress

    @property
    def mid_kv_len(self) -> int:
        """KV length at which in-flight batching prices a decode step: half of the answer is there."""
        return self.isl + self.osl // 2 + 1
