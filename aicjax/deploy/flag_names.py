# SPDX-License-Identifier: Apache-2.0
"""Names of the options of a released engine, read from its source and kept in `configs/deploy/flags/`.

    python -m aicjax.deploy.flag_names ENGINE VERSION SOURCE

reads an unpacked wheel, source distribution or checkout without importing it, and writes `ENGINE-VERSION.yaml`: for
each module the options that it declares, aliases included, or the dotted keys of the engine's file. Names only.
"""

import argparse
import ast
import email
from collections.abc import Iterable, Iterator
from pathlib import Path

import yaml

from aicjax import _paths
from aicjax._names import one_of
from aicjax._results import DataError, InputError

SOURCES: dict[str, tuple[str, ...]] = {
    "vllm": ("vllm/engine/arg_utils.py", "vllm/entrypoints/openai/cli_args.py"),
    "sglang": ("sglang/srt/server_args.py", "sglang/srt/arg_groups/fields/*.py"),
    "sglang-router": ("sglang_router/launch_router.py", "sglang_router/router_args.py"),
    "trtllm": ("tensorrt_llm/llmapi/llm_args.py", "tensorrt_llm/commands/serve.py"),
    "dynamo": (
        "dynamo/vllm/backend_args.py",
        "dynamo/sglang/backend_args.py",
        "dynamo/trtllm/backend_args.py",
        "dynamo/frontend/frontend_args.py",
        "dynamo/common/configuration/groups/*.py",
    ),
    "aiperf": ("aiperf/config/flags/cli_config.py", "aiperf/common/config/*.py"),
}
_NAMING_KEYWORDS = {"flag_name", "obsolete_flag", "aliases", "alias", "cli_name", "name"}
_DECLARING_CALLS = ("argument", "Arg", "CLIParameter", "option")
_ROOT_OF_FILE = "TorchLlmArgs"


def names(engine: str, source: Path) -> dict[str, list[str]]:
    """Option names of a release, by Python module, sorted.

    Args:
        engine: A name of `SOURCES`.
        source: Directory that holds its packages.

    Raises:
        InputError: No such engine, or nothing of it in the directory.
    """
    if engine not in SOURCES:
        raise InputError("engine", engine, one_of(engine, SOURCES))
    paths = [path for pattern in SOURCES[engine] for path in sorted(source.glob(pattern))]
    negatable = _boolean_fields(source.glob("vllm/config/*.py")) if engine == "vllm" else {}
    found = {
        ".".join(path.relative_to(source).with_suffix("").parts): sorted(_of_module(_parsed(path), negatable))
        for path in paths
    }
    found = {module: options for module, options in found.items() if options}
    if not found:
        raise InputError("source", str(source), f"a directory with {SOURCES[engine][0]}")
    return found


def text(engine: str, version: str, source: Path) -> str:
    """The file of a release.

    Raises:
        InputError: As `names`.
    """
    lists = yaml.safe_dump(names(engine, source), width=120, default_flow_style=None)
    return (
        "# SPDX-License-Identifier: Apache-2.0\n"
        f"# Names of the options of {engine} {version}, read from {_origin(source)}.\n"
        "# Written by python -m aicjax.deploy.flag_names: options by module, or dotted keys of the engine's file.\n"
        f"{lists}"
    )


def _origin(source: Path) -> str:
    """The distribution that a directory holds, by its metadata."""
    stated = [*sorted(source.glob("*.dist-info/METADATA")), *sorted(source.glob("PKG-INFO"))]
    if not stated:
        return "its source"
    metadata = email.message_from_string(stated[0].read_text(encoding="utf-8"))
    return f"the distribution {metadata['Name']} {metadata['Version']} of PyPI"


def _parsed(path: Path) -> ast.Module:
    try:
        return ast.parse(path.read_text(encoding="utf-8"))
    except SyntaxError as error:
        raise DataError(f"{path}: {error}") from None


def _of_module(module: ast.Module, negatable: dict[str, set[str]]) -> set[str]:
    classes = {node.name: node for node in ast.walk(module) if isinstance(node, ast.ClassDef)}
    if _ROOT_OF_FILE in classes:
        return set(_keys(_ROOT_OF_FILE, classes))
    boolean = _boolean_settings(module, negatable)
    calls = [node for node in ast.walk(module) if isinstance(node, ast.Call)]
    found = {option for call in calls for option in _declared(call, boolean)}
    for node in classes.values():
        found |= set(_of_fields(node))
    return found


def _declared(call: ast.Call, boolean: set[tuple[str, str]]) -> Iterator[str]:
    """Options that a call declares, with the negations that it makes."""
    called = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    if not called.endswith(_DECLARING_CALLS):
        return
    values = [*call.args, *(word.value for word in call.keywords if word.arg in _NAMING_KEYWORDS)]
    options = [text for value in values for text in _texts(value) if text.startswith("--")]
    yield from (option for words in options for option in words.split("/"))
    actions = [ast.unparse(word.value) for word in call.keywords if word.arg == "action"]
    settings = [part for word in call.keywords if word.arg is None for part in ast.walk(word.value)]
    if (
        "negatable" in called
        or any(action.endswith("BooleanOptionalAction") for action in actions)
        or any(_setting(value) in boolean for value in settings)
    ):
        yield from (f"--no-{option.removeprefix('--')}" for option in options)


def _texts(value: ast.expr) -> Iterator[str]:
    if isinstance(value, ast.Constant) and isinstance(value.value, str):
        yield value.value
    elif isinstance(value, ast.JoinedStr):
        yield "".join(text for part in value.values for text in _texts(part))
    elif isinstance(value, ast.List | ast.Tuple):
        for part in value.elts:
            yield from _texts(part)


def _of_fields(node: ast.ClassDef) -> Iterator[str]:
    """Options that fields stand for: those annotated with a help text, and those of a parser made of the class."""
    made_of_class = node.name.endswith("FrontendArgs")
    for field in node.body:
        if not (isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)):
            continue
        option, stated = "--" + field.target.id.replace("_", "-"), ast.unparse(field.annotation)
        if made_of_class:
            yield from (option, f"--no-{option[2:]}") if "bool" in stated else (option,)
        elif stated.startswith(("A[", "Annotated[")) and not any(
            word in stated for word in ("no_cli=True", "cli_name=")
        ):
            named = "CLIParameter(" in stated and "name=" in stated
            yield from () if named or "DisableCLI" in stated else (option,)


def _boolean_fields(paths: Iterable[Path]) -> dict[str, set[str]]:
    """Fields with a boolean among their types, by class: a parser made of them takes `--no-` as well."""
    found: dict[str, set[str]] = {}
    for path in sorted(paths):
        for node in ast.walk(_parsed(path)):
            if isinstance(node, ast.ClassDef):
                fields = [field for field in node.body if isinstance(field, ast.AnnAssign)]
                flags = {ast.unparse(field.target) for field in fields if "bool" in ast.unparse(field.annotation)}
                found[node.name] = flags
    return found


def _boolean_settings(module: ast.Module, negatable: dict[str, set[str]]) -> set[tuple[str, str]]:
    """`(variable, field)` where the variable holds settings made of a class and the field is boolean."""
    found = set()
    for node in ast.walk(module):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and node.value.args:
            made_of = ast.unparse(node.value.args[0])
            found |= {(ast.unparse(node.targets[0]), field) for field in negatable.get(made_of, ())}
    return found


def _setting(value: ast.AST) -> tuple[str, str] | None:
    """`(variable, field)` of `variable["field"]`."""
    if isinstance(value, ast.Subscript) and isinstance(value.slice, ast.Constant):
        return ast.unparse(value.value), str(value.slice.value)
    return None


def _keys(name: str, classes: dict[str, ast.ClassDef], start: str = "", above: tuple[str, ...] = ()) -> Iterator[str]:
    """Dotted keys of a settings class, of those that it extends and of those that its fields hold."""
    node = classes[name]
    for base in node.bases:
        if (parent := ast.unparse(base).split("[")[0]) in classes:
            yield from _keys(parent, classes, start, above)
    for field in node.body:
        if isinstance(field, ast.AnnAssign) and not (key := ast.unparse(field.target)).startswith("_"):
            if key == "model_config" or ast.unparse(field.annotation).startswith("ClassVar"):
                continue
            yield start + key
            words = {part.id for part in ast.walk(field.annotation) if isinstance(part, ast.Name)}
            words |= {part.value for part in ast.walk(field.annotation) if isinstance(part, ast.Constant)}
            for held in sorted(str(word) for word in words if word in classes and word not in (*above, name)):
                yield from _keys(held, classes, f"{start}{key}.", (*above, name))


def main() -> None:
    """Writes the file of the release that the command line names."""
    parser = argparse.ArgumentParser(prog="python -m aicjax.deploy.flag_names", description=__doc__)
    parser.add_argument("engine", choices=SOURCES)
    parser.add_argument("version", help="release that the files are written for")
    parser.add_argument("source", type=Path, help="directory that holds its packages")
    stated = parser.parse_args()
    path = _paths.configs_dir() / "deploy" / "flags" / f"{stated.engine}-{stated.version}.yaml"
    path.write_text(text(stated.engine, stated.version, stated.source), encoding="utf-8")
    print(path)


if __name__ == "__main__":
    main()
