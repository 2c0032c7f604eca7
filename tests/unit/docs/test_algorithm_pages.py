"""The pages of the algorithms: one for each, whose cost is what a simulated run is charged."""

from __future__ import annotations

import statistics
from pathlib import Path

import pytest
from algorithm_examples import KINDS, written
from wanbench_docs import costs, curves

from wanbench.harness.analysis.summary import provenance
from wanbench.harness.api import Run, run
from wanbench.harness.plan.law import PredictInputs, all_reduce_time
from wanbench.harness.spec.experiment import Spec
from wanbench.workloads.algorithms import registry

PAGES = Path(__file__).resolve().parents[3] / "docs" / "reference" / "algorithms"
SECTIONS = ["## Update", "## Cost", "## Recorded run", "## Parameters", "## Paper"]
SYMBOLS = {"delay": "D", "period": "p", "peers": "m", "fragments": "P", "staleness": "s"}
LIMITS = {"adpsgd", "halos"}  # whose page has upper limits of bytes and messages
NEITHER = {  # whose messages are no all-reduces
    "rps", "gradient-sharing", "sgp", "osgp", "dpsgd", "ecdpsgd", "adpsgd", "sparseloco", "async-local-sgd", "halos",
}  # fmt: skip
WORKERS, MODEL_BYTES, COMPUTE_S = 4, 4_000_000, 0.01
SPEC = """
schema = 1
name = "cost"
workload = { params = 1_000_000, tensors = 10, step_time = "10ms", step_cv = 0 }
network = { profile = "uniform", rate = "1000Gbit", tcp = { slow_start_after_idle = false } }
comm = { collective = "direct" }
virtual = { tcp_ramp = false }
sweep = { workers = [4], rtt = ["20ms", "1s"] }
run = { repeats = 1, window = "96 steps" }
[algorithms]
"""


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    """The rows of simulated runs of all algorithms."""
    spec = Spec.from_toml(SPEC + "\n".join(written(kind) for kind in KINDS), "cost")
    return run(spec, testbed="virtual", out=tmp_path_factory.mktemp("costs"), figures=False).rows()


def cost_of(kind):
    return costs.costs((PAGES / f"{kind}.md").read_text())


def value(kind, formula, rtt_s=1.0):
    """A formula with the numbers of the run."""
    algorithm = registry.create(kind, registry.find(kind).examples[0])
    given = {symbol: getattr(algorithm, name, 1) for name, symbol in SYMBOLS.items()}
    return eval(
        formula, {"max": max, "min": min, "M": MODEL_BYTES, "N": WORKERS, "RTT": rtt_s, "Tc": COMPUTE_S, **given}
    )


def test_every_algorithm_has_a_page_with_all_sections():
    assert sorted(page.stem for page in PAGES.glob("*.md")) == sorted(registry.kinds())
    for page in PAGES.glob("*.md"):
        text = page.read_text()
        assert [line for line in text.splitlines() if line.startswith("## ")] == SECTIONS, page.name
        for part in ("curve", "algorithm"):
            assert f"<!-- generated: {part} {page.stem} -->" in text, page.name
        assert "**Use it** " in text, page.name
        assert "**Do not use it** " in text, page.name


@pytest.mark.parametrize("kind", KINDS)
def test_the_cost_on_the_page_is_the_cost_in_a_run(rows, kind):
    cost, text = cost_of(kind), (PAGES / f"{kind}.md").read_text()
    found = [row for row in rows if row["kind"] == kind]
    assert len(found) == 2
    assert ("Upper limits" in text) == (kind in LIMITS)
    for row in found:
        worker_steps = row["workers"] * row["steps_total"]
        payload, operations = row["payload_bytes"] / worker_steps, row["messages_sent"] / worker_steps
        if kind in LIMITS:
            assert payload <= value(kind, cost["payload"])
            assert operations <= value(kind, cost["operations"])
        else:  # dpsgd sends once before its first step
            assert payload == pytest.approx(value(kind, cost["payload"]), rel=0.07)
            assert operations == pytest.approx(value(kind, cost["operations"]), rel=0.07)
        one_shot = kind not in NEITHER and row["law_inputs"]["one_shot_bytes"]
        latency_s = row["rtt_ms"] / 1e3 / (2 if one_shot else 1)
        waited = value(kind, cost["wait"], latency_s)
        assert row["step_time_s"] - COMPUTE_S == pytest.approx(waited, rel=0.02, abs=3e-4)


def test_the_bytes_of_an_all_reduce_on_the_wire_are_those_of_the_law():
    inputs = PredictInputs(WORKERS, 1.0, 0.0, 1.0, MODEL_BYTES)
    _, wire_s = all_reduce_time(inputs, MODEL_BYTES)
    assert value("ssgd", cost_of("ssgd")["wire"]) == wire_s
    assert value("sparse", cost_of("sparse")["wire"]) == wire_s / 4


def test_a_formula_is_typeset():
    assert costs.tex("max(0, RTT - D * Tc) / (p * (D // p + 1))") == (
        r"\max(0, \mathrm{RTT} - D\,T_c) / (p\,(\lfloor D / p \rfloor + 1))"
    )


def test_a_recorded_curve_is_labelled_and_its_absence_is_stated():
    drawn = curves.of_curve("dts")
    assert "Emulated, one repetition per cell." in drawn
    assert ">dts-d20-p4</text>" in drawn
    assert "`results/reference/latency-sweep`" in drawn
    assert curves.of_curve("streaming-diloco") == "No run of this algorithm is recorded.\n"


def test_every_recorded_algorithm_has_a_curve():
    for kind in curves.RUNS:
        assert f">{kind}" in curves.of_curve(kind)
    along_an_axis = [path.parent for path in curves.RECORDED.glob("*/rows.jsonl") if path.parent.name != "uneven"]
    recorded = {row["kind"] for folder in along_an_axis for row in Run.open(str(folder)).rows()}
    assert recorded - {"local"} == set(curves.RUNS)


def test_the_conditions_under_a_recorded_curve_are_those_of_its_rows():
    for recorded in set(curves.RUNS.values()):
        rows = [row for row in Run.open(str(curves.RECORDED / recorded.run)).rows() if row["workers"] > 1]
        assert recorded.conditions.startswith(provenance(row["testbed"] for row in rows).capitalize())
        (scale,) = {row["payload_scale"] for row in rows}
        assert (f"messages and rates x {scale:g}" in recorded.conditions) == (scale != 1)


def test_the_page_of_rps_says_how_much_further_replicas_spread_on_more_servers():
    spreads: dict[tuple[int, float], list[float]] = {}
    for row in Run.open(str(curves.RECORDED / "rps-servers")).rows():
        if row["kind"] == "rps":
            spreads.setdefault((row["workers"], row["loss_pct"]), []).append(row["replica_spread"])
    mean = {cell: statistics.fmean(values) for cell, values in spreads.items()}
    ratios = sorted(mean[16, loss] / mean[4, loss] for loss in (10, 20, 30))
    text = " ".join((PAGES / "rps.md").read_text().split())
    assert f"spread {ratios[0]:.1f} to {ratios[-1]:.1f} times as far" in text
