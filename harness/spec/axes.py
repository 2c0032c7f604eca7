"""The axes of a sweep: every combination of their values, as specs with these values set. Pure.

If the workload is a command, an axis with any other name belongs to the command: `harness.spec.command` sets it.
"""

import itertools
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from wanbench.harness.errors import SpecError
from wanbench.harness.spec.experiment import Spec, set_dotted
from wanbench.netprofiles import did_you_mean
from wanbench.netprofiles.path import EFFECTS

# Axes with a short name, without their table.
SHORT_AXES = {
    "rtt": "network.rtt",
    "rate": "network.rate",
    **{effect.key: f"network.{effect.key}" for effect in EFFECTS},
    "profile": "network.profile",
    "mtu": "network.mtu",
    "preset": "network.tcp.preset",
    "congestion": "network.tcp.congestion",
    "collective": "comm.collective",
    "channels": "comm.channels",
    "payload_scale": "workload.payload_scale",
    "testbed": "run.testbed",
    "emulator": "run.emulator",
    "mtbf": "failures.mtbf",
    "mttr": "failures.mttr",
}
_OWN = ("workers", "algorithm")  # axes that are not keys of the spec
_TABLES = ("workload", "network", "comm", "algorithms", "train", "run", "containers", "virtual", "failures")
_DEFAULT_WORKERS = 4
MOST_WORKERS = 4096  # the largest that was ever simulated
MOST_CELLS = 10_000
MOST_REPETITIONS = 1_000_000  # of all cells
_OF_A_COMMAND = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

Axes = dict[str, Any]


def is_commands_own(key: str) -> bool:
    """True for an axis that only a command can read."""
    return _OF_A_COMMAND.fullmatch(key) is not None and key not in (*_OWN, *SHORT_AXES)


def points(spec: Spec, where: str) -> Iterator[tuple[Axes, Spec]]:
    """Every combination of the axes, then every entry of `include`, as (axis values, the spec with these values).

    Raises:
        SpecError: an axis or a value is wrong.
    """
    axes = {key: values for key, values in spec.sweep.items() if key not in {"include", "exclude"}}
    command = spec.workload.command is not None
    for key, values in axes.items():
        _check_axis(key, where, command)
        if not isinstance(values, list) or not values:
            raise SpecError(f"{where}: sweep.{key}: expected a list with at least one value, got {values!r}")
    included = _tables(spec, "include", where)
    for key in {key: None for item in included for key in item}:
        _check_axis(key, where, command)
    _check_size(spec, math.prod(map(len, axes.values())) + len(included), where)
    _check_rules(_tables(spec, "exclude", where), [*axes, *itertools.chain(*included), *_OWN], where)
    crossed = (dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values()))
    for combination in (*crossed, *map(dict, included)):
        yield combination, _filled_in(spec, combination, where)


def excluded(spec: Spec, axes: Mapping[str, Any]) -> bool:
    """True if these axes match an entry of `sweep.exclude`, where a list matches any of its values."""
    return any(
        all(axes.get(key) in ([value, *value] if isinstance(value, list) else [value]) for key, value in rule.items())
        for rule in spec.sweep.get("exclude", [])
    )


def _filled_in(spec: Spec, combination: Axes, where: str) -> Spec:
    workers = combination.setdefault("workers", _DEFAULT_WORKERS)
    if not isinstance(workers, int) or isinstance(workers, bool) or not 1 <= workers <= MOST_WORKERS:
        raise SpecError(f"{where}: sweep.workers: expected a whole number from 1 to {MOST_WORKERS}, got {workers!r}")
    data = spec.to_dict()
    data.pop("sweep", None)
    named: dict[str, str] = {}
    for key, value in combination.items():
        if isinstance(value, str) and not value.isprintable():
            raise SpecError(f"{where}: sweep.{key}: {value!r}: expected text that can be printed, in one line")
        if key in _OWN or is_commands_own(key):
            continue
        dotted = SHORT_AXES.get(key, key)
        if dotted in named:
            raise SpecError(f"{where}: sweep: {named[dotted]} and {key} are the same axis; keep one")
        named[dotted] = key
        if (dotted, value) == ("workload.payload_scale", "auto"):
            raise SpecError(
                f'{where}: sweep.{key}: "auto" is one value for all cells; sweep numbers, or set {dotted} = "auto"'
            )
        set_dotted(data, dotted, value, f"{where} (sweep)")
    return Spec.from_dict(data, f"{where} (sweep)")


def _check_axis(key: str, where: str, command: bool) -> None:
    """Check that an axis is a short name, a dotted key of a cell's table, or a command's own. Raises: SpecError."""
    if command and is_commands_own(key):
        return
    table, dot, rest = key.partition(".")
    names = (*_OWN, *SHORT_AXES)
    if not dot and key in _TABLES:  # TOML takes a dot outside quotes for a table
        raise SpecError(f'{where}: sweep.{key}: put a dotted key in quotes: "{key}.KEY" = [...]')
    if not dot and key not in names:
        hint = did_you_mean(key, names, f"expected a dotted key or one of {', '.join(sorted(names))}")
        raise SpecError(f"{where}: sweep.{key}: unknown axis{hint}")
    if dot and table not in _TABLES:
        near = did_you_mean(table, _TABLES, f"expected a key of {', '.join(_TABLES)}", ending=f".{rest}")
        raise SpecError(f"{where}: sweep.{key}: cannot be swept{near}")
    if key == "run.repeats":
        raise SpecError(f"{where}: sweep.{key}: applies to all cells; set it in [run]")


def _tables(spec: Spec, name: str, where: str) -> list[Mapping[str, Any]]:
    """The entries of `sweep.include` or `sweep.exclude`. Raises: SpecError."""
    given = spec.sweep.get(name, [])
    if not isinstance(given, list) or not all(isinstance(item, dict) and item for item in given):
        raise SpecError(f"{where}: sweep.{name}: expected tables, such as [[sweep.{name}]] with workers = 2")
    return given


def _check_rules(rules: Iterable[Mapping[str, Any]], names: list[str], where: str) -> None:
    for key in {key: None for rule in rules for key in rule}:
        if key not in names:
            hint = did_you_mean(key, names, f"axes: {', '.join(sorted(set(names)))}")
            raise SpecError(f"{where}: sweep.exclude.{key}: not an axis of this sweep{hint}")


def _check_size(spec: Spec, points: int, where: str) -> None:
    choices = 1 if "algorithm" in spec.sweep else max(1, sum(map(_alternatives, spec.algorithms.values())))
    cells, repetitions = points * choices, points * choices * spec.run.repeats
    if cells > MOST_CELLS:
        raise SpecError(f"{where}: sweep: {cells} cells; expected at most {MOST_CELLS}; split the experiment")
    if repetitions > MOST_REPETITIONS:
        raise SpecError(
            f"{where}: run.repeats: {cells} cells and {repetitions} repetitions; expected at most {MOST_REPETITIONS}"
        )


def _alternatives(value: Any) -> int:
    """The number of algorithms that a table, or of values that an entry of it describes, as in the registry."""
    if isinstance(value, list):
        return sum(map(_alternatives, value))
    return math.prod(map(_alternatives, value.values())) if isinstance(value, Mapping) else 1
