# SPDX-License-Identifier: Apache-2.0
"""Calls the entry point of a command line several times in one process and prints the times; needs no package.

    python repeat_call.py MODULE FUNCTION REPEATS ARGUMENT...

Prints a JSON list of [wall s, CPU s], without the first call, which loads and compiles. What the calls print is lost.
"""

import contextlib
import importlib
import io
import json
import sys
import time


def main() -> None:
    module, function, repeats, *arguments = sys.argv[1:]
    call = getattr(importlib.import_module(module), function)
    times = []
    for _ in range(int(repeats) + 1):
        wall, cpu = time.perf_counter(), time.process_time()
        with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
            call(list(arguments))
        times.append((time.perf_counter() - wall, time.process_time() - cpu))
    print(json.dumps(times[1:]))


if __name__ == "__main__":
    main()
