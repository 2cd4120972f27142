# SPDX-License-Identifier: Apache-2.0
"""Forward passes: a model bound to tables, its step times, and its memory."""

from aicjax.forward.bound import BoundModel as BoundModel
from aicjax.forward.bound import StepCurves as StepCurves
from aicjax.forward.bound import bind as bind
from aicjax.forward.bound import step_queries as step_queries
from aicjax.forward.scaled import scaled_step_times as scaled_step_times
from aicjax.forward.steps import StepQueries as StepQueries
from aicjax.forward.steps import step_times as step_times
