"""A command as a workload: what a cell fills in, what it is called, and which files it is made of.

The user's script chooses its algorithm, or leaves that to `wanbench.wrap`, which asks the environment; so what its own
axes say (`H = [1, 8, 64]`) is part of the algorithm's label, as the parameters of a built-in one are: `ddp-H8`.
"""

from __future__ import annotations

import difflib
import itertools
import json
import re
import shutil
import string
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from wanbench.harness.errors import SpecError
from wanbench.harness.spec.axes import SHORT_AXES, is_commands_own
from wanbench.harness.spec.experiment import Spec
from wanbench.netprofiles import Delay
from wanbench.workloads.algorithms.base import AlgorithmError
from wanbench.workloads.algorithms.registry import ALGORITHM, PARAMS, alternatives

DEFAULT_WARMUP = "3 steps"
DEFAULT_TIMEOUT = Delay.parse("600s")
# What the environment of a program says already.
_TAKEN = ("address", "addresses", "adopt", "image", "params", "seed", "site", "sites", "steps_file")
_NOT_OURS = {
    "comm": "a command communicates by itself",
    "train": "a command trains by itself",
    "virtual": "a command cannot be simulated",
}

Values = Mapping[str, Any]


def check(spec: Spec, axes: Values, where: str) -> None:
    """What does not go together with a command. Raises: SpecError."""
    for table, why in _NOT_OURS.items():
        if table in spec.model_fields_set:
            raise SpecError(f"{where}: {table}: goes with wanbench's own training loop; {why}")
    if "window" in spec.run.model_fields_set:
        raise SpecError(
            f"{where}: run.window: a command decides how many steps it makes; workload.warmup leaves some out"
        )
    if spec.run.testbed == "virtual":
        raise SpecError(
            f"{where}: run.testbed: a command cannot be simulated; `wanbench calibrate -- CMD` makes a workload by "
            "numbers of it, which can"
        )
    seen: dict[str, str] = {}
    for key, value in axes.items():
        if not isinstance(value, str | int | float):
            if is_commands_own(key):
                raise SpecError(f"{where}: sweep.{key}: expected text, numbers or true and false, got {value!r}")
            continue
        name = variable(key)
        if is_commands_own(key) and key.lower() in _TAKEN:
            raise SpecError(f"{where}: sweep.{key}: {name} says something else already; choose another name")
        if name in seen:
            raise SpecError(f"{where}: sweep.{key}: {name} is what sweep.{seen[name]} is called as well; rename one")
        seen[name] = key


def check_used(spec: Spec, axes: Values, folder: Path, where: str) -> None:
    """Every axis of the command's own is read by it, as far as one can see. Raises: SpecError."""
    command = spec.workload.command or []
    sources = _sources(command, folder)
    for key in filter(is_commands_own, axes):
        named = any(key == name for argument in command for name in _placeholders(argument, where))
        read = any(variable(key) in text for text in (*command, *(sources or ())))
        if not named and not read and sources is not None:
            known = ["workers", *SHORT_AXES]
            close = difflib.get_close_matches(key, known, 1)
            hint = f"did you mean {close[0]!r}? " if close else ""
            raise SpecError(
                f"{where}: sweep.{key}: nothing reads this axis; {hint}put {{{key}}} into workload.command, or read "
                f"{variable(key)} in the script"
            )


def algorithms(spec: Spec, where: str) -> dict[str, tuple[str, dict[str, Any]]]:
    """(name, parameters) of what `[algorithms]` lists, by label; lists expanded. Without it the command's own name.

    `kind` is among the parameters where it is given: what `wanbench.wrap` shall make of that name.
    """
    found: dict[str, tuple[str, dict[str, Any]]] = {}
    for name, table in (spec.algorithms or {name_of(spec.workload.command or []).partition(".")[0]: {}}).items():
        if not isinstance(kind := table.get("kind", name), str):
            raise SpecError(f'{where}: algorithms.{name}.kind: expected a name or "module:Class", got {kind!r}')
        try:
            sets = alternatives(name, table)
        except AlgorithmError as error:
            raise SpecError(f"{where}: {error}") from None
        for params in sets:
            label = name + suffix(params)
            if label in found:
                raise SpecError(f"{where}: algorithms.{name}: there are two {label!r}; rename or drop one")
            found[label] = name, params
    return found


def suffix(params: Values) -> str:
    """ "-H8-outer0.7": what parameters add to a label."""
    return "".join(f"-{key}{as_text(value)}" for key, value in params.items() if key != "kind")


def name_of(command: Sequence[str]) -> str:
    """What people call it: the script, or the module after `-m`, or the program."""
    if "-m" in command[1:-1]:
        return command[command.index("-m") + 1]
    scripts = [argument for argument in command[1:] if re.fullmatch(r"[^-{}\s][^{}\s]*\.(py|sh)", argument)]
    return Path((*scripts, *command)[0]).name


def filled(command: Sequence[str], values: Values, where: str) -> list[str]:
    """The command with every `{name}` replaced; `{{` and `}}` are braces. Raises: SpecError."""
    for argument in command:
        for name in _placeholders(argument, where):
            if name not in values:
                close = difflib.get_close_matches(name, list(values), 1)
                hint = f"did you mean {close[0]!r}?" if close else f"known here: {', '.join(sorted(values))}"
                raise SpecError(
                    f"{where}: workload.command: {{{name}}} in {argument!r} is no axis of this sweep; {hint} "
                    "(braces are written {{ and }})"
                )
    return ["".join(_parts(argument, values)) for argument in command]


def placeholders(command: Sequence[str], where: str) -> set[str]:
    """The names that a command asks for. Raises: SpecError."""
    return {name for argument in command for name in _placeholders(argument, where)}


def environment(name: str, params: Values, axes: Values) -> dict[str, str]:
    """What a program is told about its algorithm, and of these axes."""
    others = {key: value for key, value in params.items() if key != "kind"}
    return {**axis_environment(axes), ALGORITHM: str(params.get("kind", name)), PARAMS: json.dumps(others)}


def axis_environment(axes: Values) -> dict[str, str]:
    """Axes as environment variables."""
    return {variable(key): as_text(value) for key, value in axes.items() if isinstance(value, str | int | float)}


def variable(axis: str) -> str:
    """The environment variable of an axis."""
    return "WANBENCH_" + axis.upper().replace(".", "_")


def check_there(program: str, folder: Path, key: str = "") -> None:
    """The program of a command is on this host; `key` is where it was named. Raises: SpecError."""
    if shutil.which(str(folder / program) if "/" in program else program) is None:
        raise SpecError(f"{key}{program}: no such program here; give a path, or a command that PATH has")


def looks_like_a_file(argument: str) -> bool:
    """True for `train.py` and `conf/a.yaml`, not for `0.1`."""
    return re.fullmatch(r"\S+\.[A-Za-z]\w*", argument) is not None


def as_text(value: object) -> str:
    """A value as TOML has it; a table by its kind, such as a compressor's, and the rest."""
    if isinstance(value, Mapping):
        return f"{value.get('kind', '')}{suffix(value)}"
    return str(value).lower() if isinstance(value, bool) else str(value)


def files(command: Sequence[str], folder: Path) -> list[Path]:
    """The files that a command names, `-m` modules and `--key=FILE` included."""
    named = [folder / argument.rpartition("=")[2] for argument in command if "\0" not in argument]
    for before, module in itertools.pairwise(command):
        if before == "-m":
            base = folder / module.replace(".", "/")
            named += [base.with_name(f"{base.name}.py"), base / "__main__.py"]
    return [path for path in dict.fromkeys(named) if _is_file(path)]


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # a name too long to be one
        return False


def _sources(command: Sequence[str], folder: Path) -> list[str] | None:
    """The text of the scripts that a command names; None if there may be some that cannot be seen from here."""
    found = [path.read_text(errors="replace") for path in files(command[1:], folder)]
    hidden = "-m" in command or any(map(looks_like_a_file, command[1:]))
    return None if hidden and not found else found


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
