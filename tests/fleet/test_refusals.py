# SPDX-License-Identifier: Apache-2.0
"""Requests that no pool takes: too many of them, all of them, and contexts for which a replica has no room."""

from typing import Any

import numpy as np
import pytest

from aicjax._results import InputError
from aicjax.fleet import answers
from aicjax.fleet.answer_parts import FleetAnswer, ParetoAnswer, SizeAnswer, WhatIfAnswer
from aicjax.fleet.requests import ParetoRequest, SizeRequest, WhatIfRequest
from aicjax.report.fleet_size_text import shortfall

AZURE: dict[str, Any] = {"workload": "azure"}
SHORT = {**AZURE, "max_tokens": 1024}  # six of ten requests are longer


def _refuses(fleet: FleetAnswer) -> bool:
    assert all(pool.verdict == "met" for pool in fleet.pools)
    return fleet.refused > 0.5 and not fleet.meets and "longer than every pool" in str(fleet.binding)


@pytest.mark.parametrize("verify_top", [0, 1])
def test_a_fleet_that_refuses_too_many_does_not_meet_the_limit(verify_top: int):
    found = answers.size(SizeRequest(**SHORT, verify_top=verify_top, requests=200, seeds=2))
    assert isinstance(found, SizeAnswer)
    assert _refuses(found.chosen)
    assert found.chosen.confidence == (0.0 if verify_top else None)
    assert "longer than every pool" in str(shortfall(found.chosen))


def test_rows_that_refuse_too_many_do_not_meet_the_limit():
    rates = answers.whatif(WhatIfRequest(**SHORT, rates_per_s=(10.0,)))
    assert isinstance(rates, WhatIfAnswer)
    assert all(_refuses(row.fleet) for row in rates.rows)
    table = answers.pareto(ParetoRequest(**SHORT, thresholds=(512,)))
    assert isinstance(table, ParetoAnswer)
    assert table.best is None
    assert all(_refuses(row.fleet) for row in table.rows)


def test_as_many_may_be_refused_as_may_miss_the_limit():
    found = [
        answers.size(SizeRequest(**AZURE, max_tokens=8192, verify_top=0, percentile=percentile))
        for percentile in (50.0, 99.999)
    ]
    for answer, met in zip(found, (True, False), strict=True):
        assert isinstance(answer, SizeAnswer)
        assert 1e-5 < answer.chosen.refused < 0.5
        assert answer.chosen.meets is met


@pytest.mark.parametrize(
    ("answer", "request_"),
    [
        (answers.size, SizeRequest(isl=65_536, osl=1, verify_top=0)),
        (answers.size, SizeRequest(isl=10**6, osl=1)),
        (answers.whatif, WhatIfRequest(isl=65_536, osl=1, rates_per_s=(1.0,))),
        (answers.pareto, ParetoRequest(isl=65_536, osl=1, thresholds=(1024,))),
    ],
)
def test_a_limit_below_every_request_is_refused(answer: Any, request_: Any):
    with pytest.raises(InputError, match=r"max_tokens.*at least the shortest request"):
        answer(request_)


@pytest.mark.parametrize(
    ("answer", "request_"),
    [
        (answers.size, SizeRequest(**AZURE, max_tokens=10**7)),
        (answers.pareto, ParetoRequest(**AZURE, max_tokens=10**7)),
    ],
)
def test_a_context_without_room_is_refused(answer: Any, request_: Any):
    with pytest.raises(InputError, match=r"max_tokens.*has room"):
        answer(request_)


@pytest.mark.filterwarnings("error")
def test_a_kind_of_replica_without_room_warns_of_nothing_and_is_not_the_nearest():
    found = answers.whatif(WhatIfRequest(**AZURE, max_tokens=10**7, rates_per_s=(10.0,)))
    assert isinstance(found, WhatIfAnswer)
    fleet = found.rows[0].fleet
    assert not fleet.meets
    assert np.isfinite([fleet.cost.input_price, fleet.cost.output_price]).all()
    assert str(shortfall(fleet)).endswith("no room for a request.")


def test_no_price_is_negative():
    found = answers.size(SizeRequest(**AZURE, input_share=0.999999999, verify_top=0))
    assert isinstance(found, SizeAnswer)
    assert found.chosen.cost.output_price >= 0
