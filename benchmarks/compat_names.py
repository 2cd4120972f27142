# SPDX-License-Identifier: Apache-2.0
"""Names of AIConfigurator's command line and experiment files, for the tests of `aicjax compat`.

Run it with the Python of an environment that has AIConfigurator:

    python benchmarks/compat_names.py > tests/references/compat_names.json
"""

import argparse
import dataclasses
import importlib
import importlib.metadata
import json
from collections.abc import Iterator

TAKES = {None: "one", 0: "none", "?": "optional", "+": "many"}  # by number of values


def commands() -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Every command with its parser."""
    parser = argparse.ArgumentParser()
    importlib.import_module("aiconfigurator.cli.main").configure_parser(parser)
    (chosen,) = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    yield from chosen.choices.items()


def flags(parser: argparse.ArgumentParser) -> dict[str, str]:
    """What each flag takes."""
    return {name: TAKES[action.nargs] for action in parser._actions for name in action.option_strings}


def main() -> None:
    """Prints the names as JSON."""
    task = importlib.import_module("aiconfigurator.sdk.task_v2").Task
    names = {
        "version": importlib.metadata.version("aiconfigurator"),
        "commands": {name: flags(parser) for name, parser in commands()},
        "experiment_keys": sorted(field.name for field in dataclasses.fields(task) if not field.name.startswith("_")),
    }
    print(json.dumps(names, indent=1))


if __name__ == "__main__":
    main()
