# SPDX-License-Identifier: Apache-2.0
"""The commands about fleets: answers as tables, one line or JSON, exit codes, and command lines of vllm-sr-sim."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from aicjax.cli import fleet_options
from aicjax.cli.app import run
from aicjax.cli.fleet_pools import take_fleet

COMMANDS = ("size", "simulate", "pareto", "whatif", "routers", "disagg", "power", "forecast", "serve")
ALIKE = "--isl 1000 --osl 200 --replica base_ms=8,per_sequence_ms=0.65,price_per_hour=2 --max-tokens 8192"


def _ran(line: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    code = run(line.split())
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def _refuse(name: str) -> Any:
    raise AssertionError(f"{name} is no number")


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(command: str, capsys: pytest.CaptureFixture[str]):
    assert run(["fleet", command, "--help"]) == 0
    assert f"aicjax fleet {command}" in capsys.readouterr().out


def test_plan_has_help(capsys: pytest.CaptureFixture[str]):
    assert run(["plan", "--help"]) == 0
    assert "risk" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("line", "parts"),
    [
        ("fleet size", ["workload", "trace", "isl and osl"]),
        ("fleet size --workload azure --rate few", ["rate_per_s", "'few'"]),
        ("fleet size --workload azuer", ["azuer", "azure"]),
        ("fleet size --workload azure --replica b999", ["b999", "a100"]),
        ("fleet size --workload azure --replica hardware=h1000,model=llama-3.1-70b", ["h1000"]),
        ("fleet size --workload azure --plot plot.gif", ["report", ".html"]),
        ("fleet size --workload azure --compat fleet-reference --threshold 1,2", ["thresholds", "two pools"]),
        ("fleet size --isl 10 --osl 10 --compat fleet-reference", ["workload", "distribution"]),
        ("fleet simulate --workload azure", ["replicas", "fleet"]),
        ("fleet simulate --workload azure --replicas 3,4", ["replicas", "1 counts"]),
        ("fleet simulate --workload azure --replicas 3,x --threshold 4096", ["replicas", "3,x"]),
        ("fleet simulate --workload azure --fleet nowhere.yaml", ["fleet", "nowhere.yaml"]),
        ("fleet simulate --workload azure --replicas ٣", ["replicas", "whole numbers"]),
        (f"fleet simulate --workload azure --replicas {'9' * 5000}", ["replicas", "whole numbers"]),
        ("fleet simulate --workload azure --replicas 3 --max-tokens 9999999999", ["max_tokens", "1000000000"]),
        ("fleet simulate --workload azure --replicas 3 --gamma abc", ["gamma", "at least 1", "abc"]),
        ("fleet simulate --workload azure --replicas 3 --gamma 0.5", ["gamma", "at least 1", "0.5"]),
        ("fleet simulate --workload azure --replicas 3 --gamma nan", ["gamma", "at least 1", "nan"]),
        ("fleet simulate --workload azure --replicas 3,3,3 --threshold 4096,2048", ["thresholds", "ascending"]),
        ("fleet simulate --workload azure --replicas 3,3 --threshold 70000", ["thresholds", "65536"]),
        ("fleet simulate --workload azure --replicas 3 --router model", ["router", "model"]),
        ("fleet simulate --workload azure --replicas 3 --start empty", ["start", "horizon_s"]),
        ("fleet simulate --workload azure --replicas 3 --horizon 9 --seeds 2", ["seeds", "5 or more"]),
        ("fleet simulate --workload azure --replicas 3 --horizon 9 --requests 200", ["requests", "horizon_s"]),
        ("fleet forecast --workload azure --buy 9000", ["growths"]),
        ("fleet forecast --workload azure --growth 0.1 --buy 9000,8000", ["buy_usd", "1 kinds"]),
        ("fleet forecast --workload azure --growth 0,0.1 --chances 0.5,0.6 --buy 9000", ["chances", "add up to 1"]),
        ("fleet routers --workload azure --replicas 3 --routers length,best", ["routers", "best"]),
        ("fleet whatif --workload azure --rates 50,x", ["rates_per_s", "x"]),
        ("fleet disagg --workload azure --prefill b999", ["b999"]),
        ("fleet power --workload azure --compare base_ms=8,per_sequence_ms=1", ["power law"]),
        ("fleet serve --port 0", ["port"]),
        ("fleet serve --log-level loud", ["log_level", "loud"]),
        ("plan --model m --isl 10 --osl 10", ["systems"]),
        ("plan --model m --system h200_sxm", ["workload"]),
    ],
)
def test_mistake_is_one_line_and_exit_2(line: str, parts: list[str], capsys: pytest.CaptureFixture[str]):
    code, out, error = _ran(line, capsys)
    assert (code, out) == (2, "")
    assert error.startswith("aicjax: ")
    assert error.count("\n") == 1
    for part in parts:
        assert part in error


def test_a_fleet_is_sized_and_written(capsys: pytest.CaptureFixture[str], tmp_path: Path):
    path = tmp_path / "answer.json"
    code, out, _ = _ran(f"fleet size {ALIKE} --rate 50 --verify-top 0 --json --out {path}", capsys)
    assert code == 0
    answer = json.loads(out, parse_constant=_refuse)
    assert answer == json.loads(path.read_text())
    fleet = answer["fleets"][answer["best"]]
    assert fleet["meets"] is True
    assert fleet["cost"]["per_hour"] == pytest.approx(2 * fleet["replicas"])
    assert fleet["pools"][0]["utilization"] <= 0.85


def test_quiet_is_one_line(capsys: pytest.CaptureFixture[str]):
    code, out, _ = _ran(f"fleet size {ALIKE} --rate 50 --verify-top 0 --quiet", capsys)
    assert code == 0
    assert out.count("\n") == 1
    assert "GPUs" in out


def test_a_limit_below_the_prompt_alone_is_named_and_exit_3(capsys: pytest.CaptureFixture[str]):
    code, out, error = _ran(f"fleet size {ALIKE} --rate 50 --verify-top 0 --ttft 5", capsys)
    assert code == 3
    assert "isolated prefill time" in error
    assert error.count("\n") == 1
    assert "manual" in out  # the nearest fleet is shown


def test_a_report_is_a_page_and_plot_its_old_name(capsys: pytest.CaptureFixture[str], tmp_path: Path):
    pytest.importorskip("plotly")
    path = tmp_path / "plot.html"
    code, _, _ = _ran(f"fleet whatif {ALIKE} --rates 20,40 --quiet --plot {path}", capsys)
    assert code == 0
    assert "USD a year" in path.read_text(encoding="utf-8")


def test_an_overloaded_fleet_is_unstable_and_exit_3(capsys: pytest.CaptureFixture[str]):
    line = f"fleet simulate {ALIKE} --rate 50 --replicas 1 --requests 300 --seeds 2"
    code, out, error = _ran(line, capsys)
    assert code == 3
    assert "unstable" in error
    assert "grow without bound" in out


def test_a_stated_fleet_has_its_bounds_in_closed_form(capsys: pytest.CaptureFixture[str]):
    line = f"fleet simulate {ALIKE} --rate 20 --replicas 2 --horizon 30 --seeds 5 --availability 0.98"
    code, out, _ = _ran(line, capsys)
    assert code == 0
    assert "from an empty fleet" in out
    assert "closed form: the limit holds up to" in out
    assert "3.920%" in out  # one of two is down: 2 x 0.98 x 0.02
    code, out, _ = _ran(f"{line} --start settled --json", capsys)
    answer = json.loads(out, parse_constant=_refuse)
    assert (answer["start"], answer["requests"]) == ("settled", 600)
    (pool,) = answer["bounds"]["pools"]
    assert answer["bounds"]["breaking_rate_per_s"] > 20
    assert [state["probability"] for state in pool["down"]] == pytest.approx(
        [0.98**2, 2 * 0.98 * 0.02, 0.02**2], rel=0.01
    )


def test_two_pools_are_named_by_flags_of_either_kind():
    ours = {"replicas": "3,2", "thresholds": "6144", "replica": "a100", "replica_long": "h100"}
    theirs = {"n_s": "3", "n_l": "2", "thresholds": "6144", "replica": "a100", "replica_long": "h100"}
    fleet = take_fleet(dict(ours))
    assert fleet == take_fleet(dict(theirs))
    assert fleet["threshold"] == 6144
    assert [(pool["name"], pool["replica"], pool["replicas"], pool["max_tokens"]) for pool in fleet["pools"]] == [
        ("short", "a100", 3, 6144),
        ("long", "h100", 2, 65536),
    ]
    assert take_fleet({**ours, "gamma": "1.5"})["router"] == "compress"
    assert "router" not in take_fleet({**ours, "gamma": "1"})


def test_a_fleet_file_may_have_the_names_of_either_kind(tmp_path: Path):
    path = tmp_path / "fleet.json"
    path.write_text(
        json.dumps({"pools": [{"id": "a", "gpu": "a100", "n_gpus": 2, "max_ctx": 4096}], "router": "random"})
    )
    assert take_fleet({"fleet": str(path)}) == {
        "pools": [{"name": "a", "replica": "a100", "replicas": 2, "max_tokens": 4096}],
        "router": "random",
    }


@pytest.mark.parametrize(
    ("name", "content", "part"),
    [
        ("fleet.json", b"\xff\xfe", "utf-8"),
        ("fleet.json", b"[" * 100_000, "recursion"),
        ("fleet.yaml", b"pools: [{1: 2, name: a, replica: a100, replicas: 1}]", "a known name"),
        ("fleet.yaml", b"{1: 2, pools: [{name: a, replica: a100, replicas: 1}]}", "a known name"),
        ("fleet.yaml", b"pools: [{name: 2026-11-30}]", "date"),
        ("fleet.yaml", b"pools: &pools [*pools]", "JSON or YAML"),
    ],
)
def test_a_file_that_states_no_fleet_is_refused(
    name: str, content: bytes, part: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    path = tmp_path / name
    path.write_bytes(content)
    code, _, error = _ran(f"fleet simulate --workload azure --fleet {path}", capsys)
    assert code == 2
    assert error.count("\n") == 1 and part in error


def test_a_pool_without_room_for_a_request_is_named(capsys: pytest.CaptureFixture[str]):
    line = "fleet simulate --workload azure --replicas 2 --max-tokens 10000000 --requests 200 --seeds 2"
    code, out, error = _ran(line, capsys)
    assert code == 3
    assert "binding: memory, no room for a request of up to 10,000,000 tokens in the all pool" in error
    assert "0% of what it can serve" not in error
    assert "no room for a request" in out and "longer than their pool" not in out
    pool = next(row.split() for row in out.splitlines() if row.split()[:2] == ["all", "2"])
    assert pool[6] == "-"


@pytest.mark.parametrize(
    ("line", "joined"),
    [
        ("whatif --lam-range 50 100 --slo 5", "whatif --lam-range 50,100 --slo 5"),
        ("power --rho-sweep --lam 5", "power --rho-sweep 0.2,0.4,0.6,0.8 --lam 5"),
        ("power --rho-sweep 0.3 --lam 5", "power --rho-sweep 0.3 --lam 5"),
        (
            "whatif --gpu-compare a100 base_ms=8,per_sequence_ms=1",
            "whatif --gpu-compare a100;base_ms=8,per_sequence_ms=1",
        ),
        ("size --lam 5", "size --lam 5"),
    ],
)
def test_lists_after_a_flag_are_joined(line: str, joined: str):
    assert fleet_options.joined(line.split()) == joined.split()


def test_command_lines_of_the_fleet_reference_run(capsys: pytest.CaptureFixture[str]):
    line = "fleet whatif --cdf azure --lam-range 50 200 --slo 500 --b-short 6144 --compat fleet-reference --json"
    code, out, _ = _ran(line, capsys)
    assert code == 0
    assert json.loads(out) == [
        {"lam": 50.0, "n_s": 5, "n_l": 2, "total_gpus": 7, "annualised_cost_kusd": 135.5, "gamma_opt": 1.3},
        {"lam": 200.0, "n_s": 18, "n_l": 6, "total_gpus": 24, "annualised_cost_kusd": 464.6, "gamma_opt": 1.2},
    ]


def test_a_forecast_adds_up(capsys: pytest.CaptureFixture[str]):
    line = f"fleet forecast {ALIKE} --rate 20 --growth 0.1,0.4 --quarters 6 --buy 6000 --own 0.3 --resale 0.5"
    code, out, _ = _ran(f"{line} --json", capsys)
    assert code == 0
    answer = json.loads(out, parse_constant=_refuse)
    assert [pair[1] for pair in answer["rates_per_s"]] == pytest.approx([20 * 1.4**quarter for quarter in range(6)])
    (kind,) = answer["kinds"]
    quarters = kind["quarters"]
    assert len(quarters) == 6
    assert sum(quarter["usd"] for quarter in quarters) - kind["resale_usd"] == pytest.approx(answer["usd"], rel=1e-5)
    assert answer["usd"] < answer["rent_only_usd"]
    assert kind["rent_usd_per_hour"] == 2  # the replica's own price
    for quarter in quarters:
        assert quarter["rented"] + quarter["owned"] * quarter["in_use"] == pytest.approx(quarter["needed"], rel=1e-5)
        assert quarter["needed"] <= quarter["most_needed"]
    code, out, _ = _ran(line, capsys)
    assert code == 0
    assert "less than renting all" in out
    assert "quarters" in out


def test_a_forecast_names_the_limit_that_no_replicas_meet(capsys: pytest.CaptureFixture[str]):
    line = f"fleet forecast {ALIKE} --rate 20 --growth 0.1 --quarters 6 --buy 6000 --ttft 5 --quiet"
    code, out, error = _ran(line, capsys)
    assert code == 3
    assert out.count("\n") == 1
    assert "isolated prefill time" in error


def test_cost_of_output_tokens_is_that_of_the_clock(capsys: pytest.CaptureFixture[str]):
    code, out, _ = _ran(f"fleet size {ALIKE} --rate 30 --verify-top 0 --json", capsys)
    assert code == 0
    cost = json.loads(out)["fleets"][0]["cost"]
    assert cost["per_million_output"] == pytest.approx(cost["per_hour"] / 3600 / (30 * 200) * 1e6)
    assert cost["tokens_per_usd"] == pytest.approx(1e6 / cost["per_million_total"])
    assert math.isclose(cost["per_year"], cost["per_hour"] * 8760)
