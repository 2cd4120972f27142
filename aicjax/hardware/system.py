# SPDX-License-Identifier: Apache-2.0
"""One GPU system as numbers: what a roofline, a link and a memory budget need."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from aicjax._results import MissingPeak

PEAK_DTYPES = ("bfloat16", "int8", "fp8", "fp4", "float32")


@dataclass(frozen=True)
class System:
    """Peaks, links and memory of one GPU system; every rate is per GPU, every bandwidth one way.

    Attributes:
        name: The name of its file, e.g. `h100_sxm`; its measured tables lie under the same name.
        mem_bw_bytes_per_s: Peak memory bandwidth [B/s].
        mem_bw_scaling: Share of that peak which memory-bound operators reach.
        mem_latency_s: Fixed time of a memory-bound operator [s].
        mem_capacity_bytes: Memory of one GPU [B].
        peak_flops: Peak dense matrix rate [FLOP/s] by data type, a subset of `PEAK_DTYPES`.
        sm_version: Compute capability times ten, None where the notion does not apply.
        power_w: Rated board power of one GPU [W].
        gpus_per_node: GPUs that share the intra-node link.
        gpus_per_rack: GPUs that share the inter-node link, None when there is no slower tier above it.
        intra_node_bw_bytes_per_s: Bandwidth inside a node [B/s].
        inter_node_bw_bytes_per_s: Bandwidth between nodes of a rack, or of the cluster [B/s].
        inter_rack_bw_bytes_per_s: Bandwidth between racks [B/s].
        p2p_latency_s: Fixed time of a point-to-point message [s].
        nccl_mem_bytes: Memory that the collectives library takes [B] by number of GPUs.
        other_mem_bytes: Memory that the serving runtime takes beyond weights, activations and cache [B].
        nccl_version: Which measured NCCL tables belong to the system, None for none.
        oneccl_version: Which measured oneCCL tables belong to the system, None for none.
    """

    name: str
    mem_bw_bytes_per_s: float
    mem_bw_scaling: float
    mem_latency_s: float
    mem_capacity_bytes: int
    peak_flops: Mapping[str, float] = field(hash=False)
    sm_version: int | None
    power_w: float
    gpus_per_node: int
    gpus_per_rack: int | None
    intra_node_bw_bytes_per_s: float
    inter_node_bw_bytes_per_s: float
    inter_rack_bw_bytes_per_s: float
    p2p_latency_s: float
    nccl_mem_bytes: Mapping[int, int] = field(hash=False)
    other_mem_bytes: int
    nccl_version: str | None
    oneccl_version: str | None

    def peak(self, dtype: str) -> float:
        """Peak rate for `dtype` [FLOP/s].

        Raises:
            MissingPeak: The system states none; another type's peak times a factor is never used instead.
        """
        if dtype not in self.peak_flops:
            stated = ", ".join(self.peak_flops)
            raise MissingPeak(f"System {self.name} states no peak for {dtype}; it has {stated}.")
        return self.peak_flops[dtype]

    @property
    def link_bw_bytes_per_s(self) -> tuple[float, float, float]:
        """Bandwidth inside a node, between nodes and between racks [B/s]."""
        return self.intra_node_bw_bytes_per_s, self.inter_node_bw_bytes_per_s, self.inter_rack_bw_bytes_per_s

    def slowest_link(self, num_gpus: int) -> int:
        """Position in `link_bw_bytes_per_s` of the slowest link that a group of `num_gpus` GPUs spans."""
        if num_gpus <= self.gpus_per_node:
            return 0
        return 1 if self.gpus_per_rack is None or num_gpus <= self.gpus_per_rack else 2

    def p2p_bw(self, num_gpus: int) -> float:
        """Bandwidth of that link [B/s]."""
        return self.link_bw_bytes_per_s[self.slowest_link(num_gpus)]
