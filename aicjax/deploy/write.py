# SPDX-License-Identifier: Apache-2.0
"""Writing of checked files, and checking of files that lie in a directory."""

import re
import tempfile
from collections.abc import Mapping
from pathlib import Path

from aicjax._results import InputError
from aicjax.deploy.checks import problems, require
from aicjax.deploy.file_checks import SCRIPTS
from aicjax.deploy.readme import README_FILE
from aicjax.deploy.render import RECORD_FILE

_LISTED = re.compile(r"^- `([^`/]+)`:", re.MULTILINE)  # files that a page lists
_ENDINGS = (".json", ".md", ".yaml", *SCRIPTS)
_KEPT = ".old"  # behind the name of a file of an earlier deployment


def write(files: Mapping[str, str], folder: Path) -> None:
    """Writes the files of one deployment: `write_all` of one folder."""
    write_all({folder: files})


def write_all(deployments: Mapping[Path, Mapping[str, str]]) -> None:
    """Writes the files of deployments, by folder, that pass every check; when one fails nothing is written.

    A file that an earlier deployment left in a folder and that the new one does not have is kept as `NAME.old`.

    Raises:
        FailedCheck: A check fails.
        InputError: A folder cannot be written.
    """
    for files in deployments.values():
        require(files)
    for folder, files in deployments.items():
        try:
            _replace(folder, files)
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            raise InputError("save_dir", str(folder), f"a folder that can be written ({reason})") from None


def _replace(folder: Path, files: Mapping[str, str]) -> None:
    """Puts files in place of those of an earlier deployment, once all of them are on the disk."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".new-", dir=folder) as name:
        new = Path(name)
        for file, text in files.items():
            (new / file).write_text(text, encoding="utf-8")
        for stale in _earlier(folder) - files.keys():
            (folder / stale).replace(folder / (stale + _KEPT))
        for file in files:
            (new / file).replace(folder / file)


def _earlier(folder: Path) -> set[str]:
    """Files of a deployment that lies in a folder, as its page lists them."""
    page = folder / README_FILE
    if not ((folder / RECORD_FILE).is_file() and page.is_file()):
        return set()
    listed = _LISTED.findall(page.read_text(encoding="utf-8", errors="replace"))
    return {name for name in listed if (folder / name).is_file()}


def check_directory(directory: Path) -> dict[str, list[str]]:
    """Problems of every deployment in a directory, by its folder.

    Raises:
        InputError: There is no deployment.
    """
    folders = sorted(path.parent for path in directory.rglob(RECORD_FILE))
    if not folders:
        raise InputError("directory", str(directory), f"a directory with a {RECORD_FILE}")
    return {str(folder): _problems_in(folder) for folder in folders}


def _problems_in(folder: Path) -> list[str]:
    files, unreadable = {}, []
    for path in sorted(folder.iterdir()):
        if path.suffix in _ENDINGS and path.is_file():
            try:
                files[path.name] = path.read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError):
                unreadable.append(f"{path.name} cannot be read as text in UTF-8")
    return unreadable or problems(files)
