# SPDX-License-Identifier: Apache-2.0
"""The chunks of a sweep that one host does: the next ones prepared while the devices scan, finished ones logged."""

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from aicjax._results import InputError
from aicjax.sweeps.agg import AggWork
from aicjax.sweeps.disagg import DisaggWork
from aicjax.sweeps.fingerprint import fingerprint
from aicjax.sweeps.hosts import Hosts
from aicjax.sweeps.kept import Kept
from aicjax.sweeps.log import ChunkLog, read_logs
from aicjax.sweeps.row_files import RowFiles
from aicjax.sweeps.spec import SweepSpec

CHUNKS_AHEAD = 2  # prepared before the devices need them: what bounds the memory of a sweep
Work = AggWork | DisaggWork


class Progress(NamedTuple):
    """How far a host is.

    Attributes:
        done: Points done of its share.
        points: Points of its share.
        seconds: Time of this run.
        points_per_s: Rate of this run.
        seconds_left: Time that the rest takes at this rate.
    """

    done: int
    points: int
    seconds: float
    points_per_s: float
    seconds_left: float


class Share:
    """The share of one host, and its log.

    Attributes:
        kept: What is kept of the chunks done so far.
    """

    def __init__(self, work: Work, hosts: Hosts, out: Path | None, *, rows: bool = False):
        """Opens the log.

        Args:
            work: Does the chunks.
            hosts: The hosts.
            out: Directory of the logs; None for none.
            rows: Whether all points are written there.

        Raises:
            InputError: The directory cannot be used, or there is none for the rows.
        """
        spec = work.spec
        self.kept = Kept(spec.top_k)
        self._work, self._hosts, self._chunks = work, hosts, work.chunks()
        self._fingerprint = fingerprint(spec, self._chunks)
        self._logged: dict[int, bytes] = {}
        self._done: set[int] = set()
        self._left: list[int] = []
        self._log = self._files = None
        if rows:
            self._files = RowFiles(_directory_of_rows(spec, out))
        if out is not None:
            self._log = ChunkLog(out, hosts.number, self._fingerprint)
            self._logged = read_logs(out, self._fingerprint, hosts.number, hosts.count)

    def settle(self) -> None:
        """Agrees with the other hosts on who does what; all must call this.

        A chunk that the logs of several hosts have counts for the first of them. Of those that no log has, each host
        does every n-th.

        Raises:
            InputError: The hosts have different sweeps.
        """
        claim = self._fingerprint + np.array(sorted(self._logged), np.int64).tobytes()
        claims = self._hosts.gather(claim)
        size = len(self._fingerprint)
        if any(other[:size] != self._fingerprint for other in claims):
            raise InputError("spec", "another on each host", "the same on all hosts, with the same data")
        finished: set[int] = set()
        for host, other in enumerate(claims):
            logged = set(np.frombuffer(other[size:], np.int64).tolist())
            if host == self._hosts.number:
                self._done = logged - finished
            finished |= logged
        open_chunks = [number for number in range(len(self._chunks)) if number not in finished]
        self._left = open_chunks[self._hosts.number :: self._hosts.count]
        for number in sorted(self._done):
            self.kept.merge(Kept.unpack(self._logged[number]))
        self._logged.clear()

    def run(
        self,
        wished: threading.Event,
        report: Callable[[Progress], None] | None = None,
        notify: Callable[[str], None] | None = None,
    ) -> None:
        """Does the chunks that are left, until it is wished to stop.

        Args:
            wished: Set when it should stop.
            report: Called after each chunk.
            notify: Called with what to know beforehand.

        Raises:
            InputError: The disk has no room.
        """
        unwritten = (
            [] if self._files is None else [number for number in sorted(self._done) if not self._files.has(number)]
        )
        todo = [*unwritten, *self._left]
        if self._files is not None and (text := self._files.check_room(self._points(todo))) and notify is not None:
            notify(text)
        started, points = time.perf_counter(), self._points([*self._done, *self._left])
        before = done = points - self._points(todo)
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            for number, parts in self._prepared(pool, todo):
                if wished.is_set():
                    pool.shutdown(wait=False, cancel_futures=True)
                    break
                self._finish(number, parts)
                done += self._points([number])
                if report is not None:
                    report(_progress(done, points, before, time.perf_counter() - started))

    def _finish(self, number: int, parts: list[Any]) -> None:
        """Does a chunk; its rows are in their place before the log says that it is done."""
        chunk = self._chunks[number]
        if self._files is not None:
            assert isinstance(self._work, AggWork)
            self._files.write(number, self._work.tables(chunk, parts))
        if number in self._done:
            return
        found = self._work.keep(chunk, parts, self.kept)
        if self._log is not None:
            self._log.append(number, found.pack())
        self.kept.merge(found)

    def close(self) -> None:
        """Closes the log."""
        if self._log is not None:
            self._log.close()

    def _prepared(self, pool: ThreadPoolExecutor, numbers: Sequence[int]) -> Iterator[tuple[int, list[Any]]]:
        """Chunks by number, with what is prepared of their cases."""
        waiting = deque()
        for number in numbers:
            waiting.append((number, [pool.submit(self._work.prepare, case) for case in self._chunks[number]]))
            if len(waiting) > CHUNKS_AHEAD:
                first, futures = waiting.popleft()
                yield first, [future.result() for future in futures]
        for number, futures in waiting:
            yield number, [future.result() for future in futures]

    def _points(self, numbers: Sequence[int]) -> int:
        return sum(case.points for number in numbers for case in self._chunks[number])


def _directory_of_rows(spec: SweepSpec, out: Path | None) -> Path:
    if spec.serving_mode != "agg":
        raise InputError("rows", True, "left out: of pairs of workers only the best worker counts are evaluated")
    if out is None:
        raise InputError("rows", True, "given together with `out`, where the rows are written")
    return out


def _progress(done: int, points: int, before: int, seconds: float) -> Progress:
    rate = (done - before) / seconds
    return Progress(done, points, seconds, rate, (points - done) / rate)
