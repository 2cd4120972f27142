# SPDX-License-Identifier: Apache-2.0
"""What a search found beyond the coarse grid, and by which change, in a line and as plain values."""

from typing import Any

from aicjax._names import counted
from aicjax.explore import frame as frames
from aicjax.explore.columns import CLUSTER
from aicjax.explore.grid_gain import GridGain
from aicjax.explore.result import SearchResult
from aicjax.report import phrases
from aicjax.report.rows import Row, rows

_NEEDED = "total_gpus_needed"
_NOTHING = 0.05  # percent; less is told as nothing


def lines(result: SearchResult) -> list[str]:
    """One line: how much better every experiment is than on the coarse grid, the winner first; none without one."""
    tasks = sorted(result.tasks.values(), key=lambda task: task is not result.winner)
    gains = {task.name: task.grid_gain for task in tasks if task.meets_target}
    told = [f"{name} {_gain(gain, first=not at)}" for at, (name, gain) in enumerate(gains.items()) if gain is not None]
    grid = result.request.grid_name
    return [f"  {grid} grid: {'; '.join(told)}"] if told else []


def as_dict(gain: GridGain | None) -> dict[str, Any] | None:
    """A gain as plain Python values."""
    if gain is None:
        return None
    return {
        "grid": gain.grid,
        "base": gain.base,
        "percent": gain.percent,
        "base_meets_target": gain.base_meets_target,
        "base_row": frames.row(gain.base_best, 0) if frames.length(gain.base_best) else None,
        "change": change(gain),
    }


def change(gain: GridGain) -> str:
    """What the better row has instead of what the coarser one has; empty where they are alike or there is none."""
    if not frames.length(gain.base_best):
        return ""
    new, old = (_row(frame) for frame in (gain.best, gain.base_best))
    if [(w.role, w.layout) for w in new.workers] != [(w.role, w.layout) for w in old.workers]:
        return f"{phrases.composition(new.workers)} instead of {phrases.composition(old.workers)}"
    changed = []
    for worker, former in zip(new.workers, old.workers, strict=True):
        role = "" if worker.role == "agg" else f"{worker.role} "
        if worker.batch != former.batch:
            changed.append(f"{role}batch {worker.batch} instead of {former.batch}")
        if worker.count != former.count:
            changed.append(f"{worker.count} {worker.role} workers instead of {former.count}")
    budgets = [int(frame["ctx_tokens"][0]) for frame in (gain.best, gain.base_best) if "ctx_tokens" in frame]
    if len(set(budgets)) == 2:
        changed.append(f"ctx_tokens {budgets[0]} instead of {budgets[1]}")
    return " and ".join(changed)


def _gain(gain: GridGain, *, first: bool) -> str:
    """A gain in words; the first one says over what."""
    where = "the coarse grid"
    if not gain.base_meets_target:
        return f"meets the limits, on {where} nothing does"
    assert gain.percent is not None
    source = f", from {change(gain)}" if gain.percent >= _NOTHING and change(gain) else ""
    if _NEEDED in gain.best:
        gpus, base = (int(frame[_NEEDED][0]) for frame in (gain.best, gain.base_best))
        needed = counted(gpus, "GPU")
        return f"{needed}, as on {where}" if gpus == base else f"{needed} instead of {base} on {where}{source}"
    over = f" over {where}" if first else ""
    return f"{round(gain.percent, 1) + 0.0:+.1f} %{over} ({gain.base_best[CLUSTER][0]:.2f}){source}"


def _row(frame: frames.Frame) -> Row:
    return rows(frame, None if _NEEDED in frame else int(frame["num_total_gpus"][0]))[0]
