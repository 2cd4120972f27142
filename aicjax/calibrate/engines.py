# SPDX-License-Identifier: Apache-2.0
"""Numbers that engines give for measured rows: rows on the same engine are bound once and evaluated in one call."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from aicjax._results import AicjaxError
from aicjax.calibrate.mapping import Configuration, Rules, Stated, map_rows
from aicjax.calibrate.measurements import Flags, Floats, Measurements, Strings
from aicjax.calibrate.plan import Attempt, RoleWorker, role_worker
from aicjax.constants import load_constants
from aicjax.explore.evaluation import Evaluation
from aicjax.explore.request import BACKENDS
from aicjax.explore.space import Role
from aicjax.forward.bound import StepCurves
from aicjax.serving.coordinates import Coordinates

# A row is answered by the first attempt that can: measured data alone, then estimates; then both with experts that span
# nodes exchanging by ordinary collectives, since the node of a rack system is not the domain of its links.
ATTEMPTS = (
    Attempt("SILICON", "measured"),
    Attempt("HYBRID", "measured"),
    Attempt("SILICON", "never"),
    Attempt("HYBRID", "never"),
)


class Pricing(Protocol):
    """What is asked of the engines, and where the answers go; a batch has the fields `rows` and `worker`."""

    @property
    def columns(self) -> Mapping[str, tuple[int, ...]]:
        """Shape of a row's entry in each column of answers."""
        ...

    def plan(self, rows: Measurements, of: RoleWorker, coordinates: Coordinates) -> Iterable[Any]:
        """Rows of one worker by load; adds what they need to `coordinates`."""
        ...

    def fill(self, batch: Any, curves: StepCurves, configs: Sequence[int], answers: dict[str, Floats]) -> None:
        """Writes the answers of one batch into its rows; `configs` are the worker's layouts on the curves."""
        ...

    def finish(self, rows: Measurements, batches: Sequence[Any], answers: dict[str, Floats]) -> None:
        """Completes the rows once all batches are filled."""
        ...


@dataclass(frozen=True)
class Answers:
    """Answers of engines; NaN where there is none.

    Attributes:
        columns: Answers by name [row, ...].
        attempt: Label of the attempt that answered [row]; "" for none.
        reason: Why there is no answer [row]; "" where there is one.
    """

    columns: Mapping[str, Floats]
    attempt: Strings
    reason: Strings

    @property
    def answered(self) -> Flags:
        """Rows with an answer."""
        return self.attempt != ""


def price(rows: Measurements, pricing: Pricing, constants: str, rules: Rules, stated: Stated | None = None) -> Answers:
    """Answers for measured rows, each by the first attempt that gives all of its columns.

    Rows that no attempt answers as their launch has it are answered as their checkpoint has it.

    Args:
        rows: Measured servers.
        pricing: What is asked.
        constants: Name of the empirical numbers under `configs/constants/`, or path of a file of them.
        rules: How rows are mapped to configurations; recorded labels are priced by the rules of AIConfigurator.
        stated: What launches state of the rows; None for nothing.

    Raises:
        InputError: No such constants.
    """
    load_constants(BACKENDS[0], constants)
    configurations, codes = map_rows(rows, rules, stated)
    models = np.array([configuration.model for configuration in configurations])[codes]
    columns = _unknown(pricing, len(rows))
    attempts, reasons = np.full((2, len(rows)), "", object)
    known = np.where(rows.is_agg, rows.agg.known, rows.prefill.known & rows.decode.known)
    reasons[~known] = "workers unknown"
    compat = "reference" if rules == "labels" else "default"
    for attempt in (plain._replace(compat=compat) for plain in ATTEMPTS):
        for model in np.unique(models):
            at = np.flatnonzero(known & (attempts == "") & (models == model))
            if not at.size:
                continue
            of_row = [configurations[code] for code in codes[at]]
            found, reasons[at] = _price_model(rows.take(at), of_row, pricing, constants, attempt)
            complete = np.all([np.isfinite(v).reshape(len(at), -1).all(axis=1) for v in found.values()], axis=0)
            attempts[at[complete]], reasons[at[complete]] = attempt.label, ""
            for name, values in found.items():
                columns[name][at] = values
    unanswered = np.flatnonzero(known & (attempts == ""))
    if stated is not None and unanswered.size:
        again = price(rows.take(unanswered), pricing, constants, rules)
        attempts[unanswered], reasons[unanswered] = again.attempt, again.reason
        for name, values in again.columns.items():
            columns[name][unanswered] = values
    return Answers(columns, attempts.astype(str), reasons.astype(str))


def _price_model(
    rows: Measurements, configurations: Sequence[Configuration], pricing: Pricing, constants: str, attempt: Attempt
) -> tuple[dict[str, Floats], NDArray[Any]]:
    """Answers for rows of one model and what they lack: all engines planned first, each evaluated once."""
    answers, evaluation, batches = _unknown(pricing, len(rows)), Evaluation(), list[Any]()
    reason = np.full(len(rows), "missing data", object)
    formats = np.unique([str(c[1:]) for c in configurations], return_inverse=True)[1]
    engine = np.unique(np.stack([formats, rows.codes(("system", "backend"))]), axis=1, return_inverse=True)[1].ravel()
    roles: tuple[Role, ...] = ("agg", "prefill", "decode")
    for role in roles:
        of_role = rows.is_agg == (role == "agg")
        for code in np.unique(engine[of_role]):
            at = np.flatnonzero(of_role & (engine == code))
            try:
                workers = role_worker(rows, at, role, configurations[at[0]], constants, attempt)
                batches += pricing.plan(rows, workers, evaluation.add(workers.worker))
            except AicjaxError as error:
                reason[at] = str(error)
            else:
                reason[list(workers.refused)] = list(workers.refused.values())
    for batch in batches:
        try:
            pricing.fill(batch, *evaluation.curves(batch.worker), answers)
        except AicjaxError as error:
            reason[batch.rows] = str(error)
    pricing.finish(rows, batches, answers)
    return answers, reason


def _unknown(pricing: Pricing, rows: int) -> dict[str, Floats]:
    return {name: np.full((rows, *shape), np.nan) for name, shape in pricing.columns.items()}
