# SPDX-License-Identifier: Apache-2.0
"""How many in-flight batching points AIConfigurator 0.12.0 evaluates in a search, and how long each takes.

    PYTHON reference_rate.py ARGUMENT...

PYTHON is an interpreter with the package `aiconfigurator`, the arguments those of its command line. Prints a JSON list:
distinct points evaluated in a second run, whose tables the first has loaded, and the wall and CPU seconds spent on
evaluating them alone, without what surrounds them. What the search prints is lost.
"""

import contextlib
import io
import json
import sys
import time
from typing import Any

from aiconfigurator import main as command_line  # pyright: ignore[reportMissingImports]
from aiconfigurator.sdk import sweep  # pyright: ignore[reportMissingImports]


def main() -> None:
    seen: dict[tuple[int, int, int], Any] = {}  # with the model, so that no two have the same identity
    spent = [0.0, 0.0]
    evaluate = sweep.predict_agg_worker

    def counted(**given: Any) -> Any:
        model = given["model"]
        point = id(model), given["runtime_config"].batch_size, given["ctx_tokens"]
        if point in seen:  # answered from its cache
            return evaluate(**given)
        seen[point] = model
        wall, cpu = time.perf_counter(), time.process_time()
        try:
            return evaluate(**given)
        finally:
            spent[0] += time.perf_counter() - wall
            spent[1] += time.process_time() - cpu

    sweep.predict_agg_worker = counted
    for _ in range(2):
        seen.clear()
        spent[:] = 0.0, 0.0
        with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
            command_line.main(sys.argv[1:])
    print(json.dumps([len(seen), *spent]))


if __name__ == "__main__":
    main()
