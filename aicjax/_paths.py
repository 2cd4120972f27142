# SPDX-License-Identifier: Apache-2.0
"""Where the data lie: `systems/`, `perfdb/` and `configs/`, in a checkout or inside the installed wheel."""

import os
from pathlib import Path

from aicjax._names import one_of
from aicjax._results import InputError

DATA_ENV = "AICJAX_DATA"  # a directory that holds systems/, perfdb/ and configs/


def data_root() -> Path:
    """Directory that holds `systems/`, `perfdb/` and `configs/`: $AICJAX_DATA, the wheel's copy or the checkout."""
    if override := os.environ.get(DATA_ENV):
        return Path(override)
    package = Path(__file__).resolve().parent
    bundled = package / "_data"
    return bundled if bundled.is_dir() else package.parent


def systems_dir() -> Path:
    """Directory of system descriptions."""
    return data_root() / "systems"


def perfdb_dir() -> Path:
    """Directory of measured tables."""
    return data_root() / "perfdb"


def configs_dir() -> Path:
    """Directory of model, constant, workload and experiment files."""
    return data_root() / "configs"


def constants_file(name: str) -> Path:
    """The file of empirical constants that a name stands for: a bundled one, or the path of a `.yaml` file.

    Raises:
        InputError: No such file.
    """
    stated = Path(name)
    if stated.suffix in (".yaml", ".yml"):
        if not stated.is_file():
            raise InputError("constants", name, "a readable YAML file")
        return stated
    path = configs_dir() / "constants" / f"{name}.yaml"
    if not path.is_file():
        bundled = sorted(other.stem for other in path.parent.glob("*.yaml"))
        raise InputError("constants", name, f"{one_of(name, bundled)}, or a path that ends in .yaml")
    return path
