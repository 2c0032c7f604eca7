"""Options that several commands share."""

from __future__ import annotations

import csv
import math
import re
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from wanbench.harness.cli import completing
from wanbench.harness.errors import Interrupted, SpecError

if TYPE_CHECKING:  # `--help` answers without reading a spec
    from wanbench.harness.plan.cell import Cell
    from wanbench.harness.plan.plan import Plan
    from wanbench.harness.results.columns import Row
    from wanbench.harness.results.store import RunFolder
    from wanbench.harness.spec.experiment import Spec

F = TypeVar("F", bound=Callable[..., Any])


class FiniteRange(click.FloatRange):
    """The type of every option that takes a number: finite and in a range, which nan never leaves."""

    def convert(self, value: Any, param: click.Parameter | None, context: click.Context | None) -> Any:
        number = super().convert(value, param, context)
        return number if math.isfinite(number) else self.fail(f"{value!r} is not a finite number.", param, context)


def spec_options(function: F) -> F:
    """Add SPEC and the options that change it."""
    for decorate in reversed(
        (
            click.argument("spec_source", metavar="SPEC", shell_complete=completing.specs),
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
        )
    ):  # fmt: skip
        function = decorate(function)
    return function


def out_option(function: F) -> F:
    """Add --out, the folder that holds the runs."""
    option = click.option(
        "--out", type=click.Path(file_okay=False, path_type=Path), default=Path("results"), show_default=True,
        help="Folder that holds the runs.",
    )  # fmt: skip
    return option(function)


def across_hosts_option(function: F) -> F:
    """Add --across-hosts, for commands that summarise repetitions."""
    option = click.option(
        "--across-hosts", is_flag=True,
        help="Summarise the repetitions of all hosts together, even if their one-worker step times differ by more "
             "than 3 %.",
    )  # fmt: skip
    return option(function)


def question_options(function: F) -> F:
    """Add the options that say what an algorithm is wanted for, without its network."""
    for decorate in reversed(
        (
            click.option("--workload", default="resnet50-v100", show_default=True, metavar="W",
                         help='A built-in name; numbers, as in "params=7e9,step_time=800ms"; your model, "pkg:make"; '
                              "or a TOML file with a [workload] table, such as a spec or the output of `wanbench "
                              "calibrate`."),
            click.option("--congestion", default="cubic", show_default=True, help="TCP congestion control."),
            click.option("--max-accuracy-drop", "drop", type=FiniteRange(0, 100), default=1.0, show_default=True,
                         help="Largest loss of accuracy against ssgd, in points."),
            click.option("--proxy", multiple=True, metavar="DESIGN",
                         help="Recorded design in place of your model. Repeatable."),
            click.option("--fresh", is_flag=True, help="Delete earlier results of this question."),
            out_option,
        )
    ):  # fmt: skip
        function = decorate(function)
    return function


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


class SpecSource(NamedTuple):
    """A spec as the user gave it: what errors call it, and its text."""

    where: str
    text: str


def read_source(source: str) -> SpecSource:
    """Read a file, a built-in experiment by name, or standard input for "-". Raises: SpecError."""
    from wanbench.harness.spec.library import MOST_BYTES, read
    from wanbench.netprofiles import FileError
    from wanbench.netprofiles.user_file import as_text

    if source != "-":
        return SpecSource(source, read(source))
    try:
        return SpecSource("<stdin>", as_text(sys.stdin.buffer.read(MOST_BYTES + 1), "TOML", MOST_BYTES))
    except FileError as error:
        raise SpecError(f"<stdin>: {error}") from None


def load_spec(
    source: SpecSource,
    assignments: tuple[str, ...],
    drop: tuple[str, ...],
    testbed: str | None,
    emulator: str | None,
) -> Spec:
    """The spec with overrides applied. Raises: SpecError."""
    from wanbench.harness.spec.axes import SHORT_AXES
    from wanbench.harness.spec.experiment import Spec, parse_assignment

    changes = dict(parse_assignment(text) for text in assignments)
    given = {"run.testbed": testbed, "run.emulator": emulator}
    changes |= {key: value for key, value in given.items() if value is not None}
    spec = Spec.from_toml(source.text, source.where)
    drop += _replaced_by_profile(spec, changes)
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
    from wanbench.netprofiles.path import EFFECTS

    profile = changes.get("network.profile", "uniform")
    uniform_only = ("rtt", "rate", *(effect.key for effect in EFFECTS)) if profile != "uniform" else ()
    keys = [f"network.{name}" for name in uniform_only if name in spec.network.model_fields_set]
    replaced = tuple(key for key in keys if key not in changes)
    for key in replaced:
        click.echo(f"wanbench: {key} is dropped: {profile} has its own", err=True)
    return replaced


def planned(spec: Spec, source: str, folder: Path | None = None) -> Plan:
    """The plan of a spec on this host; `folder` has the run that it continues. Raises: SpecError."""
    from wanbench.harness.plan.plan import make
    from wanbench.harness.results.planned import auto_of
    from wanbench.harness.run.auto import ThisHost

    return make(spec, source, ThisHost(), None if folder is None else auto_of(folder))


def named(text: str, marks: str) -> tuple[list[str], str, str]:
    """The names, the mark and the rest of "NAME,NAME=REST"; a name with a comma or a mark is in quotes, as in CSV."""
    parts = re.finditer(r'"(?:[^"]|"")*"|.', text, re.DOTALL)
    mark = next((part for part in parts if part.group() in marks), None)
    if mark is None:
        return [], "", text
    names = next(csv.reader([text[: mark.start()]], skipinitialspace=True), [])
    return [name.strip() for name in names], mark.group(), text[mark.end() :]


def selections(only: tuple[str, ...], expected: str) -> dict[str, set[str]]:
    """The values by key of `--only KEY=VALUE`, given repeatedly. Raises: SpecError."""
    wanted: dict[str, set[str]] = {}
    for text in only:
        key, equals, value = text.partition("=")
        if not equals:
            raise SpecError(f"--only {text}: expected {expected}")
        wanted.setdefault(key, set()).add(value)
    return wanted


def select(plan: Plan, only: tuple[str, ...]) -> list[Cell]:
    """The cells that `--only` keeps, with the one-worker cells that they need. Raises: SpecError."""
    cells = list(plan.cells)
    wanted = selections(only, "AXIS=VALUE, e.g. --only algorithm=ssgd")
    swept = sorted({axis for cell in cells for axis in cell.axes})
    for axis in wanted:
        if axis not in swept:
            raise SpecError(f"--only {axis}=...: not an axis of {plan.spec.name}; axes: {', '.join(swept)}")
    swept_cells = [cell for cell in cells if not cell.is_baseline]
    chosen = [cell for cell in swept_cells if all(_value(cell, axis) in wanted[axis] for axis in wanted)]
    if not chosen:
        values = "; ".join(
            f"{axis}: {', '.join(sorted({_value(cell, axis) for cell in swept_cells}))}" for axis in wanted
        )
        raise SpecError(f"--only {' '.join(only)}: no cell is left; values are {values}")
    needed = {cell.base_key for cell in chosen}
    return [*(cell for cell in cells if cell.is_baseline and cell.key in needed), *chosen]


def _value(cell: Cell, axis: str) -> str:
    """A cell's value of an axis; the spec's own value if only other entries of `include` set the axis."""
    from wanbench.harness.spec.axes import SHORT_AXES

    if axis in cell.axes:
        return str(cell.axes[axis])
    found: Any = cell.tables()
    for key in SHORT_AXES.get(axis, axis).split("."):
        found = found.get(key) if isinstance(found, Mapping) else getattr(found, key, None)
    return str(found)


def rows_of(folder: RunFolder, *, earlier: bool = False) -> list[Row]:
    """One row per repetition. Rows that are left out, and files that cannot be read, are reported on stderr.

    Args:
        earlier: include the cells that only an earlier version of the spec had.
    """
    found = folder.read()
    for problem in found.problems:
        click.echo(f"wanbench: {folder.path / problem}", err=True)
    if earlier:
        marked: list[Row] = [{**row, "algorithm": f"{row['algorithm']} (earlier)"} for row in found.earlier]
        return [*found.rows, *marked]
    if found.note:
        click.echo(f"wanbench: {folder.name}: {found.note}", err=True)
    return found.rows


def by_hosts(rows: Sequence[Mapping[str, Any]], *, across_hosts: bool) -> list[dict[str, Any]]:
    """The rows for a summary, which keeps hosts that are not alike apart or pools them; stderr says which."""
    from wanbench.harness.analysis.summary import grouped, remarks

    for run, remark in remarks(rows, across_hosts=across_hosts):
        click.echo(f"wanbench: {run}: {remark}", err=True)
    return grouped(rows, across_hosts=across_hosts)
