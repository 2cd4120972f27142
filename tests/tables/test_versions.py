# SPDX-License-Identifier: Apache-2.0
"""Version slots: aliases, the derived next version, and what is refused."""

import itertools

import pytest

from aicjax._results import InputError
from aicjax.tables import available, resolve_version, version_slots
from aicjax.tables.versions import slot_order


@pytest.fixture
def fleet(database):
    """Two systems on the default slots and one with its own."""
    for place in (
        "s/gemm/vllm/1.0.0",
        "s/gemm/vllm/0.9.0",
        "t/gemm/vllm/1.0.0",
        "t/moe/vllm/1.1.0",
        "u/gemm/vllm/2.0.0",
    ):
        database.table(f"{place}/gemm_perf")
    defaults = {"vllm": {"current": "1.0.0", "previous": None}, "sglang": {"current": "0.5.0", "previous": None}}
    overrides = {"u": {"vllm": {"current": "2.0.0", "previous": "1.9.0"}}}
    database.document("version_slots", {"schema_version": 1, "defaults": defaults, "overrides": overrides})
    return database


@pytest.mark.parametrize(
    ("system", "backend", "version", "resolved"),
    [
        ("h200_sxm", "trtllm", None, "1.3.0rc20"),
        ("h200_sxm", "trtllm", "next", "1.3.0rc23"),
        ("h200_sxm", "sglang", "current", "0.5.14"),
        ("b200_sxm", "sglang", "next", "0.5.16"),
        ("h100_sxm", "vllm", "0.24.0", "0.24.0"),
        ("h100_sxm", "vllm", "next", "0.27.0"),  # measured elsewhere
        ("a100_sxm", "sglang", None, "0.5.10"),
        ("b60", "vllm", "previous", "0.20.0"),
    ],
)
def test_shipped_slots_resolve(system, backend, version, resolved):
    assert resolve_version(system, backend, version) == resolved


def test_next_is_the_newest_measured_on_any_system_with_default_slots(fleet):
    assert version_slots("s", "vllm") == {"current": "1.0.0", "next": "1.1.0"}
    assert resolve_version("s", "vllm", "next") == "1.1.0"


def test_own_slots_of_a_system_have_no_next(fleet):
    assert version_slots("u", "vllm") == {"current": "2.0.0", "previous": "1.9.0"}
    with pytest.raises(InputError, match=r"one of current \(2\.0\.0\), previous \(1\.9\.0\), but got 'next'"):
        resolve_version("u", "vllm", "next")


def test_slot_without_measurements_on_the_system_is_refused(fleet):
    with pytest.raises(InputError, match=r"one of 2\.0\.0"):
        resolve_version("u", "vllm", "previous")


def test_measured_version_outside_the_slots_must_be_allowed(fleet):
    with pytest.raises(
        InputError, match=r"for vllm on s one of current \(1\.0\.0\), next \(1\.1\.0\), but got '0\.9\.0'"
    ):
        resolve_version("s", "vllm", "0.9.0")
    assert resolve_version("s", "vllm", "0.9.0", allow_unlisted=True) == "0.9.0"
    with pytest.raises(InputError, match="version"):
        resolve_version("s", "vllm", "0.8.0", allow_unlisted=True)


def test_backend_that_is_not_measured_is_refused_with_those_that_are(fleet):
    with pytest.raises(InputError, match=r"`backend` must be one with measured tables on s \(vllm\), but got 'sglang'"):
        resolve_version("s", "sglang", None)
    with pytest.raises(InputError, match="no measured tables"):
        resolve_version("unmeasured", "vllm", "current")
    assert resolve_version("unmeasured", "vllm", "1.0.0") == "1.0.0"


def test_unknown_backend_is_refused_with_the_nearest(fleet):
    with pytest.raises(InputError, match=r"did you mean vllm\?"):
        resolve_version("s", "vLLMs", None)


def test_without_slots_a_version_must_be_named(database):
    database.table("s/gemm/vllm/1.0.0/gemm_perf")
    assert resolve_version("s", "vllm", "1.0.0") == "1.0.0"
    with pytest.raises(InputError, match=r"one of 1\.0\.0"):
        resolve_version("s", "vllm", None)


def test_slots_are_ordered_by_release_candidate_and_trailing_number():
    ascending = ["odd", "0.1.dev7", "0.14", "0.14.0.post1", "1.3.0rc3", "1.3.0rc20", "1.3.0", "v1.3.1_fix2", "1.10.0"]
    assert all(slot_order(a) < slot_order(b) for a, b in itertools.pairwise(ascending))


def test_available_lists_tables_newest_version_first(fleet):
    fleet.table("t/moe/vllm/1.1.0/moe_perf")
    assert list(available("t")["vllm"].items()) == [("1.1.0", ("gemm_perf", "moe_perf")), ("1.0.0", ("gemm_perf",))]
    assert available("unmeasured") == {}
