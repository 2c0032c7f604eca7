"""What `verify` says of a run follows from the run alone, on whatever host it is read."""

from __future__ import annotations

from pathlib import Path

import pytest
from on_relay import expand

from wanbench.harness.emulators import choice
from wanbench.harness.plan.auto import FixedHost
from wanbench.harness.results import planned
from wanbench.harness.results.store import RunFolder
from wanbench.harness.results.verify import objections
from wanbench.harness.spec.experiment import Spec

REFERENCE = Path(__file__).resolve().parents[3] / "results" / "reference"
RUNS = sorted(path.parent.name for path in REFERENCE.glob("*/rows.jsonl"))
# Of those that may not be published as they are: how many cells, and by which rules.
REFUSED = {
    "dts-recipe-ablation": (3, {"accuracy"}),
    "dts-recipe-emulated": (6, {"accuracy"}),
    "dts-recipe-mnist1d": (3, {"accuracy"}),
    "dts-world": (19, {"accuracy"}),
    "gpt-sites": (9, {"reps"}),
}


def verdict(name: str) -> tuple[int, set[str]]:
    folder = RunFolder(REFERENCE / name)
    found = objections(folder.rows(), planned.read(folder.path).names)
    return len(found), {one.rule for one in found}


@pytest.mark.parametrize("missing", [None, "netem: this kernel has none"], ids=["netem", "no netem"])
@pytest.mark.parametrize("name", RUNS)
def test_a_recorded_run_gets_the_same_verdict_on_every_host(name, missing, monkeypatch):
    monkeypatch.setattr(choice, "kernel_lacks", lambda: missing)
    assert choice.chosen("processes")[0] == ("netem" if missing is None else "relay")
    assert verdict(name) == REFUSED.get(name, (0, set()))


@pytest.mark.parametrize("name", RUNS)
def test_a_recorded_run_has_rows_of_its_plan_alone(name):
    found = RunFolder(REFERENCE / name).read()
    assert (found.earlier, found.problems) == ([], [])
    assert {row["cell_key"] for row in found.rows} == set(planned.read(REFERENCE / name).cells)


def test_reading_a_run_asks_no_host(monkeypatch):
    def asked(*_):
        raise AssertionError("a host was asked")

    monkeypatch.setattr(choice, "why_no_netem", asked)
    monkeypatch.setattr("wanbench.harness.testbeds.chosen", asked)
    for name in RUNS:
        verdict(name)


REMOVED = ("decoupled-diloco",)


@pytest.mark.parametrize("name", RUNS)
def test_identities_of_recorded_cells_are_what_they_were(name):
    """A key that is added to specs later is not part of the identity of cells that do not have it."""
    stored = planned.read(REFERENCE / name)
    testbed = stored.auto.get("testbed", "netns")
    host = FixedHost(testbed, stored.auto.get("emulator", {}).get(testbed, "relay"))
    algorithms = {label: params for label, params in stored.spec["algorithms"].items() if label not in REMOVED}
    spec = Spec.from_dict({**stored.spec, "algorithms": algorithms}, name)
    cells = {key for key, cell in stored.cells.items() if not cell.name.startswith(REMOVED)}
    assert {cell.key for cell in expand(spec, name, host)} == cells
