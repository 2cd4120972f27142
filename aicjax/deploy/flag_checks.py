# SPDX-License-Identifier: Apache-2.0
"""Whether the options of generated files exist in the releases that the files are written for.

The names are in `configs/deploy/flags/`, written by `python -m aicjax.deploy.flag_names`; `programs.yaml` there says
which lists a program takes its options from.
"""

import difflib
import functools
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import yaml

from aicjax import _paths
from aicjax.deploy.read_back import Started
from aicjax.deploy.settings import Engine, load_engine, load_runtime
from aicjax.deploy.templates import YAML_LOADER

_FUNCTION = re.compile(r"(\w+)\(\)\s*{")
_OPTION = re.compile(r"(?<=\s)--[a-z][a-z0-9-]*")
_SHOWN = {
    "vllm": "vLLM",
    "sglang": "SGLang",
    "sglang-router": "SGLang's router",
    "trtllm": "TensorRT-LLM",
    "dynamo": "Dynamo",
    "aiperf": "aiperf",
}


def problems(engine: Engine, files: Mapping[str, str], started: Iterable[Started]) -> Iterator[str]:
    """Options that the pinned releases do not have, each in a line.

    Args:
        engine: Engine of the workers, as the target starts it.
        files: All files by name; programs beside the workers are looked for in their command lines.
        started: The workers.
    """
    for worker in started:
        yield from (f"{worker.where}: {problem}" for problem in unknown(worker.module, worker.options))
    for name, text in files.items():
        for program, options in _commands(name, text):
            if program != engine.module:
                yield from (f"{name}: {problem}" for problem in unknown(program, options))


def unknown(program: str, options: Iterable[str]) -> Iterator[str]:
    """The options that a program does not have.

    Args:
        program: Python module or command, as in `programs.yaml`.
        options: Options with their hyphens, and dotted keys of an engine's file; "" is a positional argument.
    """
    if program not in _programs():
        yield f"no list of the options of {program}"
        return
    known = known_options(program)
    for option in options:
        if option and option.split("=")[0] not in known:
            close = difflib.get_close_matches(option, sorted(known), 1)
            hint = f" (did you mean {close[0]}?)" if close else ""
            yield f"unknown option {option}: {_releases(program)} has no such option{hint}"


@functools.cache
def known_options(program: str) -> frozenset[str]:
    """Options of a program in the pinned releases, and keys of the file that it reads."""
    lists = [(_file(release), modules) for release, modules in _programs()[program].items()]
    return frozenset(name for content, modules in lists for module in modules for name in content[module])


def _commands(name: str, text: str) -> Iterator[tuple[str, list[str]]]:
    """Programs that a file starts, with their options: lines of a script, containers of a manifest."""
    if name.endswith((".sh", ".sbatch")):
        lines = [line for line in text.replace("\\\n", " ").splitlines() if not line.lstrip().startswith("#")]
    elif name.endswith(".yaml"):
        lines = [line for document in yaml.load_all(text, Loader=YAML_LOADER) for line in _containers(document)]
    else:
        lines = []
    yield from _started(lines)


def _started(lines: Iterable[str]) -> Iterator[tuple[str, list[str]]]:
    """Programs in lines of a shell, also behind a function that hands its own arguments on to one."""
    function, behind = "", dict[str, str]()
    for line in lines:
        words = line.split(maxsplit=1) or [""]
        if declared := _FUNCTION.match(line):
            function = declared[1]
        elif words[0] in behind:
            yield behind[words[0]], _OPTION.findall(line)
        for program in _programs():
            if program in line and (start := _start_of(program).search(line)) is not None:
                yield program, _OPTION.findall(line[start.end() :])
                if '"$@"' in line:
                    behind[function] = program


@functools.cache
def _start_of(program: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![\w./-]){re.escape(program)}(?=\s)")


def _containers(node: Any) -> Iterator[str]:
    """Command lines of the containers in a document, and lines of scripts in it."""
    if isinstance(node, Mapping):
        words = [*(node.get("command") or ()), *(node.get("args") or ())]
        if words and all(isinstance(word, str) for word in words):
            yield from " ".join(words).replace("\\\n", " ").splitlines()
        for value in node.values():
            yield from _containers(value)
    elif isinstance(node, list):
        for value in node:
            yield from _containers(value)
    elif isinstance(node, str) and node.startswith("#!"):
        yield from node.replace("\\\n", " ").splitlines()


def _releases(program: str) -> str:
    return " and ".join(f"{_SHOWN[release]} {_version(release)}" for release in _programs()[program])


def _version(release: str) -> str:
    runtime = load_runtime()
    versions = {"dynamo": runtime.version, "aiperf": runtime.benchmark_client["version"]}
    return versions.get(release) or load_engine(release.split("-")[0]).version


@functools.cache
def _programs() -> dict[str, dict[str, list[str]]]:
    return _read("programs")


@functools.cache
def _file(release: str) -> dict[str, list[str]]:
    return _read(f"{release}-{_version(release)}")


def _read(name: str) -> Any:
    path = _paths.configs_dir() / "deploy" / "flags" / f"{name}.yaml"
    return yaml.load(path.read_text(encoding="utf-8"), Loader=YAML_LOADER)
