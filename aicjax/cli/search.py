# SPDX-License-Identifier: Apache-2.0
"""`aicjax search`: the best layouts, batches and worker counts for a GPU budget."""

import sys
from pathlib import Path
from typing import Annotated

from typer import Context

from aicjax._results import InputError
from aicjax.cli import options, requests, site_options
from aicjax.cli import search_options as groups
from aicjax.cli.flags import flag, switch, takes
from aicjax.cli.output import Output, present

_WORKLOAD = "Workload"
_SPACE = "What to compare"


def _encoder(name: str, *, default: str, text: str, metavar: str = "N") -> object:
    return flag(f"--encoder-{name}", panel="Images", default=default, metavar=metavar, text=text)


class _What:
    """Model, systems and budget."""

    model_path: options.Model
    system: options.System
    total_gpus: Annotated[str | None, flag("--total-gpus", text="GPU budget; or give a load target.")]
    decode_system: options.DecodeSystem


class _Encoders:
    """Workers that run the vision encoder alone, and how TPOT is counted."""

    encoder_tp_candidates: Annotated[
        str | None,
        _encoder("tp", default="1,2,4,8", text="GPUs that an encode worker may have, with commas between."),
    ]
    encoder_system: Annotated[
        str | None, _encoder("system", default="--system", metavar="NAME", text="GPU system of encode workers.")
    ]
    encoder_latency_correction: Annotated[
        str | None,
        _encoder("latency-correction", default="1", metavar="FACTOR", text="Factor on the latency of encode workers."),
    ]
    inclusive_tpot: Annotated[
        bool, switch("--inclusive-tpot", panel=_WORKLOAD, text="Report TPOT with the first token counted in.")
    ]


class _Space:
    """Deployments to compare."""

    backend: options.Backend
    serving_mode: Annotated[
        str | None,
        flag(
            "--serving-mode",
            panel=_SPACE,
            default="auto",
            metavar="auto|all|agg|disagg|afd",
            text="Ways of serving to compare.",
        ),
    ]
    enable_chunked_prefill: options.ChunkedPrefill
    afd_max_a_batch_size: Annotated[
        str | None,
        flag(
            "--afd-max-a-batch-size", panel=_SPACE, default="1024", text="Most requests of an attention worker (afd)."
        ),
    ]
    afd_max_candidates: Annotated[
        str | None,
        flag("--afd-max-candidates", panel=_SPACE, default="10000", text="Most deployments to try (afd)."),
    ]
    afd_candidate_overflow: Annotated[
        str | None,
        flag(
            "--afd-candidate-overflow",
            panel=_SPACE,
            default="error",
            metavar="error|truncate",
            text="What happens where there are more.",
        ),
    ]
    grid: options.Grid


class _Repeat:
    """A search that a file states."""

    manifest: Annotated[
        Path | None,
        flag(
            "--from",
            metavar="MANIFEST",
            text="Repeat the search of a manifest.json that --save-dir wrote; flags given beside it win.",
        ),
    ]
    request_file: Annotated[
        Path | None,
        flag(
            "--request",
            metavar="FILE",
            text="Run the search of a DynamoGraphDeploymentRequest; flags given beside it win.",
        ),
    ]


@takes(
    _What,
    groups.Lengths,
    groups.Limits,
    groups.Images,
    _Encoders,
    groups.Target,
    groups.Load,
    groups.Speculation,
    _Space,
    groups.Data,
    groups.Memory,
    groups.Output,
    site_options.Site,
    _Repeat,
)
def command(ctx: Context) -> None:
    """Find the best configurations for a GPU budget: aggregated, disaggregated, attention and feed-forward apart.

    Exit codes: 0 found, 2 bad input, 3 nothing meets the limits, 4 no measured data.
    """
    from aicjax.explore import SearchRequest
    from aicjax.report import manifest as manifests

    given = options.given(ctx)
    output = Output.take(given)
    manifest, request_file = given.pop("manifest", None), given.pop("request_file", None)
    if manifest is not None and request_file is not None:
        raise InputError("request", str(request_file), "absent where --from is given")
    if request_file is not None:
        asked = requests.read(request_file, given)
        present(asked.search, output.at(asked.site), for_load=asked.search.has_load_target)
        return
    if manifest is not None:
        given = {**manifests.read_inputs(manifest), **given}
        if changed := manifests.changed_since(manifest):
            print(f"aicjax: changed since the manifest was written: {', '.join(changed)}", file=sys.stderr)
    request = SearchRequest(**given)
    if request.total_gpus is not None and request.has_load_target:
        print("aicjax: the load target is not used: --total-gpus fixes the number of GPUs", file=sys.stderr)
    present(request, output)
