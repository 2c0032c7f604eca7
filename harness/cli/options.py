"""Options that several commands share."""

from __future__ import annotations

import csv
import functools
import math
import re
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from wanbench.harness.cli import completion_command
from wanbench.harness.errors import Interrupted, SpecError, as_spec_error

if TYPE_CHECKING:  # `--help` answers without reading a spec
    from wanbench.harness.plan.cell import Cell
    from wanbench.harness.plan.plan import Plan
    from wanbench.harness.results.columns import Row
    from wanbench.harness.results.store import RunFolder
    from wanbench.harness.spec.experiment import Spec

F = TypeVar("F", bound=Callable[..., Any])
_STDIN = "<stdin>"  # what errors call a spec that is read from there


class FiniteRange(click.FloatRange):
    """The type of every option that takes a number: finite and in a range, which nan never leaves."""

    def convert(self, value: Any, param: click.Parameter | None, context: click.Context | None) -> Any:
        number = super().convert(value, param, context)
        return number if math.isfinite(number) else self.fail(f"{value!r} is not a finite number.", param, context)


def _group(*decorators: Callable[[Any], Any]) -> Callable[[F], F]:
    """A decorator that adds these options in order."""

    def decorate(function: F) -> F:
        for decorator in reversed(decorators):
            function = decorator(function)
        return function

    return decorate


out_option = click.option(
    "--out", type=click.Path(file_okay=False, path_type=Path), default=Path("results"), show_default=True,
    help="Folder that holds the runs.",
)  # fmt: skip
run_options = _group(
    click.argument("run_source", metavar="[RUN]", required=False, shell_complete=completion_command.runs), out_option
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
jobs_option = click.option(
    "--jobs", type=click.IntRange(min=1),
    help="Maximum number of repetitions at a time; default: one per processor, and at most 10 if emulated.",
)  # fmt: skip
fresh_option = click.option("--fresh", is_flag=True, help="Delete earlier results first.")
keep_option = click.option("--keep", is_flag=True, help="Keep results that were measured with other code.")
across_hosts_option = click.option(
    "--across-hosts", is_flag=True,
    help="Summarise the repetitions of all hosts together, even if their one-worker step times differ by more than "
         "3 %.",
)  # fmt: skip
congestion_option = click.option("--congestion", default="cubic", show_default=True, help="TCP congestion control.")


def preset_option(default: str) -> Callable[[F], F]:
    """The option --preset with this default."""
    return click.option(
        "--preset",
        type=click.Choice(["stock", "stock-6.1", "stock-6.18", "tuned"]),
        default=default,
        show_default=True,
        help="TCP buffers of the hosts: those of Linux as installed (stock: 6.1), or tuned to limit no connection.",
    )


uniform_options = _group(
    click.option("--rtt", help="Uniform only: round-trip time, e.g. 100ms."),
    click.option("--rate", help="Uniform only: rate of each worker's link, e.g. 100Mbit."),
)
# What an algorithm is wanted for, without its network.
question_options = _group(
    click.option("--workload", default="resnet50-v100", show_default=True, metavar="W",
                 help='A built-in name; numbers, as in "params=7e9,step_time=800ms"; your model, "pkg:make"; or a TOML '
                      "file with a [workload] table, such as a spec or the output of `wanbench exec --describe`."),
    congestion_option,
    click.option("--max-accuracy-drop", "drop", type=FiniteRange(0, 100), default=1.0, show_default=True,
                 help="Largest loss of accuracy against ssgd, in points."),
    click.option("--proxy", multiple=True, metavar="DESIGN",
                 help="Recorded design in place of your model. Repeatable."),
    fresh_option,
    out_option,
)  # fmt: skip


@dataclass(frozen=True)
class SpecRequest:
    """SPEC and the options that change it, as the user gave them."""

    spec_source: str
    assignments: tuple[str, ...]
    drop: tuple[str, ...]
    only: tuple[str, ...]
    testbed: str | None
    emulator: str | None
    out: Path


def spec_options(function: Callable[..., None]) -> Callable[..., None]:
    """Add SPEC and the options that change it, which the function gets as one `SpecRequest`."""

    @functools.wraps(function)
    def command(**values: Any) -> None:
        function(SpecRequest(**{field.name: values.pop(field.name) for field in fields(SpecRequest)}), **values)

    return _group(
        click.argument("spec_source", metavar="SPEC", shell_complete=completion_command.specs),
        click.option("--set", "assignments", multiple=True, metavar="KEY=VALUE",
                     help="Set a value of the spec, e.g. --set run.repeats=1 or --set 'sweep.workers=[2, 4]'. "
                          "Repeatable."),
        click.option("--drop", multiple=True, metavar="KEY",
                     help="Remove a key of the spec, e.g. --drop sweep.rtt. Repeatable."),
        click.option("--only", multiple=True, metavar="AXIS=VALUE",
                     help="Keep only the cells with this value, e.g. --only algorithm=ssgd. Repeatable."),
        click.option("--testbed", help="Same as --set run.testbed=..."),
        click.option("--emulator", help="Same as --set run.emulator=..."),
        out_option,
    )(command)  # fmt: skip


@contextmanager
def interruptible(then: str) -> Iterator[None]:
    """Report Ctrl-C and SIGTERM as an interruption; background jobs inherit SIGINT ignored. Raises: Interrupted.

    Args:
        then: what the interruption means for the user.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    try:
        yield
    except KeyboardInterrupt:
        raise Interrupted(f"interrupted; {then}") from None


KEPT = "finished repetitions are kept; the same command continues"


def _read_source(source: str) -> str:
    """Read a file, a built-in experiment by name, or standard input for "-". Raises: SpecError."""
    from wanbench.harness.spec.library import MOST_BYTES, read
    from wanbench.netprofiles import FileError
    from wanbench.netprofiles.user_file import as_text

    if source != "-":
        return read(source)
    with as_spec_error(_STDIN, FileError):
        return as_text(sys.stdin.buffer.read(MOST_BYTES + 1), "TOML", MOST_BYTES)


def planned(request: SpecRequest, *, resumed: bool = False, gated: bool = False) -> tuple[str, Plan, list[Cell]]:
    """The text of a spec, its plan on this host, and the cells that `--only` keeps. Raises: SpecError.

    Args:
        resumed: choose what is `auto` as in the run of this name. gated: refuse an `auto` that differs between hosts.
    """
    from wanbench.harness.plan.auto import refuse_gated
    from wanbench.harness.plan.plan import make
    from wanbench.harness.results.planned import auto_of
    from wanbench.harness.run.host import ThisHost

    text = _read_source(request.spec_source)
    where = _STDIN if request.spec_source == "-" else request.spec_source
    spec = _load_spec(text, where, request)
    if gated:
        refuse_gated(spec, where)
    plan = make(spec, where, ThisHost(), auto_of(request.out / spec.name) if resumed else None)
    return text, plan, _select(plan, request.only)


def _load_spec(text: str, where: str, request: SpecRequest) -> Spec:
    """The spec with overrides applied. Raises: SpecError."""
    from wanbench.harness.spec.axes import SHORT_AXES
    from wanbench.harness.spec.experiment import Spec, parse_assignment

    changes = dict(map(parse_assignment, request.assignments))
    given = {"run.testbed": request.testbed, "run.emulator": request.emulator}
    changes |= {key: value for key, value in given.items() if value is not None}
    spec = Spec.from_toml(text, where)
    drop = request.drop + _replaced_by_profile(spec, changes)
    for key in changes:
        axes = (axis for axis in spec.sweep if f"sweep.{axis}" not in drop)
        swept = next((axis for axis in axes if key in {axis, SHORT_AXES.get(axis)}), None)
        if swept is not None:
            raise SpecError(
                f"--set {key}=...: {spec.name} sweeps this key; add --drop sweep.{swept}, or use --only {swept}=VALUE "
                f"or --set 'sweep.{swept}=[...]'"
            )
    return spec.override(changes, "--set" if changes else "--drop", drop) if changes or drop else spec


def _replaced_by_profile(spec: Spec, changes: Mapping[str, Any]) -> tuple[str, ...]:
    """Keys of a uniform network that a named profile, set on the command line, replaces; each is reported."""
    from wanbench.netprofiles.path import UNIFORM_KEYS

    profile = changes.get("network.profile", "uniform")
    uniform_only = UNIFORM_KEYS if profile != "uniform" else ()
    keys = [f"network.{name}" for name in uniform_only if name in spec.network.model_fields_set]
    replaced = tuple(key for key in keys if key not in changes)
    for key in replaced:
        click.echo(f"wanbench: {key} is dropped: the profile {profile} says what limits a path", err=True)
    return replaced


def named(text: str) -> tuple[list[str], str]:
    """The names and the rest of "NAME,NAME=REST"; a name with a comma or an equals sign is in quotes, as in CSV."""
    parts = re.fullmatch(r'((?:"(?:[^"]|"")*"|[^="])*)=(.*)', text, re.DOTALL)
    if parts is None:
        return [], text
    return [name.strip() for name in next(csv.reader([parts[1]], skipinitialspace=True), [])], parts[2]


def selections(only: tuple[str, ...], expected: str) -> dict[str, set[str]]:
    """The values by key of `--only KEY=VALUE`, given repeatedly. Raises: SpecError."""
    values: dict[str, set[str]] = {}
    for text in only:
        key, equals, value = text.partition("=")
        if not equals:
            raise SpecError(f"--only {text}: expected {expected}")
        values.setdefault(key, set()).add(value)
    return values


def _select(plan: Plan, only: tuple[str, ...]) -> list[Cell]:
    """The cells that `--only` keeps, with the one-worker cells that they need. Raises: SpecError."""
    cells = list(plan.cells)
    selected = selections(only, "AXIS=VALUE, e.g. --only algorithm=ssgd")
    swept = sorted({axis for cell in cells for axis in cell.axes})
    for axis in selected:
        if axis not in swept:
            raise SpecError(f"--only {axis}=...: not an axis of {plan.spec.name}; axes: {', '.join(swept)}")
    swept_cells = [cell for cell in cells if not cell.is_baseline]
    chosen = [cell for cell in swept_cells if all(_value(cell, axis) in selected[axis] for axis in selected)]
    if not chosen:
        values = "; ".join(
            f"{axis}: {', '.join(sorted({_value(cell, axis) for cell in swept_cells}))}" for axis in selected
        )
        raise SpecError(f"--only {' '.join(only)}: no cell is left; values are {values}")
    needed = {cell.base_key for cell in chosen}
    return [*(cell for cell in cells if cell.is_baseline and cell.key in needed), *chosen]


def _value(cell: Cell, axis: str) -> str:
    """A cell's value of an axis; the spec's own value if only other entries of `include` set the axis."""
    from wanbench.harness.spec.axes import SHORT_AXES

    if axis in cell.axes:
        return str(cell.axes[axis])
    value: Any = cell.tables()
    for key in SHORT_AXES.get(axis, axis).split("."):
        value = value.get(key) if isinstance(value, Mapping) else getattr(value, key, None)
    return str(value)


def read_run(source: str | None, out: Path, *, earlier: bool = False) -> tuple[RunFolder, list[Row]]:
    """The folder of a run, by path or by name under `out` (None: the latest), and `rows_of` it. Raises: SpecError."""
    from wanbench.harness.results.store import open_run

    folder = open_run(source, out)
    return folder, rows_of(folder, earlier=earlier)


def rows_of(folder: RunFolder, *, earlier: bool = False) -> list[Row]:
    """One row per repetition. Rows that are left out, and files that cannot be read, are reported on stderr.

    Args:
        earlier: include the cells that only an earlier version of the spec had.
    """
    content = folder.read()
    for problem in content.problems:
        click.echo(f"wanbench: {folder.path / problem}", err=True)
    if earlier:
        from wanbench.harness.analysis.axes import EARLIER

        marked: list[Row] = [{**row, "algorithm": f"{row['algorithm']}{EARLIER}"} for row in content.earlier]
        return [*content.rows, *marked]
    if content.note:
        click.echo(f"wanbench: {folder.name}: {content.note}", err=True)
    return content.rows


def by_hosts(rows: Sequence[Mapping[str, Any]], *, across_hosts: bool) -> list[dict[str, Any]]:
    """The rows for a summary, which keeps hosts that are not alike apart or pools them; stderr says which."""
    from wanbench.harness.analysis.summary import grouped, remarks

    for run, remark in remarks(rows, across_hosts=across_hosts):
        click.echo(f"wanbench: {run}: {remark}", err=True)
    return grouped(rows, across_hosts=across_hosts)
