# SPDX-License-Identifier: Apache-2.0
"""What a fleet costs: per hour, per year and per million tokens, with prices of one's own."""

from typing import NamedTuple

from aicjax._types import FloatScalar
from aicjax._units import HOURS_PER_YEAR, PER_MILLION, S_PER_HOUR


class Cost(NamedTuple):
    """Cost of a fleet [USD]; leaves share the shape of the inputs.

    Attributes:
        per_hour, per_year: Price of all replicas.
        per_million_input: All of the cost over the input tokens alone; infinite without such tokens.
        per_million_output: All of the cost over the output tokens alone.
        per_million_total: All of the cost over tokens of both kinds.
        input_price, output_price: The cost parted by the time spent in prefill and in decode, per million tokens of the
            kind: a bill of these two prices adds up to the cost.
    """

    per_hour: FloatScalar
    per_year: FloatScalar
    per_million_input: FloatScalar
    per_million_output: FloatScalar
    per_million_total: FloatScalar
    input_price: FloatScalar
    output_price: FloatScalar


def usd_per_million(usd_per_hour: FloatScalar, tokens_per_s: FloatScalar) -> FloatScalar:
    """Cost of a million tokens [USD]; infinite where none are made."""
    return usd_per_hour / S_PER_HOUR / tokens_per_s * PER_MILLION


def tokens_per_usd(usd_per_million: FloatScalar) -> FloatScalar:
    """Tokens for a dollar: the reciprocal of the price of a million."""
    return PER_MILLION / usd_per_million


def cost(
    usd_per_hour: FloatScalar,
    input_tokens_per_s: FloatScalar,
    output_tokens_per_s: FloatScalar,
    prefill_share: FloatScalar,
) -> Cost:
    """Cost of a fleet that serves tokens at given rates.

    Args:
        usd_per_hour: Price of all replicas.
        input_tokens_per_s, output_tokens_per_s: Tokens read and written by the requests that are served.
        prefill_share: Share of the busy time spent in prefill, in [0, 1].
    """
    return Cost(
        per_hour=usd_per_hour,
        per_year=usd_per_hour * HOURS_PER_YEAR,
        per_million_input=usd_per_million(usd_per_hour, input_tokens_per_s),
        per_million_output=usd_per_million(usd_per_hour, output_tokens_per_s),
        per_million_total=usd_per_million(usd_per_hour, input_tokens_per_s + output_tokens_per_s),
        input_price=usd_per_million(usd_per_hour * prefill_share, input_tokens_per_s),
        output_price=usd_per_million(usd_per_hour * (1 - prefill_share), output_tokens_per_s),
    )
