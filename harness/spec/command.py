"""A command as a workload: the values that a cell fills in, its label, and its files.

The user's script chooses its algorithm, or leaves the choice to `wanbench.wrap`, which reads the environment. The
values of the script's own axes (`H = [1, 8, 64]`) are therefore part of the algorithm's label, like the parameters of a
built-in one: `ddp-H8`.
"""

import itertools
import json
import os
import re
import shlex
import shutil
import string
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from wanbench.harness.errors import SpecError, as_spec_error
from wanbench.harness.spec.axes import SHORT_AXES, is_commands_own
from wanbench.harness.spec.experiment import Spec
from wanbench.netprofiles import Delay, did_you_mean
from wanbench.workloads.algorithms.base import AlgorithmError
from wanbench.workloads.algorithms.registry import ALGORITHM, PARAMS, alternatives

COLLECTIVES = ("gloo", "direct", "hierarchical", "ring")
DEFAULT_WARMUP = "3 steps"
DEFAULT_TIMEOUT = Delay.parse("600s")
# Names that the environment of a program already uses.
_TAKEN = ("address", "addresses", "adopt", "hosts", "image", "params", "seed", "site", "sites", "steps_file")
_NOT_OF_COMMANDS = {
    "train": "a command does its own training",
    "virtual": "a command cannot be simulated",
}

Values = Mapping[str, Any]


def check(spec: Spec, axes: Values, where: str) -> None:
    """Refuse keys that do not apply to a command. Raises: SpecError."""
    for table, why in _NOT_OF_COMMANDS.items():
        if table in spec.model_fields_set:
            raise SpecError(f"{where}: {table}: only applies to wanbench's own training loop; {why}; remove this table")
    for key in sorted(spec.comm.model_fields_set - {"collective"}):
        raise SpecError(f"{where}: comm.{key}: only applies to wanbench's own training loop; remove this key")
    if (chosen := chosen_collective(spec)) not in (None, *COLLECTIVES):
        raise SpecError(f"{where}: comm.collective: {chosen!r}: a command can have one of {', '.join(COLLECTIVES)}")
    if "window" in spec.run.model_fields_set:
        raise SpecError(
            f"{where}: run.window: a command decides on its number of steps; remove this key, or set workload.warmup"
        )
    if spec.run.testbed == "virtual":
        raise SpecError(
            f"{where}: run.testbed: a command cannot be simulated; `wanbench exec --describe -- CMD` turns it into a "
            "workload by numbers, which can"
        )
    seen: dict[str, str] = {}
    for key, value in axes.items():
        if not isinstance(value, str | int | float):
            if is_commands_own(key):
                raise SpecError(f"{where}: sweep.{key}: expected text, numbers or true and false, got {value!r}")
            continue
        name = variable(key)
        if is_commands_own(key) and key.lower() in _TAKEN:
            raise SpecError(f"{where}: sweep.{key}: the variable {name} is already in use; choose another name")
        if name in seen:
            raise SpecError(f"{where}: sweep.{key}: uses the same variable {name} as sweep.{seen[name]}; rename one")
        seen[name] = key


def chosen_collective(spec: Spec) -> str | None:
    """What carries the program's group `gloo`, if the spec says so."""
    return spec.comm.collective if "collective" in spec.comm.model_fields_set else None


def check_used(spec: Spec, axes: Values, folder: Path, where: str) -> None:
    """Refuse an axis that the command does not read, as far as its files show. Raises: SpecError."""
    command = spec.workload.command or []
    sources = _sources(command, folder)
    for key in filter(is_commands_own, axes):
        named = key in placeholders(command, where)
        read = any(variable(key) in text for text in (*command, *(sources or ())))
        if not named and not read and sources is not None:
            raise SpecError(
                f"{where}: sweep.{key}: nothing reads this axis; put {{{key}}} into workload.command, or read "
                f"{variable(key)} in the script{did_you_mean(key, ['workers', *SHORT_AXES])}"
            )


def algorithms(spec: Spec, where: str) -> dict[str, tuple[str, dict[str, Any]]]:
    """(name, parameters) of the entries of `[algorithms]` by label, with lists expanded; without entries, the command.

    A given `kind` is one of the parameters: it names the algorithm that `wanbench.wrap` uses. Raises: SpecError.
    """
    by_label: dict[str, tuple[str, dict[str, Any]]] = {}
    for name, table in (spec.algorithms or {name_of(spec.workload.command or []).partition(".")[0]: {}}).items():
        if not isinstance(kind := table.get("kind", name), str):
            raise SpecError(f'{where}: algorithms.{name}.kind: expected a name or "module:Class", got {kind!r}')
        with as_spec_error(where, AlgorithmError):
            sets = alternatives(name, table)
        for params in sets:
            label = name + suffix(params)
            if label in by_label:
                raise SpecError(f"{where}: algorithms.{name}: {label!r} exists twice; rename or drop one")
            by_label[label] = name, params
    return by_label


def suffix(params: Values) -> str:
    """The part of a label that parameters add, such as "-H8-outer0.7"."""
    return "".join(f"-{key}{as_text(value)}" for key, value in params.items() if key != "kind")


def name_of(command: Sequence[str]) -> str:
    """The short name of a command: its script, the module after `-m`, or the program."""
    if "-m" in command[1:-1]:
        return command[command.index("-m") + 1]
    scripts = [argument for argument in command[1:] if re.fullmatch(r"[^-{}\s][^{}\s]*\.(py|sh)", argument)]
    return Path((*scripts, *command)[0]).name


def filled(command: Sequence[str], values: Values, where: str) -> list[str]:
    """The command with every `{name}` replaced; `{{` and `}}` are braces. Raises: SpecError."""
    for argument in command:
        for name in _placeholders(argument, where):
            if name not in values:
                hint = did_you_mean(name, values, f"known names: {', '.join(sorted(values))}")
                raise SpecError(
                    f"{where}: workload.command: {{{name}}} in {argument!r} is not an axis of this sweep{hint} "
                    "(braces are written {{ and }})"
                )
    return ["".join(_parts(argument, values)) for argument in command]


def placeholders(command: Sequence[str], where: str) -> set[str]:
    """The placeholders of a command. Raises: SpecError."""
    return {name for argument in command for name in _placeholders(argument, where)}


def environment(name: str, params: Values, axes: Values) -> dict[str, str]:
    """The environment variables that pass its algorithm and these axes to a program."""
    parameters = {key: value for key, value in params.items() if key != "kind"}
    return {**axis_environment(axes), ALGORITHM: str(params.get("kind", name)), PARAMS: json.dumps(parameters)}


def axis_environment(axes: Values) -> dict[str, str]:
    """Axes as environment variables."""
    return {variable(key): as_text(value) for key, value in axes.items() if isinstance(value, str | int | float)}


def variable(axis: str) -> str:
    """The environment variable of an axis."""
    return "WANBENCH_" + axis.upper().replace(".", "_")


def check_there(program: str, folder: Path, key: str = "") -> None:
    """Check that the program of a command exists on this host; `key` prefixes the error. Raises: SpecError."""
    path = folder / program
    name, equals, _ = program.partition("=")
    if equals and name.isidentifier():  # its value may be a secret
        raise SpecError(f"{key}{name}=...: a variable, not a program; put `env` before it")
    if "/" in program and path.is_file() and not os.access(path, os.X_OK):
        raise SpecError(
            f"{key}{program}: not executable; use chmod +x, or its interpreter, as in: python {shlex.quote(program)}"
        )
    if shutil.which(str(path) if "/" in program else program) is None:
        raise SpecError(f"{key}{program}: no such program here; give a path, or a command on PATH")


def looks_like_a_file(argument: str) -> bool:
    """True for `train.py` and `conf/a.yaml`, not for `0.1`."""
    return re.fullmatch(r"\S+\.[A-Za-z]\w*", argument) is not None


def as_text(value: object) -> str:
    """A value as in TOML; a table, such as a compressor, as its kind and its other values."""
    if isinstance(value, Mapping):
        return f"{value.get('kind', '')}{suffix(value)}"
    return str(value).lower() if isinstance(value, bool) else str(value)


def files(command: Sequence[str], folder: Path) -> list[Path]:
    """The files that a command names, `-m` modules and `--key=FILE` included."""
    named = [folder / argument.rpartition("=")[2] for argument in command]
    for before, module in itertools.pairwise(command):
        if before == "-m":
            base = folder / module.replace(".", "/")
            named += [base.with_name(f"{base.name}.py"), base / "__main__.py"]
    # os.path.isfile is false for a name that is too long, or that has a zero byte.
    return [path for path in dict.fromkeys(named) if os.path.isfile(path)]


def _sources(command: Sequence[str], folder: Path) -> list[str] | None:
    """The text of the scripts that a command names; None if a script may exist that is not visible here."""
    texts = [path.read_text(errors="replace") for path in files(command[1:], folder)]
    return None if not texts and ("-m" in command or any(map(looks_like_a_file, command[1:]))) else texts


def _placeholders(argument: str, where: str) -> Iterator[str]:
    try:
        for _, name, form, conversion in string.Formatter().parse(argument):
            if form or conversion:
                raise ValueError
            if name is not None:
                yield name
    except ValueError:
        raise SpecError(
            f"{where}: workload.command: {argument!r}: expected an axis in each pair of braces, such as {{rtt}}; other "
            "braces are written {{ and }}"
        ) from None


def _parts(argument: str, values: Values) -> Iterator[str]:
    for text, name, _, _ in string.Formatter().parse(argument):
        yield text
        if name is not None:
            yield as_text(values[name])
