"""The law beside the published rates of Streaming DiLoCo and beside emulated steps; the page says how far off it is."""

import csv

from documents import DOCS
from recorded_numbers import off, rows

import scripts

benchmark = scripts.load("benchmarks/streaming_utilisation.py")


def test_the_recorded_rates_are_those_of_the_law():
    recorded = list(csv.DictReader((DOCS.parent / benchmark.FILE).read_text().splitlines()))
    assert recorded == [{key: str(value) for key, value in row.items()} for row in benchmark.rows()]


def test_the_law_agrees_where_nothing_overlaps_the_next_forward_pass():
    for row in benchmark.rows():
        ratio = float(row["law_over_published"])
        if row["method"] == "data parallel" or (row["method"] == "DiLoCo" and row["computes_pct"] <= 90):
            assert 0.85 < ratio < 1.3, row
        if row["method"].startswith("streaming"):
            assert ratio > 1, row  # it asks for more than they do


def test_a_rate_that_hides_all_messages_is_bytes_over_time():
    late = benchmark.inputs("1B", "streaming, H steps late, FP4")
    bits = 8 * late.message_bytes
    assert bits == 0.25 * 16e9 / 8
    assert abs(benchmark.needed_bps(late, 0.9999) / (bits / 1.1) - 1) < 1e-3


def test_the_documentation_has_the_range_of_each_method():
    page = (DOCS / "how-to" / "two-sites.md").read_text()
    for method in dict.fromkeys(method for _, method in benchmark.PUBLISHED):
        ratios = [float(row["law_over_published"]) for row in benchmark.rows() if row["method"] == method]
        near = sum(1 / benchmark.GRID <= ratio <= benchmark.GRID for ratio in ratios)
        assert f"| {method} | {min(ratios):.2f} to {max(ratios):.2f} | {near} of {len(ratios)} |" in page


def test_the_documentation_has_how_far_emulated_steps_are_from_the_law():
    page = (DOCS / "how-to" / "two-sites.md").read_text()
    over = {
        kind: [off(row["step_time_s"], row["predicted_step_time_s"]) for row in rows("gpt-sites", kind=kind)]
        for kind in ("diloco", "ssgd")
    }
    assert f"DiLoCo takes {min(over['diloco']):.1f} to {max(over['diloco']):.1f} % longer" in page
    assert f"DP {min(over['ssgd']):.1f} to {max(over['ssgd']):.1f} %, most at 10 Gbit/s and 150 ms" in page
    for rtt_ms, mbit in ((60, 1000), (150, 1000), (60, 10_000), (150, 10_000)):
        at = {
            row["kind"]: row for row in rows("gpt-sites", rtt_ms=rtt_ms) if row["axes"]["rate"] == f"{mbit // 1000}Gbit"
        }
        times = " | ".join(f"{at[kind]['step_time_s']:.2f}" for kind in ("ssgd", "diloco"))
        assert f"| {mbit // 1000} Gbit/s | {rtt_ms} ms | {times} |" in page
