"""The same cells at two values of an axis."""

from __future__ import annotations

import pytest
from synthetic_rows import row

from wanbench.harness.analysis.compare import compare, differences
from wanbench.harness.analysis.summary import AnalysisError, frame
from wanbench.harness.plan.law import PredictInputs
from wanbench.harness.show.best import best_text
from wanbench.harness.show.comparison import as_table
from wanbench.harness.show.figures.parity import draw_parity


def cell(testbed, rtt_ms, seconds, rep=0, **more):
    inputs = PredictInputs(4, 0.3, (rtt_ms or 0.0) / 1e3, None, 1_000_000)
    fields = {"algorithm": "ssgd", "kind": "ssgd", "params": {}, "rtt_ms": rtt_ms, "cell": f"{testbed} {rtt_ms}"}
    fields |= {"testbed": testbed, "emulator": None if testbed == "virtual" else "relay", "step_time_s": seconds}
    return row(inputs, rep, **{**fields, **more})


ROWS = [
    cell("virtual", 10.0, 0.95),
    cell("virtual", 20.0, 2.5),
    cell("netns", 10.0, 1.0),
    cell("netns", 20.0, 2.0),
    cell("netns", 40.0, 3.0),
]


def test_cells_are_paired_and_the_emulated_one_is_the_base():
    found = compare(ROWS, "testbed")
    assert [(p.base, p.head, p.where, p.ratio) for p in found.pairs] == [
        ("netns", "virtual", {"rtt_ms": 10.0}, 0.95),
        ("netns", "virtual", {"rtt_ms": 20.0}, 1.25),
    ]
    assert (found.within(0.1), found.within(0.2), found.unpaired) == (1, 1, 1)
    assert found.worst.where == {"rtt_ms": 20.0}


def test_the_median_of_the_repetitions_is_compared():
    rows = [cell("netns", 10.0, s, rep=i) for i, s in enumerate((1.0, 1.1, 5.0))] + [cell("virtual", 10.0, 1.1)]
    assert compare(rows, "testbed").pairs[0].ratio == pytest.approx(1.0)


def test_failed_cells_and_lone_workers_are_left_out():
    rows = [*ROWS, cell("netns", 80.0, 1.0, status="invalid"), cell("virtual", 80.0, 1.0)]
    rows += [cell(testbed, None, 0.3, workers=1) for testbed in ("netns", "virtual")]
    assert len(compare(rows, "testbed").pairs) == 2


def test_two_complete_runs_are_compared():
    rows = [{**each, "run": each["testbed"]} for each in ROWS]
    assert [pair.ratio for pair in compare(rows, "run").pairs] == [0.95, 1.25]


def test_the_table_ends_with_a_line_about_the_agreement():
    table = as_table(compare(ROWS, "testbed"))
    assert table.splitlines()[0].split() == [
        "algorithm", "rtt_ms", "netns", "s/step", "min..max", "virtual", "s/step", "min..max", "ratio", "law",
        "law", "ratio",
    ]  # fmt: skip
    assert table.splitlines()[-1] == (
        "1 of 2 cells agree within 10 %, 1 within 20 %; worst ratio 1.250 (ssgd, rtt_ms 20); 1 cell has no partner"
    )


def chosen(collective, rtt_ms, seconds):
    """A cell with its collective; gloo has two channels."""
    more = {"collective": collective, "channels": 2 if collective == "gloo" else 1, "scalability": 0.9 / seconds}
    return cell("netns", rtt_ms, seconds, cell=f"{collective} {rtt_ms}", **more)


CHOICES = [chosen("direct", rtt_ms, seconds) for rtt_ms, seconds in ((10.0, 16.6), (20.0, 2.0))]
CHOICES += [
    chosen(name, rtt_ms, seconds) for name in ("ring", "gloo") for rtt_ms, seconds in ((10.0, 1.0), (20.0, 4.0))
]


def test_a_choice_is_not_judged_by_agreement_but_by_which_is_faster_and_by_how_much():
    said = as_table(compare(CHOICES, "collective")).splitlines()[-1]
    assert said == (
        "gloo against direct: 1 of 2 cells faster, 1 slower, 0 within 1 %; "
        "ring against direct: 1 of 2 cells faster, 1 slower, 0 within 1 %; "
        "gloo is up to 16.6 times as fast as direct (ssgd, rtt_ms 10)"
    )
    alike = [{**row, "step_time_s": 1.0} for row in CHOICES]
    assert as_table(compare(alike, "collective")).endswith("; all step times agree within 1 % (ssgd, rtt_ms 10)\n")


def test_the_headline_names_the_fastest_setting_and_what_each_value_of_a_choice_costs():
    alone = [cell("netns", None, 0.9, workers=1, collective=None, channels=None)]
    said = best_text([*alone, *(row for row in CHOICES if row["rtt_ms"] == 10.0)], 200)
    assert said.splitlines()[0] == (
        "gloo is as fast as any at RTT 10 ms (emulated). "
        "Step time, everything else equal: collective gloo is faster than direct (16.6 times), as fast as ring."
    )
    assert said.splitlines()[3].startswith("network    fastest setting")
    both = best_text([*alone, *CHOICES], 200)
    assert both.startswith("gloo is as fast as any on 1 of 2 networks; direct on 1 (emulated). Step time, everything ")
    assert "collective gloo is not clearly faster than direct (2.88 times, 0.5 to 16.6), as fast as ring" in both


def test_of_two_choices_each_is_judged_with_the_other_equal_and_has_a_place_in_the_label():
    def setting(collective, bucket, seconds):
        return chosen(collective, 10.0, seconds) | {"axes": {"bucket": bucket}, "cell": f"{collective} {bucket}",
                                                   "cell_key": f"{collective} {bucket}"}  # fmt: skip

    rows = [
        setting("gloo", 1, 4.0), setting("gloo", 25, 2.0), setting("direct", 1, 1.0), setting("direct", 25, 1.0),
    ]  # fmt: skip
    assert set(frame(rows)["algorithm"]) == {
        "gloo, bucket 1",
        "gloo, bucket 25",
        "direct, bucket 1",
        "direct, bucket 25",
    }
    said = best_text([cell("netns", None, 0.9, workers=1, collective=None, channels=None), *rows], 200)
    assert "collective direct is faster than gloo (2.83 times, 2 to 4)" in said
    assert "bucket 25 is not clearly faster than 1 (1.41 times, 1 to 2)" in said


def test_a_key_of_the_users_own_can_be_compared_along():
    rows = [
        cell("netns", rtt_ms, seconds, axes={"bucket": bucket}, cell=f"{bucket} {rtt_ms}", cell_key=f"{bucket}{rtt_ms}")
        for bucket, seconds in (("1M", 2.0), ("25M", 1.0))
        for rtt_ms in (10.0, 20.0)
    ]
    pairs = compare(rows, "bucket").pairs
    assert [(p.algorithm, p.base, p.head, p.ratio) for p in pairs] == [("ssgd", "1M", "25M", 0.5)] * 2
    with pytest.raises(AnalysisError, match=r"--by buckets: not an axis; expected one of bucket, run, .*, hosts$"):
        compare(rows, "buckets")


@pytest.mark.parametrize(
    ("rows", "by", "message"),
    [
        (ROWS, "testbad", "--by testbad: not an axis; expected one of run, rtt_ms, workers, "),
        (ROWS[:2], "testbed", "--by testbed: expected at least two values of testbed, found only virtual"),
        ([], "testbed", "--by testbed: expected at least two values of testbed, found no valid result"),
        (ROWS[1:3], "testbed", "--by testbed: no cell has a valid repetition at two values of testbed"),
    ],
)
def test_rows_that_cannot_be_compared_are_refused(rows, by, message):
    with pytest.raises(AnalysisError) as caught:
        compare(rows, by)
    assert str(caught.value).startswith(message)


def test_the_parity_figure_has_equal_bytes_for_equal_rows(tmp_path):
    first, second = (
        draw_parity(compare(rows, "testbed"), "x", tmp_path / name) for rows, name in ((ROWS, "a"), (ROWS[::-1], "b"))
    )
    assert [path.name for path in first][:3] == [f"parity-by-testbed.{form}" for form in ("svg", "pdf", "png")]
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]


def test_specs_of_two_runs_are_compared_key_by_key():
    base = {"name": "a", "workload": {"params": 1, "step_time": "50ms"}, "run": {"seed": 1}, "gate": {"alpha": 0.1}}
    head = {"name": "b", "workload": {"params": 1, "step_time": "100ms"}, "comm": {"collective": "gloo"}}
    assert differences(base, base) == []
    assert differences(base, head) == [
        "workload.step_time: 50ms -> 100ms",
        "run.seed: 1 -> -",
        "comm.collective: - -> gloo",
    ]
