# SPDX-License-Identifier: Apache-2.0
"""Which measurements answer for operators, and what may stand in where there is none."""

from dataclasses import dataclass
from typing import Any

from aicjax._results import InputError
from aicjax.compat import DEFAULT, Compat
from aicjax.hardware import System
from aicjax.tables import newest_versions

MODES = ("SILICON", "HYBRID", "EMPIRICAL", "SOL")
INTERPOLATING = ("SILICON", "HYBRID")  # modes in which tables answer by interpolation, those of other versions too
TRANSFERS = {
    "off": (),
    "conservative": ("xshape",),
    "balanced": ("xshape", "xbackend", "xquant"),
    "aggressive": ("xshape", "xbackend", "xquant", "xprofile", "xop"),
}
KINDS = TRANSFERS["aggressive"]


@dataclass(frozen=True)
class Database:
    """Tables of one system and engine version in one mode.

    Attributes:
        system: The hardware.
        backend: Serving framework.
        version: Its version, resolved.
        mode: `SILICON` measured tables alone; `HYBRID` estimates where they miss; `EMPIRICAL` estimates alone; `SOL`
            rooflines.
        transfers: Kinds of transfer an estimate may use, of `KINDS`.
        attention_backend: Attention kernel to prefer; the backend's own when None.
        share: Whether tables of other versions and backends fill gaps; as the mode has it when None.
        lanes: Order in which attention kernels are tried; that of `attention_backend` when None.
        repaired: Whether tables that timed their host are read without that time.
        fits_shapes: Whether matrix shapes that were not measured are fitted to those around them, not their mean.
        extends_curves: Whether latency beyond the last measured tokens goes on along the end of its curve.
    """

    system: System
    backend: str
    version: str
    mode: str = "SILICON"
    transfers: tuple[str, ...] = KINDS
    attention_backend: str | None = None
    share: bool | None = None
    lanes: tuple[str, ...] | None = None
    repaired: bool = False
    fits_shapes: bool = False
    extends_curves: bool = False

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise InputError("mode", self.mode, f"one of {', '.join(MODES)}")

    @property
    def measured(self) -> bool:
        """Whether tables are read at all."""
        return self.mode != "SOL"

    @property
    def interpolates(self) -> bool:
        """Whether measured tables answer by interpolation."""
        return self.mode in INTERPOLATING

    @property
    def estimates(self) -> bool:
        """Whether utilisation of measured points answers, alone or where interpolation misses."""
        return self.mode in ("HYBRID", "EMPIRICAL")

    @property
    def shared(self) -> bool:
        """Whether tables of other versions and backends fill gaps: estimates calibrate on the version's own rows."""
        return self.interpolates if self.share is None else self.share

    @property
    def where(self) -> tuple[System, str, str, bool]:
        """What a table is loaded by."""
        return self.system, self.backend, self.version, self.shared

    @property
    def others(self) -> list[tuple[System, str, str, bool]]:
        """`where` of the other backends that were measured on the system; none where nothing fills gaps."""
        known = newest_versions(self.system.name) if self.shared else {}
        return [(self.system, name, version, self.shared) for name, version in known.items() if name != self.backend]


def transfer_kinds(policy: str | None, compat: Compat = DEFAULT) -> tuple[str, ...]:
    """Kinds of transfer that a policy allows: a preset, or a comma list of presets and kinds; all when None.

    Raises:
        InputError: An unknown word.
    """
    known = tuple(kind for kind in KINDS if kind != "xbackend" or not compat.transfers_within_backend)
    if policy is None:
        return known
    allowed: set[str] = set()
    for word in policy.split(","):
        name = word.strip()
        if name not in TRANSFERS and name not in KINDS:
            raise InputError("transfer_policy", name, f"one of {', '.join([*TRANSFERS, *KINDS])}, or a comma list")
        allowed |= set(TRANSFERS.get(name, (name,)))
    return tuple(kind for kind in known if kind in allowed)


def reading(compat: Compat) -> dict[str, Any]:
    """How a database reads its tables under a set of switches: arguments of `Database`."""
    return {
        "repaired": not compat.host_times_in_tables,
        "fits_shapes": not compat.mean_of_nearest_shapes,
        "extends_curves": not compat.utilization_held_beyond_curves,
    }
