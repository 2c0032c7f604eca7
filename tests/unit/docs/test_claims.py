"""Claims of papers are answered from recorded rows: values, intervals, verdicts, and why something is not emulated."""

from __future__ import annotations

import json
import math
import statistics
from pathlib import Path

import pytest
from wanbench_docs import claims

from wanbench.harness.errors import SpecError
from wanbench.harness.results.record import record
from wanbench.harness.show import papers

REFERENCE = Path(__file__).resolve().parents[3] / "results" / "reference"
PAPER = papers.parse("p", 'schema = 1\ntitle = "T"\ncitation = "C"\nrun = ["t"]\nfigure = []\n')
CLAIM = '[[claim]]\nplace = "Fig. 1"\ntext = "x"\ntheirs = "y"\nrun = "t"\nvalue = "scalability"\n'
SPEC = """
schema = 1
name = "t"
workload = { params = 1000000, step_time = "30ms", step_cv = 0.3 }
network = { rate = "10Gbit", tcp = { congestion = "reno" } }
algorithms = { ssgd = {}, delayed = { delay = 4 } }
sweep = { workers = [2], rtt = ["40ms"] }
run = { testbed = "virtual", repeats = 4 }
"""
SSGD = 'where = { algorithm = "ssgd", workers = 2 }\n'


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    from wanbench.harness.api import run
    from wanbench.harness.spec.experiment import Spec

    found = run(Spec.from_toml(SPEC, "t"), out=tmp_path_factory.mktemp("runs"), figures=False)
    folder = tmp_path_factory.mktemp("reference")
    record(found.folder, folder / "t", set())
    return folder


def rows(reference):
    return [json.loads(line) for line in (reference / "t" / "rows.jsonl").read_text().splitlines()]


def answer(reference, *lines):
    (found,) = claims.answers(claims.parse(PAPER, CLAIM + "".join(lines)), reference)
    return found


def speed(reference, kind):
    return {row["seed"]: row["scalability"] for row in rows(reference) if row["kind"] == kind and row["workers"] == 2}


def test_a_value_is_the_mean_with_students_interval(reference):
    values = list(speed(reference, "ssgd").values())
    mean, half = statistics.fmean(values), 3.182446 * statistics.stdev(values) / math.sqrt(4)  # t of 3 degrees, 97.5 %
    shown = f"{mean:.3g} ({mean - half:.3g} to {mean + half:.3g})"
    assert answer(reference, SSGD, "least = 0.0\n").value == shown


def test_a_ratio_is_paired_by_seed(reference):
    label = next(row["algorithm"] for row in rows(reference) if row["kind"] == "delayed")
    mine, theirs = speed(reference, "delayed"), speed(reference, "ssgd")
    mean = statistics.fmean(mine[seed] / theirs[seed] for seed in mine)
    where = f'where = {{ algorithm = "{label}", workers = 2 }}\nover = {{ algorithm = "ssgd" }}\n'
    assert answer(reference, where, "least = 1.0\n").value.startswith(f"{mean:.3g} (")


def test_the_verdict_follows_from_the_whole_interval(reference):
    middle = statistics.fmean(speed(reference, "ssgd").values())
    verdicts = {
        "least = 0.01": "holds",
        "most = 0.01": "fails",
        f"least = {middle}": "undecided: the interval is too wide",
        f"published = {middle}": "agrees (+0 %)",
        f"published = {middle / 2}": "differs (+100 %)",
        "fitted = true": "fitted: shows nothing",
    }
    assert {bound: answer(reference, SSGD, bound).verdict for bound in verdicts} == verdicts


def test_a_simulated_claim_has_the_load_of_its_emulation(reference):
    how = answer(reference, SSGD, "least = 0.0\n").how
    assert how.startswith("simulated: emulation needs ")
    assert "processors" in how
    assert answer(reference, SSGD, "least = 0.0\n", 'why = "z"\n').how == "simulated: z"


def test_a_claim_without_a_run_is_open(reference):
    text = '[[claim]]\nplace = "a"\ntext = "x"\ntheirs = "y"\nwhy = "z"\n'
    (found,) = claims.answers(claims.parse(PAPER, text), reference)
    assert (found.value, found.how, found.verdict) == ("-", "not at all: z", "open")


def test_a_claim_selects_one_cell(reference):
    with pytest.raises(SpecError, match=r"claim 'Fig. 1': \{'workers': 2\} selects 2 cells of t; expected one"):
        answer(reference, "where = { workers = 2 }\n", "least = 0.0\n")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (CLAIM, "expected a value, and published, least or most"),
        (CLAIM.replace('"t"', '"u"') + "least = 1.0", "'u' is none of its runs"),
        ('[[claim]]\nplace = "Fig. 1"\ntext = "x"\ntheirs = "y"', "expected a run with a value, or why there is none"),
    ],
)
def test_an_incomplete_claim_is_refused(text, message):
    with pytest.raises(SpecError) as caught:
        claims.parse(PAPER, text)
    assert str(caught.value) == f"p.toml: claim 'Fig. 1': {message}"


def test_a_misspelled_key_is_refused():
    with pytest.raises(ValueError, match=r"leest\n.*[Ee]xtra"):
        claims.parse(PAPER, CLAIM + "leest = 1.0\n")


@pytest.mark.parametrize("name", claims.names())
def test_every_claim_of_the_papers_has_an_answer(name):
    found = claims.answers(claims.load(papers.load(name)), REFERENCE)
    assert len(found) >= 5
    assert [one for one in found if "emulation is possible" in one.how] == []


def test_pooled_cells_are_paired_by_workers_and_seed():
    (found,) = [
        one
        for one in claims.answers(claims.load(papers.load("dts")), REFERENCE)
        if one.claim.pooled and "delayed" in str(one.claim.where)
    ]
    rows = [json.loads(line) for line in (REFERENCE / "dts-accuracy" / "rows.jsonl").read_text().splitlines()]
    by = {(row["algorithm"], row["workers"], row["seed"]): row["accuracy"] for row in rows}
    pairs = [key[1:] for key in by if key[0] == "delayed-d20"]
    assert len(pairs) == 20
    mean = statistics.fmean(100 * (by["delayed-d20", *pair] - by["ssgd", *pair]) for pair in pairs)
    assert found.value.startswith(f"{mean:.3g} points (")


def learned():
    """Every recorded accuracy against ssgd: (kind, parameters) -> {(run, workers): mean difference}."""
    found = {}
    for path in REFERENCE.glob("*/rows.jsonl"):
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        rows = [row for row in rows if row["status"] == "ok" and row["accuracy"] is not None and row["workers"] != 1]
        ssgd = {(row["workers"], row["rtt_ms"], row["seed"]): row["accuracy"] for row in rows if row["kind"] == "ssgd"}
        for row in rows:
            pair = row["workers"], row["rtt_ms"], row["seed"]
            if pair in ssgd:
                cells = found.setdefault((row["kind"], json.dumps(row["params"], sort_keys=True)), {})
                cells.setdefault((path.parent.name, row["workers"]), []).append(row["accuracy"] - ssgd[pair])
    return {key: {cell: statistics.fmean(values) for cell, values in cells.items()} for key, cells in found.items()}


@pytest.mark.parametrize("name", ["dts", "rps"])
def test_claims_of_accuracy_cite_every_recording_that_bears_on_them_and_its_least_favourable_cell(name):
    known, cited = learned(), {}
    for claim in claims.load(papers.load(name)):
        if claim.run is not None and claim.value == "accuracy" and claim.least is not None:
            rows = [json.loads(line) for line in (REFERENCE / claim.run / "rows.jsonl").read_text().splitlines()]
            for row in rows:
                if all(row[column] == value for column, value in claim.where.items()):
                    of = cited.setdefault((row["kind"], json.dumps(row["params"], sort_keys=True)), {})
                    of.setdefault(claim.run, set()).add(None if claim.pooled else row["workers"])
    assert cited
    for algorithm, runs in cited.items():
        assert set(runs) >= {run for run, _ in known[algorithm]}, algorithm
        for run, workers in runs.items():
            worst = min((mean, cell[1]) for cell, mean in known[algorithm].items() if cell[0] == run)[1]
            assert worst in workers, (algorithm, run)


def test_every_published_value_of_a_figure_is_claimed():
    paper = papers.load("sgp")
    claimed = {
        (claim.where["algorithm"], str(claim.where["workers"])): claim.theirs
        for claim in claims.load(paper)
        if claim.run is not None and claim.value == "step_time_s" and claim.over is None
        if claim.where["algorithm"] != "osgp"
    }
    published = {(one.algorithm, one.at): f"{one.value:.3f} s" for figure in paper.figures for one in figure.published}
    assert len(published) == 16
    assert claimed == published
