# SPDX-License-Identifier: Apache-2.0
"""`aicjax recommend`: the fewest GPUs that serve a load."""

from typer import Context

from aicjax._results import InputError
from aicjax.cli import options, site_options
from aicjax.cli import search_options as groups
from aicjax.cli.flags import takes
from aicjax.cli.output import Output, present


class _What:
    """Model and system."""

    model_path: options.Model
    system: options.System


class _Decode:
    """System of decode workers."""

    decode_system: options.DecodeSystem


class _Space:
    """Deployments to compare."""

    backend: options.Backend
    enable_chunked_prefill: options.ChunkedPrefill
    grid: options.Grid


class _Mode:
    """Estimates are allowed by default."""

    database_mode: options.RecommendMode


@takes(
    _What,
    groups.Target,
    _Decode,
    groups.Lengths,
    groups.Limits,
    groups.Images,
    groups.Load,
    groups.Speculation,
    _Space,
    groups.Data,
    _Mode,
    groups.Memory,
    groups.Output,
    site_options.Site,
    without=("disable_encoder_dp", "enable_epd"),
)
def command(ctx: Context) -> None:
    """Find the fewest GPUs that serve a request rate or a number of concurrent requests.

    Exit codes: 0 found, 2 bad input, 3 nothing meets the limits, 4 no measured data.
    """
    from aicjax.explore.request import RECOMMENDING, SearchRequest

    given = options.given(ctx)
    output = Output.take(given)
    request = SearchRequest(**{"database_mode": RECOMMENDING, **given})
    if not request.has_load_target:
        raise InputError("target_request_rate", None, "given, or target_concurrency instead")
    present(request, output)
