"""Exact values against a baseline: every change is reported."""

from __future__ import annotations

import json

import pytest
from gate_rows import alone, row

from wanbench.harness.errors import SpecError
from wanbench.harness.gate import baseline
from wanbench.harness.gate.exact import compare, entries
from wanbench.harness.gate.verdict import Judgement, Verdict, by_name
from wanbench.harness.spec.experiment import Spec
from wanbench.harness.spec.tables import GateTable


def judged(before, after, **bands) -> Judgement:
    (finding,) = compare(entries([before]), [after], GateTable(**bands))
    return finding


def test_equal_rows_are_unchanged():
    assert judged(row(), row()) == Judgement("ssgd w4 100ms", Verdict.UNCHANGED)


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        (
            {"step_time_s": 0.55, "scalability": 0.54},
            "step_time_s 0.5 -> 0.55 (+10 %), scalability 0.6 -> 0.54 (-10 %)",
        ),
        ({"messages_sent": 40}, "messages_sent 20 -> 40 (+100 %)"),
        ({"payload_bytes": 1001}, "payload_bytes 1000 -> 1001 (+0.1 %)"),
        ({"scalability": 0.5999999999}, "scalability 0.6 -> 0.5999999999 (by less than 0.001 %)"),
        ({"step_time_s": 0.4, "messages_sent": 21}, "step_time_s 0.5 -> 0.4 (-20 %), messages_sent 20 -> 21 (+5 %)"),
    ],
)
def test_every_worse_value_is_a_regression_with_its_size(changed, text):
    assert judged(row(), row(**changed)) == Judgement("ssgd w4 100ms", Verdict.REGRESSED, text)


def test_an_improvement_is_reported_and_not_a_failure():
    finding = judged(row(), row(step_time_s=0.4, scalability=0.75, messages_sent=10))
    assert (finding.verdict, finding.text) == (
        Verdict.IMPROVED,
        "step_time_s 0.5 -> 0.4 (-20 %), scalability 0.6 -> 0.75 (+25 %), messages_sent 20 -> 10 (-50 %)",
    )


def test_the_tolerance_is_relative_and_zero_by_default():
    slower = row(step_time_s=0.5 * (1 + 1e-9))
    assert judged(row(), slower).verdict is Verdict.REGRESSED
    assert judged(row(), slower, tolerance=1e-6).verdict is Verdict.UNCHANGED


def test_values_that_depend_on_rounding_have_their_own_tolerance():
    learned = row(final_loss=0.50, accuracy=0.9)
    assert judged(learned, row(final_loss=0.54, accuracy=0.9)).verdict is Verdict.UNCHANGED
    finding = judged(learned, row(final_loss=0.60, accuracy=0.9, step_time_s=0.1))
    assert finding == Judgement("ssgd w4 100ms", Verdict.FAILED, "final_loss 0.5 -> 0.6 (+20 %), outside ±10 %")


def test_a_loss_that_is_not_a_number_fails_at_any_step_time():
    assert judged(row(final_loss=0.5), row(final_loss=float("nan"), step_time_s=0.1)) == Judgement(
        "ssgd w4 100ms", Verdict.FAILED, "final_loss is nan"
    )


def test_a_cell_that_failed_fails():
    broken = row(status="failed", reason="worker 1: it broke", step_time_s=None)
    assert judged(row(), broken) == Judgement("ssgd w4 100ms", Verdict.FAILED, "failed: worker 1: it broke")


def test_cells_of_only_one_side_are_reported():
    both = compare(entries([row("ssgd"), row("dts")]), [row("ssgd"), row("sparse")], GateTable())
    assert {finding.cell: (finding.verdict, finding.text) for finding in both} == {
        "ssgd w4 100ms": (Verdict.UNCHANGED, ""),
        "dts w4 100ms": (Verdict.NOT_COMPARABLE, "in the baseline, but not in this run"),
        "sparse w4 100ms": (Verdict.NEW, "not in the baseline"),
    }


def test_another_window_is_another_measurement():
    assert judged(row(), row(steps=40)).text == "steps 20 -> 40"
    assert judged(row(), row(steps=40)).verdict is Verdict.NOT_COMPARABLE


def test_measured_times_are_not_exact_but_counts_are():
    before, slower = row(testbed="netns"), row(testbed="netns", step_time_s=0.9, scalability=0.3)
    assert judged(before, slower).verdict is Verdict.UNCHANGED
    assert judged(before, row(testbed="netns", messages_sent=21)).verdict is Verdict.REGRESSED


def test_one_worker_cells_of_a_sweep_over_testbeds_have_separate_names():
    rows = [alone(), alone(testbed="netns", cell_key="other"), row()]
    assert list(by_name(rows)) == ["one-worker w1 (netns w)", "one-worker w1 (virtual w)", "ssgd w4 100ms"]


def test_a_baseline_is_sorted_with_one_line_per_cell_and_reads_back_equal(tmp_path):
    path, spec = tmp_path / "new" / "b.json", Spec.load("smoke")
    found = entries([row("ssgd", step_time_s=0.1 + 0.2), row("dts")])
    cells = {name: {**entry, "cell": "0", "emulator": None} for name, entry in found.items()}
    baseline.write(path, spec, cells)
    text = path.read_text()
    lines = [line for line in text.splitlines() if "testbed" in line]
    assert [line.strip().partition(":")[0] for line in lines] == ['"dts w4 100ms"', '"ssgd w4 100ms"']
    assert json.loads(text)["experiment"] == "smoke"
    read = baseline.read(path, "smoke")
    assert (read.cells, read.spec, read.rewrite) == (cells, baseline.digest(spec), "")
    baseline.write(path, spec, dict(reversed(cells.items())))
    assert path.read_text() == text


def test_the_digest_is_that_of_what_is_measured():
    spec = Spec.load("smoke")
    assert baseline.digest(spec) == baseline.digest(spec.override({"description": "other"}, "t"))
    assert baseline.digest(spec) != baseline.digest(spec.override({"run.seed": 7}, "t"))


def test_bytes_on_the_wire_of_a_program_are_compared_within_a_band():
    def sent(wire_bytes):
        return [
            row("train", command=["train"], wire_bytes=wire_bytes, steps_total=10, step_time_s=0.1, testbed="netns")
        ]

    base = entries(sent(1000))
    assert base["train w4 100ms"]["wire_bytes_per_step"] == 100
    verdicts = [compare(base, sent(value), GateTable())[0].verdict for value in (1040, 1060, 2000, 500)]
    assert verdicts == [Verdict.UNCHANGED, Verdict.REGRESSED, Verdict.REGRESSED, Verdict.IMPROVED]
    (wide,) = compare(base, sent(1060), GateTable(), lambda cell: 0.1)
    assert wide.verdict is Verdict.UNCHANGED


@pytest.mark.parametrize(("text", "message"), [("{", "Expecting property name"), ("[]", "expected experiment")])
def test_a_file_that_is_not_a_baseline_is_refused(tmp_path, text, message):
    path = tmp_path / "b.json"
    path.write_text(text)
    with pytest.raises(SpecError) as caught:
        baseline.read(path, "t")
    assert str(caught.value).startswith(f"{path}: not a baseline: ")
    assert message in str(caught.value)


def test_bytes_that_differ_much_between_equal_sides_decide_only_a_regression():
    def judged_at(band, wire_bytes):
        base, head = ([row("train", command=["train"], wire_bytes=sent, steps_total=10, testbed="netns")] for sent in
                      (1000, wire_bytes))  # fmt: skip
        (found,) = compare(entries(base), head, GateTable(), lambda _: band)
        return found

    assert judged_at(0.2, 1150).verdict is Verdict.UNCHANGED
    assert [judged_at(0.5, sent).verdict for sent in (1000, 1400, 400)] == [Verdict.INCONCLUSIVE] * 3
    assert judged_at(0.5, 1600).verdict is Verdict.REGRESSED
    assert judged_at(0.5, 1000).text == (
        "wire_bytes_per_step of equal sides may differ by 50 % here; the limit is 20 %; measure the noise again with "
        "--aa on a quieter host"
    )


def test_a_count_that_no_run_can_have_is_refused(tmp_path):
    path = tmp_path / "b.json"
    cell = {"cell": "k", "testbed": "virtual", "emulator": None, "messages_sent": 10**400}
    spec = Spec.load("latency-sweep")
    baseline.write(path, spec, {"c": cell})
    with pytest.raises(SpecError, match=r"cells\.c\.messages_sent: "):
        baseline.read(path, spec.name)
