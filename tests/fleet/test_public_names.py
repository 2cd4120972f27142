# SPDX-License-Identifier: Apache-2.0
"""The names of `aicjax.fleet`: each is there, and none is imported before it is used."""

import subprocess
import sys

import aicjax.fleet


def test_every_name_is_imported_from_its_module():
    for name in dir(aicjax.fleet):
        value = getattr(aicjax.fleet, name)
        assert getattr(value, "__name__", name) == name


def test_requests_are_read_without_jax():
    check = "import sys; from aicjax.fleet.requests import SizeRequest; sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0
