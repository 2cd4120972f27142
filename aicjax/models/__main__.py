# SPDX-License-Identifier: Apache-2.0
"""Add a model to the bundled ones: `python -m aicjax.models NAME CONFIG_JSON [HF_QUANT_CONFIG_JSON]`."""

import argparse
import sys
from pathlib import Path

from aicjax import _paths
from aicjax._results import AicjaxError
from aicjax.models.load import parse_config, read_json
from aicjax.models.slim import slim_config, write_slim


def main(arguments: list[str] | None = None) -> int:
    """Reduce one config, check that it still parses to the same model, and write it."""
    parser = argparse.ArgumentParser(prog="python -m aicjax.models", description=__doc__)
    parser.add_argument("name", help="hub name, for example Qwen/Qwen3-8B")
    parser.add_argument("config", type=Path, help="its config.json")
    parser.add_argument("hf_quant_config", type=Path, nargs="?", help="its hf_quant_config.json, where it has one")
    parser.add_argument("--directory", type=Path, default=_paths.configs_dir() / "models")
    options = parser.parse_args(arguments)
    try:
        config = read_json(options.config)
        hf_quant_config = options.hf_quant_config and read_json(options.hf_quant_config)
        whole = parse_config(config, hf_quant_config, name=options.name, source=str(options.config))
    except AicjaxError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    slim = slim_config(config, hf_quant_config)
    reduced = parse_config(slim["config"], slim.get("hf_quant_config"), name=options.name, source=str(options.config))
    if whole != reduced:
        print(f"{options.config}: the reduced config parses to another model.", file=sys.stderr)
        return 1
    print(write_slim(options.name, slim, options.directory))
    return 0


if __name__ == "__main__":
    sys.exit(main())
