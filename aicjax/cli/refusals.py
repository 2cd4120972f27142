# SPDX-License-Identifier: Apache-2.0
"""Commands and flags of AIConfigurator that have no counterpart here: refused by name, never ignored."""

from collections.abc import Sequence

from aicjax._results import InputError

_AFD = "left out: attention-FFN disaggregation is not modelled"
_DEPLOY = "left out: deployment files are not generated"

COMMANDS = {
    "generate": "search, recommend or estimate: deployment files are not generated",
}
FLAGS = {
    **dict.fromkeys(
        (
            "--afd-max-a-batch-size",
            "--afd-max-candidates",
            "--afd-candidate-overflow",
        ),
        _AFD,
    ),
    **dict.fromkeys(
        (
            "--deployment-target",
            "--generator-config",
            "--generator-set",
            "--generator-help",
            "--generator-help-backend",
            "--config-template-version",
            "--generated-config-version",
            "--dynamo-version",
            "--generator-dynamo-version",
            "--namespace",
            "--model-cache",
            "--transport",
            "--image-pull-secret",
        ),
        _DEPLOY,
    ),
    "--engine-step-backend": "left out: there is one engine",
    "--forward-model": "left out: passes are sums of operators",
    "--enable-wideep": "left out: large expert parallelism follows from the data",
    "--moe-backend": "left out: the data choose the expert kernels",
    "--systems-paths": "left out: set AICJAX_DATA to a directory that holds systems/, perfdb/ and configs/",
    "--log-level": "left out: --quiet prints less, --debug shows tracebacks",
}


def check(arguments: Sequence[str]) -> None:
    """Refuses the first command or flag that AIConfigurator has and this program has not.

    Raises:
        InputError: Naming it and what is modelled instead.
    """
    for position, argument in enumerate(arguments):
        if argument == "--":
            return
        flag = argument.partition("=")[0]
        if flag in FLAGS:
            raise InputError(flag, argument, FLAGS[flag])
        if position == 0 and argument in COMMANDS:
            raise InputError("command", argument, COMMANDS[argument])
