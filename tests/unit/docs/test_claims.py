"""Claims of papers are answered by every recorded cell that bears on them: values, intervals, verdicts, and load."""

from __future__ import annotations

import gzip
import json
import math
import statistics
from collections import Counter
from functools import cache
from pathlib import Path

import pytest
from wanbench_docs import claims
from wanbench_docs.evidence import Evidence

from wanbench.harness.analysis.paired import MeanInterval
from wanbench.harness.errors import SpecError
from wanbench.harness.learning.recording import RECORDED
from wanbench.harness.results.record import record
from wanbench.harness.show import papers

REFERENCE = Path(__file__).resolve().parents[3] / "results" / "reference"
SHEET = 'title = "T"\ncitation = "C"\nread = "R"\n'
CLAIM = SHEET + '[[claim]]\nplace = "Fig. 1"\ntext = "x"\ntheirs = "y"\nvalue = "scalability"\n'
SPEC = """
schema = 1
name = "t"
workload = { params = 1000000, step_time = "30ms", step_cv = 0.3 }
network = { rate = "10Gbit", tcp = { congestion = "reno" } }
algorithms = { ssgd = {}, delayed = { delay = 4 } }
sweep = { workers = [2], rtt = ["40ms"] }
run = { testbed = "virtual", repeats = 4 }
"""
SSGD = 'where = { algorithm = "ssgd" }\n'


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    return recording_of(SPEC, tmp_path_factory)


def recording_of(spec, tmp_path_factory):
    from wanbench.harness.api import run
    from wanbench.harness.spec.experiment import Spec

    found = run(Spec.from_toml(spec, "t"), out=tmp_path_factory.mktemp("runs"), figures=False)
    folder = tmp_path_factory.mktemp("reference")
    record(found.folder, folder / "t", set())
    return folder


def rows(reference):
    return [json.loads(line) for line in (reference / "t" / "rows.jsonl").read_text().splitlines()]


def answered(reference, *lines):
    (found,) = claims.answered(claims.parse("p", CLAIM + "".join(lines)).claim, reference)
    return found


def line(reference, *lines):
    _, answer = claims.table_rows(answered(reference, *lines))
    return answer


def speed(reference, kind):
    return {row["seed"]: row["scalability"] for row in rows(reference) if row["kind"] == kind and row["workers"] == 2}


def test_a_value_is_the_mean_with_students_interval(reference):
    values = list(speed(reference, "ssgd").values())
    mean, half = statistics.fmean(values), 3.182446 * statistics.stdev(values) / math.sqrt(4)  # t of 3 degrees, 97.5 %
    shown = f"{mean:.3g} ({mean - half:.3g} to {mean + half:.3g})"
    assert line(reference, SSGD, "least = 0.0\n")[2] == shown


def test_a_ratio_is_paired_by_seed(reference):
    mine, theirs = speed(reference, "delayed"), speed(reference, "ssgd")
    mean = statistics.fmean(mine[seed] / theirs[seed] for seed in mine)
    where = 'where = { kind = "delayed" }\nover = { algorithm = "ssgd" }\n'
    assert line(reference, where, "least = 1.0\n")[2].startswith(f"{mean:.3g} (")


def test_a_difference_is_compared_with_the_difference_of_another_two_cells(tmp_path_factory):
    """What the delay brings at 80 ms, less what it brings at 40 ms; no cell, no answer."""
    reference = recording_of(SPEC.replace('["40ms"]', '["40ms", "80ms"]'), tmp_path_factory)
    cells = {(row["kind"], row["rtt_ms"], row["seed"]): row["scalability"] for row in rows(reference)}
    gain = {
        (rtt, seed): cells["delayed", rtt, seed] - cells["ssgd", rtt, seed]
        for rtt, seed in {key[1:] for key in cells if key[0] == "delayed"}
    }
    mean = statistics.fmean(gain[80, seed] - gain[40, seed] for rtt, seed in gain if rtt == 80)
    where = 'where = { kind = "delayed", rtt_ms = 80.0 }\nminus = { algorithm = "ssgd" }\nminus_at = { rtt = "40ms" }\n'
    assert line(reference, where, "least = 0.0\n")[2].startswith(f"{mean:.3g} (")
    with pytest.raises(SpecError, match="no recording has scalability"):
        answered(reference, where.replace("40ms", "60ms"), "least = 0.0\n")


def test_the_verdict_follows_from_the_whole_interval(reference):
    middle = statistics.fmean(speed(reference, "ssgd").values())
    verdicts = {
        "least = 0.01": "holds",
        "most = 0.01": "contradicted",
        f"least = {middle}": "undecided",
        f"published = {middle / 2}": "contradicted (+100 %)",
        f"published = {middle / 1.1}": "undecided (+10 %)",
        'least = 0.01\naside = { "*" = "z" }': "not judged: z",
        'least = 0.01\naside = { t = "z" }': "not judged: z",
    }
    assert {bound: line(reference, SSGD, bound)[4] for bound in verdicts} == verdicts


def test_every_cell_that_is_selected_is_an_answer(reference):
    found = answered(reference, "where = { workers = 2 }\nleast = 0.0\n")
    assert [answer.evidence.label for answer in found.answers] == ["`delayed-d4`", "`ssgd`"]


def test_a_simulated_claim_has_the_load_of_its_emulation(reference):
    how = line(reference, SSGD, "least = 0.0\n")[3]
    assert how.startswith("simulated: emulation needs ")
    assert "processors" in how


def test_a_claim_without_a_recording_is_open(reference):
    text = SHEET + '[[claim]]\nplace = "a"\ntext = "x"\ntheirs = "y"\nwhy = "z"\n'
    (found,) = claims.answered(claims.parse("p", text).claim, reference)
    assert claims.table_rows(found) == [["a", "x", "y", "z", "**open**"]]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("where = { workers = 3 }\n", "no recording has scalability of {'workers': 3}"),
        (SSGD + 'aside = { u = "z" }\n', "'u' is none of its recordings"),
        (SSGD + 'repeated = { t = "u" }\n', "'u' is none of its recordings"),
    ],
)
def test_a_claim_without_what_it_names_is_refused(reference, lines, message):
    with pytest.raises(SpecError) as caught:
        answered(reference, lines, "least = 0.0\n")
    assert str(caught.value) == f"claim 'Fig. 1': {message}"


@pytest.mark.parametrize(
    "text", [CLAIM, CLAIM + 'why = "z"\nleast = 1.0\n', CLAIM.replace('value = "scalability"', "least = 1.0")]
)
def test_an_incomplete_claim_is_refused(text):
    with pytest.raises(SpecError) as caught:
        claims.parse("p", text)
    expected = "expected a value, and published, least or most; or why no recording bears on it"
    assert str(caught.value) == f"p.toml: claim 'Fig. 1': {expected}"


def test_a_misspelled_key_is_refused():
    with pytest.raises(ValueError, match=r"leest\n.*[Ee]xtra"):
        claims.parse("p", CLAIM + "leest = 1.0\n")


def intervals(monkeypatch, *ends, lines="least = 0.0\n"):
    """A claim of at least 0 with recordings r0, r1, ... of these intervals."""
    found = [
        Evidence(f"r{i}", "`a`", "`a`, w", MeanInterval((low + high) / 2, low, high, 5))
        for i, (low, high) in enumerate(ends)
    ]
    monkeypatch.setattr(claims, "bearing", lambda *_: found)
    return answered(REFERENCE, lines)


ABOVE, ACROSS, BELOW = (1.0, 2.0), (-1.0, 1.0), (-2.0, -1.0)


@pytest.mark.parametrize(
    ("ends", "verdict"),
    [
        ([ABOVE, ABOVE], "**holds** (2 of 2)"),
        ([ABOVE, ACROSS], "**undecided** (1 of 2)"),
        ([ABOVE, ACROSS, BELOW], "**contradicted** (1 of 3)"),
        ([BELOW], "**contradicted**"),
    ],
)
def test_one_recording_that_contradicts_is_enough_and_a_claim_holds_only_if_all_do(monkeypatch, ends, verdict):
    assert claims.table_rows(intervals(monkeypatch, *ends))[0][4] == verdict


def test_an_undecided_recording_gives_way_to_one_that_repeats_it_and_decides(monkeypatch):
    lines = 'least = 0.0\nrepeated = { r0 = "r1" }\n'
    assert [answer.verdict for answer in intervals(monkeypatch, ACROSS, ACROSS, lines=lines).answers] == [
        "undecided",
        "undecided",
    ]
    head, few, many = claims.table_rows(intervals(monkeypatch, ACROSS, ABOVE, lines=lines))
    assert (head[4], many[4]) == ("**holds**", "holds")
    assert few[4] == "not judged: undecided, and `r1` repeats it with more seeds"
    assert intervals(monkeypatch, BELOW, ABOVE, lines=lines).verdict == "contradicted"


def test_many_cells_of_a_recording_share_a_line(monkeypatch):
    found = [Evidence("r", "`a`", f"`a`, {i}", MeanInterval(i, i, i, 5)) for i in range(-1, 6)]
    monkeypatch.setattr(claims, "bearing", lambda *_: found)
    head, together = claims.table_rows(answered(REFERENCE, "least = 0.0\n"))
    assert head[4] == "**contradicted** (1 of 7)"
    assert together == ["`r`", "`a`: 7 values", "-1 to 5", "simulated", "6 holds; 1 contradicted"]


def test_a_table_is_an_answer_line_by_line(tmp_path):
    (tmp_path / "rates").mkdir()
    (tmp_path / "rates" / "a.csv").write_text("method,ratio\nx,1.1\nx,0.9\ny,5\n")
    lines = 'table = "rates/a.csv"\nwhere = { method = "x" }\nleast = 1.0\n'
    (found,) = claims.answered(
        claims.parse("p", CLAIM.replace("scalability", "ratio") + lines).claim, tmp_path
    )  # fmt: skip
    assert [answer.verdict for answer in found.answers] == ["holds", "contradicted"]


@pytest.mark.parametrize("name", claims.names())
def test_every_claim_of_the_papers_has_an_answer(name):
    found = claims.answered(claims.load(name).claim, REFERENCE)
    assert len(found) >= 10
    assert len({one.claim.text + one.claim.place for one in found}) == len(found)
    assert [row for one in found for row in claims.table_rows(one) if "emulation is possible" in row[3]] == []


def of_accuracy():
    """The claims about the accuracy of one setting against that of ssgd, wherever it was trained."""
    for name in claims.names():
        for claim in claims.load(name).claim:
            against_ssgd = claim.value == "accuracy" and claim.minus == {"algorithm": "ssgd"}
            if against_ssgd and claim.where.keys() <= {"kind", "params"}:
                yield claim


def selects(where, kind, params):
    def listed(wanted):
        return wanted if isinstance(wanted, list) else [wanted]

    return kind in listed(where["kind"]) and ("params" not in where or params in listed(where["params"]))


@cache
def accuracies():
    """The rows with an accuracy of every run, and the trajectories of every design, by name."""
    runs = {path.parent.name: path.read_text().splitlines() for path in REFERENCE.glob("*/rows.jsonl")}
    runs = {name: [json.loads(text) for text in lines] for name, lines in runs.items()}
    designs = {path.name.partition(".")[0]: gzip.decompress(path.read_bytes()) for path in RECORDED.glob("*.json.gz")}
    return (
        {name: [r for r in rows if r["status"] == "ok" and r["accuracy"] is not None] for name, rows in runs.items()},
        {name: json.loads(text)["trajectories"] for name, text in designs.items()},
    )


def trained(where):
    """Of every recorded run and design, how many cells have such a setting, and ssgd under the same conditions."""
    found, (runs, designs) = Counter(), accuracies()
    for name, every in runs.items():
        ssgd = [row["axes"] for row in every if row["algorithm"] == "ssgd"]
        selected = {row["cell"]: row for row in every if selects(where, row["kind"], row["params"])}
        found[name] = sum({**row["axes"], "algorithm": "ssgd"} in ssgd for row in selected.values())
    for name, every in designs.items():
        found[name] = len({(t["condition"], t["setting"]) for t in every if selects(where, t["kind"], t["params"])})
    return +found


def test_claims_of_accuracy_have_every_recording_of_the_setting():
    found = {json.dumps(claim.where): claim for claim in of_accuracy()}
    assert len(found) >= 15
    for claim in found.values():
        (one,) = claims.answered([claim], REFERENCE)
        assert Counter(answer.evidence.recording for answer in one.answers) == trained(claim.where), claim.text


def test_accuracies_of_learning_are_those_of_its_files():
    (claim,) = (claim for claim in of_accuracy() if claim.where == {"kind": "delayed", "params": {"delay": 20}})
    (one,) = claims.answered([claim], REFERENCE)
    (tuned,) = (a.evidence for a in one.answers if (a.evidence.recording, a.evidence.condition) == ("mnist", "base"))
    _, designs = accuracies()
    last = {(t["setting"], t["seed"]): t["accuracy"][-1] for t in designs["mnist"] if t["condition"] == "base"}
    points = [100 * (last["delayed-d20", seed] - last["ssgd", seed]) for name, seed in last if name == "ssgd"]
    assert tuned.estimate.mean == pytest.approx(statistics.fmean(points))


def test_the_six_seconds_of_dts_are_answered_at_six_seconds():
    (claim,) = (claim for claim in claims.load("dts").claim if claim.theirs == "6 s")
    assert claim.where["rtt_ms"] == 6000
    (one,) = claims.answered([claim], REFERENCE)
    rows = [json.loads(text) for text in (REFERENCE / "dts-latency" / "rows.jsonl").read_text().splitlines()]
    values = [row["scalability"] for row in rows if (row["algorithm"], row["rtt_ms"]) == ("delayed-d20", 6000)]
    assert [answer.evidence.estimate.mean for answer in one.answers] == [pytest.approx(statistics.fmean(values))]


def test_every_published_value_of_a_figure_is_claimed():
    claimed = {}
    for claim in claims.load("sgp").claim:
        if claim.value == "step_time_s" and claim.unit == "s":
            algorithms = claim.where["algorithm"]
            first = algorithms[0] if isinstance(algorithms, list) else algorithms
            claimed[first, str(claim.where["workers"])] = (claim.theirs, claim.published)
    figures = papers.load("sgp").figures
    published = {(one.algorithm, one.at): one.value for figure in figures for one in figure.published}
    assert len(published) == 16
    assert claimed == {key: (f"{value:.3f} s", value) for key, value in published.items()}
