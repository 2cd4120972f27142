# SPDX-License-Identifier: Apache-2.0
"""Result files of load generators, read into the table of measurements that `aicjax calibrate` takes."""

from aicjax.measure.read import read_runs
from aicjax.measure.run import Run
from aicjax.measure.table import Deployment, Lengths, check_out, measured_table, write_table

__all__ = ["Deployment", "Lengths", "Run", "check_out", "measured_table", "read_runs", "write_table"]
