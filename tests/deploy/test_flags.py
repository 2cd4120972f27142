# SPDX-License-Identifier: Apache-2.0
"""Lists of option names: how they are read from sources, that they are of the pinned releases, and what they find."""

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from aicjax import _paths
from aicjax._results import DataError, InputError
from aicjax.deploy import flag_checks, flag_names
from aicjax.deploy.build import build
from aicjax.deploy.checks import problems
from aicjax.deploy.render import render
from aicjax.deploy.settings import load_engine, load_runtime, load_server
from tests.deploy.rows import INPUTS, result_row

SOURCES = {
    "vllm/config/cache.py": "class CacheConfig:\n    prefix: bool | None = None\n    size: int = 1\n",
    "vllm/engine/arg_utils.py": (
        "kwargs = get_kwargs(CacheConfig)\n"
        "group.add_argument('--prefix', **{**kwargs['prefix'], 'default': None})\n"
        "group.add_argument('--size', '--block', '-s', **kwargs['size'])\n"
        "group.add_argument('--log', action=argparse.BooleanOptionalAction, help='not --this')\n"
        "log('--not-declared')\n"
    ),
    "vllm/entrypoints/openai/cli_args.py": "class FrontendArgs:\n    host: str = ''\n    quiet: bool = False\n",
    "sglang/srt/server_args.py": (
        "class ServerArgs:\n"
        "    model_path: A[str, Arg(help='x', aliases=['--model'])]\n"
        "    inner: A[str, Arg(no_cli=True)] = ''\n"
        "    gemm: A[str, Arg(cli_name='--gemm-backend')] = ''\n"
        "    plain: int = 1\n"
        "    def add(parser):\n"
        "        parser.add_argument('--old', new_flag='--new')\n"
    ),
    "sglang_router/router_args.py": "parser.add_argument(f'--{prefix}host')\n",
    "tensorrt_llm/llmapi/llm_args.py": (
        "class Inner(Base):\n    depth: int = 1\n    again: Optional['Inner'] = None\n"
        "class Base:\n    shared: int = 0\n    _private: int = 0\n    kind: ClassVar[str] = 'x'\n"
        "class TorchLlmArgs(Base):\n    model_config: dict = {}\n    inner: Optional[Inner] = None\n    size: int = 1\n"
    ),
    "tensorrt_llm/commands/serve.py": "@click.option('--tp_size', '--tensor/--no-tensor')\ndef serve(): ...\n",
    "dynamo/vllm/backend_args.py": (
        "add_negatable_bool_argument(g, flag_name='--route', env_var='X')\n"
        "add_argument(g, flag_name='--mode', obsolete_flag='--old-mode', help='--help-text')\n"
    ),
    "aiperf/config/flags/cli_config.py": (
        "class CLIConfig:\n"
        "    model_names: Annotated[list, CLIParameter(name=('--model-names', '-m'))]\n"
        "    seed: Annotated[int, CLIParameter(name='--random-seed')] = 1\n"
        "    top_k: Annotated[int, Field(ge=0)] = 1\n"
    ),
}
EXPECTED = {
    "vllm": {
        "vllm.engine.arg_utils": ["--block", "--log", "--no-log", "--no-prefix", "--prefix", "--size"],
        "vllm.entrypoints.openai.cli_args": ["--host", "--no-quiet", "--quiet"],
    },
    "sglang": {"sglang.srt.server_args": ["--gemm-backend", "--model", "--model-path", "--old"]},
    "sglang-router": {"sglang_router.router_args": ["--host"]},
    "trtllm": {
        "tensorrt_llm.llmapi.llm_args": ["inner", "inner.again", "inner.depth", "inner.shared", "shared", "size"],
        "tensorrt_llm.commands.serve": ["--no-tensor", "--tensor", "--tp_size"],
    },
    "dynamo": {"dynamo.vllm.backend_args": ["--mode", "--no-route", "--old-mode", "--route"]},
    "aiperf": {"aiperf.config.flags.cli_config": ["--model-names", "--random-seed", "--top-k"]},
}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    for name, text in SOURCES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize("engine", EXPECTED)
def test_names_are_read_from_the_source(engine: str, source: Path):
    assert flag_names.names(engine, source) == EXPECTED[engine]


def test_file_says_where_its_names_are_from(source: Path):
    assert "options of vllm 1.2, read from its source" in flag_names.text("vllm", "1.2", source)
    (source / "vllm-1.2.3.dist-info").mkdir()
    (source / "vllm-1.2.3.dist-info" / "METADATA").write_text("Name: vllm\nVersion: 1.2.3\n", encoding="utf-8")
    text = flag_names.text("vllm", "1.2", source)
    assert text == flag_names.text("vllm", "1.2", source)
    assert "options of vllm 1.2, read from the distribution vllm 1.2.3 of PyPI" in text
    assert yaml.safe_load(text) == EXPECTED["vllm"]


def test_source_without_the_engine_is_refused(source: Path):
    with pytest.raises(InputError, match="vllm, sglang"):
        flag_names.names("tgi", source)
    with pytest.raises(InputError, match=r"arg_utils\.py"):
        flag_names.names("vllm", source / "sglang")
    (source / "vllm/engine/arg_utils.py").write_text("def", encoding="utf-8")
    with pytest.raises(DataError, match="invalid syntax"):
        flag_names.names("vllm", source)


def test_script_needs_an_engine():
    ran = subprocess.run(
        [sys.executable, "-m", "aicjax.deploy.flag_names"], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 2
    assert "engine, version, source" in ran.stderr


def test_lists_are_of_the_pinned_releases():
    folder = _paths.configs_dir() / "deploy" / "flags"
    versions = {name: load_engine(name).version for name in ("vllm", "sglang", "trtllm")}
    runtime = load_runtime()
    versions |= {"sglang-router": versions["sglang"], "dynamo": runtime.version}
    versions["aiperf"] = runtime.benchmark_client["version"]
    assert {path.stem for path in folder.glob("*.yaml")} == {f"{n}-{v}" for n, v in versions.items()} | {"programs"}
    for path in folder.glob("*-*.yaml"):
        text = path.read_text(encoding="utf-8")
        assert path.stem.replace("-", " ") in text.splitlines()[1].replace("-", " ")
        for names in yaml.safe_load(text).values():
            assert names == sorted(set(names))


@pytest.mark.parametrize("engine", ["vllm", "sglang", "trtllm"])
def test_every_option_of_the_mapping_exists(engine: str):
    for load in (load_engine, load_server):
        mapping = load(engine)
        assert list(flag_checks.unknown(mapping.module, [*mapping.arguments.values(), *mapping.file.values()])) == []


@pytest.mark.parametrize(
    ("program", "option", "problem"),
    [
        (
            "dynamo.vllm",
            "--max-num-seq",
            "vLLM 0.23.0 and Dynamo 1.3.0 has no such option (did you mean --max-num-seqs?)",
        ),
        ("vllm serve", "--disaggregation-mode", "unknown option --disaggregation-mode: vLLM 0.23.0 has no such option"),
        ("dynamo.trtllm", "kv_cache_config.fraction", "unknown option kv_cache_config.fraction: TensorRT-LLM"),
        ("dynamo.sglang", "--cuda-graph-size=3", "unknown option --cuda-graph-size=3: SGLang 0.5.14"),
        ("aiperf profile", "--concurrencies", "aiperf 0.12.0 has no such option (did you mean --concurrency?)"),
        ("tgi", "--port", "no list of the options of tgi"),
    ],
)
def test_option_that_a_release_lacks_is_named(program: str, option: str, problem: str):
    assert problem in next(flag_checks.unknown(program, [option]))


def test_options_that_exist_pass():
    options = ["", "--max-num-seqs", "--max-model-len=8", "--no-enable-prefix-caching", "--disaggregation-mode"]
    assert list(flag_checks.unknown("dynamo.vllm", options)) == []


@pytest.mark.parametrize(
    ("target", "file", "right", "wrong"),
    [
        ("bare-metal", "run_node0.sh", "--http-port", "--http-ports"),
        ("bare-metal", "bench.sh", "--warmup-request-count", "--warmup-requests"),
        ("bare-metal", "run_node0.sh", "--max-model-len", "--max-length"),
        ("kubernetes", "k8s_bench.yaml", "--request-rate", "--rate"),
        ("kubernetes", "kubernetes.yaml", '"--max-num-seqs"', '"--max-seqs"'),
        ("dynamo", "deploy.yaml", '"--max-model-len"', '"--max-length"'),
    ],
)
def test_unknown_option_in_any_file_is_found(target: str, file: str, right: str, wrong: str):
    files = render(build(result_row("vllm", experts=False, disaggregated=False), INPUTS), target)
    assert right in files[file]
    files[file] = files[file].replace(right, wrong)
    option = wrong.strip('"')
    assert any(f"unknown option {option}: " in problem for problem in problems(files))


def test_unknown_key_in_an_engine_s_file_is_found():
    files = render(build(result_row("trtllm", experts=False, disaggregated=False), INPUTS), "bare-metal")
    files["agg_engine.yaml"] = files["agg_engine.yaml"].replace("max_batch_size", "max_batch")
    assert any("unknown option max_batch: TensorRT-LLM" in problem for problem in problems(files))
