# SPDX-License-Identifier: Apache-2.0
"""Entry point of `aicjax` and `python -m aicjax`."""

import sys

from aicjax.cli.app import run


def main() -> None:
    """Runs the command line on this process's arguments and exits with its code."""
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
