"""Names beside curves, and titles that state a finding, are computed from the data drawn."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import synthetic_rows
from matplotlib.figure import Figure

from wanbench.harness.analysis.summary import frame, pivots
from wanbench.harness.show.figures.caption import speed, unclear, waiting
from wanbench.harness.show.figures.curves import scalability_by_rtt
from wanbench.harness.show.figures.layout import End, label_ends, spread
from wanbench.harness.show.figures.names import human
from wanbench.harness.text import percent


def test_labels_stay_in_place_if_there_is_room_and_never_overlap():
    assert spread([0.5, 1.5], [0.2, 0.2], 2.0) == pytest.approx([0.5, 1.5])
    assert spread([1.0, 1.0, 1.0], [0.2, 0.2, 0.2], 2.0) == pytest.approx([0.8, 1.0, 1.2])
    assert spread([1.95, 2.0], [0.2, 0.2], 2.0) == pytest.approx([1.7, 1.9])


def test_a_line_that_ends_early_says_where_and_is_not_counted_among_those_that_go_on():
    rows = [row for row in synthetic_rows.latency_sweep() if row["algorithm"] != "ssgd"]
    for row in rows:
        if row["algorithm"] == "dts-d20-p4" and row["rtt_ms"] == 1000.0:
            row.update(status="invalid", step_time_s=None, scalability=None)
        elif row["workers"] != 1:
            row["step_time_s"] = 0.31
    (pivot,) = pivots(frame(rows))
    texts = [text.get_text() for text in scalability_by_rtt(pivot, "a run").axes[0].texts]
    (early,) = [text for text in texts if "ends at" in text]
    assert early == "DTS d20 p4\nends at 500 ms"
    others = len(pivot.algorithms) - 1
    assert any(text.startswith(f"{others} curves at ") for text in texts)


def test_a_title_states_what_is_drawn():
    rows = synthetic_rows.latency_sweep()
    (pivot,) = pivots(frame(rows))
    kept = percent(pivot.lines["ssgd", 500.0]["scalability"])
    found = speed(pivot)
    assert found is not None
    assert found.startswith(f"At 500 ms, SSGD keeps {kept} of its speed; ")
    assert (waiting(pivot) or "").startswith("At 500 ms, SSGD waits ")
    for row in rows:
        row["fastest_step_time_s"] = 0.1  # machines differ
    assert (waiting(pivots(frame(rows))[0]) or "").endswith(" (slowest worker)")
    assert (
        speed(pivots(frame([row for row in rows if row["workers"] != 1 and not row.update(scalability=None)]))[0])
        is None
    )


def test_cells_whose_repetitions_overlap_are_not_ranked():
    slow, near, far = ({"goodput_min": low, "goodput_max": high} for low, high in ((0.6, 0.8), (0.7, 0.9), (0.81, 0.9)))
    assert unclear(slow, near, "goodput") == unclear(near, slow, "goodput") == ": no clear difference"
    assert unclear(slow, far, "goodput") == unclear(far, slow, "goodput") == ""


def test_testbeds_that_agree_share_a_title():
    rows = [
        {**row, "testbed": testbed, "emulator": emulator, "cell": f"{row['cell']} {testbed}"}
        for row in synthetic_rows.latency_sweep()
        if row["rtt_ms"] in (None, 100.0) and row["algorithm"] in {"one-worker", "ssgd", "delayed-d4"}
        for testbed, emulator in (("docker", "netem"), ("netns", "relay"))
    ]
    (pivot,) = pivots(frame(rows))
    assert (speed(pivot) or "").startswith("Containers and processes agree within 0 %: SSGD keeps ")
    for row in rows:
        if row["testbed"] == "netns" and row["algorithm"] == "ssgd":
            row["step_time_s"] *= 1.1
    (pivot,) = pivots(frame(rows))
    assert (speed(pivot) or "").startswith("On processes (netns), SSGD keeps ")


@pytest.mark.parametrize(
    ("share", "text"), [(0.364, "36 %"), (0.008, "0.8 %"), (0.0, "0 %"), (0.996, "100 %"), (math.nan, "-")]
)
def test_a_share_has_enough_digits(share, text):
    assert percent(share) == text


def test_an_algorithm_is_named_by_its_family_its_settings_and_its_compression_in_words():
    topk = {"delay": 20, "period": 20, "compression": {"kind": "topk", "ratio": 0.01}}
    assert human("topk-d20-p20-topk", "dts", topk) == "DTS d20 p20, top-k 1 %"
    assert human("olco3-s4-p4-signsgd", "olco3", {"staleness": 4, "period": 4, "compression": "signsgd"}) == (
        "OLCO3 s4 p4, signSGD"
    )
    assert (
        human("olco3-s1-topk-r0.1", "olco3", {"compression": {"kind": "topk", "ratio": 0.1}}) == "OLCO3 s1, top-k 10 %"
    )
    assert human("eager-diloco-p2-o0.4", "eager-diloco", {"outer_lr": 0.4}) == "eager DiLoCo p2 o0.4"
    assert human("ssgd", "ssgd", {}) == "SSGD"
    assert human("mine", "dts", {"delay": 4}) == "mine", "a user's name stays"


def test_curves_that_end_together_share_a_label_with_the_values_of_the_lowest_and_the_highest():
    axes = Figure(figsize=(4, 2)).add_axes((0.1, 0.1, 0.5, 0.8))
    axes.set(xlim=(0, 1), ylim=(98, 99))
    heights = (98.10, 98.112, 98.123, 98.5, 98.9, 98.9)
    ends = [End(f"c{index}", {"color": "red"}, 1.0, y, f"{y:.1f} %") for index, y in enumerate(heights)]
    label_ends(axes, [*ends, End("early", {}, 0.2, 98.3, "98.3 %", at="0.2")], (2.0, 1.6))
    texts = [text.get_text() for text in axes.texts]
    assert [text for text in texts if "curves" in text] == ["3 curves at 98.1 %", "2 curves at 98.9 %"]
    near = [replace(end, value=f"{end.y:.2f} %") for end in ends[:3]]
    label_ends(axes, near, (2.0, 1.6))
    assert "3 curves at 98.10–98.12 %" in [text.get_text() for text in axes.texts]


def test_lines_to_labels_are_outside_of_the_data_and_a_curve_that_ends_early_has_none():
    axes = Figure(figsize=(4, 2)).add_axes((0.1, 0.1, 0.5, 0.8))
    axes.set(xlim=(0, 1), ylim=(0, 1))
    label_ends(axes, [End("whole", {}, 1.0, 0.2, "0.2"), End("early", {}, 0.3, 0.8, "0.8", at="0.3")], (2.0, 1.6))
    leaders = [line.get_xdata() for line in axes.lines if line.get_markevery() is None]
    assert len(leaders) == 1
    assert min(leaders[0]) == 1.0, "in units of the axes"
