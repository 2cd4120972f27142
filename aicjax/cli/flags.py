# SPDX-License-Identifier: Apache-2.0
"""How a command states its flags: one by one, or by groups that commands share."""

import functools
import inspect
from collections.abc import Callable, Collection
from inspect import Parameter
from typing import Any, TypeVar, get_args

from typer import Option

_Result = TypeVar("_Result")


def flag(*names: str, panel: str | None = None, default: str | bool = False, metavar: str = "N", text: str) -> Any:
    """An option whose default is None; `default` is what the help shows for it.

    Its value stays text: the request parses and checks it, so that a refusal reads the same from Python.
    """
    return Option(*names, help=text, rich_help_panel=panel, show_default=default, metavar=metavar)


def switch(name: str, *, panel: str | None = None, text: str) -> Any:
    """A flag without a value, off unless given."""
    return Option(name, help=text, rich_help_panel=panel, show_default=False)


def takes(*groups: type, without: Collection[str] = ()) -> Callable[[Callable[..., _Result]], Callable[..., _Result]]:
    """Gives a command the flags of groups, after the parameters that it states itself.

    A group is a class of annotated names. A name that comes again in a later group keeps its place and takes the
    later statement. Flags that are not given are None, switches False; the command finds their values in its context.

    Args:
        *groups: Groups in the order of the help.
        without: Names in them that the command does not take.

    Raises:
        KeyError: No group has a name of `without`.
    """
    flags = {name: kind for group in groups for name, kind in inspect.get_annotations(group).items()}
    for name in without:
        del flags[name]
    taken = [
        Parameter(name, Parameter.KEYWORD_ONLY, default=False if get_args(kind)[0] is bool else None, annotation=kind)
        for name, kind in flags.items()
    ]

    def with_flags(command: Callable[..., _Result]) -> Callable[..., _Result]:
        own = inspect.signature(command).parameters

        @functools.wraps(command)
        def run(**values: Any) -> _Result:
            return command(**{name: values[name] for name in own})

        parameters = [*(p.replace(kind=Parameter.KEYWORD_ONLY) for p in own.values()), *taken]
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {p.name: p.annotation for p in parameters}
        return run

    return with_flags
