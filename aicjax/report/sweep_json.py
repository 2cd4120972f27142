# SPDX-License-Identifier: Apache-2.0
"""A sweep as one JSON object: the same sweep on the same data gives the same object."""

from collections.abc import Sequence
from typing import Any

import aicjax
from aicjax.explore import frame as frames
from aicjax.explore.frame import Frame
from aicjax.explore.grid import REFERENCE
from aicjax.report.manifest import data_hashes
from aicjax.sweeps.cases import Engine, EngineName
from aicjax.sweeps.result import OVERALL, Answer, SweepResult
from aicjax.sweeps.spec import Span, SweepSpec

FORMAT = 1
_AXES = ("batch", "ctx_tokens", "prefill_batch", "decode_batch")


def as_dict(result: SweepResult) -> dict[str, Any]:
    """The result as plain Python values: what was swept, on what data, and every answer.

    The overall answers have their Pareto front; those of groups are in the frames and in the CSV file alone.
    """
    return {
        "format": FORMAT,
        "aicjax": aicjax.__version__,
        "hashes": data_hashes(result.spec.constants_name, REFERENCE),
        "spec": spec_dict(result.spec),
        "engines": [_engine(engine) for engine in result.cases.engines],
        "refused": [_name(name) | {"reason": reason} for name, reason in result.cases.refused],
        "points": result.points,
        "done_points": result.done_points,
        "complete": result.complete,
        "answers": [_answer(answer, result.spec) for answer in result.answers],
    }


def spec_dict(spec: SweepSpec) -> dict[str, Any]:
    """The sweep as the content of its file, every field stated."""
    axes = {name: span(getattr(spec, name)) for name in _AXES}
    return spec.model_dump(mode="json") | axes | {"constants": spec.constants_name}


def span(counts: Sequence[int]) -> dict[str, int] | list[int]:
    """An axis as a span where its counts are equally far apart, else as a list."""
    if len(counts) > 1:
        found = Span(first=counts[0], last=counts[-1], step=max(counts[1] - counts[0], 1))
        if found.counts == tuple(counts):
            return found.model_dump()
    return list(counts)


def _engine(engine: Engine) -> dict[str, Any]:
    workers = {
        role: {
            "layouts": [layout.label for layout in worker.layouts],
            "refused": [{"layout": refusal.layout, "reason": refusal.reason} for refusal in worker.refused],
        }
        for role, worker in engine.workers.items()
    }
    version = next(iter(engine.workers.values())).deployment.version
    return _name(engine.name) | {"version": version, "workers": workers}


def _name(name: EngineName) -> dict[str, Any]:
    return name._asdict() | {"formats": dict(name.formats), "drafts": name.drafts.model_dump()}


def _answer(answer: Answer, spec: SweepSpec) -> dict[str, Any]:
    content = {
        "group": answer.group,
        "values": dict(answer.values),
        "limits": answer.limits.model_dump(),
        "counts": dict(answer.counts),
        "best": {objective: _rows(frame) for objective, frame in answer.best.items()},
    }
    if answer.group == OVERALL and spec.pareto:
        content["front"] = _rows(answer.front)
    if spec.histogram:
        content["histogram"] = _rows(answer.histogram)
    return content


def _rows(frame: Frame) -> list[dict[str, Any]]:
    return list(frames.rows(frame))
