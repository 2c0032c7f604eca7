"""Figure sets of papers are drawn only from recordings, and every difference is reported."""

from __future__ import annotations

import itertools
import json
import re
import shutil
from pathlib import Path

import pytest
from command_line import as_it_was, refused, wanbench  # noqa: F401  # the fixture is used by all
from legible import assert_nothing_overlaps

from wanbench.harness.analysis.summary import AnalysisError
from wanbench.harness.errors import CellsFailed, SpecError
from wanbench.harness.results.evidence import CURVE, NETWORK, TRACE, Evidence
from wanbench.harness.results.record import record
from wanbench.harness.results.store import RunFolder
from wanbench.harness.show import papers
from wanbench.harness.show.figures.style import COLUMN_IN, PAGE_IN
from wanbench.harness.show.papers import drawing
from wanbench.harness.show.papers.table import table
from wanbench.harness.spec.library import builtin_names

REFERENCE = Path(__file__).resolve().parents[3] / "results" / "reference"
SET = """
schema = 1
title = "T"
citation = "Somebody 2020"
run = ["t"]

[[figure]]
name = "speed"
run = "t"
kind = "scalability"
where = { rtt_ms = 40.0 }
subject = "Speed"
published = [{ algorithm = "ssgd", at = "2", value = 0.5, source = "table 1" }]

[[figure]]
name = "flights"
run = "t"
kind = "timeline"

[[figure]]
name = "numbers"
run = "t"
kind = "table"
columns = ["scalability"]
"""
SPEC = """
schema = 1
name = "t"
workload = { params = 1000, step_time = "30ms" }
network = { rate = "1Gbit", tcp = { congestion = "reno" } }
algorithms = { ssgd = {}, dts = { delay = 4, period = 2 } }
sweep = { workers = [2], rtt = ["10ms", "40ms"] }
run = { testbed = "virtual", repeats = 2 }
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Return a simulated run; it takes half a second."""
    from wanbench.harness.api import run
    from wanbench.harness.spec.experiment import Spec

    return run(Spec.from_toml(SPEC, "t"), out=tmp_path_factory.mktemp("runs"), figures=False)


@pytest.fixture(scope="module")
def drawn(run, tmp_path_factory):
    """Record a run and draw the figures of one paper."""
    reference = tmp_path_factory.mktemp("reference")
    record(run.folder, reference / "t", {TRACE, NETWORK, CURVE})
    drawing.draw_paper(papers.parse("p", SET), reference, reference / "p")
    return reference


@pytest.fixture
def reference(drawn, tmp_path, monkeypatch):
    """Return a copy of results/reference that the test can change."""
    monkeypatch.setattr(papers, "load", lambda name: papers.parse("p", SET))
    monkeypatch.setattr(papers, "names", lambda: ["p"])
    return Path(shutil.copytree(drawn, tmp_path / "results" / "reference"))


def check():
    result = wanbench("figures", "--paper", "p", "--check")
    return result.exit_code, result.stdout.splitlines()


def test_record_measures_stores_and_draws_and_drawing_again_changes_nothing(tmp_path, monkeypatch):
    from wanbench.harness.spec.experiment import Spec

    monkeypatch.setattr(papers, "load", lambda name: papers.parse("p", SET))
    monkeypatch.setattr(papers, "names", lambda: ["p"])
    monkeypatch.setattr(Spec, "load", lambda name: Spec.from_toml(SPEC, name))
    monkeypatch.setattr("wanbench.harness.spec.library.read", lambda name: SPEC)
    result = wanbench("record", "p")
    assert result.exit_code == 0, result.stderr
    assert result.stdout.splitlines()[:2] == ["results/reference/t", "results/reference/p/speed.svg"]
    assert check() == (0, [])
    assert refused("record", "p", "--only", "u") == "wanbench: --only u: not an experiment of p; expected one of t"


@pytest.mark.long  # measures twice what another test measures once
def test_all_runs_of_a_paper_are_measured_before_a_recorded_file_changes(tmp_path, monkeypatch):
    """A run says whether files of its checkout had changed."""
    from wanbench.harness.spec.experiment import Spec

    measured = []

    def noted(folder, to, needed):
        measured.append({name: len(RunFolder(folder.path.parent / name).rows()) for name in ("t", "u")})
        return record(folder, to, needed)

    monkeypatch.setattr(papers, "load", lambda name: papers.parse("p", SET.replace('run = ["t"]', 'run = ["t", "u"]')))
    monkeypatch.setattr(papers, "names", lambda: ["p"])
    monkeypatch.setattr(Spec, "load", lambda name: Spec.from_toml(SPEC, name))
    monkeypatch.setattr("wanbench.harness.spec.library.read", lambda name: SPEC)
    monkeypatch.setattr("wanbench.harness.results.record.record", noted)
    result = wanbench("record", "p")
    assert result.exit_code == 0, result.stderr
    assert measured == [{"t": 10, "u": 10}] * 2


def test_learning_curves_are_recorded_of_every_run_and_what_else_its_figures_need():
    paper = papers.parse("p", SET)
    assert drawing.wanted_evidence(paper, "t") == {CURVE, TRACE}
    assert drawing.wanted_evidence(paper, "another") == {CURVE}


def test_a_run_with_a_truncated_result_is_not_recorded(run, tmp_path):
    copy = RunFolder(shutil.copytree(run.path, tmp_path / "t"))
    broken = next(copy.path.glob("cells/ssgd*/rep-0/result.json"))
    broken.write_text("{")
    with pytest.raises(CellsFailed, match=r"so not finished: not JSON \(.*\); run the experiment again before"):
        record(copy, tmp_path / "recorded", set())
    assert not (tmp_path / "recorded").exists()


def test_a_recording_knows_repetitions_by_their_host(run, tmp_path):
    """Two hosts measured one: each has its own evidence, and a figure misses the one that is lost."""
    copy = RunFolder(shutil.copytree(run.path, tmp_path / "t"))
    ssgd = next(copy.path.glob("cells/ssgd*/rep-0/result.json"))
    ssgd.write_text(json.dumps(json.loads(ssgd.read_text()) | {"host": "gpu7-3f9a1c"}))
    recorded = record(copy, tmp_path / "reference" / "t", {TRACE})
    kept, rows = Evidence(recorded), recorded.rows()
    (one,) = [row for row in rows if row["host"] == "gpu7-3f9a1c"]
    assert kept.trace(one) == Evidence(copy).trace(one)
    assert kept.trace({**one, "host": "gpu8-77aa01"}) is None
    assert drawing._reps([one]) == {one["cell"]: ["0 on gpu7-3f9a1c"]}
    lost = drawing._lost(drawing._reps(rows), [row for row in rows if row is not one])
    assert lost == [f"{one['cell']} rep 0 on gpu7-3f9a1c"]


def test_a_recording_holds_the_values_of_the_run(run, reference):
    recorded = RunFolder(reference / "t")
    order = lambda row: (row["cell"], row["rep"])  # noqa: E731
    rows = [{**row, "run": "t", "evidence": None} for row in run.rows()]  # without the files beside them
    assert sorted(recorded.rows(), key=order) == sorted(rows, key=order)
    for row in run.rows():
        if row["workers"] > 1 and row["rep"] == 0:
            live, kept = Evidence(run.folder), Evidence(recorded)
            assert kept.trace(row) == live.trace(row)
            assert kept.network(row) == live.network(row)
            assert kept.curve(row) is None
    assert "argv" not in recorded.manifest()


def test_figures_are_drawn_in_three_formats_beside_their_points_and_tables_as_text(reference):
    assert sorted(path.name for path in (reference / "p").iterdir()) == [
        "flights-column.pdf", "flights.csv", "flights.png", "flights.svg", "index.json", "numbers.md",
        "speed-column.pdf", "speed.csv", "speed.png", "speed.svg",
    ]  # fmt: skip
    assert "| algorithm | scalability, RTT (ms) 10 |" in (reference / "p" / "numbers.md").read_text()


def test_a_missing_repetition_is_reported_for_every_figure_that_shows_it(reference):
    rows = (reference / "t" / "rows.jsonl").read_text().splitlines()
    (lost,) = [line for line in rows if '"ssgd"' in line and '"rtt_ms": 40.0' in line and '"rep": 1' in line]
    (reference / "t" / "rows.jsonl").write_text("\n".join(line for line in rows if line != lost))
    cell = json.loads(lost)["cell"]
    code, lines = check()
    assert code == 1
    where = f"lost {cell} rep 1 (results/reference/t)"
    assert f"results/reference/p/speed.svg: {where}" in lines
    assert f"results/reference/p/numbers.md: {where}" in lines


def test_a_truncated_line_is_reported(reference):
    path = reference / "t" / "rows.jsonl"
    path.write_text(path.read_text()[:-40])
    code, lines = check()
    assert code == 1
    assert "rows.jsonl line 10: not a result: not JSON (" in lines[0]
    assert lines[0].endswith(" (results/reference/t)")


def test_changed_and_unexpected_files_are_reported(reference):
    (reference / "p" / "speed.svg").write_text("edited")
    (reference / "p" / "old.png").write_text("left over")
    assert check() == (
        1,
        [
            "results/reference/p/speed.svg: was changed after it was drawn",
            "results/reference/p/old.png: is none of the paper's figures",
        ],
    )


def test_recordings_with_other_libraries_are_not_comparable(reference, monkeypatch):
    monkeypatch.setattr(drawing, "versions", lambda: {**versions, "matplotlib": "9.9"})
    versions = json.loads((reference / "p" / "index.json").read_text())["versions"]
    assert check() == (0, [])  # other versions alone do not matter
    index = json.loads((reference / "p" / "index.json").read_text())
    changed = reference / "p" / "numbers.md"
    changed.write_text("drawn otherwise by another version")
    index["files"]["numbers.md"]["sha256"] = drawing._hash(changed)
    (reference / "p" / "index.json").write_text(json.dumps(index))
    then = versions["matplotlib"]
    assert check() == (
        5,
        [f"results/reference/p/numbers.md: not comparable: drawn with matplotlib {then}, here 9.9"],
    )


def rewrite(reference, **values):
    """Change columns of every recorded row; a value can be a function of the row."""
    path = reference / "t" / "rows.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    changed = [{**row, **{key: put(row) if callable(put) else put for key, put in values.items()}} for row in rows]
    path.write_text("".join(f"{json.dumps(row)}\n" for row in changed))


def test_the_check_refuses_figures_of_a_run_that_verify_refuses(reference):
    rewrite(reference, testbed="netns")  # an emulated cell needs three repetitions
    code, lines = check()
    assert code == 1
    refused = [line for line in lines if "verify refuses it" in line]
    few = [line for line in refused if line.endswith(": 2 valid repetitions; at least 3 are needed")]
    assert len(few) == 1
    assert few[0].startswith("results/reference/t: verify refuses it: ")


def test_a_less_accurate_cell_is_refused_only_where_its_accuracy_is_not_shown(reference):
    assert list(drawing.refusals(papers.parse("p", SET), reference)) == []
    rewrite(reference, steps_total=30, accuracy=lambda row: 0.95 if row["kind"] == "dts" else 0.98)
    (line,) = drawing.refusals(papers.parse("p", SET), reference)
    assert line.endswith(": accuracy 0.950; the limit is 0.02 below that of ssgd (0.980)")
    table_alone = SET[: SET.index("[[figure]]")] + SET[SET.rindex("[[figure]]") :]
    shown = papers.parse("p", table_alone.replace('["scalability"]', '["accuracy", "scalability"]'))
    assert list(drawing.refusals(shown, reference)) == []


def test_a_published_value_must_have_a_bar(reference):
    paper = papers.parse("p", SET.replace('at = "2"', 'at = "3"'))
    with pytest.raises(SpecError) as caught:
        drawing.draw_paper(paper, reference, reference / "p")
    message = "results/reference/t: figure speed: published ssgd at 3: no such bar is drawn"
    assert str(caught.value).endswith(message)


def test_a_paper_without_recordings_is_reported(reference):
    (reference / "t" / "manifest.json").unlink()
    message = f"wanbench: {'results/reference/t'}: not recorded yet; run `wanbench record`"
    assert refused("figures", "--paper", "p", "--check") == message


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("schema = 1", "schema = 2"), "papers/p.toml: schema: input should be 1"),
        (('kind = "table"', 'kind = "pie"'), "papers/p.toml: figure.2.kind: input should be 'scalability', "),
        (('run = "t"\nkind = "timeline"', 'run = "u"\nkind = "timeline"'),
         "papers/p.toml: figure flights: 'u': expected one of the paper's runs"),
        (('kind = "timeline"', 'kind = "timeline"\ntitle = "x"'),
         "papers/p.toml: figure flights: title: expected in table, equivalence, trend only; remove the key"),
        (('kind = "timeline"', 'kind = "timeline"\nsubject = "x"'),
         "papers/p.toml: figure flights: subject: expected in scalability, trend only; remove the key"),
        (('kind = "timeline"', 'kind = "timeline"\nx = "rtt_ms"'),
         "papers/p.toml: figure flights: x, y: expected both for a trend, and neither for others"),
        (('kind = "timeline"', 'kind = "timeline"\npublished_in = "sped"'),
         "papers/p.toml: figure flights: published_in: no figure 'sped'"),
        (('kind = "timeline"', 'kind = "map"'),
         "papers/p.toml: figure flights: run: a map has none; remove the key"),
        (('kind = "timeline"', 'kind = "timeline"\nbeside = "t"'),
         "papers/p.toml: figure flights: beside: expected in scalability, trend only; remove the key"),
        (('kind = "scalability"', 'kind = "scalability"\nbeside = "u"'),
         "papers/p.toml: figure speed: 'u': expected one of the paper's runs"),
        (("columns =", "colums ="), "papers/p.toml: figure.2.colums: extra inputs are not permitted"),
        (("[[figure]]", "[[figure"), "papers/p.toml: not TOML: "),
    ],
)  # fmt: skip
def test_a_wrong_file_is_refused_in_one_line(change, message):
    with pytest.raises(SpecError) as caught:
        papers.parse("p", SET.replace(*change))
    assert str(caught.value).startswith(message)


def test_published_values_are_in_a_table_beside_ours(run):
    figure = papers.parse("p", SET).figures[2]
    values = [papers.Published(algorithm="ssgd", at="10.0", value=0.5, source="text", mark="fitted"),
              papers.Published(algorithm="ssgd", at="40.0", value=0.25, source="")]  # fmt: skip
    lines = table(figure.model_copy(update={"published": values}), run.rows(), "t").splitlines()
    ssgd = next(line for line in lines if line.startswith("| ssgd"))
    assert " [0.5, fitted] | " in ssgd
    assert ssgd.endswith(" [0.25] |")
    assert "in brackets: published" in lines[-1]
    elsewhere = figure.model_copy(update={"published": [values[0].model_copy(update={"at": "30"})]})
    with pytest.raises(AnalysisError, match=r"^published ssgd at 30: no such entry in a table of one column$"):
        table(elsewhere, run.rows(), "t")


def test_every_combination_of_several_axes_is_a_line_with_a_column_for_each_algorithm(tmp_path):
    from wanbench.harness.api import run
    from wanbench.harness.spec.experiment import Spec

    swept = SPEC.replace("rtt = [", 'collective = ["direct", "ring"], rtt = [')
    rows = run(Spec.from_toml(swept, "t"), out=tmp_path, figures=False).rows()
    figure = papers.PaperFigure(name="f", kind="table", run="t", columns=["step_time_s"])
    lines = table(figure, rows, "t").splitlines()
    times = {(row["collective"], row["axes"].get("rtt"), row["algorithm"]): row["step_time_s"] for row in rows}
    assert lines[2] == "| collective | rtt | ssgd | dts-d4-p2 |"
    assert lines[4:8] == [
        f"| {by} | {rtt} | {times[by, rtt, 'ssgd']:.3f} | {times[by, rtt, 'dts-d4-p2']:.3f} |"
        for by, rtt in itertools.product(("direct", "ring"), ("10ms", "40ms"))
    ]
    with pytest.raises(AnalysisError, match="several columns at several places"):
        table(figure.model_copy(update={"columns": ["step_time_s", "scalability"]}), rows, "t")


def test_the_published_values_of_another_figure_are_those_of_its_own_algorithms():
    one = '{ algorithm = "ssgd", at = "10.0", value = 0.5, source = "a" }'
    two = '{ algorithm = "dts-d4-p2", at = "10.0", value = 0.9, source = "b" }'
    text = re.sub(r"published = .*", f"published = [{one}, {two}]", SET)
    own = text.replace(
        'columns = ["scalability"]', 'columns = ["scalability"]\nalgorithms = ["dts-*"]\npublished_in = "speed"'
    )
    assert [each.value for each in papers.parse("p", own).figures[2].published] == [0.9]


# The same text has more room on a page than in a column.
@pytest.mark.parametrize("width_in", [pytest.param(PAGE_IN, marks=pytest.mark.long), COLUMN_IN])
@pytest.mark.parametrize("name", papers.names())
def test_no_text_overlaps_or_is_cut_in_any_committed_figure(name, width_in):
    paper = papers.load(name)
    for figure in paper.figures:
        if figure.kind not in {"table", "equivalence"}:
            assert_nothing_overlaps(drawing._drawing(figure, paper, drawing._source(figure, REFERENCE)).draw(width_in))


def test_every_paper_names_experiments_that_exist():
    for name in papers.names():
        assert set(papers.load(name).runs) <= set(builtin_names())


def test_an_unknown_paper_is_answered_with_the_known_ones(tmp_path):
    (tmp_path / "results" / "reference").mkdir(parents=True)
    known = ", ".join(papers.names())
    message = f"wanbench: paper 'dtss': not known; expected one of {known}, or all"
    assert refused("figures", "--paper", "dtss") == message
    assert refused("figures", "--check") == "wanbench: --check: needs --paper"
