# SPDX-License-Identifier: Apache-2.0
"""Workers as generated files state them, read back from shell scripts and manifests to be checked."""

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

import yaml


@dataclass(frozen=True)
class Started:
    """Workers of one kind as a file starts them.

    Attributes:
        where: File, and the place in it.
        count: How many.
        gpus: GPUs of each, by number on bare metal; numbers from 0 in a cluster.
        options: Values of its options, of the command line and of the engine's file (dotted keys).
        environment: Variables set for it.
        module: Python module.
        image: Container image; empty on bare metal.
    """

    where: str
    count: int
    gpus: tuple[int, ...]
    options: Mapping[str, Any]
    environment: Mapping[str, str]
    module: str
    image: str = ""


def from_script(name: str, text: str, files: Mapping[str, str]) -> list[Started]:
    """Workers of a launch script."""
    lines = text.replace("\\\n", " ").splitlines()
    return [_worker(name, line, files) for line in lines if line.startswith("CUDA_VISIBLE_DEVICES=")]


def _worker(name: str, line: str, files: Mapping[str, str]) -> Started:
    words = shlex.split(line.rstrip("& "))
    start = words.index("python3")
    environment = dict(word.split("=", 1) for word in words[:start])
    gpus = tuple(int(gpu) for gpu in environment["CUDA_VISIBLE_DEVICES"].split(","))
    options = _options(words[start + 3 :], files)
    return Started(name, 1, gpus, options, environment, words[start + 2])


def from_manifest(name: str, text: str) -> list[Started]:
    """Workers of a DynamoGraphDeployment."""
    documents = list(yaml.safe_load_all(text))
    maps = [document["data"] for document in documents if document["kind"] == "ConfigMap"]
    files = maps[0] if maps else {}
    started = []
    for component in documents[-1]["spec"]["components"]:
        container = component["podTemplate"]["spec"]["containers"][0]
        if component["type"] != "frontend":
            gpus = int(container["resources"]["limits"]["nvidia.com/gpu"])
            options, module = _options(container["args"], files), container["command"][2]
            where = f"{name}, {component['name']}"
            found = (where, component["replicas"], tuple(range(gpus)), options, {}, module, container["image"])
            started.append(Started(*found))
    return started


def _options(words: list[str], files: Mapping[str, str]) -> dict[str, Any]:
    options: dict[str, Any] = {}
    last = ""
    for word in words:
        if re.match(r"--[a-z]", word):
            last = word
            options[last] = True
        else:
            options[last] = word if options[last] is True else f"{options[last]} {word}"
    for value in list(options.values()):
        content = files.get(PurePath(str(value)).name, "") if str(value).endswith(".yaml") else ""
        options |= _flat(yaml.safe_load(content) or {})
    return options


def _flat(content: Mapping[str, Any], start: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in content.items():
        flat |= _flat(value, f"{start}{name}.") if isinstance(value, dict) else {f"{start}{name}": value}
    return flat
