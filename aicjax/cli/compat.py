# SPDX-License-Identifier: Apache-2.0
"""`aicjax compat -- ...`: a command line of AIConfigurator as a command line of this program, by a table of flags."""

import functools
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import yaml
from typer import Context

from aicjax import _paths
from aicjax._names import nearest, one_of
from aicjax._results import InputError

TABLE = "compat/aiconfigurator.yaml"


@dataclass(frozen=True)
class Fate:
    """What becomes of a flag; the fields are those of `configs/compat/aiconfigurator.yaml`."""

    takes: Literal["none", "one", "optional", "many"] = "one"
    name: str | None = None
    values: Mapping[str, str] = field(default_factory=dict)
    others: bool = False
    accepts: tuple[str, ...] = ()
    no_effect: str = ""
    instead: str = ""
    needs: str | None = None

    def applied(self, flag: str, values: list[str]) -> list[str]:
        """The arguments that a flag becomes; none where it changes nothing.

        Raises:
            InputError: It is refused.
        """
        if self.no_effect:
            print(f"aicjax: {flag} changes nothing: {self.no_effect}", file=sys.stderr)
            return []
        if self.accepts and set(values) <= set(self.accepts):
            return []
        if self.accepts or (self.instead and not self.values):
            raise InputError(flag, " ".join(values) or flag, self.instead)
        if self.values and not self.others and not set(values) <= set(self.values):
            raise InputError(flag, " ".join(values), self.instead)
        name = self.name or flag
        if self.takes == "none":
            return [name]
        translated = [",".join(self.values.get(word, word) for word in value.split(",")) for value in values]
        return [name, ",".join(translated)]


@dataclass(frozen=True)
class Command:
    """A command of AIConfigurator.

    Attributes:
        runs: The command here.
        adds: Arguments that follow it.
        adds_with: Arguments that follow it where a flag is given, unless they are stated, by flag.
        fates: Of its flags.
    """

    runs: str
    adds: tuple[str, ...]
    adds_with: Mapping[str, tuple[str, ...]]
    fates: Mapping[str, Fate]

    def flag(self, text: str) -> str:
        """The flag that a text stands for: itself, or the one that begins with it.

        Raises:
            InputError: None, or several.
        """
        if text in self.fates:
            return text
        found = [name for name in self.fates if text.startswith("--") and name.startswith(text)]
        if len(found) > 1:
            raise InputError(text, text, one_of(text, found))
        if not found:
            near = nearest(text, self.fates)
            raise InputError(text, text, f"a flag of this command{f'; the nearest is {near}' if near else ''}")
        return found[0]


@functools.cache
def table() -> Mapping[str, Any]:
    """The table of flags as it is written."""
    return yaml.safe_load((_paths.configs_dir() / TABLE).read_text(encoding="utf-8"))


@functools.cache
def commands() -> Mapping[str, Command]:
    """The commands of AIConfigurator by name."""
    groups = table()["groups"]
    return {name: _command(stated, groups) for name, stated in table()["commands"].items()}


def translated(arguments: Sequence[str]) -> list[str]:
    """A command line of AIConfigurator, with or without the program's name, as arguments of this program.

    Flags that change nothing are named on stderr, each once.

    Raises:
        InputError: A command or a flag that is unknown, has no value, or has no counterpart.
    """
    words = [word for word in arguments if word != "--"]
    if words and words[0].rpartition("/")[2] == table()["program"]:
        words = words[1:]
    if words[:1] == ["cli"]:
        words = words[1:]
    name = words[0] if words else ""
    if name == "version":
        return ["--version"]
    if name in ("-h", "--help"):
        return ["compat", "--help"]
    if name in table()["refused_commands"]:
        raise InputError("command", name, table()["refused_commands"][name])
    if name not in commands():
        raise InputError("command", name, one_of(name, [*commands(), "version"]))
    command = commands()[name]
    given = _given(command, words[1:])
    result = [command.runs, *command.adds]
    for flag, values in given.items():
        fate = command.fates[flag]
        if fate.needs is None or fate.needs in given:
            result += fate.applied(flag, values)
        else:
            print(f"aicjax: {flag} changes nothing without {fate.needs}", file=sys.stderr)
    return result + [word for flag, added in command.adds_with.items() if flag in given for word in _new(added, result)]


def announced(arguments: Sequence[str]) -> list[str]:
    """The arguments of `translated`, said on stderr as the command line that runs."""
    result = translated(arguments)
    print(f"aicjax: runs aicjax {shlex.join(result)}", file=sys.stderr)
    return result


def command(ctx: Context) -> None:
    """Run a command line of AIConfigurator 0.12.0 here: `aicjax compat -- aiconfigurator cli default ...`.

    Answers are its own: --compat reference, with its constants and candidate lists. Every flag goes on, is named as
    changing nothing, or is refused with what to use instead. Exit codes are those of the command that runs.
    """
    raise InputError("command", None, f"a command line of AIConfigurator, such as {ctx.command_path} -- cli default")


def _command(stated: Mapping[str, Any], groups: Mapping[str, Any]) -> Command:
    flags = {flag: fate for group in stated["groups"] for flag, fate in groups[group].items()}
    return Command(
        runs=stated["runs"],
        adds=tuple(stated.get("adds", ())),
        adds_with={flag: tuple(words) for flag, words in stated.get("adds_with", {}).items()},
        fates={flag: _fate(fate) for flag, fate in {**flags, **stated.get("flags", {})}.items()},
    )


def _fate(stated: Mapping[str, Any]) -> Fate:
    names = {"as": "name"}
    values = {names.get(key, key): value for key, value in stated.items()}
    accepts = values.pop("accepts", ())
    releases = _releases(accepts) if isinstance(accepts, str) else tuple(accepts)
    values["instead"] = values.get("instead", "").format(releases=" or ".join(releases))
    return Fate(**values, accepts=releases)


def _releases(of: str) -> tuple[str, ...]:
    """Releases that deployment files are written for: of the `runtime`, or of the `engines`."""
    from aicjax.deploy.settings import load_engine, load_runtime
    from aicjax.explore.request import BACKENDS

    return (load_runtime().version,) if of == "runtime" else tuple(load_engine(name).version for name in BACKENDS)


def _given(command: Command, words: Sequence[str]) -> dict[str, list[str]]:
    """Values by flag; of a flag that is given again the last."""
    given: dict[str, list[str]] = {}
    rest = list(words)
    while rest:
        text, equals, value = rest.pop(0).partition("=")
        if not text.startswith("-"):
            raise InputError("command line", text, "a flag and its value")
        flag = command.flag(text)
        takes = command.fates[flag].takes
        values = [value] if equals else list(_values(takes, rest))
        del rest[: 0 if equals else len(values)]
        if takes in ("one", "many") and not values:
            raise InputError(flag, None, "given a value")
        if takes == "none" and values:
            raise InputError(flag, values[0], "without a value")
        given[flag] = values
    return given


def _values(takes: str, rest: Sequence[str]) -> Iterator[str]:
    """The values at the front of the rest of a command line that a flag takes."""
    most = {"none": 0, "one": 1, "optional": 1, "many": len(rest)}[takes]
    for word in rest[:most]:
        if word.startswith("--") or (takes != "one" and word.startswith("-")):
            return
        yield word


def _new(added: Sequence[str], arguments: Sequence[str]) -> Iterator[str]:
    """Pairs of a flag and its value that are not stated yet."""
    for flag, value in zip(added[::2], added[1::2], strict=True):
        if flag not in arguments:
            yield from (flag, value)
