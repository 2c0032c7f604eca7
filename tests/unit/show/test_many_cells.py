"""Drawing a run, and its page, take a time in proportion to its cells."""

from __future__ import annotations

import struct

import synthetic_rows
from many_repetitions import finished, growth, instructions
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from written_run import write_run

from wanbench.harness.analysis.summary import frame, pivots
from wanbench.harness.show.figures import layout
from wanbench.harness.show.figures.bars import step_time
from wanbench.harness.show.figures.drawing import save
from wanbench.harness.show.report import cells, content


def test_the_page_finds_the_repetitions_of_a_cell_without_going_through_those_of_others(tmp_path, monkeypatch):
    monkeypatch.setattr(content, "_figures", lambda *_: {"figures": [], "figures_left": 0})

    def page(folder, _made):
        return content.content_of(folder, folder.path / "report.html")

    assert growth(page, tmp_path, 20, 80, lambda: instructions(cells), before=finished) < 1.2


def test_all_bars_of_a_panel_are_drawn_in_one_call_and_each_text_is_measured_once(monkeypatch):
    (pivot,) = pivots(frame(synthetic_rows.latency_sweep()))
    drawn, measured, bars, path = [], [], Axes.barh, layout.TextPath
    monkeypatch.setattr(Axes, "barh", lambda *a, **k: (drawn.append(a), bars(*a, **k))[1])
    monkeypatch.setattr(layout, "TextPath", lambda at, text, **k: (measured.append(text), path(at, text, **k))[1])
    layout.text_in.cache_clear()
    step_time(pivot, "t")
    assert len(drawn) == len(pivot.columns)
    assert len(measured) == len(set(measured)) > 0


def test_only_the_failures_that_the_page_shows_are_looked_for(tmp_path, monkeypatch):
    looked, real = [], content._failure_of
    monkeypatch.setattr(content, "_failure_of", lambda *each: (looked.append(each), real(*each))[1])
    lost = [{**row, "status": "failed", "reason": "died"} for row in synthetic_rows.latency_sweep()]
    found = content.content_of(write_run(tmp_path / "t", lost), tmp_path / "t" / "report.html")
    assert len(looked) == len(found.failures) < len(lost)
    assert found.failures_left == len(lost) - len(found.failures)


def test_the_page_leaves_bars_out_that_nobody_could_read_and_says_so(tmp_path, monkeypatch):
    folder = write_run(tmp_path / "t", synthetic_rows.latency_sweep(reps=1))
    bars = len(synthetic_rows.RTTS_MS) * len(synthetic_rows.ALGORITHMS)
    for most, titles in ((bars, {"Scalability", "Where a step's time goes"}), (bars - 1, {"Scalability"})):
        monkeypatch.setattr(content, "_MOST_BARS", most)
        found = content.content_of(folder, tmp_path / "t" / "report.html")
        assert {figure["title"].partition(":")[0] for figure in found.figures} == titles
        assert found.figures_left == 2 - len(titles)


def test_a_picture_of_a_hundred_panels_fits_into_memory(tmp_path):
    picture = save(Figure(figsize=(0.5, 400)), tmp_path / "tall.png").read_bytes()
    width, height = struct.unpack(">II", picture[16:24])
    assert (width, height) == (37, 30_000)
