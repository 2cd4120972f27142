# SPDX-License-Identifier: Apache-2.0
"""Checks of generated files: each file by itself, and all of them against the record that they were rendered from."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from aicjax._names import counted, one_of
from aicjax._results import AicjaxError, InputError
from aicjax.deploy import flag_checks, schema_checks, site_checks
from aicjax.deploy.bench import bench_problems
from aicjax.deploy.file_checks import aliases, file_problems
from aicjax.deploy.names import LABEL_RULE, is_label
from aicjax.deploy.options import canonical, member_of, variables
from aicjax.deploy.read_back import Started
from aicjax.deploy.readme import readme_problems
from aicjax.deploy.record import LABEL_LENGTH, Deployment, Role, from_dict
from aicjax.deploy.render import RECORD_FILE
from aicjax.deploy.settings import Engine, load_engine, load_rules, load_runtime
from aicjax.deploy.targets import TARGETS
from aicjax.hardware import load_system

_MODEL = re.compile(r"[\w./~-]+")


class FailedCheck(AicjaxError):
    """Generated files break a rule; nothing is written."""

    exit_code = 2


def problems(files: Mapping[str, str]) -> list[str]:
    """What is wrong with the files of one deployment, each in a line; empty when nothing is."""
    if found := [
        f"{name}: {alias} is an alias: write it out" for name, text in files.items() for alias in aliases(name, text)
    ]:
        return found  # a few lines of aliases may stand for more than can be read
    found = [problem for name, text in files.items() for problem in file_problems(name, text)]
    if RECORD_FILE not in files:
        return [*found, f"{RECORD_FILE} is missing"]
    try:
        return [*found, *_against_record(files)]
    except InputError as error:
        return [*found, f"{RECORD_FILE}: {error}"]
    except (
        ValueError,
        KeyError,
        TypeError,
        IndexError,
        AttributeError,
        StopIteration,
        RecursionError,
        yaml.YAMLError,
    ) as error:
        if schema_checks.file_problems(RECORD_FILE, files[RECORD_FILE]):
            return found  # which say why
        reason = " ".join(f"{type(error).__name__} {error}".split())
        return [*found, f"the files do not have the shape of their target: they cannot be read back ({reason})"]


def _against_record(files: Mapping[str, str]) -> list[str]:
    record = json.loads(files[RECORD_FILE])
    name = record.pop("target")
    if name not in TARGETS:
        raise InputError("target", name, one_of(name, TARGETS))
    target = TARGETS[name]
    deployment, started = from_dict(record), target.read(files)
    engine = target.engine(deployment.engine)
    return [
        *_of_record(deployment),
        *_of_workers(deployment, engine, started),
        *target.problems(deployment, files, started),
        *flag_checks.problems(engine, files, started),
        *bench_problems(deployment, files, load_runtime()),
        *site_checks.problems(deployment, files, target.secret()),
        *readme_problems(files),
    ]


def require(files: Mapping[str, str]) -> None:
    """Refuses files with a problem.

    Raises:
        FailedCheck: Names all of them.
    """
    if found := problems(files):
        raise FailedCheck("; ".join(found))


def _of_record(deployment: Deployment) -> Iterator[str]:
    site = deployment.site
    labels = {
        "name": deployment.name,
        "namespace": site.namespace,
        "secret": site.secret,
        "model_cache": site.model_cache,
    }
    for what, label in labels.items():
        if label is not None and not is_label(label):
            yield f"{what} {label!r} is not an RFC 1123 label: {LABEL_RULE}"
    if (beyond := len(deployment.config_map) - LABEL_LENGTH) > 0:
        yield f"name {deployment.name!r} is longer than {len(deployment.name) - beyond} characters"
    if not _MODEL.fullmatch(deployment.model):
        yield f"model {deployment.model!r} has characters that a script does not take"
    if deployment.gpus > deployment.gpu_budget:
        yield f"{counted(deployment.gpus, 'GPU')} exceed the budget of {deployment.gpu_budget}"
    load_rules(deployment.rules)
    load_system(deployment.system)
    known = load_engine(deployment.engine).version
    if deployment.engine_version != known:
        yield f"written for {deployment.engine} {deployment.engine_version}; the options known are those of {known}"
    if deployment.runtime_version != (runtime := load_runtime().version):
        yield f"written for Dynamo {deployment.runtime_version}; the options known are those of {runtime}"
    if any(role.workers % deployment.replicas for role in deployment.roles):
        yield f"workers that are not those of {counted(deployment.replicas, 'replica')}"
    engine = load_engine(deployment.engine)
    for role in deployment.roles:
        yield from (f"{role.name}: {problem}" for problem in _of_role(deployment, role, engine))


def _of_role(deployment: Deployment, role: Role, engine: Engine) -> Iterator[str]:
    """Limits that contradict each other, the workload or the engine's blocks."""
    if role.use is not None and role.use.memory_headroom < 0:
        yield f"{role.use.memory_gib} GiB do not fit the memory of a GPU"
    drafts = deployment.drafts.tokens if deployment.drafts and engine.token_limit_counts_drafts else 0
    least = role.max_running.deployed * max(engine.stages(role.layout), 1 + drafts * (role.name == "decode"))
    for what, tokens in (("tokens of a step", role.max_step_tokens.deployed), ("length", role.max_length)):
        if tokens % engine.token_multiple:
            yield f"{what} {tokens} is no multiple of {engine.token_multiple}"
    if list(role.graph_sizes) != sorted(set(role.graph_sizes)) or max(role.graph_sizes, default=0) > (
        role.max_running.deployed
    ):
        yield "sizes of CUDA graphs must ascend, each once, up to the running limit"
    for limit in (role.max_running, role.max_step_tokens):
        if limit.deployed != limit.simulated and not limit.reason:
            yield f"{limit.deployed} is deployed, {limit.simulated} was simulated, without a reason"
    if role.max_step_tokens.deployed < least:
        yield "fewer tokens in a step than running requests"
    whole = engine.asks_for_chunks and role.name != "decode" and not role.chunked_prefill
    if whole and role.max_step_tokens.deployed < deployment.workload.isl:
        yield "a prompt is longer than a step and is not split"
    if role.max_length < deployment.workload.isl + deployment.workload.osl:
        yield "the longest sequence is shorter than a request"


def _of_workers(deployment: Deployment, engine: Engine, started: list[Started]) -> Iterator[str]:
    wanted = {role.name: role.workers for role in deployment.roles}
    left = dict(wanted)
    for worker in started:
        name = worker.role or str(worker.options.get(engine.arguments["role"], "agg"))
        role = next((role for role in deployment.roles if role.name == name), None)
        if role is None:
            yield f"{worker.where}: role {name} is not one of {', '.join(left)}"
            continue
        member = member_of(worker.options, role, engine)
        left[name] -= worker.count if member is None or member.node == 0 else 0
        yield from (f"{worker.where}: {problem}" for problem in _of_worker(deployment, role, engine, worker))
    yield from (
        f"{counted(abs(rest), 'worker')} {name} too {'few' if rest > 0 else 'many'}: "
        f"{wanted[name] - rest} in the files, {wanted[name]} in {RECORD_FILE}"
        for name, rest in left.items()
        if rest
    )


def _of_worker(deployment: Deployment, role: Role, engine: Engine, worker: Started) -> Iterator[str]:
    """The options in the file against those that the record means; options that the engine does not know."""
    member = member_of(worker.options, role, engine)
    wanted: dict[str, Any] = canonical(deployment, role, engine, member)
    option_of = {**engine.arguments, **engine.file}
    known = {*engine.arguments.values(), *engine.file.values()}
    added = [option for option in worker.options if option not in known]
    yield from (
        f"{option} is not an option of {RECORD_FILE}"
        for option in added
        if option in flag_checks.known_options(worker.module)
    )
    for name, value in wanted.items():
        places = [place[name] for place in (engine.arguments, engine.file) if name in place]
        absent = False if name in engine.arguments else "missing"  # a switch is off without its option
        stated = next((worker.options[place] for place in places if place in worker.options), absent)
        shown = " ".join(map(str, stated)) if isinstance(stated, list) else stated
        expected = " ".join(map(str, value)) if isinstance(value, list) else value
        if places and str(shown) != str(expected):
            yield f"{option_of[name]} is {shown}, not {expected}"
    yield from (
        f"{name} is {worker.environment.get(name, 'not set')}, not {value}"
        for name, value in variables(deployment, engine).items()
        if worker.environment.get(name) != value
    )
    told = worker.on or worker.role  # the operator of Dynamo tells the workers of a graph of itself
    if deployment.disaggregated and "transfer_port" in engine.environment and told:
        missing = [name for name in engine.environment.values() if not worker.environment.get(name)]
        yield from (f"{name} is not set" for name in missing)
    for name in ("port", *(["transfer_port"] if deployment.disaggregated else [])):
        if engine.arguments.get(name, "") and engine.arguments[name] not in worker.options:
            yield f"{engine.arguments[name]} is not stated"
    gpus = len(worker.gpus) * (member.nodes if member else worker.nodes)
    if gpus != role.layout.gpus:
        yield f"{counted(gpus, 'GPU')}, not {role.layout.gpus}"
    image = deployment.site.image or engine.image
    if worker.image and worker.image != image:
        yield f"image {worker.image}, not {image}"
    if worker.module != engine.module:
        yield f"module {worker.module}, not {engine.module}"
