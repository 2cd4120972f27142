# SPDX-License-Identifier: Apache-2.0
"""Flags of AIConfigurator that have no counterpart here: refused by name, unless they change nothing."""

import sys
from collections.abc import Sequence

from aicjax._results import InputError

_DEPLOY = "left out here: `aicjax deploy --help` says what deployment files can be given"

FLAGS = {
    **dict.fromkeys(
        (
            "--generator-config",
            "--generator-set",
            "--generator-help",
            "--generator-help-backend",
            "--config-template-version",
            "--generated-config-version",
            "--dynamo-version",
            "--generator-dynamo-version",
            "--transport",
            "--image-pull-secret",
        ),
        _DEPLOY,
    ),
    "--engine-step-backend": "left out: there is one engine",
    "--forward-model": "left out: passes are sums of operators",
    "--systems-paths": "left out: set AICJAX_DATA to a directory that holds systems/, perfdb/ and configs/",
}
SWITCHES = {"--enable-wideep": "large expert parallelism follows from the data"}  # which change nothing, and why
VALUES = {  # values of flags that ask for what is done anyway; None is any value
    "--engine-step-backend": ("rust",),
    "--forward-model": ("op_level",),
    "--log-level": None,
}


def without_effect(arguments: Sequence[str]) -> list[str]:
    """The arguments without flags of AIConfigurator that change nothing; a switch among them is named on stderr."""
    kept: list[str] = []
    rest = list(arguments)
    while rest:
        argument = rest.pop(0)
        flag, equals, value = argument.partition("=")
        if argument in SWITCHES:
            print(f"aicjax: {argument} changes nothing: {SWITCHES[argument]}", file=sys.stderr)
            continue
        if flag in VALUES:
            value = value if equals else (rest[0] if rest else "")
            allowed = VALUES[flag]
            if allowed is None or value in allowed:
                del rest[: 0 if equals else 1]
                continue
        kept.append(argument)
    return kept


def check(arguments: Sequence[str]) -> None:
    """Refuses the first flag that AIConfigurator has and this program has not.

    Raises:
        InputError: Naming it and what is modelled instead.
    """
    for argument in arguments:
        if argument == "--":
            return
        flag = argument.partition("=")[0]
        if flag in FLAGS:
            raise InputError(flag, argument, FLAGS[flag])
