# SPDX-License-Identifier: Apache-2.0
"""Writing of checked files, and checking of files that lie in a directory."""

from collections.abc import Mapping
from pathlib import Path

from aicjax._results import InputError
from aicjax.deploy.checks import SCRIPTS, problems, require
from aicjax.deploy.render import RECORD_FILE


def write(files: Mapping[str, str], folder: Path) -> None:
    """Writes files that pass every check; when one fails nothing is written.

    Raises:
        FailedCheck: A check fails.
        InputError: The folder cannot be written.
    """
    require(files)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (folder / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError("save_dir", str(folder), f"a folder that can be written ({error.strerror})") from None


def check_directory(directory: Path) -> dict[str, list[str]]:
    """Problems of every deployment in a directory, by its folder.

    Raises:
        InputError: There is no deployment.
    """
    folders = sorted(path.parent for path in directory.rglob(RECORD_FILE))
    if not folders:
        raise InputError("directory", str(directory), f"a directory with a {RECORD_FILE}")
    return {str(folder): problems(_read(folder)) for folder in folders}


def _read(folder: Path) -> dict[str, str]:
    names = sorted(path for path in folder.iterdir() if path.suffix in (".json", ".md", ".yaml", *SCRIPTS))
    return {path.name: path.read_text(encoding="utf-8") for path in names}
