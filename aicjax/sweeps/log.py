# SPDX-License-Identifier: Apache-2.0
"""The log of a sweep: what is kept of each finished chunk, appended as it is finished.

A log is a header (format and fingerprint of the sweep) and one record a chunk: its number, the length of the content,
the content, and a CRC-32 of all that. A process that is killed leaves at most one torn record at the end, which is cut
off.
"""

import fcntl
import os
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

from aicjax._results import InputError

_FORMAT = b"aicjax sweep log 1\n"
_FINGERPRINT_BYTES = 32
_HEADER_BYTES = len(_FORMAT) + _FINGERPRINT_BYTES
_HEAD = struct.Struct("<QQ")  # number of the chunk, length of the content
_CHECK = struct.Struct("<I")  # CRC-32 of both and the content
_PREFIX = "chunks-"


class ChunkLog:
    """The log that one host writes; no other process may have it open.

    Attributes:
        path: The file.
    """

    def __init__(self, directory: Path, host: int, fingerprint: bytes):
        """Opens the log, new or with what an earlier run wrote.

        Args:
            directory: Where it is, made if it is not there.
            host: Number of the host that writes it.
            fingerprint: Of the sweep.

        Raises:
            InputError: The directory cannot be written, has the log of another sweep, or another process writes it.
        """
        self.path = directory / f"{_PREFIX}{host}.log"
        try:
            directory.mkdir(parents=True, exist_ok=True)
            self._file = self.path.open("a+b")
        except OSError as error:
            raise InputError("out", str(directory), f"a directory that can be written ({error.strerror})") from None
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._file.close()
            raise InputError("out", str(directory), "a directory that no other sweep writes at this time") from None
        try:
            self._restore(_FORMAT + fingerprint)
        except InputError:
            self._file.close()
            raise

    def append(self, number: int, content: bytes) -> None:
        """Adds the record of a chunk; it outlives the process, and the machine, once this returns.

        Raises:
            InputError: The disk is full.
        """
        record = _HEAD.pack(number, len(content)) + content
        try:
            self._file.write(record + _CHECK.pack(zlib.crc32(record)))
            self._sync()
        except OSError as error:
            raise InputError(
                "out", str(self.path.parent), f"on a disk that can be written ({error.strerror})"
            ) from None

    def close(self) -> None:
        """Lets other processes have it."""
        self._file.close()

    def _restore(self, header: bytes) -> None:
        """Cuts off what is torn, and writes the header where there is none."""
        self._file.seek(0)
        content = self._file.read()
        _check(content, header, self.path)
        end = _HEADER_BYTES if len(content) >= _HEADER_BYTES else 0
        for _, record, _ in _records(content):
            end = record
        if end < len(content):
            self._file.truncate(end)
        if not end:
            self._file.write(header)
        self._sync()

    def _sync(self) -> None:
        self._file.flush()
        os.fsync(self._file.fileno())


def read_logs(directory: Path, fingerprint: bytes, host: int, hosts: int) -> dict[int, bytes]:
    """Contents of finished chunks by number, from the logs that are a host's share of those in a directory.

    Logs are shared out by their number, so that a sweep may be resumed by another number of hosts.

    Args:
        directory: Where the logs are.
        fingerprint: Of the sweep.
        host, hosts: Number of the host, and of hosts.

    Raises:
        InputError: A log is of another sweep.
    """
    found: dict[int, bytes] = {}
    for path in sorted(directory.glob(f"{_PREFIX}*.log")):
        writer = path.stem.removeprefix(_PREFIX)
        if writer.isdecimal() and int(writer) % hosts == host:
            content = path.read_bytes()
            _check(content, _FORMAT + fingerprint, path)
            found |= {number: record for number, _, record in _records(content)}
    return found


def _check(content: bytes, header: bytes, path: Path) -> None:
    """Refuses a log whose header is another one, as far as it is there."""
    if not header.startswith(content[:_HEADER_BYTES]):
        allowed = f"an empty directory, or that of the same sweep on the same data ({path.name} is of another)"
        raise InputError("out", str(path.parent), allowed)


def _records(content: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Number of the chunk, end of the record and its content, of all whole records."""
    start = _HEADER_BYTES
    while start + _HEAD.size <= len(content):
        number, length = _HEAD.unpack_from(content, start)
        end = start + _HEAD.size + length
        check = content[end : end + _CHECK.size]
        if check != _CHECK.pack(zlib.crc32(content[start:end])):
            return
        yield number, end + _CHECK.size, content[start + _HEAD.size : end]
        start = end + _CHECK.size
