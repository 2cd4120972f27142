# SPDX-License-Identifier: Apache-2.0
"""Every table of a real release answers as its published file does.

Set AICJAX_TEST_RELEASE to a wheel, or a folder that holds one unpacked. The rules of look-up are written here again,
apart from the importer's schema: which cells make a coordinate, which row of a coordinate counts, what is renamed.
"""

import os
from collections.abc import Iterator
from itertools import permutations
from pathlib import Path, PurePosixPath

import numpy as np
import pyarrow as pa
import pytest

from aicjax.tables.encoding import decode
from aicjax.tables.importer import import_database
from aicjax.tables.row_order import key_ids
from aicjax.tables.upstream import DATA, open_upstream
from tests.tables.test_import_order import first_come, nested_walk

RELEASE = os.environ.get("AICJAX_TEST_RELEASE")
pytestmark = [pytest.mark.slow, pytest.mark.skipif(not RELEASE, reason="AICJAX_TEST_RELEASE names no release")]

_HEADS = "num_heads batch_size"
_CONTEXT, _GENERATION = f"{_HEADS} isl", f"{_HEADS} isl+step"
_MOE = "moe_dtype distribution topk num_experts hidden_size inter_size moe_tp_size moe_ep_size num_tokens"
_SPARSE = "op_name architecture mla_dtype kv_cache_dtype gemm_type"
_LINEAR = "phase d_model d_conv num_k_heads head_k_dim num_v_heads head_v_dim batch_size seq_len"
COORDINATES = {
    "gemm_perf": "gemm_dtype m n k",
    "computescale_perf": "quant_dtype m k",
    "scale_matrix_perf": "quant_dtype m k",
    "context_attention_perf": "kernel_source attn_dtype kv_cache_dtype num_key_value_heads head_dim window_size "
    + _CONTEXT,
    "generation_attention_perf": "kernel_source kv_cache_dtype num_key_value_heads head_dim window_size " + _GENERATION,
    "encoder_attention_perf": "attn_dtype head_dim " + _CONTEXT,
    "custom_allreduce_perf": "num_gpus message_size",
    "nccl_perf": "nccl_dtype op_name num_gpus message_size",
    "oneccl_perf": "nccl_dtype op_name num_gpus message_size",
    "moe_perf": f"low_latency {_MOE}",
    "wideep_context_moe_perf": _MOE,
    "wideep_generation_moe_perf": _MOE,
    "wideep_moe_perf": f"kernel_source num_slots {_MOE}",
    "wideep_context_mlp_perf": "quant_type hidden_size intermediate_size num_token",
    "wideep_generation_mlp_perf": "quant_type hidden_size intermediate_size num_token",
    "moe_a2a_perf": "comm_backend phase comm_dtype ep_size node_num hidden_size topk num_experts sms num_tokens",
    "wideep_deepep_normal_perf": "node_num hidden_size num_topk num_experts dispatch_sms num_token",
    "wideep_deepep_ll_perf": "node_num hidden_size num_topk num_experts num_token",
    "trtllm_alltoall_perf": "kernel_source op_name moe_dtype moe_ep_size hidden_size topk num_experts num_tokens",
    "context_mla_perf": "mla_dtype kv_cache_dtype " + _CONTEXT,
    "generation_mla_perf": "kv_cache_dtype " + _GENERATION,
    "mla_bmm_perf": "bmm_dtype op_name num_heads num_tokens",
    "mla_context_module_perf": "model mla_dtype kv_cache_dtype gemm_type " + _CONTEXT,
    "mla_generation_module_perf": "model kv_cache_dtype gemm_type " + _GENERATION,
    "wideep_context_mla_perf": "kernel_source mla_dtype kv_cache_dtype " + _CONTEXT,
    "wideep_generation_mla_perf": "kernel_source kv_cache_dtype " + _GENERATION,
    "dsa_context_module_perf": f"{_SPARSE} lanes step {_CONTEXT}",
    "dsa_generation_module_perf": f"{_SPARSE} lanes {_GENERATION}",
    "msa_context_module_perf": f"{_SPARSE} lanes step {_CONTEXT}",
    "msa_generation_module_perf": f"{_SPARSE} lanes {_GENERATION}",
    **{
        f"dsv4_{kind}_{phase}_module_perf": f"mla_dtype kv_cache_dtype gemm_type tp_size {axes}"
        for kind in ("csa", "hca")
        for phase, axes in (("context", f"step {_CONTEXT}"), ("generation", _GENERATION))
    },
    "dsv4_csa_topk_calib_perf": "score_mode step " + _CONTEXT,
    "dsv4_hca_attn_module_perf": "tp_size step " + _CONTEXT,
    "dsv4_paged_mqa_logits_module_perf": "tp_size step " + _CONTEXT,
    "glm5_dsa_attn_module_perf": "step " + _CONTEXT,
    "glm5_mqa_logits_module_perf": "step " + _CONTEXT,
    "glm5_topk_module_perf": "score_mode step " + _CONTEXT,
    "mamba2_perf": (
        "kernel_source phase d_model d_state d_conv nheads head_dim n_groups chunk_size batch_size seq_len"
    ),
    "gdn_perf": f"kernel_source {_LINEAR}",
    "kda_perf": f"kernel_source {_LINEAR}",
    "mhc_module_perf": "op_name hc_mult hidden_size num_tokens",
    "dsv4_megamoe_module_perf": (
        f"phase kernel_source kernel_dtype pre_dispatch source_policy num_fused_shared_experts {_MOE}"
    ),
}
IN_MICROSECONDS = ("moe_a2a_perf",)
LAST_COUNTS = (
    "dsa_context_module_perf",
    "dsa_generation_module_perf",
    "msa_context_module_perf",
    "msa_generation_module_perf",
)
VALUES = {  # name in the database -> published name, unless both are `latency`
    "wideep_context_mlp_perf": {"latency": "avg_ms"},
    "wideep_generation_mlp_perf": {"latency": "avg_ms"},
    "wideep_deepep_ll_perf": {"dispatch_ms": "dispatch_avg_t_us", "combine_ms": "combine_avg_t_us"},
    "wideep_deepep_normal_perf": {
        f"{part}_ms": f"{part}_us"
        for part in ("dispatch_transmit", "dispatch_notify", "combine_transmit", "combine_notify")
    },
}
RENAMED_EXPERTS = {
    ("w4a8_mxfp4_mxfp8", "sglang_mxfp4_flashinfer_trtllm_moe"): "w4a8_mxfp4_mxfp8_trtllm",
    ("w4a16_mxfp4", "sglang_flashinfer_cutlass_moe"): "w4a16_mxfp4_cutlass",
}
RENAMED_KERNELS = dict.fromkeys(
    ("fused_recurrent_gated_delta_rule", "fused_recurrent_gated_delta_rule_packed_decode"),
    "fused_sigmoid_gating_delta_rule_update",
)


def _words(table: pa.Table, name: str) -> np.ndarray:
    if name not in table.column_names:
        return np.full(table.num_rows, "")
    return table[name].cast(pa.string()).fill_null("").to_numpy(zero_copy_only=False).astype(str)


def _lane(kernel: str, kv_cache: str) -> str:
    if kv_cache == "bfloat16" or kernel == "sglang_dsa_dense_mha_trtllm_ragged":
        return "both"
    return "trtllm" if "trtllm" in kernel else "flashmla_kv"


def _part(table: pa.Table, kind: str, name: str) -> np.ndarray:
    """One part of the coordinate of each row, after the renames of look-up."""
    if name == "isl+step":
        return table["isl"].to_numpy() + table["step"].to_numpy()
    if name in ("window_size", "sms"):
        return table[name].fill_null(0).to_numpy() if name in table.column_names else np.zeros(table.num_rows, int)
    if name == "low_latency":
        return _words(table, "kernel_source") == "moe_torch_flow_min_latency"
    if name == "lanes":
        pairs = zip(_words(table, "kernel_source"), _words(table, "kv_cache_dtype"), strict=True)
        return np.array([_lane(*pair) for pair in pairs])
    if name == "moe_dtype" and kind == "moe_perf":
        pairs = zip(_words(table, name), _words(table, "kernel_source"), strict=True)
        return np.array([RENAMED_EXPERTS.get(pair, pair[0]) for pair in pairs])
    if pa.types.is_integer(table[name].type):
        return table[name].to_numpy()
    words = _words(table, name)
    if name == "kernel_source" and kind == "gdn_perf":
        return np.array([RENAMED_KERNELS.get(word, word) for word in words])
    return np.where(words == "fp8_e4m3", "fp8", words)


def _admitted(table: pa.Table, kind: str) -> np.ndarray:
    """Rows that look-up admits, bool [row]."""
    if kind == "custom_allreduce_perf":
        eager = [np.char.endswith(_words(table, name), "_eager") for name in ("kernel_source", "backend")]
        return ~(eager[0] | eager[1])
    return np.ones(table.num_rows, bool)


def _winners(coordinates: np.ndarray, last: bool) -> tuple[np.ndarray, np.ndarray]:
    """Distinct coordinates, ascending, and the row of each that counts."""
    if not last:
        return np.unique(coordinates, return_index=True)
    distinct, backward = np.unique(coordinates[::-1], return_index=True)
    return distinct, len(coordinates) - 1 - backward


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, tuple[pa.Table, pa.Table]]]:
    """Published and stored rows of every table by its path."""
    assert RELEASE
    database = tmp_path_factory.mktemp("database")
    report = import_database(Path(RELEASE), database)
    with open_upstream(Path(RELEASE)) as upstream:
        yield {
            name: (decode(upstream.read(f"{DATA}/{name}"), name), decode((database / name).read_bytes(), name))
            for name in report.manifest.tables
        }


def test_every_coordinate_has_the_published_value(pairs: dict[str, tuple[pa.Table, pa.Table]]):
    for path, (published, stored) in pairs.items():
        kind = PurePosixPath(path).stem
        parts = [
            np.concatenate([_part(published, kind, name), _part(stored, kind, name)])
            for name in COORDINATES[kind].split()
        ]
        ids = key_ids([np.unique(part, return_inverse=True)[1] for part in parts], len(parts[0]))
        rows, kept = _admitted(published, kind), _admitted(stored, kind)
        wanted, first = _winners(ids[: len(rows)][rows], kind in LAST_COUNTS)
        found, place = _winners(ids[len(rows) :][kept], kind in LAST_COUNTS)
        np.testing.assert_array_equal(found, wanted, err_msg=path)
        for name, source in VALUES.get(kind, {"latency": "latency"}).items():
            per_ms = 1e3 if source.endswith("_us") or kind in IN_MICROSECONDS else 1.0
            exact = published[source].to_numpy()[rows][first] / per_ms
            np.testing.assert_allclose(stored[name].to_numpy()[kept][place], exact, rtol=6e-8, err_msg=path)


def test_texts_are_first_met_in_the_published_order(pairs: dict[str, tuple[pa.Table, pa.Table]]):
    for path, (published, stored) in pairs.items():
        kind = PurePosixPath(path).stem
        texts = [name for name in stored.column_names if pa.types.is_string(stored.schema.field(name).type)]
        if kind == "gemm_perf":
            texts = ["gemm_dtype"]
        for name in texts:
            assert first_come(_words(stored, name).tolist()) == first_come(_words(published, name).tolist()), path
        if kind == "moe_perf":
            low, low_stored = (_part(table, kind, "low_latency") for table in (published, stored))
            formats, formats_stored = (_part(table, kind, "moe_dtype") for table in (published, stored))
            for table in (False, True):
                met = first_come(formats_stored[low_stored == table].tolist())
                assert met == first_come(formats[low == table].tolist()), path


def test_gemm_sites_are_walked_in_the_published_order(pairs: dict[str, tuple[pa.Table, pa.Table]]):
    """For every file, and for every two files of one system one after the other."""
    files: dict[str, list[tuple[dict, dict]]] = {}
    for path, tables in pairs.items():
        if PurePosixPath(path).stem == "gemm_perf":
            files.setdefault(path.split("/")[0], []).append((_by_format(tables[0]), _by_format(tables[1])))
    assert files
    for system, sides in files.items():
        for chosen in [(side,) for side in sides] + list(permutations(sides, 2)):
            for format_ in {name for published, _ in chosen for name in published}:
                published, stored = (
                    [row for side in chosen for row in side[which].get(format_, [])] for which in (0, 1)
                )
                assert nested_walk(stored) == nested_walk(published), (system, format_)


def _by_format(table: pa.Table) -> dict[str, list[tuple[int, ...]]]:
    formats = _words(table, "gemm_dtype")
    columns = [table[name].to_numpy() for name in ("m", "n", "k")]
    return {
        format_: list(zip(*(column[formats == format_].tolist() for column in columns), strict=True))
        for format_ in first_come(formats.tolist())
    }
