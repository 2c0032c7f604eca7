"""The page of a run: its first lines, the repetitions it leaves out, and text from files never becoming markup."""

from __future__ import annotations

import html.parser
import itertools
import json
import re

import pytest
import synthetic_rows
from command_line import as_it_was, refused, wanbench  # noqa: F401  # the fixture is used by all
from on_relay import planned
from synthetic_rows import small_sweep
from written_run import MANIFEST, write_run

from wanbench.harness.analysis.best import networks
from wanbench.harness.results.store import RunFolder
from wanbench.harness.show.report import page
from wanbench.harness.show.report.content import content_of

EVIL = '<img src=x onerror="alert(1)"></script><script>alert(2)</script>'


class Markup(html.parser.HTMLParser):
    """Collect tags, the text outside scripts and styles, and the resources that a page would load."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.text, self.loads, self._inside = [], "", [], ""
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self._inside = tag
        given = dict(attributes)
        self.loads += [given[name] for name in ("src", "data") if name in given]
        self.loads += [given["href"]] if tag == "link" else []

    def handle_data(self, data):
        if self._inside not in {"script", "style"}:
            self.text += data


def report(tmp_path, rows, **more):
    folder = write_run(tmp_path / "t", rows, **more)
    return page(folder, folder.path / "report.html")


@pytest.mark.parametrize(("scale", "text"), [(0.01, "1 MB (100 MB unscaled)"), (1.0, "100 MB")])
def test_bytes_are_those_sent_and_those_of_the_workload(tmp_path, scale, text):
    sent = {"payload_scale": scale, "payload_bytes": round(4 * 23 * 100e6 * scale), "steps_total": 23}
    folder = write_run(tmp_path / "t", small_sweep(**sent))
    content = content_of(folder, folder.path / "report.html")
    assert {row["sent"] for row in content.best} == {text}
    assert text in {entry for line in content.lines for entry, _ in line["entries"]}
    assert ("payload scale" in dict(content.facts)) == (scale != 1)


def test_the_best_algorithm_on_every_network_comes_first(tmp_path):
    folder = write_run(tmp_path / "t", small_sweep())
    content = content_of(folder, folder.path / "report.html")
    assert [row["where"] for row in content.best] == ["RTT 0 ms", "RTT 100 ms", "RTT 1000 ms"]
    assert {row["best"] for row in content.best} == {"dts-d20-p4"}
    assert content.headline == "dts-d20-p4 is fastest on all 3 networks (emulated)."
    assert content.best[0]["params"] == "delay = 20, period = 4"
    assert content.best[0]["accuracy"] == "not measured"


def test_an_algorithm_that_is_too_inaccurate_is_not_called_best(tmp_path):
    rows = small_sweep()
    for row in rows:
        row["accuracy"] = {"ssgd": 0.95, "dts-d20-p4": 0.90}.get(row["algorithm"])
    folder = write_run(tmp_path / "t", rows)
    content = content_of(folder, folder.path / "report.html")
    assert {row["best"] for row in content.best} == {"ssgd"}
    assert content.headline.startswith("ssgd is the fastest within 2 points of ssgd's accuracy on all 3 networks")
    assert content.best_note.endswith("Left out where they are more than 2 points less accurate than ssgd: dts-d20-p4.")


def test_the_time_to_target_is_beside_the_best_algorithm_and_in_the_table(tmp_path):
    folder = write_run(tmp_path / "t", [{**row, "time_to_target_s": 12.345} for row in small_sweep()])
    content = content_of(folder, folder.path / "report.html")
    assert {row["target"] for row in content.best} == {"12.3 s"}
    assert {"12.35"} == {entry for line in content.lines for entry, sort in line["entries"] if sort == 12.345}


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    """Return the page of a small run."""
    return report(tmp_path_factory.mktemp("page"), small_sweep())


def test_the_page_loads_nothing_and_is_complete(text):
    seen = Markup(text)
    assert seen.loads == ["data:,"]
    assert "@import" not in text
    assert "url(http" not in text
    for section in ("best", "figures", "cells", "findings", "failures", "environment", "spec", "raw"):
        assert f'<section id="{section}"' in text
    assert seen.tags.count("svg") == 2 + 2  # the figures, and a piece of each algorithm's curve beside its name
    assert seen.tags.count("tr") == 1 + 3 + 1 + 7


def test_every_point_of_a_curve_has_a_tooltip(text):
    assert len(re.findall(r'<circle class="hit"[^>]* aria-label="ssgd, RTT [^"]* ms: scalability', text)) == 3


def test_ids_are_unique_and_references_resolve(text):
    ids = re.findall(r'\bid="([^"]+)"', text)
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'(?:href="#|url\(#)([^")]+)', text)) <= set(ids)


def test_values_from_a_file_are_text_and_never_markup(tmp_path):
    rows, fields = small_sweep(), ("algorithm", "reason", "workload", "profile", "tcp", "cell")
    for row in [row for row in rows if row["algorithm"] == "ssgd"]:
        row["status"] = "failed" if row["rep"] == 0 else "ok"
        for field in fields:
            row[field] = EVIL.replace("alert(1)", f"alert('{field}')")
        row["cell"] = row["cell"].replace("/", "∕") + f"-{row['rtt_ms']}"
    text = report(tmp_path, rows, log_tail=(EVIL,))
    seen = Markup(text)
    assert "img" not in seen.tags
    assert seen.tags.count("script") == 3
    told = seen.text + json.dumps(json.loads(re.search(r'id="results">(.*?)</script>', text)[1]))
    assert [field for field in fields if f"alert('{field}')" not in told] == []


def test_spec_log_and_manifest_are_never_markup(tmp_path):
    rows = small_sweep()
    rows[-1].update(status="failed", reason="it broke")
    folder = write_run(tmp_path / "t", rows, log_tail=(EVIL, "the end"))
    (folder.path / "spec.toml").write_text(EVIL)
    (folder.path / "manifest.json").write_text(json.dumps({**MANIFEST, EVIL: EVIL}))
    text = page(folder, folder.path / "report.html")
    assert "img" not in Markup(text).tags
    assert "the end" in text


def test_failed_and_invalid_repetitions_are_listed_with_their_logs_and_left_out_of_figures(tmp_path):
    rows = small_sweep()
    for row in rows:
        if row["algorithm"] == "ssgd" and row["rtt_ms"] == 100.0:
            row.update(status="failed", reason="worker 3 died", step_time_s=None, scalability=None)
    next(row for row in rows if row["algorithm"] == "dts-d20-p4").update(status="invalid", reason="packets were late")
    text = report(tmp_path, rows, log_tail=("Traceback", "ValueError: no"))
    assert "worker 3 died" in text
    assert "packets were late" in text
    assert "ValueError: no" in text
    shown = " ".join(Markup(text).text.split())
    assert "1 cell failed or invalid; left out: 1 failed or invalid repetition" in shown


def test_a_run_without_a_valid_repetition_has_a_message_and_no_axes(tmp_path):
    rows = [{**row, "status": "failed", "reason": "no", "step_time_s": None} for row in small_sweep()]
    text = report(tmp_path, rows)
    assert "No repetition is valid, so there is nothing to compare." in text
    assert "<svg" not in text
    assert "There is nothing to draw yet." in text


@pytest.mark.parametrize(
    ("change", "reason"), [({"testbed": "virtual"}, "simulated"), ({"status": "invalid"}, "no repetition is valid")]
)
def test_a_rule_that_does_not_apply_is_not_kept(tmp_path, change, reason):
    rows = [
        {**row, **change, "reason": "paused" if "status" in change else None} for row in synthetic_rows.small_sweep()
    ]
    text = " ".join(Markup(report(tmp_path, rows)).text.split())
    assert f"- fidelity: Not applicable: {reason}." in text
    assert "ok fidelity" not in text


def test_a_run_without_repetitions_has_a_page(tmp_path):
    text = report(tmp_path, [])
    assert "No results yet." in text
    assert "No cell has a result yet." in text


NO_RESULTS = {
    "{": "not JSON (Expecting property name enclosed in double quotes: line 1 column 2 (char 1))",
    "[]": "expected an object",
    '{"status": "ok", "step_time_s": "fast"}': "rep: missing",
}


def test_files_that_are_no_results_are_reported_and_left_out(tmp_path):
    folder = write_run(tmp_path / "results" / "t", small_sweep())
    problems = set()
    files = sorted(folder.path.glob("cells/ssgd*/rep-1/result.json"))
    for path, (content, message) in zip(files, NO_RESULTS.items(), strict=False):
        path.write_text(content)
        problems.add(f"{path.relative_to(folder.path)}: not a result, so not finished: {message}")
    assert len(problems) == 3
    assert problems <= set(content_of(folder, folder.path / "report.html").unreadable)
    result = wanbench("report", "t")
    assert set(result.stderr.splitlines()) == {f"wanbench: results/t/{problem}" for problem in problems}
    assert result.stdout == "results/t/report.html\n"


def test_the_page_of_a_users_program_has_a_best_algorithm_and_no_law(tmp_path):
    rows = small_sweep(synthetic_rows.command_sweep(reps=2))
    folder = write_run(tmp_path / "own", rows)
    content = content_of(folder, folder.path / "report.html")
    freshest = [min(network.as_fast, key=lambda s: s.staleness).algorithm for network in networks(rows)]
    assert [row["best"] for row in content.best] == freshest
    assert {row["sent"] for row in content.best} == {"-"}
    titles = [figure["title"] for figure in content.figures]
    assert titles == ["Scalability: train.py", "Where a step's time goes: train.py"]
    text = page(folder, folder.path / "report.html")
    assert "step-time law" not in "".join(figure["svg"] for figure in content.figures)
    assert "nan" not in Markup(text).text.lower()


def test_the_page_of_diverged_training_holds_valid_json(tmp_path):
    rows = small_sweep()
    losses = itertools.cycle([float("inf"), float("nan")])
    folder = write_run(tmp_path / "t", [{**row, "final_loss": loss} for row, loss in zip(rows, losses, strict=False)])
    text = page(folder, folder.path / "report.html")
    data = re.findall(r'<script type="application/json"[^>]*>(.*?)</script>', text, re.DOTALL)

    def refuse(name):
        raise AssertionError(name)

    found, view = (json.loads(each, parse_constant=refuse) for each in data)
    assert len(found["rows"]) == len(rows)
    assert len(view["cells"]) == 7


def test_results_of_another_schema_are_refused_in_one_line(tmp_path):
    folder = write_run(tmp_path / "results" / "t", small_sweep())
    (folder.path / "manifest.json").write_text(json.dumps({**MANIFEST, "schema": 0}))
    message = (
        "wanbench: results/t: the results have schema 0, but this wanbench reads schema 1; "
        "read them with the version that wrote them, or measure again with --fresh"
    )
    assert refused("report", "t") == refused("results", "t") == refused("report") == message


def test_truncated_evidence_removes_only_its_figure(tmp_path):
    from wanbench.harness.api import Run
    from wanbench.harness.run.together import measure_all
    from wanbench.harness.spec.experiment import Spec

    text = """
schema = 1
name = "t"
workload = { params = 1000, step_time = "30ms" }
network = { rtt = "10ms", tcp = { congestion = "reno" } }
algorithms = { ssgd = {} }
sweep = { workers = [2] }
run = { testbed = "virtual", repeats = 1 }
"""
    folder = RunFolder(tmp_path / "t")
    measure_all(planned(Spec.from_toml(text, "t"), "t"), folder, draw=False)
    made = Run(folder)
    whole = made.report().read_text()
    for name in ("messages.parquet", "network.json"):
        for path in made.path.glob(f"cells/ssgd*/rep-0/{name}"):
            path.write_bytes(path.read_bytes()[:50])
    rest = made.report().read_text()
    assert (whole.count("<svg"), rest.count("<svg")) == (4, 2)
    assert "All checks passed (simulated results)." in rest


def test_the_page_of_an_exec_run_lists_its_files(tmp_path):
    folder = write_run(tmp_path / "t", [])
    (folder.path / "result.json").write_text("{}")
    assert "A run of `wanbench exec`" in page(folder, folder.path / "report.html")


def test_links_to_raw_files_work_from_the_folder_of_the_page(tmp_path):
    folder = write_run(tmp_path / "runs" / "t", small_sweep())
    out = tmp_path / "pages" / "deep" / "t.html"
    assert wanbench("report", str(folder.path), "-o", str(out)).exit_code == 0
    links = re.findall(r'<a href="(\.\./[^"]+)"', out.read_text())
    assert len(links) > 10
    assert all((out.parent / link).exists() for link in links)


def test_the_page_is_the_same_whenever_it_is_written(tmp_path):
    folder = write_run(tmp_path / "t", small_sweep())
    path = folder.path / "report.html"
    assert page(folder, path) == page(folder, path)
