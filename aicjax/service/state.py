# SPDX-License-Identifier: Apache-2.0
"""What a service remembers: one JSON file for each record, in a directory that survives a restart."""

import json
import os
import re
import secrets
import tempfile
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from aicjax._results import AicjaxError, DataError

KINDS = ("traces", "fleets", "jobs")
_IDENTITY = re.compile(r"[0-9a-f]{12}")

Record = dict[str, Any]


class NotFound(AicjaxError):
    """No record has the identity that was asked for."""


def now() -> str:
    """The time, in UTC, as ISO 8601."""
    return datetime.now(UTC).isoformat().replace("+00:00", "Z")


class State:
    """Records by kind and identity. Writes replace whole files, so that a reader never sees half of one.

    Attributes:
        root: The directory.
    """

    def __init__(self, root: Path):
        self.root = root
        self._lock = threading.Lock()
        for kind in KINDS:
            (root / kind).mkdir(parents=True, exist_ok=True)

    def create(self, kind: str, record: Record) -> Record:
        """Writes a new record with an identity and the time of its creation, and returns it."""
        record = {**record, "id": secrets.token_hex(6), "created_at": now()}
        self._write(self.path(kind, record["id"]), record)
        return record

    def get(self, kind: str, identity: str) -> Record:
        """The record.

        Raises:
            NotFound: There is none.
        """
        try:
            return _read(self.path(kind, identity))
        except FileNotFoundError:
            raise _missing(kind, identity) from None

    def update(self, kind: str, identity: str, **changes: Any) -> Record:
        """Writes a record with some fields changed, and returns it.

        Raises:
            NotFound: There is none; a deleted record does not come back.
        """
        with self._lock:
            record = {**self.get(kind, identity), **changes}
            self._write(self.path(kind, identity), record)
        return record

    def delete(self, kind: str, identity: str) -> None:
        """Removes a record.

        Raises:
            NotFound: There is none.
        """
        with self._lock:
            try:
                self.path(kind, identity).unlink()
            except FileNotFoundError:
                raise _missing(kind, identity) from None

    def all(self, kind: str) -> list[Record]:
        """Every record of a kind, oldest first."""
        records = []
        for path in (self.root / kind).glob("*.json"):
            try:
                records.append(_read(path))
            except FileNotFoundError:
                continue  # deleted meanwhile
        return sorted(records, key=lambda record: (record["created_at"], record["id"]))

    def path(self, kind: str, identity: str, suffix: str = ".json") -> Path:
        """The file of a record.

        Raises:
            NotFound: The text is no identity.
        """
        if not _IDENTITY.fullmatch(identity):
            raise _missing(kind, identity)
        return self.root / kind / f"{identity}{suffix}"

    def _write(self, path: Path, record: Record) -> None:
        replace_file(path, json.dumps(record, allow_nan=False).encode())


def replace_file(path: Path, content: bytes) -> None:
    """Writes a file such that it has its old content or the new one, whenever the process ends."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".writing-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _read(path: Path) -> Record:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise DataError(f"{path}: not JSON ({error.msg} at line {error.lineno}).") from None


def _missing(kind: str, identity: str) -> NotFound:
    return NotFound(f"{kind.removesuffix('s').capitalize()} {identity!r} not found")
