# SPDX-License-Identifier: Apache-2.0
"""Workers as generated files state them, read back from shell scripts and manifests to be checked."""

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from aicjax.deploy.templates import documents


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
        nodes: Nodes of each, where the file starts a worker over several at once.
        on: Their numbers, where the file says.
        role: What they are, where the file says so apart from the options.
    """

    where: str
    count: int
    gpus: tuple[int, ...]
    options: Mapping[str, Any]
    environment: Mapping[str, str]
    module: str
    image: str = ""
    nodes: int = 1
    on: tuple[int, ...] = ()
    role: str = ""


def from_script(name: str, text: str, files: Mapping[str, str], on: tuple[int, ...] = ()) -> list[Started]:
    """Workers that a shell script starts, each in a line that states its GPUs.

    Args:
        name, text: The script.
        files: All files of the deployment, for those of the engine.
        on: Nodes that run the script; where it names nodes itself these are read.
    """
    lines = [line for line in text.replace("\\\n", " ").splitlines() if "CUDA_VISIBLE_DEVICES=" in line]
    return [_worker(name, line, files, on) for line in lines if not line.startswith("#")]


def _worker(name: str, line: str, files: Mapping[str, str], on: tuple[int, ...]) -> Started:
    words = shlex.split(line.rstrip("& "))
    start = words.index("python3")
    environment = dict(word.split("=", 1) for word in words[:start] if re.match(r"[A-Z]\w*=", word))
    gpus = tuple(int(gpu) for gpu in environment["CUDA_VISIBLE_DEVICES"].split(","))
    named = [word for word in words[:start] if word.startswith("--nodelist=")]
    on = tuple(int(node) for word in named for node in re.findall(r"\[(\d+)\]", word)) or on
    options = options_of(words[start + 3 :], files)
    return Started(name, 1, gpus, options, environment, words[start + 2], nodes=len(on) or 1, on=on)


def from_container(
    where: str, count: int, container: Mapping[str, Any], files: Mapping[str, str], nodes: int = 1
) -> Started:
    """Workers of a container of Kubernetes, whose command is `python3 -m MODULE`.

    Args:
        where: File, and the place in it.
        count: Workers with this container.
        container: The container.
        files: Files of the engine, by name.
        nodes: Nodes of each worker, every one with a pod.
    """
    gpus = tuple(range(int(container["resources"]["limits"]["nvidia.com/gpu"])))
    options, module = options_of(container["args"], files), container["command"][2]
    environment = {entry["name"]: entry.get("value", "") for entry in container.get("env", ())}
    return Started(where, count, gpus, options, environment, module, container["image"], nodes)


def options_of(words: list[str], files: Mapping[str, str]) -> dict[str, Any]:
    """Options of a command line and, by dotted keys, of the engine's file that it names; "" is a positional argument.

    Args:
        words: The command line.
        files: Files by name.
    """
    options: dict[str, Any] = {}
    last = ""
    for word in words:
        if re.match(r"--[a-z]", word):
            last = word
            options[last] = True
        else:
            options[last] = word if options.get(last, True) is True else f"{options[last]} {word}"
    for value in list(options.values()):
        content = files.get(PurePath(str(value)).name, "") if str(value).endswith(".yaml") else ""
        options |= _flat(next(iter(documents(content)), None) or {})
    return options


def _flat(content: Mapping[str, Any], start: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in content.items():
        flat |= _flat(value, f"{start}{name}.") if isinstance(value, dict) else {f"{start}{name}": value}
    return flat
