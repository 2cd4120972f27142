# SPDX-License-Identifier: Apache-2.0
"""Recorded requests with their times: files of several layouts in, arrays out; host side, float64.

A row that cannot be read is refused and counted, never dropped in silence; a file without a readable row is an error.
"""

import csv
import dataclasses
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from aicjax._names import one_of
from aicjax._results import DataError, InputError
from aicjax.fleet.lengths import Lengths, from_pairs

MOST_BYTES = 2**30
MOST_ROWS = 10_000_000
MOST_TOKENS = 10**8  # of a prompt or an answer
MOST_TIME_S = 1e12  # from zero: beyond every date, and float64 still tells milliseconds apart


class Layout(NamedTuple):
    """Names of the columns of a trace file.

    Attributes:
        time: Time of arrival: a number, or a date and time.
        isl, osl: Prompt and output tokens.
        model, category: Model that answered, and kind of the request; may be missing.
        hashes: Hashes of the blocks of the prompt from its start; may be missing.
        seconds: Seconds in a unit of numeric times.
        block_tokens: Tokens of a hashed block.
    """

    time: str
    isl: str
    osl: str
    model: str = "model"
    category: str = "category"
    hashes: str = "hash_ids"
    seconds: float = 1.0
    block_tokens: int = 512


LAYOUTS: Mapping[str, Layout] = {
    "azure": Layout("TIMESTAMP", "ContextTokens", "GeneratedTokens"),
    "splitwise": Layout("timestamp", "num_prefill_tokens", "num_decode_tokens"),
    "mooncake": Layout("timestamp", "input_length", "output_length", seconds=1e-3),
    "semantic_router": Layout("timestamp", "prompt_tokens", "generated_tokens", model="selected_model"),
}


@dataclasses.dataclass(frozen=True)
class Trace:
    """Requests in the order of their arrival.

    Attributes:
        time_s: Time of arrival since the first [s].
        isl, osl: Prompt and output tokens.
        model, category: Texts; empty where the file has none.
        repeated_tokens: Prompt tokens, from the start on, in blocks that an earlier request had too.
        refused: Rows of the file that could not be read.
        first_refusal: File, row, column and reason of the first of them; empty where there is none.
    """

    time_s: np.ndarray
    isl: np.ndarray
    osl: np.ndarray
    model: np.ndarray
    category: np.ndarray
    repeated_tokens: np.ndarray
    refused: int = 0
    first_refusal: str = ""

    def gaps_s(self) -> np.ndarray:
        """Time before each arrival [s]; that of the first is the mean of the others."""
        gaps = np.diff(self.time_s)
        return np.concatenate([[gaps.mean() if gaps.size else 0.0], gaps])

    @property
    def rate_per_s(self) -> float:
        """Mean rate of the arrivals; 0 where all come at once."""
        duration_s = float(self.time_s[-1])
        return (self.time_s.size - 1) / duration_s if duration_s > 0 else 0.0

    @property
    def gap_cv2(self) -> float:
        """Squared coefficient of variation of the gaps; 0 where all come at once."""
        gaps = np.diff(self.time_s)
        return float(np.var(gaps) / np.mean(gaps) ** 2) if self.rate_per_s > 0 else 0.0

    def lengths(self) -> Lengths:
        """The joint law of prompt and output tokens; times are left out."""
        return from_pairs(self.isl, self.osl)


def trace_of(gaps_s: np.ndarray, isl: np.ndarray, osl: np.ndarray) -> Trace:
    """A trace of made requests, such as arrivals of `arrivals.py` with lengths drawn from a law."""
    time_s = np.cumsum(np.asarray(gaps_s, np.float64))
    none = np.full(time_s.size, "")
    return Trace(time_s - time_s[0], np.asarray(isl), np.asarray(osl), none, none, np.zeros(time_s.size, np.int64))


def load_trace(
    path: Path | str,
    layout: str | Layout = "auto",
    columns: Mapping[str, str] | None = None,
    *,
    strict: bool = False,
    most_bytes: int = MOST_BYTES,
    most_rows: int = MOST_ROWS,
) -> Trace:
    """Reads a trace: JSON lines, or a table with commas or tabs between columns.

    Args:
        path: The file.
        layout: Name of a layout of `LAYOUTS`, a layout, or `auto` for the first whose columns are there.
        columns: Other names of columns: a field of `Layout` to a name in the file.
        strict: Whether a row that cannot be read is an error.
        most_bytes, most_rows: Largest file that is read.

    Raises:
        InputError: No such file, layout or field; a file that is too large.
        DataError: A column is missing, no row can be read, or one cannot and `strict` is set; names file, row, column.
    """
    path = Path(path)
    if not path.is_file():
        raise InputError("trace", str(path), "a readable file")
    if (size := path.stat().st_size) > most_bytes:
        raise InputError("trace", f"{path} of {size} bytes", f"at most {most_bytes} bytes")
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: byte {error.start}: not UTF-8 text") from error
    table = _Table.of_json_lines(path, text) if _is_json(path, text) else _Table.of_text(path, text)
    if len(table.row) > most_rows:
        raise InputError("trace", f"{path} of {len(table.row)} rows", f"at most {most_rows} rows")
    if not table.columns and table.refusals:
        raise DataError(table.first_refusal())
    return table.trace(_layout(path, layout, columns or {}, table.columns), strict)


def _is_json(path: Path, text: str) -> bool:
    return path.suffix in (".jsonl", ".ndjson") or text.lstrip()[:1] == "{"


def _layout(path: Path, layout: str | Layout, columns: Mapping[str, str], found: Mapping[str, Any]) -> Layout:
    if unknown := sorted(set(columns) - set(Layout._fields[:6])):
        raise InputError("columns", unknown[0], one_of(unknown[0], Layout._fields[:6]))
    if isinstance(layout, str) and layout not in (*LAYOUTS, "auto"):
        raise InputError("trace_format", layout, one_of(layout, ("auto", *LAYOUTS)))
    candidates = LAYOUTS.values() if layout == "auto" else [LAYOUTS[layout] if isinstance(layout, str) else layout]
    named = [candidate._replace(**columns) for candidate in candidates]
    missing = [[name for name in one[:3] if name not in found] for one in named]
    if [] in missing:
        return named[missing.index([])]
    has = f"the file has {', '.join(found) or 'none'}"
    if layout == "auto":
        raise DataError(f"{path}: row 1: columns fit none of {', '.join(LAYOUTS)}; {has}")
    raise DataError(f"{path}: row 1: column `{missing[0][0]}` is missing; {has}")


class _Table:
    """Columns of texts or JSON values, the row of the file that each entry comes from, and what was refused."""

    def __init__(self, path: Path, columns: dict[str, list[Any]], row: list[int], refusals: list[tuple[int, str]]):
        self.path, self.columns, self.row, self.refusals = path, columns, row, refusals

    @classmethod
    def of_json_lines(cls, path: Path, text: str) -> "_Table":
        records, row, refusals = [], [], []
        for number, line in enumerate(text.splitlines(), start=1):
            if not line.strip():
                continue
            try:
                record = json.loads(line)
            except (ValueError, RecursionError):
                record = None
            if isinstance(record, dict):
                records.append(record)
                row.append(number)
            else:
                refusals.append((number, "not a JSON object"))
        names = dict.fromkeys(name for record in records for name in record)
        return cls(path, {name: [record.get(name) for record in records] for name in names}, row, refusals)

    @classmethod
    def of_text(cls, path: Path, text: str) -> "_Table":
        header = text.partition("\n")[0]
        rows = csv.reader(io.StringIO(text), delimiter="\t" if "\t" in header else ",")
        names, records, row, refusals = [], [], [], []
        try:
            names = [name.strip() for name in next(rows, [])]
            for record in rows:
                if len(record) == len(names):
                    records.append(record)
                    row.append(rows.line_num)
                elif record:
                    refusals.append((rows.line_num, f"{len(record)} columns instead of {len(names)}"))
        except csv.Error as error:
            refusals.append((rows.line_num, str(error)))
        columns = [list(column) for column in zip(*records, strict=True)] or [[] for _ in names]
        return cls(path, dict(zip(names, columns, strict=True)), row, refusals)

    def first_refusal(self) -> str:
        """File, row and reason of the first refused row; empty where there is none."""
        if not self.refusals:
            return ""
        row, reason = min(self.refusals)
        return f"{self.path}: row {row}: {reason}"

    def trace(self, layout: Layout, strict: bool) -> Trace:
        time_s = self._read(layout.time, lambda column: _times(column, layout.seconds), "a time")
        isl, osl = (self._read(name, _tokens, f"1 to {MOST_TOKENS} tokens") for name in layout[1:3])
        good = np.isfinite(time_s) & np.isfinite(isl) & np.isfinite(osl)
        if self.refusals and (strict or not good.any()):
            raise DataError(self.first_refusal())
        if not good.any():
            raise DataError(f"{self.path}: row 2: a trace needs at least one request")
        order = np.flatnonzero(good)[np.argsort(time_s[good], kind="stable")]
        return Trace(
            time_s=time_s[order] - time_s[order[0]],
            isl=isl[order].astype(np.int64),
            osl=osl[order].astype(np.int64),
            model=self._texts(layout.model)[order],
            category=self._texts(layout.category)[order],
            repeated_tokens=self._repeated(layout, order, isl),
            refused=len({number for number, _ in self.refusals}),
            first_refusal=self.first_refusal(),
        )

    def _read(self, name: str, convert: Any, wanted: str) -> np.ndarray:
        """A column as numbers, NaN where a row is refused."""
        values = convert(self.columns[name])
        self.refusals += [
            (self.row[i], f"column `{name}` must be {wanted}, but got {str(self.columns[name][i])[:40]!r}")
            for i in np.flatnonzero(np.isnan(values))
        ]
        return values

    def _texts(self, name: str) -> np.ndarray:
        column = self.columns.get(name, [None] * len(self.row))
        return np.array(["" if value is None else str(value).strip() for value in column])

    def _repeated(self, layout: Layout, order: np.ndarray, isl: np.ndarray) -> np.ndarray:
        """Tokens of the leading blocks that were seen before."""
        repeated = np.zeros(order.size, np.int64)
        if layout.hashes not in self.columns:
            return repeated
        seen: set[Any] = set()
        for place, i in enumerate(order):
            blocks = self.columns[layout.hashes][i]
            blocks = [str(block) for block in blocks] if isinstance(blocks, list) else []
            known = next((number for number, block in enumerate(blocks) if block not in seen), len(blocks))
            repeated[place] = min(known * layout.block_tokens, isl[i])
            seen.update(blocks)
        return repeated


def _tokens(column: Sequence[Any]) -> np.ndarray:
    values = _numbers(column)
    return np.where((values >= 1) & (values <= MOST_TOKENS) & (values == np.floor(values)), values, np.nan)


def _times(column: Sequence[Any], seconds: float) -> np.ndarray:
    values = _numbers(column) * seconds
    if np.isnan(values).all():
        values = np.array([_date_s(value) for value in column], np.float64)
    return np.where(np.abs(values) <= MOST_TIME_S, values, np.nan)


def _numbers(column: Sequence[Any]) -> np.ndarray:
    try:
        return np.array(column, np.float64)
    except (TypeError, ValueError, OverflowError):
        return np.array([_number(value) for value in column], np.float64)


def _number(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return np.nan


def _date_s(value: Any) -> float:
    """Seconds since 1970 of a date and time, UTC where no zone stands."""
    try:
        date = datetime.fromisoformat(str(value).strip())
    except ValueError:
        return np.nan
    zoned = date if date.tzinfo else datetime.fromisoformat(f"{date.isoformat()}+00:00")
    return zoned.timestamp()


def pool_labels(texts: Iterable[str], pools: Sequence[str]) -> np.ndarray:
    """Numbers of the pools that texts (models, or labels of a classifier) name; -1 where none has the name."""
    number = {name: i for i, name in enumerate(pools)}
    return np.array([number.get(text, -1) for text in texts], np.int32)
