# SPDX-License-Identifier: Apache-2.0
"""System files: the shipped ones load, a broken one is refused with file, key and rule."""

import copy
import pickle
from pathlib import Path

import pytest
import yaml

from aicjax._results import DataError, InputError, MissingPeak
from aicjax.hardware import load_system, system_names

MINIMAL = {
    "gpu": {
        "memory_bandwidth_bytes_per_s": 2.0e12,
        "memory_capacity_bytes": 80 * 2**30,
        "peak_flops_per_s": {"bfloat16": 4.0e14},
        "power_w": 400,
    },
    "node": {
        "gpus_per_node": 8,
        "intra_node_bandwidth_bytes_per_s": 3.0e11,
        "inter_node_bandwidth_bytes_per_s": 5.0e10,
    },
    "runtime": {"nccl_memory_bytes": {1: 0, 8: 411041792}, "other_memory_bytes": 0},
}


def write(directory: Path, *changes: tuple[str, str, object]) -> Path:
    """MINIMAL with some (section, key, value) changed, as `mine.yaml`; a value of None drops the key."""
    document = copy.deepcopy(MINIMAL)
    for section, key, value in changes:
        document[section].pop(key, None)
        if value is not None:
            document[section][key] = value
    (directory / "mine.yaml").write_text(yaml.safe_dump(document))
    return directory


@pytest.mark.parametrize("name", system_names())
def test_every_shipped_system_loads(name):
    system = load_system(name)
    assert system.name == name
    assert system.peak("bfloat16") > 0
    assert system.mem_capacity_bytes > 2**34
    assert system.nccl_mem_bytes[1] == 0
    assert system.intra_node_bw_bytes_per_s <= 1e12, "bytes, one way"


@pytest.mark.parametrize(
    ("name", "bandwidth", "bfloat16", "fp8", "sm", "intra", "inter", "nccl"),
    [
        ("h100_sxm", 3.35e12, 9.89e14, 1.978e15, 90, 4.5e11, 5e10, "2.27.3"),
        ("h200_sxm", 4.8e12, 9.89e14, 1.978e15, 90, 4.5e11, 5e10, "2.26.2"),
        ("b200_sxm", 7.7e12, 2.25e15, 4.5e15, 100, 9e11, 1e11, "2.27.3"),
    ],
)
def test_main_systems_have_their_published_numbers(name, bandwidth, bfloat16, fp8, sm, intra, inter, nccl):
    system = load_system(name)
    assert (system.mem_bw_bytes_per_s, system.mem_bw_scaling, system.mem_latency_s) == (bandwidth, 0.8, 3e-6)
    assert (system.peak("bfloat16"), system.peak("fp8"), system.sm_version) == (bfloat16, fp8, sm)
    assert (system.intra_node_bw_bytes_per_s, system.inter_node_bw_bytes_per_s) == (intra, inter)
    assert (system.gpus_per_node, system.gpus_per_rack, system.p2p_latency_s) == (8, None, 1e-5)
    assert system.nccl_version == nccl


def test_missing_peak_is_an_error_not_a_multiple_of_another():
    with pytest.raises(MissingPeak, match="h100_sxm states no peak for fp4; it has bfloat16, int8, fp8"):
        load_system("h100_sxm").peak("fp4")


def test_link_follows_the_span_of_the_group():
    system = load_system("gb200")
    links = [system.p2p_bw(gpus) for gpus in (1, 4, 5, 72, 73)]
    assert links == [9e11, 9e11, 9e11, 9e11, 1e11]
    system = load_system("h200_sxm")
    assert [system.p2p_bw(gpus) for gpus in (8, 9, 4096)] == [4.5e11, 5e10, 5e10]


def test_left_out_keys_have_neutral_values(tmp_path):
    system = load_system("mine", write(tmp_path))
    assert (system.mem_bw_scaling, system.mem_latency_s, system.p2p_latency_s) == (1.0, 0.0, 0.0)
    assert (system.sm_version, system.gpus_per_rack, system.nccl_version) == (None, None, None)
    assert system.inter_rack_bw_bytes_per_s == system.inter_node_bw_bytes_per_s
    assert system_names(tmp_path) == ["mine"]


def test_systems_are_values(tmp_path):
    first, second = load_system("l4"), load_system("l4")
    assert first == second and hash(first) == hash(second)
    assert pickle.loads(pickle.dumps(first)) == first


def test_unsigned_exponent_is_a_number(tmp_path):
    write(tmp_path, ("gpu", "memory_bandwidth_bytes_per_s", "3.35e12"))
    assert load_system("mine", tmp_path).mem_bw_bytes_per_s == 3.35e12


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("gpu", "memory_bandwidth_bytes_per_s", 0), "memory_bandwidth_bytes_per_s: must be above zero, but is 0"),
        (("node", "intra_node_bandwidth_bytes_per_s", -1.0), "intra_node_bandwidth_bytes_per_s: must be above zero"),
        (("gpu", "memory_bandwidth_bytes_per_s", float("nan")), "must be finite"),
        (("gpu", "memory_bandwidth_bytes_per_s", "fast"), "must be a number, but is 'fast'"),
        (("gpu", "memory_bandwidth_bytes_per_s", True), "must be a number"),
        (("gpu", "memory_bandwidth_scaling", 1.5), "must not be above 1"),
        (("gpu", "memory_latency_s", -1e-6), "must not be negative"),
        (("gpu", "memory_capacity_bytes", 1.5), "must be a whole number"),
        (("gpu", "memory_capacity_bytes", None), "gpu.memory_capacity_bytes is missing"),
        (("gpu", "peak_flops_per_s", {"bf16": 1e15}), r"bf16 must be one of .* \(did you mean bfloat16\?\)"),
        (("gpu", "peak_flops_per_s", {"bfloat16": 0}), "bfloat16 must be above zero"),
        (("gpu", "peak_flops_per_s", {}), "must give a peak by data type"),
        (("gpu", "memory_bandwith_bytes_per_s", 1e12), "did you mean memory_bandwidth_bytes_per_s?"),
        (("node", "colour", 1), "node.colour is not a known key$"),
        (("runtime", "nccl_version", 2.27), "must be a quoted version, but is 2.27"),
        (("runtime", "nccl_memory_bytes", {0: 1}), "0 must be above zero"),
        (("runtime", "other_memory_bytes", 0.5), "must be a whole number of bytes"),
    ],
)
def test_broken_file_is_refused(tmp_path, change, message):
    with pytest.raises(DataError, match=message) as caught:
        load_system("mine", write(tmp_path, change))
    assert str(tmp_path / "mine.yaml") in str(caught.value)


@pytest.mark.parametrize("text", ["gpu: [1", "- gpu", "gpu: 3", "{}"])
def test_file_of_another_form_is_refused(tmp_path, text):
    (tmp_path / "mine.yaml").write_text(text)
    with pytest.raises(DataError, match=r"mine\.yaml"):
        load_system("mine", tmp_path)


@pytest.mark.parametrize(("name", "guess"), [("H100_SXM", "h100_sxm"), ("h100sxm", "h100_sxm"), ("gb-200", "gb200")])
def test_unknown_system_lists_the_names_and_the_nearest(name, guess):
    with pytest.raises(InputError, match=rf"a100_pcie, .*\(did you mean {guess}\?\)"):
        load_system(name)


def test_unknown_directory_is_refused():
    with pytest.raises(InputError, match="directory of system descriptions"):
        system_names("/no/such/place")
