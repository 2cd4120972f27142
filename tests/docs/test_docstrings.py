# SPDX-License-Identifier: Apache-2.0
"""The examples of docstrings run as they stand."""

import doctest
import importlib

import pytest

from tests.docs.pages import ROOT

MODULES = sorted(
    path.relative_to(ROOT).with_suffix("").as_posix().replace("/", ".")
    for path in (ROOT / "aicjax").rglob("*.py")
    if "\n    >>> " in path.read_text(encoding="utf-8") or "\n        >>> " in path.read_text(encoding="utf-8")
)


def test_there_are_examples():
    assert len(MODULES) > 5


@pytest.mark.parametrize("module", MODULES)
def test_examples_of_docstrings_hold(module: str):
    found = doctest.testmod(importlib.import_module(module), optionflags=doctest.ELLIPSIS)
    assert found.attempted > 0
    assert found.failed == 0
