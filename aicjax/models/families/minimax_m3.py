# SPDX-License-Identifier: Apache-2.0
"""Block-sparse attention with an indexer, and experts: MiniMax-M3."""

from aicjax.models.families.base import Family, mixture

MINIMAXM3 = Family("MINIMAXM3", mixture)
