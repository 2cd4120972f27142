# SPDX-License-Identifier: Apache-2.0
"""A small release in the published layout: two systems, a few tables, and every sidecar file the importer reads."""

import zipfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

PACKAGE = "measurements_core"
GEMM = "h200_sxm/gemm/trtllm/1.3.0rc20/gemm_perf"
CONTEXT = "h200_sxm/attention/trtllm/1.3.0rc20/context_attention_perf"
SPARSE = "h200_sxm/sparse_attention/sglang/0.5.14/dsa_generation_module_perf"
ALL_TO_ALL = "gb200/comm/trtllm/1.3.0rc20/moe_a2a_perf"
SCALE = "h200_sxm/quantize/trtllm/1.3.0rc20/computescale_perf"
ALLREDUCE = "gb200/comm/trtllm/1.3.0rc20/custom_allreduce_perf"

_GEMM = ("gemm_dtype", "m", "n", "k", "latency")
Columns = dict[str, list[Any]]


def gemm_columns(rows: list[tuple[str, int, int, int, float]], kernel: str = "cublas") -> Columns:
    columns: Columns = {name: list(cells) for name, cells in zip(_GEMM, zip(*rows, strict=True), strict=True)}
    return {
        **_path_columns(len(rows)),
        "op_name": ["gemm"] * len(rows),
        "kernel_source": [kernel] * len(rows),
        **columns,
    }


def _path_columns(rows: int) -> Columns:
    return {"framework": ["TRTLLM"] * rows, "version": ["1.3.0rc20"] * rows, "device": ["NVIDIA H200"] * rows}


def tables() -> dict[str, Columns]:
    """Columns of each table by its path below the folder of tables, without suffix."""
    return {
        GEMM: gemm_columns(
            [
                ("fp8", 64, 512, 256, 0.5),
                ("bfloat16", 64, 512, 256, 1.0),
                ("fp8", 32, 512, 256, 0.25),
                ("fp8", 64, 128, 256, 0.125),
                ("fp8", 64, 512, 256, 9.0),  # a repetition: the first one counts
            ]
        ),
        CONTEXT: {
            **_path_columns(3),
            "op_name": ["context_attention"] * 3,
            "kernel_source": ["lane_b", "lane_a", "lane_b"],
            "batch_size": [1, 1, 1],
            "isl": [16, 16, 1],
            "num_heads": [8] * 3,
            "num_key_value_heads": [1] * 3,
            "head_dim": [128] * 3,
            "beam_width": [1] * 3,
            "attn_dtype": ["bfloat16"] * 3,
            "kv_cache_dtype": ["fp8"] * 3,
            "step": [0] * 3,
            "latency": [0.3, 0.2, 0.1],
        },
        SPARSE: {
            **_path_columns(2),
            "op_name": ["dsa_generation_module"] * 2,
            "kernel_source": ["default"] * 2,
            "model": ["zai-org/GLM-5"] * 2,
            "architecture": ["GlmMoeDsaForCausalLM"] * 2,
            "mla_dtype": ["bfloat16"] * 2,
            "kv_cache_dtype": ["bfloat16"] * 2,
            "gemm_type": ["bfloat16"] * 2,
            "num_heads": [64, 64],
            "batch_size": [1, 1],
            "isl": [1, 1],
            "tp_size": [1, 1],
            "step": [7, 7],
            "latency": [0.5, 0.4],  # a correction: the last one counts
        },
        ALL_TO_ALL: {
            "op_name": ["moe_a2a"],
            "kernel_source": ["deepep"],
            "comm_backend": ["deepep_ll"],
            "phase": ["dispatch"],
            "comm_dtype": ["default"],
            **{name: [8] for name in ("ep_size", "hidden_size", "topk", "num_experts", "num_tokens")},
            "node_num": [1],
            "sms": pa.array([None], pa.int64()),
            "transmit_us": [25.0],
            "notify_us": [0.0],
            "latency": [25.0],
        },
        SCALE: {
            **_path_columns(2),
            "op_name": ["compute_scale"] * 2,
            "kernel_source": ["torch_ops"] * 2,
            "m": [1, 2],
            "k": [32, 32],
            "quant_dtype": ["fp8"] * 2,
            "latency": [0.0, 0.001],  # a difference of timings
        },
        ALLREDUCE: {
            "kernel_source": ["graph", "other_eager"],
            "allreduce_dtype": ["bfloat16"] * 2,
            "num_gpus": [2, 2],
            "message_size": [256, 128],
            "latency": [0.01, 0.02],
            "backend": ["trtllm", None],
        },
    }


DOCUMENTS = {
    "query_versions.yaml": "schema_version: 1\ndefaults:\n  trtllm: {current: '1.3.0rc20', previous: null}\n",
    "attention_lane_defaults.yaml": "sglang:\n  '0.5.14':\n    90: fa3\n",
    "perf_data_reuse_manifest.yaml": (
        "groups:\n"
        "- {op_file: gdn_perf.txt, kernel_source: conv, tier: shared, frameworks: [sglang, vllm]}\n"
        "- {op_file: gdn_perf.parquet, kernel_source: gone, tier: absence_load_bearing, frameworks: [sglang]}\n"
    ),
    "data/h200_sxm/gemm/trtllm/1.3.0rc20/collection_meta.yaml": (
        "schema_version: 1\nprovenance: collected\ntables:\n  gemm_perf: {status: partial}\n"
    ),
    "data/h200_sxm/gemm/trtllm/1.3.0rc23/reuse.yaml": (
        "schema_version: 1\nreuse:\n"
        "- {table: gemm_perf, from_version: 1.3.0rc20, reason: the kernels did not change, approved_by: someone}\n"
    ),
    "data/h200_sxm/gemm/vllm/0.24.0/INCOMPLETE.txt": "",
    "data/a30/.gitkeep": "",
}
INCOMPLETE = "h200_sxm/gemm/vllm/0.24.0/gemm_perf"
UNKNOWN = "h200_sxm/gemm/trtllm/1.3.0rc20/novel_perf"


def write_release(folder: Path, changed: dict[str, Columns] | None = None) -> Path:
    """Writes the release as an unpacked wheel.

    Args:
        folder: Where to.
        changed: Tables that replace or extend those of `tables`.

    Returns:
        The folder.
    """
    systems = folder / PACKAGE / "systems"
    found = tables()
    found |= {INCOMPLETE: found[GEMM], UNKNOWN: {"x": [1]}} | (changed or {})
    for name, columns in found.items():
        path = systems / "data" / f"{name}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table(columns), path)
    for name, text in DOCUMENTS.items():
        path = systems / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    info = folder / f"{PACKAGE}-0.12.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        "Metadata-Version: 2.4\nName: measurements-core\nVersion: 0.12.0\nLicense-Expression: Apache-2.0\n",
        encoding="utf-8",
    )
    return folder


def write_wheel(release: Path, path: Path) -> Path:
    """The same release as a wheel file."""
    with zipfile.ZipFile(path, "w") as wheel:
        for file in sorted(release.rglob("*")):
            if file.is_file():
                wheel.write(file, file.relative_to(release).as_posix())
    return path
