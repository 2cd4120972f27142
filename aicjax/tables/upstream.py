# SPDX-License-Identifier: Apache-2.0
"""Where the published measurements lie: a directory, an unpacked or installed wheel, or the wheel file itself."""

import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from email.parser import HeaderParser
from pathlib import Path

from aicjax._results import InputError

DATA = "data"  # folder of measured tables in the published layout, below the folder of system descriptions
_SYSTEMS = "systems"
_METADATA = "METADATA"
_DIST_INFO = ".dist-info"
_UNKNOWN = "unknown"


@dataclass(frozen=True)
class Upstream:
    """A published set of measurements.

    Attributes:
        package: Name of the package it came in, `unknown` for a bare directory.
        version: Version of that package.
        licence: SPDX expression of its licence.
        names: Paths of all files below the folder of system descriptions, ascending, with forward slashes.
        read: Bytes of one of these files.
    """

    package: str
    version: str
    licence: str
    names: tuple[str, ...]
    read: Callable[[str], bytes]


@contextmanager
def open_upstream(source: Path) -> Iterator[Upstream]:
    """The measurements at `source`, for the duration of a `with` block.

    Args:
        source: A folder with `data/`, one that holds it as `systems/` or `<package>/systems/` (an unpacked wheel, a
            site-packages folder), or a wheel file.

    Raises:
        InputError: There is no such layout.
    """
    if source.is_file() and zipfile.is_zipfile(source):
        with zipfile.ZipFile(source) as wheel:
            yield _in_wheel(wheel, source)
        return
    for folder in (source, source / _SYSTEMS, *sorted(source.glob(f"*/{_SYSTEMS}"))):
        if (folder / DATA).is_dir():
            yield _in_folder(folder)
            return
    raise InputError("source", str(source), f"a wheel file or a folder with {_SYSTEMS}/{DATA}/")


def _in_folder(folder: Path) -> Upstream:
    names = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    package = folder.resolve().parent
    about = next(package.parent.glob(f"{package.name}-*{_DIST_INFO}/{_METADATA}"), None)
    metadata = about.read_text(encoding="utf-8") if about else ""
    return Upstream(*_about(metadata), tuple(names), lambda name: (folder / name).read_bytes())


def _in_wheel(wheel: zipfile.ZipFile, source: Path) -> Upstream:
    members = [name for name in wheel.namelist() if not name.endswith("/")]
    marker = f"{_SYSTEMS}/{DATA}/"
    prefix = next((name.partition(marker)[0] + f"{_SYSTEMS}/" for name in members if marker in name), None)
    if prefix is None:
        raise InputError("source", str(source), f"a wheel with {marker}")
    names = sorted(name.removeprefix(prefix) for name in members if name.startswith(prefix))
    about = next((name for name in members if name.endswith(f"{_DIST_INFO}/{_METADATA}")), None)
    metadata = wheel.read(about).decode("utf-8") if about else ""
    return Upstream(*_about(metadata), tuple(names), lambda name: wheel.read(prefix + name))


def _about(metadata: str) -> tuple[str, str, str]:
    """Name, version and licence as the metadata of a wheel state them."""
    headers = HeaderParser().parsestr(metadata)
    return (
        headers.get("Name", _UNKNOWN),
        headers.get("Version", _UNKNOWN),
        headers.get("License-Expression") or headers.get("License") or _UNKNOWN,
    )
