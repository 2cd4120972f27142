# SPDX-License-Identifier: Apache-2.0
"""What a target is: how its files are rendered, read back and checked."""

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from aicjax.deploy.read_back import Started
from aicjax.deploy.record import Deployment
from aicjax.deploy.settings import Engine, Runtime, load_engine, load_runtime


def _secret() -> str:
    return load_runtime().secret


class Target(NamedTuple):
    """One kind of files.

    Attributes:
        render: The files by name, without the record and the benchmark that every target has.
        read: The workers that files start.
        problems: What is wrong with the files that is particular to the target, each in a line.
        engine: Option names of an engine: of its worker of Dynamo, or of its own server.
        secret: Kubernetes secret with the token of the model hub where the user names none.
    """

    render: Callable[[Deployment, Engine, Runtime], dict[str, str]]
    read: Callable[[Mapping[str, str]], list[Started]]
    problems: Callable[[Deployment, Mapping[str, str], list[Started]], Iterator[str]]
    engine: Callable[[str], Engine] = load_engine
    secret: Callable[[], str] = _secret
