# SPDX-License-Identifier: Apache-2.0
"""Fields of requests about experts: their kernel, and what balances their load."""

from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, Field

MEGA = "megamoe"
Kernel = Annotated[
    Literal["megamoe", "deepep_moe"] | None, BeforeValidator(lambda value: None if value == "None" else value)
]


class ExpertFields(BaseModel):
    """How experts run.

    Attributes:
        moe_backend: `megamoe` runs dispatch, experts and combine in one kernel. By default the measured data choose;
            `deepep_moe` then leaves out layouts of SGLang that cut experts.
        enable_eplb: Whether a load balancer moves experts that span many GPUs to where their tokens are;
            `prefill_enable_eplb` and `decode_enable_eplb` are those of one role.
        wideep_num_slots: Places for such experts over all GPUs: with a balancer more than there are experts, where it
            keeps some twice.
    """

    moe_backend: Kernel = None
    enable_eplb: bool = False
    prefill_enable_eplb: bool | None = None
    decode_enable_eplb: bool | None = None
    wideep_num_slots: Annotated[int, Field(ge=1)] | None = None

    @property
    def mega_moe(self) -> bool:
        """Whether dispatch, experts and combine run in one kernel."""
        return self.moe_backend == MEGA
