# SPDX-License-Identifier: Apache-2.0
"""Forward passes: every row is one prefill, decode or mixed step, or a whole static decode, of one layout."""

import dataclasses
import json
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from aicjax._results import AicjaxError
from aicjax.compat import REFERENCE
from aicjax.forward.bound import StepCurves, bind
from aicjax.forward.encoder import encoder_times
from aicjax.hardware import System, load_system
from aicjax.ops.database import INTERPOLATING
from aicjax.ops.records import Fallback, MlaBmm, Overlap
from aicjax.serving.coordinates import Coordinates, Places
from aicjax.serving.load import Load
from aicjax.serving.static import decode_samples
from aicjax.tables import resolve_version
from benchmarks.parity_cases.comparison import NO_DATA, Comparison, outcome_of, stored_outcome
from benchmarks.parity_cases.stored import StoredRows
from benchmarks.parity_cases.workers import IMAGES, ROLES, TABLES, WORKER, StoredWorker, stored_images, stored_worker

_STRIDE = 32


class Term(NamedTuple):
    """A part of the latency of some rows, each coordinate of which counts `weight` times.

    Attributes:
        rows: Row of each coordinate.
        places: Where the step times lie.
        weight: How often each counts.
        label: What its operator is reported as; empty for its own name.
        products: Whether of the products of latent attention with its absorbed weights alone.
    """

    rows: np.ndarray
    places: Places
    weight: np.ndarray
    label: str = ""
    products: bool = False

    def layouts(self, config: np.ndarray, workers: int) -> np.ndarray:
        """Bound layout of each coordinate: those of the workers, then those of their products alone."""
        return config[self.rows] + workers * self.products


def forward(rows: StoredRows) -> Comparison:
    """Latency of every pass, and of each of its operators; one call for each (system, backend, version, mode)."""
    comparison = Comparison(stored_outcome(rows["error"]))
    for (*tables, mode), at in rows.groups(*TABLES, "database_mode"):
        _compare_group(rows, at[comparison.answered[at]], (tables[0], tables[1], tables[2]), mode, comparison)
    return comparison


def _compare_group(
    rows: StoredRows, at: np.ndarray, tables: tuple[str, str, str], mode: str, comparison: Comparison
) -> None:
    where = (load_system(tables[0]), tables[1], resolve_version(*tables))
    workers: list[StoredWorker] = []
    config = np.full(len(rows), -1)
    for key, members in rows.take(at).groups(*WORKER):
        try:
            worker = stored_worker(tables, key, shared=mode in INTERPOLATING)
            bind(*where, [worker.operators], mode=mode, compat=REFERENCE)
        except AicjaxError as error:
            comparison.fail(at[members], outcome_of(error))
        else:
            config[at[members]] = len(workers)
            workers.append(worker)
    at = at[(config[at] >= 0) & (rows["phase"][at] != "build")]
    if not len(at):
        return
    for role in ROLES:
        formats = np.array([getattr(workers[c].quantisation, role) for c in config[at]], object)
        comparison.same(at, f"{role}_quant", rows[f"{role}_quant"][at], formats)
    encoder = rows["phase"][at] == "encoder"
    _compare_encoder(rows, at[encoder], where, mode, config, workers, comparison)
    at, coordinates = at[~encoder], Coordinates()
    terms = [term for phase in _PHASES for term in _PHASES[phase](rows, at[rows["phase"][at] == phase], coordinates)]
    op_lists = [worker.operators for worker in workers]
    if any(term.products for term in terms):
        op_lists += [dataclasses.replace(lists, generation=_products(lists.generation)) for lists in op_lists]
    curves = bind(*where, op_lists, mode=mode, compat=REFERENCE).evaluate(coordinates.queries())
    layouts = [term.layouts(config, len(workers)) for term in terms]
    _compare_totals(rows, at, layouts, terms, curves, comparison)
    _compare_operators(rows, at, layouts, terms, curves, comparison)


def _products(operators: tuple[Any, ...]) -> tuple[Any, ...]:
    """The products of latent attention with its absorbed weights, also those that stand in for a measured block.

    What overlaps a product, the shorter rotation, goes with it.
    """
    found = []
    for item in operators:
        if isinstance(item, Fallback):
            found.append(dataclasses.replace(item, fallback=_products(item.fallback)))
        elif isinstance(item, MlaBmm) or (isinstance(item, Overlap) and _products(item.first)):
            found.append(item)
    return tuple(found)


def _compare_totals(
    rows: StoredRows,
    at: np.ndarray,
    layouts: Sequence[np.ndarray],
    terms: Sequence[Term],
    curves: StepCurves,
    comparison: Comparison,
) -> None:
    latency_ms = np.zeros(len(rows))
    for term, layout in zip(terms, layouts, strict=True):
        step_ms = term.places.values(curves)[layout, np.arange(len(term.rows))]
        np.add.at(latency_ms, term.rows, term.weight * step_ms)
    comparison.fail(at[np.isnan(latency_ms[at])], NO_DATA)
    comparison.number(at, "latency_ms", rows["latency_ms"][at], latency_ms[at])


def _compare_operators(
    rows: StoredRows,
    at: np.ndarray,
    layouts: Sequence[np.ndarray],
    terms: Sequence[Term],
    curves: StepCurves,
    comparison: Comparison,
) -> None:
    found: dict[int, dict[str, float]] = {row: {} for row in at.tolist()}
    for term, layout in zip(terms, layouts, strict=True):
        points = term.places.start + term.places.inverse
        asked = (values.tolist() for values in (term.rows, layout, points, term.weight))
        for row, config, point, weight in zip(*asked, strict=True):
            part = curves.breakdown(term.places.part, config, point)
            for name, ms in zip(part.names, part.latency_ms.tolist(), strict=True):
                name = term.label or name
                found[row][name] = found[row].get(name, 0.0) + weight * ms
    for row in at[comparison.answered[at]].tolist():
        _compare_names(rows, row, found[row], comparison)


def _compare_names(rows: StoredRows, row: int, ours: dict[str, float], comparison: Comparison) -> None:
    """Operators of one row, by name; of a row that was stored as a whole, none."""
    stored = json.loads(str(rows["per_op_json"][row]) or "{}")
    ours = ours if stored else {}
    for name in stored.keys() | ours.keys():
        comparison.number(np.array([row]), name, stored.get(name, 0.0), ours.get(name, 0.0))


def _compare_encoder(
    rows: StoredRows,
    at: np.ndarray,
    where: tuple[System, str, str],
    mode: str,
    config: np.ndarray,
    workers: Sequence[StoredWorker],
    comparison: Comparison,
) -> None:
    """The pass of a vision encoder; one call for each size of images."""
    for (model, *sides), members in rows.take(at).groups("model", *IMAGES):
        here, images = at[members], stored_images(model, *sides)
        assert images is not None, "an encoder runs on images"
        layouts, batches = np.unique(config[here]), np.unique(rows["batch"][here])
        op_lists = [workers[layout].operators for layout in layouts]
        times = encoder_times(*where, op_lists, images, batches, mode=mode, compat=REFERENCE)
        for row in here.tolist():
            cell = int(np.searchsorted(layouts, config[row])), int(np.searchsorted(batches, rows["batch"][row]))
            comparison.fail(np.array([row])[np.isnan(times.latency_ms[cell])], NO_DATA)
            comparison.number(np.array([row]), "latency_ms", rows["latency_ms"][row], times.latency_ms[cell])
            spent = times.breakdown(*cell)
            _compare_names(rows, row, dict(zip(spent.names, spent.latency_ms.tolist(), strict=True)), comparison)


def _context(rows: StoredRows, at: np.ndarray, coordinates: Coordinates) -> Iterator[Term]:
    """A prefill of the whole batch; images lengthen the prompts."""
    images = [stored_images(*key) for key in zip(*(rows[n][at].tolist() for n in ("model", *IMAGES)), strict=True)]
    seen = np.array([0 if image is None else image.prompt_tokens for image in images], np.int64)
    batch, new, prefix = rows["batch"][at], rows["isl"][at] + seen - rows["prefix"][at], rows["prefix"][at]
    once = np.ones(len(at))
    yield Term(at, coordinates.context_rest(batch, new, prefix), once)
    yield Term(at, coordinates.context_attention(batch, new, prefix), once)


def _generation(rows: StoredRows, at: np.ndarray, coordinates: Coordinates) -> Iterator[Term]:
    """All decode steps of a static batch, one in `_STRIDE` priced.

    A single output token takes no step, whatever is measured. Requests have no beams: rows with beams are asked as
    wider batches of everything but attention and its products with absorbed weights, which take another term.
    """
    at = at[rows["osl"][at] > 1]
    batch = rows["batch"][at] * (rows["nextn"][at] + 1)
    samples = [
        decode_samples(Load(isl, osl), _STRIDE) for isl, osl in zip(rows["isl"][at], rows["osl"][at], strict=True)
    ]
    count = [len(kv_len) for kv_len, _ in samples]
    kv_len, weight = (np.concatenate([[], *parts]) for parts in zip(*samples, strict=True)) if samples else ([], [])
    steps = np.array([weights.sum() for _, weights in samples])
    yield Term(at, coordinates.generation_rest(batch * rows["beam"][at]), steps)
    for part in (coordinates.generation_attention, coordinates.generation_other):
        yield Term(np.repeat(at, count), part(np.repeat(batch, count), kv_len), np.array(weight))
    beams = rows["beam"][at] > 1
    if beams.any():
        at, batch, steps = at[beams], batch[beams], steps[beams]
        for query_rows, sign in ((batch * rows["beam"][at], -1), (batch, 1)):
            yield Term(at, coordinates.generation_rest(query_rows), sign * steps, products=True)


def _decode(rows: StoredRows, at: np.ndarray, coordinates: Coordinates) -> Iterator[Term]:
    """One decode step of in-flight batching."""
    at = at[rows["gen_tokens"][at] > 0]
    query_rows, once = rows["gen_tokens"][at] * (rows["nextn"][at] + 1), np.ones(len(at))
    yield Term(at, coordinates.generation_rest(query_rows), once)
    yield Term(at, coordinates.generation_attention(query_rows, _mid_length(rows, at)), once)
    yield Term(at, coordinates.generation_other(query_rows, _mid_length(rows, at)), once)


def _mixed(rows: StoredRows, at: np.ndarray, coordinates: Coordinates) -> Iterator[Term]:
    """One step of in-flight batching with prompt tokens and decode rows."""
    budget, isl, prefix = (rows[name][at] for name in ("ctx_tokens", "isl", "prefix"))
    query_rows = rows["gen_tokens"][at] * (rows["nextn"][at] + 1)
    cached = prefix * (budget // isl)
    yield Term(at, coordinates.context_rest(1, budget + query_rows - cached, cached), np.ones(len(at)))
    prompts, chunks = -(-budget // isl), np.maximum(-(-isl // np.maximum(budget, 1)), 1)
    attention = coordinates.context_attention(prompts, isl - prefix, prefix)
    yield Term(at, attention, (budget > 0) / chunks, "context_attention (scaled)")
    decodes = query_rows > 0
    attention = coordinates.generation_attention(query_rows[decodes], _mid_length(rows, at[decodes]))
    yield Term(at[decodes], attention, np.ones(decodes.sum()))


def _mid_length(rows: StoredRows, at: np.ndarray) -> np.ndarray:
    """Cached tokens at which in-flight batching prices a decode step."""
    lengths = zip(rows["isl"][at].tolist(), rows["osl"][at].tolist(), strict=True)
    return np.array([Load(isl, osl).mid_kv_len for isl, osl in lengths], np.int64)


_PHASES = {"context": _context, "generation": _generation, "decode": _decode, "mixed": _mixed}
