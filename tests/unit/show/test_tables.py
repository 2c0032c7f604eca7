"""Results as text."""

from __future__ import annotations

import csv
import io
import json
import math

import pandas as pd
import pytest
import synthetic_rows

from wanbench.harness.results.columns import SHOWN
from wanbench.harness.show.best import best_text
from wanbench.harness.show.tables import as_table, objects_as_csv, render, write_parquet
from wanbench.harness.text import sent, size

WIDE = 250


@pytest.fixture
def rows():
    """Return rows of two algorithms and three round-trip times: one cell failed, one is invalid, one was not run."""
    kept = [
        row
        for row in synthetic_rows.latency_sweep(reps=2)
        if row["algorithm"] in {"one-worker", "ssgd", "sparse-p4"} and row["rtt_ms"] in {None, 0.0, 100.0, 500.0}
    ]
    for row in kept:
        if row["algorithm"] == "ssgd" and row["rtt_ms"] == 500.0:
            row.update(status="failed", reason="worker 2 ended with exit code 1", step_time_s=None, scalability=None)
        if row["algorithm"] == "sparse-p4" and row["rtt_ms"] == 0.0:
            row.update(status="invalid", reason="lateness p99 4 ms")
        if row["algorithm"] == "ssgd" and row["rtt_ms"] == 0.0:
            row["step_time_s"] = synthetic_rows.STEP_S / 0.65
    return [row for row in kept if (row["algorithm"], row["rtt_ms"]) != ("sparse-p4", 500.0)]


def test_a_table_shows_lost_blocks_and_the_spread_of_replicas_if_blocks_were_sent(rows):
    assert "blocks lost %" not in render(rows, "table")
    for row in rows:
        if row["algorithm"] == "sparse-p4" and row["rtt_ms"] == 100.0:
            row.update(blocks_lost_pct=9.876, replica_spread=0.0123)
    header, _, *lines = as_table(rows, width=WIDE).splitlines()
    assert header.endswith("blocks lost %  replica spread")
    assert [line.split()[-2:] for line in lines if "sparse-p4" in line and " 100 " in line] == [["9.88", "0.01230"]]


def test_a_table_shows_the_fastest_worker_if_machines_differ(rows):
    assert "fastest worker ms" not in render(rows, "table")
    for row in rows:
        if row["algorithm"] == "sparse-p4" and row["rtt_ms"] == 100.0:
            row["fastest_step_time_s"] = 0.0321
    header, _, *lines = as_table(rows, width=WIDE).splitlines()
    assert header.endswith("  fastest worker ms")
    assert [line.split()[-1] for line in lines if "sparse-p4" in line and " 100 " in line] == ["32.1"]


def test_the_sentence_names_what_has_no_valid_result_and_ranks_nothing_that_is_alone(rows):
    assert "Without a valid result on some networks, so not compared: sparse-p4, ssgd." in best_text(rows, WIDE)
    on_one = [row for row in rows if row["rtt_ms"] in {None, 100.0}]
    for row in on_one:
        if row["algorithm"] == "ssgd":
            row.update(status="invalid", reason="paused")
    assert best_text(on_one, WIDE).startswith(
        "sparse-p4 is the only one with a valid result at RTT 100 ms (emulated). "
        "Without a valid result, so not compared: ssgd."
    )


def test_a_pivot_shows_scalability_beside_the_law_and_marks_missing_cells(rows):
    *heading, _, title, header, _, ssgd, sparse = render(rows, "pivot").splitlines()
    assert heading == [
        "Scalability T(1)/T(N), emulated, and in parentheses as predicted by the step-time law; 1 is the limit.",
        "`failed`, `invalid`: no valid repetition. `.`: not run.",
    ]
    assert title == "algorithm by RTT (ms)"
    assert header.split() == ["algorithm", "0", "100", "500"]
    assert ssgd.split()[:3] == ["ssgd", "0.65", "(0.70)"]
    assert ssgd.split()[-1] == "failed"
    assert sparse.split()[1] == "invalid"
    assert sparse.split()[-1] == "."


def test_markdown_has_the_same_pivot(rows):
    text = render(rows, "md")
    assert "| algorithm | 0 | 100 | 500 |\n| :-- | --: | --: | --: |\n| ssgd | 0.65 (0.70) |" in text


def test_collectives_are_lines_of_one_pivot():
    both = synthetic_rows.latency_sweep(reps=1) + synthetic_rows.latency_sweep(reps=1, collective="gloo")
    lines = render([row for row in both if row["workers"] == 1 or row["kind"] == "ssgd"], "pivot").splitlines()
    assert lines[3] == "setting by RTT (ms)"
    assert [line.split("  ")[0] for line in lines[6:]] == ["direct", "gloo"]


def test_step_times_and_speed_ups_stand_where_scalability_says_little():
    both = [
        {**row, "scalability": None, "step_time_s": 0.4 if collective == "gloo" else 0.1}
        for collective in ("direct", "gloo")
        for row in synthetic_rows.latency_sweep(reps=1, collective=collective)
        if row["kind"] == "ssgd"
    ]
    lines = render(both, "pivot").splitlines()
    assert lines[0] == "Step time in ms, emulated, and in parentheses the speed-up over the slowest in its column."
    assert lines[3] == "setting by RTT (ms)"
    assert lines[-2].split()[:3] == ["direct", "100", "(4.00×)"]
    assert lines[-1].split()[:3] == ["gloo", "400", "(1.00×)"]


def test_a_profile_sweep_has_workers_as_columns():
    lines = render(synthetic_rows.world4(reps=1), "pivot").splitlines()
    assert lines[3:5] == ["algorithm by workers", "algorithm              4            8"]


def test_the_table_has_a_line_per_cell_and_shows_the_reason_of_a_failure(rows):
    lines = as_table(rows, width=WIDE).splitlines()
    assert lines[0].split()[:4] == ["algorithm", "RTT", "(ms)", "workers"]
    assert len(lines) == 2 + 6 + 2
    assert lines[-1] == "The results are emulated."
    assert lines[5] == "ssgd             500        4     0  failed: worker 2 ended with exit code 1"


def test_accuracy_is_shown_if_a_model_was_trained(rows):
    assert "accuracy" not in render(rows, "table")
    for row in rows:
        row["accuracy"] = 0.9712
    lines = as_table(rows, width=WIDE).splitlines()
    assert lines[0].endswith("  accuracy %      min..max  points from ssgd (95 %)")
    assert {line.split()[-1] for line in lines[2:] if line.startswith("ssgd") and "failed" not in line} == {"+0.00"}
    assert "  97.12  97.12..97.12" in lines[2]


def test_the_time_to_target_is_shown_if_it_was_reached(rows):
    assert "to target" not in render(rows, "table")
    for row in rows:
        row.update(accuracy=0.97, time_to_target_s=12.345 if row["algorithm"] == "sparse-p4" else None)
    header, _, *lines = as_table(rows, width=WIDE).splitlines()
    assert header.endswith("  to target s")
    assert {line.split()[-1] for line in lines if line.startswith("sparse-p4") and "invalid" not in line} == {"12.35"}


def test_an_empty_run_is_an_empty_table():
    assert len(render([], "table").splitlines()) == 2


def test_json_has_an_object_per_repetition_with_every_column_and_null_for_missing_values(rows):
    rows[0]["accuracy"] = math.nan
    objects = json.loads(render(rows, "json"))
    assert len(objects) == len(rows)
    assert set(SHOWN) <= set(objects[0])
    assert objects[0]["accuracy"] is None
    assert objects[0]["params"] == {}
    assert {"period": 4} in [each["params"] for each in objects]


@pytest.mark.parametrize("loss", [math.inf, math.nan])
def test_the_loss_of_training_that_diverged_is_null_in_json(rows, loss):
    found = json.loads(render([{**rows[0], "final_loss": loss}], "json"))
    assert found[0]["final_loss"] is None


def test_csv_has_a_line_per_repetition(rows):
    lines = list(csv.DictReader(io.StringIO(render(rows, "csv"))))
    assert len(lines) == len(rows)
    assert {json.loads(line["params"]).get("period") for line in lines} == {None, 4}
    assert lines[0]["wire_bytes"] == ""


def test_parquet_keeps_numbers_as_numbers(rows, tmp_path):
    rows[0]["lateness_p99_ms"], rows[1]["lateness_p99_ms"] = 1, 0.5
    path = tmp_path / "results.parquet"
    write_parquet(rows, path)
    table = pd.read_parquet(path)
    assert len(table) == len(rows)
    assert table["workers"].tolist() == [row["workers"] for row in rows]
    assert table["lateness_p99_ms"].tolist()[:2] == [1.0, 0.5]
    assert set(table["params"]) == {"{}", '{"period": 4}'}
    assert [each.name for each in tmp_path.iterdir()] == ["results.parquet"]


def test_a_narrow_table_leaves_columns_out_and_names_them(rows):
    lines = as_table(rows, width=80).splitlines()
    assert lines[-1] == (
        "The results are emulated. Columns left out to fit the width: overhead ms, compute ms, deviation, min..max. "
        "`--format csv` has all columns."
    )
    complete = [line for line in lines[:-2] if "failed" not in line]
    assert max(map(len, complete)) <= 80
    assert "ssgd             500        4     0  failed: worker 2 ended with exit code 1" in lines


def test_no_number_is_shown_as_negative_zero(rows):
    for row in rows:
        row["overhead_s"] = -1e-9
    assert "-0.0" not in as_table(rows, width=WIDE)


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [(0, "0 B"), (35.6, "35.6 B"), (999.6, "1 kB"), (7660, "7.66 kB"), (102_228_128, "102 MB"), (2.5e12, "2.5 TB")],
)
def test_bytes_are_shown_in_the_unit_that_suits_them(size_bytes, text):
    assert size(size_bytes) == text


@pytest.mark.parametrize(
    ("megabytes", "unscaled", "text"),
    [(1.022, 102.2, "1.02 MB (102 MB unscaled)"), (102.2, None, "102 MB"), (None, None, "-")],
)
def test_bytes_of_scaled_messages_are_shown_beside_those_of_the_workload(megabytes, unscaled, text):
    assert sent(megabytes, unscaled) == text


@pytest.mark.parametrize(("scale", "text"), [(0.01, "1 MB (100 MB unscaled)"), (1.0, "100 MB")])
def test_the_best_algorithms_name_the_bytes_of_the_workload(scale, text):
    for row in (scaled := synthetic_rows.latency_sweep(reps=1)):
        row.update(payload_scale=scale, payload_bytes=round(4 * 23 * 100e6 * scale), steps_total=23)
    found = best_text(scaled, WIDE)
    assert text in found
    assert ("unscaled" in found, f"are × {scale}" in found) == (scale != 1, scale != 1)


@pytest.mark.parametrize("text", ["=1+1", "+1+1", "-x", "@SUM(A1)", "\t=1"])
def test_text_that_a_spreadsheet_would_run_is_inert_in_csv(text):
    written = io.StringIO(objects_as_csv([{"algorithm": text}]), newline="")
    assert list(csv.reader(written)) == [["algorithm"], [f"'{text}"]]


@pytest.mark.parametrize("value", [-1.5, -3, "-0.5", "+2e3"])
def test_numbers_stay_numbers_in_csv(value):
    assert objects_as_csv([{"x": value}]) == f"x\n{value}\n"
