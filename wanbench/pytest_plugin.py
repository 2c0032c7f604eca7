"""Scalability as an assertion in your own test suite.

    def test_scales_over_the_atlantic(wan):
        result = wan.run({"params": 7_000_000, "step_time": "300ms"}, profile="world4", workers=4)
        assert result.scalability > 0.7

pytest loads this plugin if wanbench is installed; nothing else is imported until a test uses `wan`. If this host cannot
emulate networks, such a test is skipped; with `wan_missing = fail` in the ini file it fails. If a cell fails, its test
fails with the reason and the last lines of the log. The session's summary lists all results.
"""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from wanbench.harness.plan.cell import Cell
    from wanbench.harness.spec.experiment import Spec

_PROPERTY = "wanbench"
_KINDS = ("skip", "fail")


@dataclass(frozen=True)
class Measured:
    """The results of one cell: medians over its repetitions.

    Attributes:
        cell: name of the cell.
        scalability: T(1) / T(N); 1 is perfect. step_time_s: mean time per step in the window, in seconds.
        payload_bytes, messages_sent: totals over all workers and steps.
        final_loss, accuracy: None if the workload trains no model.
        rows: every column of every repetition, as in `wanbench results --format json`.
        folder: the run's folder, with logs, steps and network values.
    """

    cell: str
    scalability: float
    step_time_s: float
    payload_bytes: int
    messages_sent: int
    final_loss: float | None
    accuracy: float | None
    rows: Sequence[Mapping[str, Any]] = field(repr=False)
    folder: Path = field(repr=False)


class Wan:
    """The fixture `wan`: measures on emulated networks, each of which is removed after its measurement."""

    def __init__(self, node: pytest.Item, folder: Path, config: pytest.Config) -> None:
        self._node, self._folder, self._config = node, folder, config
        self._runs = 0

    def run(
        self,
        what: Sequence[str] | Mapping[str, Any] | str,
        *,
        workers: int | None = None,
        profile: str | None = None,
        algorithm: str | Mapping[str, Mapping[str, Any]] | None = None,
        repeats: int | None = None,
        settings: Mapping[str, Any] | None = None,
        **axes: Any,
    ) -> Measured:
        """Measure one cell, and a single worker to compare it with.

        `@pytest.mark.wan(...)` sets defaults for the same arguments.

        Example:
            >>> result = wan.run("digits-cnn", algorithm="ssgd", workers=4, rtt="100ms")
            >>> assert result.scalability > 0.2

        Args:
            what: a workload's name, a [workload] table, or a command line as a list.
            workers: number of workers N.
            profile: name or file of a network; by default `uniform`, which needs `rtt`.
            algorithm: `"ssgd"`, or with parameters `{"dts": {"delay": 4, "period": 4}}`. The default is ssgd, and none
                for a command.
            repeats: number of repetitions; the results are medians over them. The default is 1.
            settings: any other value of a spec by its dotted key, such as {"run.window": "40 steps"}.
            axes: rtt, rate, jitter, loss, loss_burst, mtu, collective, congestion, payload_scale, testbed, emulator.

        Returns:
            The results of the cell.

        Raises:
            pytest.fail.Exception: a cell failed, or the arguments are wrong.
            pytest.skip.Exception: this host cannot emulate networks.
        """
        from wanbench.harness.errors import HostError, Interrupted, SpecError, WanbenchError

        named = {"workers": workers, "profile": profile, "algorithm": algorithm, "repeats": repeats}
        given = self._defaults() | {key: value for key, value in named.items() if value is not None} | axes
        try:
            return self._measure(_spec(what, given, settings or {}, self._node.name))
        except (SpecError, HostError) as error:
            refused: WanbenchError = error
        except Interrupted:
            raise KeyboardInterrupt from None
        if isinstance(refused, HostError) and _option(self._config, "wan_missing") == "skip":
            pytest.skip(f"wanbench: {refused}")
        pytest.fail(f"wanbench: {refused}", pytrace=False)

    def __repr__(self) -> str:
        return "wan"

    def _defaults(self) -> dict[str, Any]:
        testbed = _option(self._config, "wan_testbed")
        defaults = {"testbed": testbed} if testbed else {}
        for mark in reversed([*self._node.iter_markers("wan")]):
            defaults |= mark.kwargs
        return defaults

    def _measure(self, spec: Spec) -> Measured:
        from wanbench.harness.plan.plan import make
        from wanbench.harness.results.store import RunFolder
        from wanbench.harness.run.host import ThisHost
        from wanbench.harness.run.together import measure_all

        plan = make(spec, "wan.run", ThisHost())
        swept = [cell for cell in plan.cells if not cell.is_baseline]
        if len(swept) != 1:
            pytest.fail(
                f"wanbench: wan.run measures one cell, got {len(swept)}; give one value per axis", pytrace=False
            )
        self._runs += 1
        folder = RunFolder(self._folder / f"run-{self._runs}" / spec.name)
        measure_all(plan, folder, draw=False)
        rows = folder.rows()
        for cell in plan.cells:
            self._refuse_failed(cell, folder, rows)
        result = _measured(swept[0], [row for row in rows if row["cell_key"] == swept[0].key], folder.path)
        self._report(result)
        return result

    def _refuse_failed(self, cell: Cell, folder: Any, rows: Sequence[Mapping[str, Any]]) -> None:
        for row in rows:
            if row["cell_key"] == cell.key and row["status"] != "ok":
                problem = f"wanbench: {' '.join(cell.title.split())}: {row['status']}: {row['reason']}"
                lines = [problem, *_log_tail(folder.cell_folder(cell)), str(folder.path)]
                pytest.fail("\n".join(lines), pytrace=False)

    def _report(self, result: Measured) -> None:
        line = f"{result.cell}: scalability {result.scalability:.3f}, step {result.step_time_s:.4f} s"
        self._node.user_properties.append((_PROPERTY, line))
        self._node.add_report_section("call", "wanbench", f"{line}\n{result.folder}")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add --wan-testbed and --wan-missing, and the same names in the ini file."""
    group = parser.getgroup("wanbench", "emulated networks")
    testbed = "testbed of the fixture `wan`: netns, docker or virtual (simulated)"
    missing = "if this host cannot emulate networks: skip tests that use `wan` (default), or fail them"
    group.addoption("--wan-testbed", help=testbed)
    group.addoption("--wan-missing", choices=_KINDS, help=missing)
    parser.addini("wan_testbed", help=testbed, default="")
    parser.addini("wan_missing", help=missing, default="skip")


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker, and check `wan_missing` even on hosts that can emulate."""
    config.addinivalue_line("markers", "wan(workers=..., profile=..., ...): default arguments of `wan.run`")
    kind = _option(config, "wan_missing")
    if kind not in _KINDS:
        raise pytest.UsageError(f"wan_missing = {kind}: expected skip or fail")


@pytest.fixture
def wan(request: pytest.FixtureRequest, tmp_path: Path) -> Wan:
    """Measure workloads on emulated networks: `wan.run("digits-cnn", workers=4, rtt="100ms").scalability`."""
    return Wan(request.node, tmp_path / "wan", request.config)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """List the results, one per line."""
    reports = [report for kind in ("passed", "failed") for report in terminalreporter.getreports(kind)]
    lines = [value for report in reports for name, value in report.user_properties if name == _PROPERTY]
    if lines:
        terminalreporter.section("wanbench")
        for line in dict.fromkeys(lines):
            terminalreporter.line(line)


def _option(config: pytest.Config, name: str) -> str:
    return str(config.getoption(name) or config.getini(name))


def _spec(
    what: Sequence[str] | Mapping[str, Any] | str, given: Mapping[str, Any], settings: Mapping[str, Any], test: str
) -> Spec:
    """Return the experiment of one cell. Raises: SpecError."""
    from wanbench.harness.errors import SpecError
    from wanbench.harness.spec.axes import SHORT_AXES
    from wanbench.harness.spec.experiment import Spec
    from wanbench.netprofiles import did_you_mean

    options = dict(given)
    if "workers" not in options:
        raise SpecError("wan.run: workers: missing; give a number, such as workers=4")
    workload = _workload(what)
    algorithm = options.pop("algorithm", None if "command" in workload else "ssgd")  # a command may bring its own
    algorithm = {algorithm: {}} if isinstance(algorithm, str) else algorithm
    repeats, workers = options.pop("repeats", 1), options.pop("workers")
    unknown = options.keys() - SHORT_AXES.keys()
    if unknown:
        permitted = ("workers", "algorithm", "repeats", "settings", *SHORT_AXES)
        near = did_you_mean(min(unknown), permitted)
        raise SpecError(f"wan.run: {min(unknown)}: unknown argument{near} (known: {', '.join(permitted)})")
    data = {
        "schema": 1,
        "name": re.sub("[^A-Za-z0-9._-]+", "-", test).strip("-.")[:80] or "test",
        "workload": workload,
        **({} if algorithm is None else {"algorithms": dict(algorithm)}),
        "sweep": {"workers": [workers], **{axis: [value] for axis, value in options.items()}},
        "run": {"repeats": repeats},
    }
    return Spec.from_dict(data, "wan.run").override(settings, "wan.run")


def _workload(what: Sequence[str] | Mapping[str, Any] | str) -> dict[str, Any]:
    """Return the [workload] table for a name, a table or a command line."""
    if isinstance(what, str):
        return {"name": what}
    return dict(what) if isinstance(what, Mapping) else {"command": [str(part) for part in what]}


def _log_tail(cell_folder: Path) -> list[str]:
    """Return the last lines printed by the workers of a failed cell."""
    errors = [json.loads(path.read_text()) for path in sorted(cell_folder.glob("rep-*.failed-*/error.json"))]
    return [f"    {line}" for line in errors[-1].get("log_tail", [])] if errors else []


def _measured(cell: Cell, rows: Sequence[Mapping[str, Any]], folder: Path) -> Measured:
    def median(key: str) -> Any:
        values = [row[key] for row in rows if row[key] is not None]
        return statistics.median(values) if values else None

    return Measured(
        cell=" ".join(cell.title.split()),
        scalability=median("scalability"),
        step_time_s=median("step_time_s"),
        payload_bytes=median("payload_bytes"),
        messages_sent=median("messages_sent"),
        final_loss=median("final_loss"),
        accuracy=median("accuracy"),
        rows=tuple(rows),
        folder=folder,
    )
