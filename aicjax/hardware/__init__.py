# SPDX-License-Identifier: Apache-2.0
"""Hardware descriptions: peaks, bandwidths, memory and links of one GPU system."""

from aicjax.hardware.load import load_system as load_system
from aicjax.hardware.load import system_names as system_names
from aicjax.hardware.system import PEAK_DTYPES as PEAK_DTYPES
from aicjax.hardware.system import System as System
