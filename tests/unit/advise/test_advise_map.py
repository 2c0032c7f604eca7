"""Step times between simulated networks, and the areas of a map."""

from __future__ import annotations

import csv
import math
import re
from collections import Counter
from pathlib import Path

import pytest

from wanbench.harness.advise.map import between, nearby, spaced
from wanbench.harness.show.figures.map import MapData, best_map, coverage, finding

REFERENCE = Path(__file__).resolve().parents[3] / "results" / "reference"
GRID = [(rtt_ms, mbit) for rtt_ms in (1.0, 10.0, 100.0) for mbit in (10.0, 100.0, 1000.0, 10_000.0)]


@pytest.mark.parametrize(
    "time",
    [
        lambda rtt_ms, mbit: 300 + 2 * rtt_ms + 9000 / mbit,  # one after the other
        lambda rtt_ms, mbit: max(300, 9000 / mbit),  # messages behind compute
        lambda rtt_ms, mbit: max(300, 40 * rtt_ms, 9000 / mbit),
    ],
)
def test_times_between_the_points_of_a_grid_are_exact_whether_parts_of_a_step_overlap_or_not(time):
    known = {place: time(*place) for place in GRID}
    for place in ((30.0, 70.0), (3.0, 20.0), (1.0, 10.0), (60.0, 5000.0)):
        assert between(known, *place) == pytest.approx(time(*place), rel=0.01)


def test_without_all_points_of_the_grid_nothing_is_known_between_them():
    assert between({}, 1.0, 10.0) == math.inf
    assert between(dict.fromkeys(GRID[1:], 1.0), 30.0, 70.0) == math.inf


def test_a_correction_is_exact_where_it_is_known_and_between_them_elsewhere():
    ratios = {(1.0, 10.0): 1.0, (100.0, 10.0): 2.0}
    assert nearby(ratios, 1.0, 10.0) == pytest.approx(1, abs=1e-3)
    assert nearby(ratios, 10.0, 10.0) == pytest.approx(1.5, abs=1e-3)
    assert nearby({}, 10.0, 10.0) == 1


def test_numbers_at_equal_ratios():
    assert spaced(1, 100, 3) == pytest.approx((1, 10, 100))


def test_each_area_has_its_name_and_the_legend_has_them_all():
    rtts, mbits = spaced(1, 400, 20), spaced(10, 10_000, 15)
    names = [["ssgd on direct" if rtt < 20 else "dts-d4-p4 on direct" for rtt in rtts] for _ in mbits]
    gains = [[1 + rtt / 10 for rtt in rtts] for _ in mbits]
    unknown = [[max(1.0, 100 / mbit) for _ in rtts] for mbit in mbits]
    kinds = {"ssgd on direct": "ssgd", "dts-d4-p4 on direct": "dts"}
    words = {"ssgd on direct": "SSGD on direct", "dts-d4-p4 on direct": "DTS d4 p4 on direct"}
    data = MapData(
        rtts, mbits, names, gains, unknown, kinds, words, (80.0, 1000.0), [(30.0, 100.0, True), (5.0, 50.0, False)]
    )
    figure = best_map(data)
    (axes,) = figure.axes
    inside = {text.get_text() for text in axes.texts}
    (legend,) = figure.legends
    listed = {text.get_text() for text in legend.get_texts()}
    assert {*words.values()} <= inside
    assert {
        *words.values(),
        "your network",
        "emulated: another is faster",
        "a faster setting is not known to be accurate",
    } <= listed


def a_map(**changed):
    names = [["ssgd", "dts", "dts"], ["powersgd", "dts", "ssgd"]]
    gains = [[1.0, 3.0, 10.44], [84.7, 2.0, 1.0]]
    unknown = [[1.0, 1.0, 1.0], [5.0, 1.05, 1.0]]
    kinds = {"ssgd": "ssgd", "dts": "dts", "powersgd": "ssgd"}
    words = {"ssgd": "SSGD", "dts": "DTS", "powersgd": "PowerSGD"}
    return MapData(
        **dict(
            zip(
                MapData.__annotations__,
                ([1.0, 10.0, 100.0], [10.0, 100.0], names, gains, unknown, kinds, words),
                strict=False,
            )
        )
        | changed
    )


def test_the_gain_in_the_title_is_that_of_the_setting_it_names():
    assert finding(a_map()) == "DTS is best on 50 % of the map, there at most 10.4 times as fast as SSGD"
    nowhere_faster = {"names": [["ssgd"] * 3] * 2, "gains": [[1.0] * 3] * 2}
    assert finding(a_map(**nowhere_faster, unknown=[[1.0] * 3] * 2)) == "SSGD is best on 100 % of the map"
    assert finding(a_map(**nowhere_faster)) == (
        "Only SSGD is known to be accurate; a setting of unknown accuracy would be up to 5 times as fast"
    )


def test_the_caption_says_what_is_hatched_and_which_settings_no_mark_emulates():
    assert coverage(a_map()) == "Hatched: 17 % of the map. Nothing is emulated."
    checks = [(9.0, 90.0, True), (1.0, 10.0, False)]
    assert coverage(a_map(checks=checks)) == (
        "Hatched: 17 % of the map. 1 of 2 marks agree; best somewhere, but emulated nowhere: PowerSGD."
    )
    everywhere = a_map(checks=[*checks, (1.0, 100.0, True)], unknown=[[1.0] * 3] * 2)
    assert coverage(everywhere) == "2 of 3 marks agree."


def drawn(name):
    """Return the texts of a recorded map, and the lines of its table."""
    with (REFERENCE / "map" / f"{name}.csv").open() as file:
        lines = list(csv.DictReader(file))
    texts = re.findall(r"<!-- (.*?) -->", (REFERENCE / "map" / f"{name}.svg").read_text())
    return " ".join(texts).replace("\u00a0", " "), lines


def test_the_sentences_of_the_recorded_maps_follow_from_their_tables():
    text, lines = drawn("resnet50")
    assert {line["best"] for line in lines} == {"ssgd on direct"}
    assert f"up to {max(float(line['unknown_over_best']) for line in lines):.3g} times as fast" in text
    text, lines = drawn("resnet50-like-mnist-cnn")
    best = Counter(line["best"] for line in lines).most_common(1)[0][0]
    gains = [float(line["gain_over_ssgd"]) for line in lines if line["best"] == best]
    assert f"{100 * len(gains) / len(lines):.0f} %" in text
    assert f"{max(gains):.3g} times" in text
