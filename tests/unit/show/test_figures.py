"""Figures: what they show, that nothing overlaps, and that equal rows give equal bytes."""

from __future__ import annotations

import gc
import hashlib
import os
import random
import re
import subprocess
import sys
from pathlib import Path

import matplotlib
import numpy as np
import pytest
import synthetic_rows
from legible import assert_nothing_overlaps
from matplotlib.colors import to_rgb
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure

from wanbench.harness.analysis.summary import AnalysisError, cells, frame, pivots
from wanbench.harness.plan.law import PredictInputs
from wanbench.harness.results.evidence import Evidence
from wanbench.harness.results.store import open_run
from wanbench.harness.show.figures import draw_all
from wanbench.harness.show.figures.bars import bar_look, scalability_bars, step_time
from wanbench.harness.show.figures.caption import caption, subject, titled
from wanbench.harness.show.figures.curves import scalability_by_rtt
from wanbench.harness.show.figures.drawing import save
from wanbench.harness.show.figures.gallery import gallery, whole
from wanbench.harness.show.figures.hover import inline_svg
from wanbench.harness.show.figures.layout import fitting, text_in
from wanbench.harness.show.figures.style import COLUMN_IN, PAGE_IN, PUBLISHED, SIMULATED, as_line, styles
from wanbench.workloads.algorithms.registry import BUILT_IN, kinds

LABELS = [(label, kind, params) for label, (kind, params) in synthetic_rows.ALGORITHMS.items()]


WIDTHS_IN = [pytest.param(PAGE_IN, marks=pytest.mark.long), COLUMN_IN]  # a narrow figure has less room


@pytest.fixture(scope="module")
def sweep():
    (pivot,) = pivots(frame(synthetic_rows.latency_sweep()))
    return pivot


@pytest.fixture(scope="module")
def profile_sweep():
    (pivot,) = pivots(frame(synthetic_rows.world4()))
    return pivot


def only(rows, algorithm):
    return [row for row in rows if row["algorithm"] in {"one-worker", algorithm}]


def test_the_main_algorithms_look_different_from_each_other():
    looks = styles(LABELS)
    assert len(set(looks.values())) == len(looks)
    assert len({str(look.marker) for look in looks.values()}) == len(looks)  # without colour, shapes distinguish them


def test_what_is_emulated_is_filled_and_solid_what_is_simulated_open_and_dashed_and_what_is_published_a_diamond():
    assert {(look["fillstyle"], look["linestyle"]) for look in map(as_line, styles(LABELS).values())} == {("full", "-")}
    for look in map(as_line, styles(LABELS, "simulated").values()):
        assert (look["fillstyle"], look["linestyle"]) == ("none", SIMULATED)
    markers = {str(look.marker) for look in styles([(kind, kind, {}) for kind in kinds()]).values()}
    assert PUBLISHED["marker"] == "D"
    assert not markers & {"D", "d"}
    filled, open_bar = (bar_look("red", "", network) for network in ("emulated", "simulated"))
    assert (filled["facecolor"], filled["linewidth"]) == ("red", 0)
    assert (open_bar["facecolor"], open_bar["edgecolor"], open_bar["linestyle"]) == ("white", "red", SIMULATED)


def test_a_family_has_its_colour_and_an_algorithm_its_look_in_every_run():
    alone = styles([("dts-d20-p4", "dts", {"delay": 20, "period": 4})])
    assert alone["dts-d20-p4"] == styles(LABELS)["dts-d20-p4"]
    assert styles(LABELS)["dts-d4-p4"].colour == BUILT_IN["dts"].colour


def test_a_compressed_setting_has_one_look_in_every_figure():
    topk = ("topk-d4-p4", "dts", {"delay": 4, "period": 4, "compression": {"kind": "topk", "ratio": 0.01}})
    (alone,) = styles([topk]).values()
    assert styles([*LABELS, topk])["topk-d4-p4"] == alone != styles(LABELS)["dts-d4-p4"]


def test_algorithms_of_one_family_and_size_still_differ():
    looks = styles([(f"dts-d4-p{period}", "dts", {"delay": 4, "period": period}) for period in (1, 2, 4)])
    assert len(set(looks.values())) == 3


def test_families_can_be_distinguished_in_colour_and_in_grey():
    families = [(kind, kind, {}) for kind in BUILT_IN]
    looks = styles(families)
    assert len({str(look.marker) for look in looks.values()}) == len(families)
    white = np.array([1.0, 1.0, 1.0])
    for kind, look in looks.items():
        assert np.abs(np.array(to_rgb(look.colour)) - white).max() > 0.25, kind


def test_all_algorithms_in_two_sizes_look_different_in_one_figure():
    looks = styles([(f"{kind}-{size}", kind, {"period": size}) for kind in list(BUILT_IN)[1:] for size in (4, 20)])
    assert len(set(looks.values())) == len(looks) == 2 * (len(BUILT_IN) - 1)


def test_a_users_algorithm_has_a_look():
    looks = styles([("mine", "my_pkg.sync:Mine", {"strength": 0.5}), *LABELS])
    assert len(set(looks.values())) == len(LABELS) + 1


def test_curves_pass_through_the_medians_and_bars_span_the_repetitions(sweep):
    figure = scalability_by_rtt(sweep, "latency-sweep")
    (axes,) = figure.axes
    medians = [sweep.lines[("ssgd", rtt_ms)]["scalability"] for rtt_ms in sweep.columns]
    assert any(np.array_equal(line.get_ydata(), medians) for line in axes.lines)
    assert len([each for each in axes.containers if isinstance(each, ErrorbarContainer)]) == 7


def test_a_single_repetition_has_no_error_bars():
    (pivot,) = pivots(frame(synthetic_rows.latency_sweep(reps=1)))
    (axes,) = scalability_by_rtt(pivot, "latency-sweep").axes
    assert not [each for each in axes.containers if isinstance(each, ErrorbarContainer)]
    assert "one repetition" in caption(pivot, "latency-sweep", "")


def test_the_line_of_the_law_goes_through_the_predictions_of_the_cells(sweep):
    (axes,) = scalability_by_rtt(sweep, "latency-sweep").axes
    drawn = [list(line.get_ydata()) for line in axes.lines]
    for label in sweep.algorithms:
        assert [sweep.lines[label, rtt_ms]["predicted_scalability"] for rtt_ms in sweep.columns] in drawn


def test_a_failed_cell_breaks_the_curve_and_is_counted_in_the_caption():
    rows = only(synthetic_rows.latency_sweep(), "ssgd")
    for row in rows:
        if row["rtt_ms"] == 200.0:
            row.update(status="failed", step_time_s=None, scalability=None)
    (pivot,) = pivots(frame(rows))
    (axes,) = scalability_by_rtt(pivot, "r").axes
    (curve,) = [line for line in axes.lines if line.get_marker() == "o" and len(line.get_xdata()) == 6]
    assert np.isnan(curve.get_ydata()).tolist() == [False, False, False, True, False, False]
    assert "1 cell failed or invalid" in caption(pivot, "r", "")


def test_zero_and_a_second_are_both_on_the_axis(sweep):
    (axes,) = scalability_by_rtt(sweep, "latency-sweep").axes
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["0", "20", "100", "200", "500", "1000"]
    low, high = axes.get_xlim()
    assert low < 0
    assert high > 1000


def test_stacks_add_up_to_the_step_time(sweep):
    figure = step_time(sweep, "latency-sweep")
    assert [axes.get_title(loc="left") for axes in figure.axes][:2] == ["RTT 0 ms", "RTT 20 ms"]
    ends = max(patch.get_x() + patch.get_width() for patch in figure.axes[-1].patches)
    assert ends == pytest.approx(sweep.lines[("ssgd", 1000.0)]["step_time_s"], rel=0.02)


def test_bars_are_as_long_as_the_medians(profile_sweep):
    figure = scalability_bars(profile_sweep, "world4")
    lengths = {round(patch.get_width(), 9) for axes in figure.axes for patch in axes.patches}
    assert lengths == {round(line["scalability"], 9) for line in profile_sweep.lines.values()}


def test_a_bar_without_a_number_shows_the_reason():
    rows = synthetic_rows.world4(reps=1)
    rows = [row for row in rows if (row["algorithm"], row["workers"]) != ("ssgd", 4)]
    for row in rows:
        if (row["algorithm"], row["workers"]) == ("sparse-p4", 8):
            row["status"] = "invalid"
    (pivot,) = pivots(frame(rows))
    panels = scalability_bars(pivot, "world4").axes
    assert {"not run", "invalid"} <= {text.get_text() for axes in panels for text in axes.texts}


def test_the_caption_states_the_conditions(sweep):
    assert caption(sweep, "latency-sweep", "thin lines: step-time law") == (
        "latency-sweep: network emulated by relay (testbed netns); 4 workers; resnet50-v100 with messages and rates "
        "× 0.01 (up to 1.0 MB per message); profile uniform at 100 Mbit/s per worker; direct all-reduce; TCP reno on "
        "tuned hosts; median of 3 repetitions, whiskers: minimum and maximum; thin lines: step-time law."
    )


def test_the_caption_has_the_step_times_of_machines_that_differ():
    rows = synthetic_rows.latency_sweep(reps=1)
    for row in rows:
        if row["workers"] == 4:
            row["law_inputs"] |= {"step_time_s": 1.71, "step_times_s": [0.3, 0.39, 0.78, 1.71]}
    (pivot,) = pivots(frame(rows))
    assert "(up to 1.0 MB per message) on workers of 300 to 1710 ms a step; profile" in caption(pivot, "uneven", None)


@pytest.mark.parametrize(
    ("bursts", "words"),
    [
        ([None], "loss 1 %;"),
        ([5.0], "loss 1 % in bursts of 5 packets;"),
        ([None, 5.0], "loss 1 % alone and in bursts of 5 packets;"),
    ],
)
def test_a_caption_says_that_losses_come_in_bursts(bursts, words):
    rows = synthetic_rows.latency_sweep(reps=1, loss_pct=1.0)
    rows = [{**row, "loss_burst": burst, "cell": f"{row['cell']}-{burst}"} for row in rows for burst in bursts]
    pivot = whole(cells(frame([row for row in rows if row["workers"] != 1])))
    assert words in caption(pivot, "r", None)


def test_a_figure_of_single_repetitions_has_no_median_in_its_caption(sweep):
    assert " reno on tuned hosts; marks." in caption(sweep, "r", "marks", middle="")


def test_a_simulation_is_named_in_subject_and_caption():
    rows = synthetic_rows.latency_sweep(reps=1, testbed="virtual", emulator=None)
    (pivot,) = pivots(frame(rows))
    assert "simulated network and clock" in caption(pivot, "latency-sweep", "")
    assert titled(pivot, "finding") == "finding\nresnet50-v100, direct all-reduce; simulated network"


def test_scaled_gloo_is_titled_by_its_true_message_size(sweep):
    (gloo,) = pivots(frame(synthetic_rows.latency_sweep(reps=1, collective="gloo")))
    assert subject(gloo) == "1.0 MB messages, gloo all-reduce"
    assert subject(sweep) == "resnet50-v100, direct all-reduce"


@pytest.mark.parametrize("width_in", WIDTHS_IN)
@pytest.mark.parametrize("draw", [scalability_by_rtt, step_time, scalability_bars])
def test_no_text_overlaps_or_is_cut(draw, width_in, sweep, profile_sweep):
    assert_nothing_overlaps(
        draw(profile_sweep if draw is scalability_bars else sweep, "a-run-with-a-long-name", width_in)
    )


@pytest.mark.parametrize("width_in", WIDTHS_IN)
@pytest.mark.parametrize("run", ["dts-learning", "dts-timeline"])
def test_no_text_overlaps_or_is_cut_in_figures_of_recorded_evidence(run, width_in):
    folder = open_run(run, Path(__file__).resolve().parents[3] / "results" / "reference")
    drawings = gallery(folder.rows(), run, Evidence(folder))
    assert {drawing.name for drawing in drawings} & {"pareto", "learning", "timeline", "network-world4"}
    for drawing in drawings:
        assert_nothing_overlaps(drawing.draw(width_in))


def test_both_collectives_of_a_run_share_a_figure(tmp_path):
    rows = synthetic_rows.latency_sweep(reps=1) + synthetic_rows.latency_sweep(reps=1, collective="gloo")
    paths = draw_all(only(rows, "ssgd"), "latency-sweep", tmp_path, ["png"])
    assert [path.name for path in paths] == [
        "scalability-by-rtt.png",
        "scalability-by-rtt-column.png",
        "step-time.png",
        "step-time-column.png",
    ]
    assert sorted(tmp_path.iterdir()) == sorted(paths)


def test_step_times_of_a_program_are_bars_of_each_setting_with_their_speed_up():
    """Scalability says little there: a step of one worker takes almost no time."""
    rows = [
        synthetic_rows.row(
            PredictInputs(4, 0.0, rtt_ms / 1e3, None, 1_000_000),
            0,
            algorithm=f"train-bucket{bucket}",
            kind="command:train",
            params={"bucket": bucket},
            axes={"bucket": bucket, "collective": collective},
            collective=collective,
            step_time_s=seconds,
            scalability=0.01,
            rtt_ms=rtt_ms,
            cell=f"{collective} {bucket} {rtt_ms}",
            cell_key=f"{collective} {bucket} {rtt_ms}",
            **dict.fromkeys(("compute_s", "stall_s", "overhead_s")),
        )
        for rtt_ms in (20.0, 100.0)
        for collective, bucket, seconds in (
            ("gloo", 1, rtt_ms / 10),
            ("gloo", 25, rtt_ms / 25),
            ("direct", 1, rtt_ms / 40),
            ("direct", 25, rtt_ms / 50),
        )
    ]
    (drawing,) = gallery(rows, "buckets", kind="speed")
    assert drawing.name == "step-time"
    figure = drawing.draw(PAGE_IN)
    texts = [text.get_text() for axes in figure.axes for text in axes.texts]
    assert texts[:4] == ["0.500   4×", "0.400   5×", "2.00   1×", "0.800   2.5×"]
    names = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert names == ["direct, bucket 1", "direct, bucket 25", "gloo, bucket 1", "gloo, bucket 25"]
    assert (
        figure.texts[0].get_text().startswith("At 20\u00a0ms, direct, bucket 25 is 5 times as fast as gloo, bucket 1")
    )
    assert_nothing_overlaps(figure)


def test_a_profile_sweep_is_drawn_as_bars(tmp_path):
    paths = draw_all(only(synthetic_rows.world4(reps=1), "ssgd"), "world4", tmp_path, ["svg"])
    assert {path.name for path in paths} == {
        "scalability.svg",
        "scalability-column.svg",
        "step-time.svg",
        "step-time-column.svg",
    }


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory):
    """Draw in another process; return the folder, and whether pyplot was imported."""
    folder = tmp_path_factory.mktemp("there")
    program = (
        "import pathlib, sys, synthetic_rows; from wanbench.harness.show.figures import draw_all;"
        "rows = [r for r in synthetic_rows.latency_sweep() if r['algorithm'] in {'one-worker', 'delayed-d4'}];"
        f"draw_all(rows, 'latency-sweep', pathlib.Path({str(folder)!r}));"
        "print('matplotlib.pyplot' in sys.modules)"
    )
    folders = os.pathsep.join([str(Path(__file__).resolve().parents[3]), str(Path(synthetic_rows.__file__).parent)])
    environment = {**os.environ, "PYTHONPATH": folders, "PYTHONHASHSEED": "7", "TZ": "Asia/Tokyo"}
    done = subprocess.run(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, check=True, env=environment
    )
    return folder, done.stdout


@pytest.mark.long  # `make check-figures` draws all committed figures in another process each time
def test_equal_rows_give_equal_bytes_in_every_process_and_order(elsewhere, tmp_path):
    rows = only(synthetic_rows.latency_sweep(), "delayed-d4")
    here = draw_all(random.Random(2).sample(rows, len(rows)), "latency-sweep", tmp_path)
    assert len(here) == 14
    for path in here:
        there = elsewhere[0] / path.name
        assert hashlib.sha256(path.read_bytes()).digest() == hashlib.sha256(there.read_bytes()).digest(), path.name


def test_a_users_matplotlib_settings_neither_matter_nor_change(sweep, tmp_path):
    plain = save(scalability_by_rtt(sweep, "r"), tmp_path / "plain.svg").read_bytes()
    with matplotlib.rc_context({"font.size": 30, "axes.grid": False, "svg.fonttype": "none"}):
        assert save(scalability_by_rtt(sweep, "r"), tmp_path / "loud.svg").read_bytes() == plain
        assert matplotlib.rcParams["font.size"] == 30


def test_pdf_fonts_are_embedded_as_truetype(sweep, tmp_path):
    content = save(scalability_by_rtt(sweep, "r"), tmp_path / "figure.pdf").read_bytes()
    assert b"/Type3" not in content
    assert b"/FontFile2" in content
    assert b"CreationDate" not in content


def test_notes_are_on_their_points_and_change_nothing_else(sweep, tmp_path):
    figure = scalability_by_rtt(sweep, "r")
    text = inline_svg(figure, "f0", "a figure")
    hits = re.findall(
        r'<circle class="hit" cx="([\d.]+)" cy="([\d.]+)"[^>]*aria-label="ssgd, RTT 100 ms: ([^"]*)"', text
    )
    ((left, top, note),) = hits
    line = sweep.lines["ssgd", 100.0]
    assert note == f"scalability {line['scalability']:.3f}, law {line['predicted_scalability']:.3f}"
    (axes,) = figure.axes
    x, y = axes.transData.transform((100.0, line["scalability"])) * 72 / figure.dpi
    assert (float(left), float(top)) == pytest.approx((x, figure.get_figheight() * 72 - y), abs=0.1)
    assert b"hit" not in save(figure, tmp_path / "plain.svg").read_bytes()


def test_repetitions_that_are_left_out_are_counted_in_the_caption():
    rows = only(synthetic_rows.latency_sweep(), "ssgd")
    rows[-1].update(status="invalid", reason="late")
    (pivot,) = pivots(frame(rows))
    assert "left out: 1 failed or invalid repetition;" in caption(pivot, "r", "marks")


def test_a_profile_is_captioned_with_its_round_trips(profile_sweep):
    assert "profile world4, median RTT 137 ms, longest 277 ms;" in caption(profile_sweep, "world4", "")


def test_a_run_without_a_valid_cell_has_nothing_to_draw(tmp_path):
    rows = [{**row, "status": "failed"} for row in only(synthetic_rows.latency_sweep(reps=1), "ssgd")]
    with pytest.raises(AnalysisError) as caught:
        draw_all(rows, "r", tmp_path)
    assert str(caught.value) == "no cell of more than one worker has a valid result yet; there is nothing to draw"
    assert not list(tmp_path.iterdir())


@pytest.mark.long  # draws in another process, as the test on equal bytes
def test_drawing_does_not_touch_pyplot(elsewhere):
    assert elsewhere[1] == "False\n"


def test_every_built_in_algorithm_has_its_own_look():
    assert len({built_in.marker for built_in in BUILT_IN.values()}) == len(BUILT_IN)


def test_a_figure_is_freed_after_it_was_drawn(tmp_path):
    def alive():
        gc.collect()
        return sum(issubclass(type(each), Figure) for each in gc.get_objects())

    rows = only(synthetic_rows.latency_sweep(), "ssgd")
    draw_all(rows, "one", tmp_path, formats=("svg",))
    before = alive()
    draw_all(rows, "two", tmp_path, formats=("svg",))
    assert alive() == before


@pytest.mark.parametrize("width_in", WIDTHS_IN)
def test_long_names_leave_room_for_the_axes(width_in):
    long = {"one-worker": "one-worker"}
    rows = [
        {**row, "algorithm": long.get(row["algorithm"], f"{row['algorithm']}-{'n' * 60}")}
        for row in synthetic_rows.latency_sweep(reps=1)
        if row["rtt_ms"] in (None, 0.0, 1000.0)
    ]
    (pivot,) = pivots(frame(rows))
    for draw in (scalability_bars, scalability_by_rtt, step_time):
        assert all(axes.get_position().width > 0.05 for axes in draw(pivot, "x", width_in).axes)


def test_a_long_name_loses_its_middle():
    assert fitting("short", 6.5, 1.0) == "short"
    shown = fitting("a" * 50 + "b" * 50, 6.5, 1.0)
    assert (shown[0], "…" in shown, shown[-1]) == ("a", True, "b")
    assert text_in(shown, 6.5) <= 1.0
