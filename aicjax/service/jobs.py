# SPDX-License-Identifier: Apache-2.0
"""Jobs in the background: one at a time, remembered, and taken up again after a restart."""

import queue
import threading
from collections.abc import Callable, Mapping
from typing import Any

from aicjax._results import AicjaxError
from aicjax.service.state import NotFound, Record, State, now

PENDING, RUNNING, DONE, FAILED = "pending", "running", "done", "failed"
MOST_ATTEMPTS = 3  # starts of a job whose service ends before the job does

Run = Callable[[Record], Mapping[str, Any]]


class Busy(AicjaxError):
    """Too many jobs wait."""


class Jobs:
    """A queue of jobs and the thread that runs them.

    Attributes:
        most_waiting: Jobs that may wait.
    """

    def __init__(self, state: State, run: Run, *, most_waiting: int):
        """Takes the records, and what runs one: from the record of a job to the fields of its result."""
        self._state, self._run, self.most_waiting = state, run, most_waiting
        self._queue: queue.Queue[str | None] = queue.Queue()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Queues the jobs that an earlier service left, and starts to run."""
        for record in self._state.all("jobs"):
            if record["status"] not in (PENDING, RUNNING):
                continue
            if record["attempts"] >= MOST_ATTEMPTS:
                self._finish(record["id"], FAILED, error=f"the service ended {MOST_ATTEMPTS} times during this job")
                continue
            self._state.update("jobs", record["id"], status=PENDING, started_at=None)
            self._queue.put(record["id"])
        self._thread = threading.Thread(target=self._work, name="jobs", daemon=True)
        self._thread.start()

    def stop(self, timeout_s: float = 10.0) -> None:
        """Ends the thread after the job in hand; jobs that wait stay for the next start."""
        if self._thread is None:
            return
        while not self._queue.empty():
            self._queue.get_nowait()
        self._queue.put(None)
        self._thread.join(timeout_s)
        self._thread = None

    def submit(self, record: Record) -> Record:
        """Remembers a job and queues it.

        Raises:
            Busy: As many wait as may.
        """
        if self._queue.qsize() >= self.most_waiting:
            raise Busy(f"{self.most_waiting} jobs wait already; try again when one has ended")
        fields = {"status": PENDING, "started_at": None, "completed_at": None, "error": None, "attempts": 0}
        record = self._state.create("jobs", {**record, **fields})
        self._queue.put(record["id"])
        return record

    def _work(self) -> None:
        while (identity := self._queue.get()) is not None:
            try:
                self._one(identity)
            except NotFound:
                continue  # deleted while it waited or ran

    def _one(self, identity: str) -> None:
        attempts = self._state.get("jobs", identity)["attempts"] + 1
        record = self._state.update("jobs", identity, status=RUNNING, started_at=now(), attempts=attempts)
        try:
            self._finish(identity, DONE, **self._run(record))
        except AicjaxError as error:
            self._finish(identity, FAILED, error=" ".join(str(error).split()))
        except Exception as error:
            message = " ".join(str(error).split())
            self._finish(identity, FAILED, error=f"internal error, {type(error).__name__}: {message}")

    def _finish(self, identity: str, status: str, **fields: Any) -> None:
        self._state.update("jobs", identity, status=status, completed_at=now(), **fields)
