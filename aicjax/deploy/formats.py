# SPDX-License-Identifier: Apache-2.0
"""Number formats that a search was told to assume: files deploy a checkpoint as it is, so only its own can be."""

from collections.abc import Mapping
from typing import Any, Literal

from aicjax._results import InputError

_CHOSEN = ("gemm_quant_mode", "moe_quant_mode", "fmha_quant_mode")
_OF_ROLE: dict[str, Literal["agg", "prefill", "decode"]] = {"": "agg", "(p)": "prefill", "(d)": "decode"}


def check_formats(row: Mapping[str, Any], inputs: Mapping[str, Any], prefixes: tuple[str, ...]) -> None:
    """Refuses formats that are stated and are not those that the checkpoint has without a statement.

    Args:
        row: One row of a top list.
        inputs: The request that found it.
        prefixes: Of the columns of its workers: `""`, or `(p)` and `(d)`.

    Raises:
        InputError: A stated format is another one.
    """
    stated = [f"{role}{option}" for role in ("", "prefill_", "decode_") for option in _CHOSEN]
    if not any(inputs.get(name) for name in stated):
        return
    from aicjax.explore.request import SearchRequest
    from aicjax.explore.roles import deploy

    unset = {"model_path": row["model"], "system": row[f"{prefixes[0]}system"]}
    plain = SearchRequest(
        **unset | {name: inputs[name] for name in ("family", "compat", "database_mode") if inputs.get(name)}
    )
    for prefix in prefixes:
        role = _OF_ROLE[prefix]
        formats = deploy(plain, role, str(row[f"{prefix}backend"])).quantisation
        for option in _CHOSEN:
            chosen = inputs.get(f"{role}_{option}") or inputs.get(option)
            own = getattr(formats, option.removesuffix("_quant_mode"))
            if chosen and chosen != own:
                raise InputError(option, chosen, f"{own}, as the checkpoint has: deploy a checkpoint in another format")
