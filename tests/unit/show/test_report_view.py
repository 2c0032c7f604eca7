"""What the filters and the chart of a page can choose, and the map on a page."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace

import pytest
from synthetic_rows import small_sweep
from written_run import write_run

from wanbench.harness.errors import SpecError
from wanbench.harness.show.figures.map import MAP_FILE, MapData, read_map, write_map
from wanbench.harness.show.report import page
from wanbench.harness.show.report.content import content_of, map_on_page

RTTS, RATES = (10.0, 40.0, 160.0), (100.0, 1000.0)
MAP = MapData(
    RTTS,
    RATES,
    [["ssgd on direct", "dts", "dts"], ["ssgd on direct", "ssgd on direct", "dts"]],
    [[1.0, 2.0, 4.0], [1.0, 1.0, 3.0]],
    [[1.0, 1.0, 2.5], [1.0, 1.0, 1.0]],
    {"ssgd on direct": "ssgd", "dts": "dts"},
    {"ssgd on direct": "SSGD on direct", "dts": "DTS"},
    here=(38.0, 900.0),
    checks=[(40.0, 100.0, True)],
    subject="anything, 4 workers",
    caption="conditions",
)


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    folder = tmp_path_factory.mktemp("map")
    return folder, write_map(MAP, folder)


def view(tmp_path, rows):
    folder = write_run(tmp_path / "t", rows)
    return content_of(folder, folder.path / "report.html").view


def test_the_axes_are_the_algorithm_and_what_differs(tmp_path):
    found = view(tmp_path, small_sweep())
    assert [axis["name"] for axis in found["axes"]] == ["algorithm", "rtt_ms"]
    assert found["axes"][0]["values"] == ["ssgd", "dts-d20-p4"]
    assert found["axes"][1]["numbers"] == sorted(found["axes"][1]["numbers"])
    assert len(found["colours"]) == len(found["dashes"]) == 2


def test_each_cell_has_its_place_and_the_values_of_its_valid_repetitions(tmp_path):
    rows = small_sweep()
    for row in rows:
        if row["algorithm"] == "ssgd" and row["rtt_ms"] == 1000.0:
            row.update(status="failed", reason="gone", step_time_s=None, scalability=None)
    found = view(tmp_path, rows)
    assert [measure["name"] for measure in found["measures"][:2]] == ["scalability", "step_time_s"]
    step = [measure["name"] for measure in found["measures"]].index("step_time_s")
    mine = {(row["algorithm"], f"{row['rtt_ms']:g}"): row for row in rows if row["workers"] != 1}
    seen = set()
    for at, values in found["cells"]:
        if at is None:
            continue
        algorithm, rtt = (axis["values"][place] for axis, place in zip(found["axes"], at, strict=True))
        row = mine[algorithm, rtt]
        seen.add(row["status"])
        assert values[step][0] == (
            None if row["status"] == "failed" else pytest.approx(1e3 * row["step_time_s"], rel=0.05)
        )
    assert seen == {"ok", "failed"}


def test_without_a_valid_cell_there_is_nothing_to_choose(tmp_path):
    rows = [
        {**row, "status": "failed", "reason": "gone", "step_time_s": None, "scalability": None} for row in small_sweep()
    ]
    assert view(tmp_path, rows) is None


def test_a_stored_map_is_read_as_it_was_written(drawn):
    folder, written = drawn
    assert {path.suffix for path in written} == {".json", ".svg", ".pdf", ".png", ".csv"}
    assert read_map(folder) == replace(MAP, rtts_ms=list(RTTS), mbits=list(RATES))
    lines = (folder / "map.csv").read_text().splitlines()
    assert lines[0] == "rtt_ms,rate_mbit,best,gain_over_ssgd,unknown_over_best"
    assert len(lines) == 1 + len(RTTS) * len(RATES)


@pytest.mark.parametrize(
    "break_it",
    [
        lambda stored: "{",
        lambda stored: json.dumps(stored | {"schema": 2}),
        lambda stored: json.dumps(stored | {"best": [[0, 0, 0]]}),
        lambda stored: json.dumps(stored | {"best": [[0, 0, 9], [0, 0, 0]]}),
        lambda stored: json.dumps({key: value for key, value in stored.items() if key != "caption"}),
        lambda stored: json.dumps(stored | {"gain_over_ssgd": [[1, 2, None], [1, 1, 1]]}),
        lambda stored: json.dumps(stored | {"here": [0, 100]}),
        lambda stored: json.dumps(stored | {"rtts_ms": [1.0], "best": [[0], [0]]}),
        lambda stored: "[]",
    ],
)
def test_a_broken_map_is_one_line(drawn, tmp_path, break_it):
    (tmp_path / MAP_FILE).write_text(break_it(json.loads((drawn[0] / MAP_FILE).read_text())))
    with pytest.raises(SpecError, match=r"map\.json: not a map .*make it again with `wanbench map`"):
        map_on_page(tmp_path)


def test_a_broken_map_costs_the_page_nothing_else(tmp_path):
    folder = write_run(tmp_path / "t", small_sweep())
    (folder.path / MAP_FILE).write_text("{")
    content = content_of(folder, folder.path / "report.html")
    assert content.map is None
    assert any("not a map" in line for line in content.unreadable)
    assert content.lines


def test_the_page_begins_at_the_users_network_and_its_corners_are_grid_points(drawn):
    found = map_on_page(drawn[0])
    assert (found["column"], found["row"]) == (1, 1)
    assert found["data"]["names"][found["data"]["best"][1 * len(RTTS) + 1]] == "SSGD on direct"
    left, lower, right, upper = found["data"]["corners"]
    assert 0 < left < right
    assert 0 < upper < lower


def test_a_page_without_a_map_has_none_and_one_with_a_map_has_its_sliders(drawn, tmp_path):
    folder = write_run(tmp_path / "t", small_sweep())
    assert 'id="map-rtt"' not in page(folder, folder.path / "report.html")
    shutil.copy(drawn[0] / MAP_FILE, folder.path)
    text = page(folder, folder.path / "report.html")
    assert re.search(r'id="map-rtt"[^>]*max="2" value="1"', text)
    assert "SSGD on direct is best on 50 % of the map" in text
