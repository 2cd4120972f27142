# SPDX-License-Identifier: Apache-2.0
"""Single operators of every kind: how each file is asked."""

from benchmarks.parity_cases.dense_operators import DENSE
from benchmarks.parity_cases.expert_operators import EXPERTS
from benchmarks.parity_cases.latent_operators import LATENT
from benchmarks.parity_cases.recurrent_operators import RECURRENT

OPERATORS = {**DENSE, **EXPERTS, **LATENT, **RECURRENT}
