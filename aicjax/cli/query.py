# SPDX-License-Identifier: Apache-2.0
"""`aicjax query`: the latency of single operators at given shapes, and how it was obtained.

Every flag of a number takes one or several with commas between; the answer covers all combinations.
"""

import dataclasses
import functools
import inspect
import itertools
import math
from collections.abc import Callable, Mapping
from typing import Annotated, Any

import typer

from aicjax import quant
from aicjax._names import one_of
from aicjax._results import InputError
from aicjax.cli import options
from aicjax.cli.query_commands import COMMANDS, Command, Flag
from aicjax.ops import records

app = typer.Typer(help="Latency of single operators at given shapes.", no_args_is_help=True)

_NUMBERS = "N[,N...]"
_WHERE = {
    "system": Annotated[str, typer.Option("--system", metavar="NAME", help="GPU system, for example h200_sxm.")],
    "backend": Annotated[
        str, typer.Option("--backend", metavar=options.BACKENDS, help="Engine whose kernels were measured.")
    ],
    "backend_version": options.Version,
    "database_mode": Annotated[
        str, typer.Option("--database-mode", metavar=options.MODES, help="What answers an operator.")
    ],
    "transfer_policy": options.TransferPolicy,
    "json": options.Json,
}
_WHERE_DEFAULTS = {"backend": "trtllm", "database_mode": "SILICON", "json": False}
_MODEL = {
    "model": Annotated[
        str, typer.Option("--model", metavar="NAME|DIR", help="Model whose operators of this kind are asked.")
    ],
    "tp": Annotated[int, typer.Option("--tp", help="Tensor parallel GPUs of the model.")],
}


def _register(command: Command) -> None:
    """Adds a command whose flags are the fields of an operator, its coordinates, and where it runs."""
    kinds = {f.name: f for f in dataclasses.fields(getattr(records, command.record))}
    parameters = [_parameter(name, command.flag(flag), int) for name, flag in command.points.items()]
    for name in command.fields:
        declared = kinds[name]
        flag = command.flag(name)
        if flag.default is None and declared.default is not dataclasses.MISSING:
            flag = dataclasses.replace(flag, default=str(declared.default))
        parameters.append(_parameter(name, flag, declared.type))
    if not command.fields:
        parameters += [_plain("model", _MODEL["model"]), _plain("tp", _MODEL["tp"], 1)]
    for name, annotation in _WHERE.items():
        required = name == "system"
        parameters.append(_plain(name, annotation, *(() if required else (_WHERE_DEFAULTS.get(name),))))
    parameters.sort(key=lambda p: p.default is not inspect.Parameter.empty)
    run: Any = functools.partial(_run, command)
    run.__signature__ = inspect.Signature(parameters)
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    app.command(command.name, help=command.text)(run)


def _plain(name: str, annotation: Any, *default: Any) -> inspect.Parameter:
    fallback = default[0] if default else inspect.Parameter.empty
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=fallback, annotation=annotation)


def _parameter(name: str, flag: Flag, kind: Any) -> inspect.Parameter:
    """The parameter of one flag: a switch, or text that is checked when the command runs."""
    metavar = {int: _NUMBERS, float: _NUMBERS}.get(kind, "FORMAT" if flag.role else "NAME")
    if kind is bool:
        option = typer.Option(*flag.names, help=flag.text)
        first = flag.names[0].partition("/")[0].strip("-")
        return _plain(name, Annotated[bool, option], flag.default in ("True", first))
    option = typer.Option(*flag.names, metavar=metavar, help=flag.text)
    default = () if flag.default is None else (flag.default,)
    return _plain(name, Annotated[str, option], *default)


def _run(command: Command, **given: Any) -> None:
    """Prints the latency of every combination of shapes and coordinates."""
    from aicjax.hardware import load_system
    from aicjax.ops.query import operator_latency
    from aicjax.report import operators
    from aicjax.tables import resolve_version

    where = {name: given.pop(name) for name in _WHERE}
    system, backend = load_system(where["system"]), where["backend"]
    version = resolve_version(system.name, backend, where["backend_version"])
    points = {name: _numbers(name, given.pop(name), command.flag(flag)) for name, flag in command.points.items()}
    if command.fields:
        ops, shapes = _from_flags(command, given)
    else:
        ops, shapes = _of_model(command, given["model"], given["tp"], (system, backend, version))
    combinations = list(itertools.product(range(len(ops)), *points.values()))
    chosen, *columns = zip(*combinations, strict=True)
    coordinates: dict[str, Any] = dict(zip(points, columns, strict=True))
    options: dict[str, Any] = {"mode": where["database_mode"], "transfer_policy": where["transfer_policy"]}
    times = operator_latency(system, backend, version, [ops[at] for at in chosen], **options, **coordinates)
    numbers = {name: [shapes[at][name] for at in chosen] for name in shapes[0]}
    words = [f"{name} {value}" for name, value in vars(ops[0]).items() if isinstance(value, str) and name != "name"]
    title = ", ".join([f"{command.name} on {system.name}, {backend} {version}", *words])
    operators.print_times(title, {**numbers, **coordinates}, times, as_json=where["json"])


def _from_flags(command: Command, given: Mapping[str, Any]) -> tuple[list[Any], list[dict[str, Any]]]:
    """Operators of all combinations of the fields given, and the numbers of each."""
    record: Callable[..., Any] = getattr(records, command.record)
    kinds = {f.name: f.type for f in dataclasses.fields(record)}  # type: ignore[arg-type]
    fixed, varied = {}, {}
    for name, value in given.items():
        flag = command.flag(name)
        if kinds[name] in (int, float):
            varied[name] = _numbers(name, value, flag, kinds[name])
        elif flag.role and value not in quant.BY_ROLE[flag.role]:
            raise InputError(f"{flag.role} quant-mode", value, one_of(value, quant.BY_ROLE[flag.role]))
        else:
            fixed[name] = value
    shapes = [dict(zip(varied, values, strict=True)) for values in itertools.product(*varied.values())]
    return [record(command.name, 1, **fixed, **shape) for shape in shapes], shapes


def _of_model(
    command: Command, name: str, tp: int, where: tuple[Any, str, str]
) -> tuple[list[Any], list[dict[str, Any]]]:
    """The operators of this kind that a model has, one layer of each, and the numbers that tell them apart."""
    from aicjax.models import Parallel, load_model, op_lists, resolve_quantisation

    system, backend, version = where
    model, record = load_model(name), getattr(records, command.record)
    layout = Parallel(tp, moe_ep=tp if model.is_moe else 1)
    lists = op_lists(model, layout, resolve_quantisation(model, system, backend, version), backend)
    found = [op for op in (*lists.context, *lists.generation) if isinstance(op, record)]
    if not found:
        raise InputError("model", name, f"a model with {command.name.partition('-')[2].upper()} attention")
    ops = list({dataclasses.replace(op, name=command.name, scale=1.0): None for op in found})
    return ops, [{name: getattr(op, name) for name in ("num_heads", "ratio") if hasattr(op, name)} for op in ops]


def _numbers(name: str, text: str, flag: Flag, kind: Any = int) -> list[Any]:
    """Numbers with commas between."""
    try:
        numbers = [kind(part) for part in text.split(",")]
    except ValueError:
        raise InputError(name, text, f"{'whole ' if kind is int else ''}numbers with commas between") from None
    for number in numbers:
        if not flag.least <= number < math.inf:
            raise InputError(name, number, f"at least {flag.least}")
    return numbers


for _command in COMMANDS:
    _register(_command)
