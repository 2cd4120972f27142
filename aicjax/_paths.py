# SPDX-License-Identifier: Apache-2.0
"""Where the data lie: `systems/`, `perfdb/` and `configs/`, in a checkout or inside the installed wheel."""

import os
from pathlib import Path

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
