"""A history as table, figure and page: what changed comes first, and text from files stays text."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
from legible import assert_nothing_overlaps
from made_outcomes import commit, outcomes

from wanbench.harness.analysis.history import follow
from wanbench.harness.show.figures.history import MOST, draw, drawing, points
from wanbench.harness.show.figures.style import COLUMN_IN, PAGE_IN, save
from wanbench.harness.show.history_table import MOST as MOST_LINES
from wanbench.harness.show.history_table import as_text, finding, percent
from wanbench.harness.show.report.history import page, write_history

CELL = "ssgd w4 20ms"
EVIL = '<img src=x onerror="alert(1)"></script><script>alert(2)</script>'


def noisy(shape, seed=0):
    return [float(v) for v in shape * (1 + 0.02 * np.random.default_rng(seed).standard_normal(len(shape)))]


def measured():
    """Return a history with a loss, a change that was taken back, a drift and a cell that did not change."""
    at = np.arange(60)
    shapes = {
        "dts-d4-p4 w4 100ms": np.where(at < 40, 0.95, 0.8),
        "dts-d20-p4 w4 100ms": np.where((at >= 20) & (at < 30), 0.7, 0.9),
        "sparse-p4 w4 100ms": np.linspace(0.7, 0.5, 60),
        CELL: np.full(60, 0.3),
    }
    made = outcomes({name: noisy(shape, seed) for seed, (name, shape) in enumerate(shapes.items())})
    return follow(made, "scalability")


def simulated(count=2, factor=0.5):
    cells = {f"ssgd w{number}": [1.0, 1.0, factor * (1 + number / 100), 1.0] for number in range(2, 2 + count)}
    return follow(outcomes(cells, testbed="virtual"), "scalability")


# ---------------------------------------------------------------- table


def test_each_change_has_its_interval_and_drifts_come_last():
    text = as_text(measured())
    sections = re.findall(r"^(\w{9})  2026-\d\d-\d\d  (Change number \d+)$", text, re.MULTILINE)
    assert sections == [(commit(at)[:9], f"Change number {at}") for at in (20, 30, 40)]
    assert text.index("drifts, which no commit explains") > text.index("Change number 40")
    assert re.search(r"^dts-d4-p4 w4 100ms +0\.9\d+ +0\.8\d* +-1\d\.\d % +\[-1\d\.\d, -1\d\.\d\] +0\.\d+ ", text, re.M)
    assert text.endswith(
        "note: a change is significant up to p = 0.013: if no measured cell changed, the probability that any shows a "
        "change is 5 %\n"
    )


def test_the_headline_has_the_largest_loss_and_the_largest_gain():
    assert finding(simulated()) == (
        f"2 of 2 cells changed; largest loss -49.0 % at {commit(2)[:9]} (ssgd w2); "
        f"largest gain +96.1 % at {commit(3)[:9]} (ssgd w2)"
    )
    assert finding(follow(outcomes({CELL: [1.0]}, testbed="virtual"), "scalability")) == "No change in 1 cell"


def test_many_cells_of_one_commit_are_counted():
    text = as_text(simulated(MOST_LINES + 5))
    assert text.count("... and 5 more; --json has all") == 2


def test_cells_with_few_values_are_said_to_be_undecided():
    text = as_text(follow(outcomes({CELL: [1.0, 1.0, 0.1, 0.1]}), "scalability"))
    assert "No change in 1 cell." in text
    assert "note: 1 cell cannot show a change before 9 commits" in text


@pytest.mark.parametrize(
    ("change", "text"), [(0.123, "+12.3 %"), (-0.0001, "-0.01 %"), (-1e-9, "< 0.001 %"), (None, "-")]
)
def test_a_change_has_digits_that_suit_its_size(change, text):
    assert percent(change) == text


def test_outcomes_of_unknown_commits_are_numbered():
    made = [each.model_copy(update={"commit": None, "subject": None}) for each in outcomes({CELL: [1.0, 0.5]},
            testbed="virtual")]  # fmt: skip
    assert "#1..#2" in as_text(follow(made, "scalability"))


# ---------------------------------------------------------------- figure


@pytest.mark.parametrize("width_in", [PAGE_IN, COLUMN_IN])
@pytest.mark.parametrize("history", [measured, simulated, lambda: simulated(20), lambda: simulated(3, 0.999)])
def test_every_text_of_the_figure_can_be_read(width_in, history):
    assert_nothing_overlaps(draw(history(), width_in))


def test_only_cells_that_changed_have_a_panel_and_the_largest_change_is_first():
    titles = [axes.get_title(loc="left") for axes in draw(measured()).axes]
    assert CELL not in titles
    assert titles[:2] == ["dts-d20-p4 w4 100ms", "sparse-p4 w4 100ms"]
    assert len(draw(simulated(20)).axes) == MOST


def test_the_caption_names_commits_and_their_subjects():
    caption = " ".join(text.get_text().replace("\n", " ") for text in draw(measured()).figure.texts)
    assert f"a: {commit(20)[:9]} Change number 20; b: {commit(30)[:9]} Change number 30" in caption
    assert "intervals of the levels" in caption


def test_a_history_without_a_change_has_a_figure_too():
    figure = draw(follow(outcomes({CELL: [1.0]}, testbed="virtual"), "scalability"))
    assert [axes.get_title(loc="left") for axes in figure.axes] == [CELL]


def test_equal_histories_are_equal_bytes(tmp_path):
    for name in ("a", "b"):
        save(drawing(measured()).draw(PAGE_IN), tmp_path / f"{name}.svg")
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


def test_each_value_is_a_point_with_its_level():
    found = points(simulated(1))
    assert [point["level"] for point in found] == [1.0, 1.0, 0.51, 1.0]
    assert found[0]["commit"] == commit(0)


# ---------------------------------------------------------------- page


def test_the_page_shows_each_change_with_its_commit_and_loads_nothing(tmp_path):
    text = write_history(measured(), tmp_path / "new" / "history.html").read_text()
    for subject in ("Change number 20", "Change number 40", "Drifts, which no commit explains"):
        assert subject in text
    assert not re.findall(r'\b(?:src|href)="(?!#|data:,)', text.replace("xlink:href", ""))


def test_the_cells_of_a_commit_beyond_the_first_are_folded():
    assert "<summary>8 more cells</summary>" in page(simulated(20))


def test_programs_can_read_the_values_of_the_page():
    data = re.search(r'<script type="application/json" id="results">(.*?)</script>', page(simulated(1)), re.DOTALL)
    found = json.loads(data[1])
    assert [row[found["columns"].index("scalability")] for row in found["rows"]] == [1.0, 1.0, 0.51, 1.0]


def test_text_from_files_never_becomes_markup():
    made = [
        each.model_copy(update={"subject": EVIL, "experiment": EVIL})
        for each in outcomes({f"{EVIL} w4": [1.0, 0.5]}, testbed="virtual")
    ]
    text = page(follow(made, "scalability"))
    assert "<img" not in text
    assert text.count("<script") == 2
