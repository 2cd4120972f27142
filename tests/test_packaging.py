# SPDX-License-Identifier: Apache-2.0
"""The wheel carries its data: built, installed and run away from the checkout."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DEMO = (
    "search --model Qwen/Qwen3-32B-FP8 --system h200_sxm --total-gpus 8 "
    "--isl 4000 --osl 500 --ttft 1000 --tpot 20 --json"
).split()

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the sdist, and the wheel that is built from it."""
    target = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(target), str(ROOT)]
    subprocess.run(command, check=True, capture_output=True)
    return target


@pytest.fixture(scope="module")
def wheel(distributions: Path) -> Path:
    """The wheel."""
    (found,) = distributions.glob("*.whl")
    return found


def test_wheel_has_the_data_and_nothing_else_beside_the_package(wheel: Path):
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"aicjax"}
    for folder, suffix in (("systems", ".yaml"), ("perfdb", ".parquet"), ("configs", ".yaml")):
        packed = {name for name in names if name.startswith(f"aicjax/_data/{folder}/")}
        assert any(name.endswith(suffix) for name in packed), folder
    assert "aicjax/_data/configs/deploy/templates/bench.sh.j2" in names
    assert "aicjax/py.typed" in names


def test_installed_wheel_searches_from_an_empty_directory(wheel: Path, tmp_path: Path):
    environment, empty = tmp_path / "venv", tmp_path / "empty"
    empty.mkdir()
    venv.create(environment, with_pip=False)
    (site,) = environment.glob("lib/python*/site-packages")
    install = [sys.executable, "-m", "pip", "--python", environment, "install", "--no-deps", "--no-index", "-q", wheel]
    subprocess.run(install, check=True, capture_output=True)
    # The dependencies come from this interpreter's own packages; the checkout, if installed there, must stay hidden.
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    clean = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "AICJAX_DATA")}
    ran = subprocess.run(
        [environment / "bin" / "aicjax", *DEMO], cwd=empty, env=clean, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout)["chosen"] in ("agg", "disagg")
    where = subprocess.run(
        [environment / "bin" / "python", "-c", "import aicjax; print(aicjax.__file__)"],
        cwd=empty,
        env=clean,
        capture_output=True,
        text=True,
        check=True,
    )
    assert where.stdout.strip().startswith(str(site))
    assert not list(empty.iterdir())


def test_sdist_builds_outside_the_checkout(distributions: Path, tmp_path: Path):
    (sdist,) = distributions.glob("*.tar.gz")
    shutil.unpack_archive(sdist, tmp_path, filter="data")
    (source,) = tmp_path.iterdir()
    for name in ("pyproject.toml", "LICENSE", "NOTICE", "README.md", "aicjax/__init__.py", "tests/conftest.py"):
        assert (source / name).is_file(), name
