# SPDX-License-Identifier: Apache-2.0
"""Entry point of `aicjax` and `python -m aicjax`."""

import gc
import sys

from aicjax.cli.app import run


def main() -> None:
    """Runs the command line on this process's arguments and exits with its code.

    A process that answers once and ends need not look for cycles of garbage, neither on the way nor at its end: that
    would be a quarter of its time.
    """
    gc.disable()
    code = run(sys.argv[1:])
    gc.freeze()
    sys.exit(code)


if __name__ == "__main__":
    main()
