# SPDX-License-Identifier: Apache-2.0
"""Constants of fleets: every number has its unit, meaning and source."""

import dataclasses
from pathlib import Path

import pytest
import yaml

from aicjax._paths import constants_file
from aicjax._results import DataError, InputError
from aicjax.fleet.fleet_constants import FleetConstants, load_fleet_constants


def _stated() -> dict:
    return yaml.safe_load(constants_file("fleet").read_text(encoding="utf-8"))


def test_constants_are_those_of_the_file():
    found, stated = load_fleet_constants(), _stated()
    assert set(stated) == {field.name for field in dataclasses.fields(FleetConstants)}
    assert found.disagg.ttft_factor == stated["disagg"]["ttft_factor"]["value"] == 1.8


def test_a_number_without_a_source_is_refused(tmp_path: Path):
    stated = _stated()
    del stated["disagg"]["ttft_factor"]["source"]
    path = tmp_path / "own.yaml"
    path.write_text(yaml.safe_dump(stated))
    with pytest.raises(DataError, match="ttft_factor lacks"):
        load_fleet_constants(str(path))


@pytest.mark.parametrize(("section", "message"), [("power", "section power is missing"), (None, "does not know")])
def test_missing_and_unknown_entries_are_refused(tmp_path: Path, section: str | None, message: str):
    stated = _stated()
    if section is None:
        stated["power"]["more"] = dict(stated["power"]["idle_share"])
    else:
        del stated[section]
    path = tmp_path / "own.yaml"
    path.write_text(yaml.safe_dump(stated))
    with pytest.raises(DataError, match=message):
        load_fleet_constants(str(path))


def test_unknown_file_is_refused():
    with pytest.raises(InputError, match="constants"):
        load_fleet_constants("flet")
