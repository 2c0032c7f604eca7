"""`verify`: the problems that forbid publishing, rule by rule."""

import pytest
import two_hosts
from command_line import as_it_was, finished, refused, wanbench  # noqa: F401  # the fixture is used by all
from synthetic_rows import latency_sweep

from wanbench.harness.plan.law import window_steps
from wanbench.harness.results.rules import (
    ACCURACY_BAND,
    LOSS_BAND,
    MAX_EVENT_LATE_S,
    MAX_OVERHEAD_PCT,
    MAX_SPREAD_PCT,
    MIN_REPS,
    RULES,
)
from wanbench.harness.results.scalability import rescale
from wanbench.harness.results.verify import CHECKS, not_applicable, objections, unmeasured


@pytest.fixture
def rows():
    """A sweep without problems, with three repetitions."""
    found = latency_sweep()
    for row in found:
        row["cell_key"] = row["cell"]
        row["seed"] = 1 + row["rep"]
        row["code"] = "c0de"
        row["one_way_error_ms"] = 0.1 if row["workers"] > 1 else None
        row["accuracy"] = row["final_loss"] = None
        row["steps"] = window_steps(row["law_inputs"]["delay"], row["law_inputs"]["period"])
    return found


def expected(rows):
    return {row["cell_key"]: row["cell"] for row in rows}


def objected(rows, cells=None):
    """(rule, text) of every problem of the one cell that a test spoils."""
    return [(one.rule, one.text) for one in objections(rows, cells or expected(rows))]


def the(rows, algorithm="dts-d20-p4", rtt_ms=100.0):
    """The repetitions of one cell."""
    return [row for row in rows if row["algorithm"] == algorithm and row["rtt_ms"] == rtt_ms]


def test_a_clean_run_has_no_problem(rows):
    assert objections(rows, expected(rows)) == []


def test_a_cell_that_failed_or_was_never_run_counts(rows):
    cells = expected(rows)
    for row in the(rows):
        row.update(status="failed", reason="worker 1 was killed by SIGKILL")
    left = [row for row in rows if row not in the(rows, "ssgd")]
    assert objected(left, cells) == [
        ("complete", "was never run"),
        ("complete", "failed: worker 1 was killed by SIGKILL"),
    ]


def test_a_network_that_was_never_measured(rows):
    the(rows)[1]["one_way_error_ms"] = None
    assert objected(rows) == [("fidelity", "rep 1: the emulated network was not measured; run it again")]


def test_too_few_repetitions(rows):
    gone = the(rows)[2]
    assert objected([row for row in rows if row is not gone]) == [
        ("reps", "2 valid repetitions; at least 3 are needed")
    ]


NEVER = "they were due after the end, or over within one step"


def changing(rows, *actual_s):
    """Give all rows a timeline. The changes of one cell were due at 5 s and happened at these times."""
    for row in rows:
        row["timeline"] = "worker 3: cut off at 5 s"
    for row in the(rows):
        row["events"] = [{"what": "worker 3: cut off", "asked_s": 5.0, "actual_s": at, "at_ns": 0} for at in actual_s]


def test_changes_on_time_are_no_problem(rows):
    changing(rows, 5.001, 5.09)
    assert objected(rows) == []


def test_a_change_that_never_happened_or_was_late(rows):
    changing(rows, 5.2)
    assert objected(rows) == [
        ("timeline", f"rep {rep}: a change happened 0.20 s after it was due; the limit is 0.1 s") for rep in range(3)
    ]
    changing(rows, None)
    assert objected(rows) == [
        ("timeline", f"rep {rep}: 1 of 1 changes never happened, first 'worker 3: cut off': {NEVER}")
        for rep in range(3)
    ]


def test_a_worker_that_slows_down_at_its_next_step_is_not_late(rows):
    changing(rows, 9.0)
    for row in the(rows):
        row["events"] = [event | {"what": "worker 3: compute × 2", "with_step": True} for event in row["events"]]
    assert objected(rows) == []


def test_a_network_that_changes_is_not_compared_with_one_that_stays(rows):
    changing(rows)
    for row in the(rows):
        row["timeline"] = None
    assert objected(rows) == [
        ("timeline", "the cells have different timelines, so their step times cannot be compared")
    ]


def test_one_repetition_is_enough_where_nothing_varies(rows):
    only = [{**row, "testbed": "virtual"} for row in rows if row["rep"] == 0]
    assert objected(only) == []


def test_repetitions_that_share_a_seed(rows):
    the(rows)[1]["seed"] = the(rows)[0]["seed"]
    assert objected(rows) == [("reps", "two repetitions have the same seed")]


def test_repetitions_that_disagree(rows):
    middle = sorted(row["step_time_s"] for row in the(rows))[1]
    spoiled = max(the(rows), key=lambda row: row["step_time_s"])
    spoiled["step_time_s"] = min(row["step_time_s"] for row in the(rows)) + 0.12 * middle
    spoiled["overhead_s"] = 0.0
    spoiled["stall_s"] = spoiled["step_time_s"] - spoiled["compute_s"]
    assert objected(rows) == [("reps", "step times of the repetitions differ by 12.0 %; the limit is 10 %")]


@pytest.mark.parametrize("steps", [68, 73])
def test_a_window_that_is_too_short_or_cuts_a_period(rows, steps):
    the(rows)[0]["steps"] = steps
    text = f"rep 0: {steps} measured steps; at least 72 are needed, in multiples of 4"
    assert objected(rows) == [("window", text)]


def test_code_that_changed_between_cells_of_a_kind(rows):
    for row in the(rows):
        row["code"] = "c1de"
    assert objected(rows) == [("code", "dts was measured by 2 versions of the code (c0de, c1de)")]


def test_code_that_differs_between_cells_is_a_file_of_two_versions_and_not_a_file_more(rows):
    for number, row in enumerate(rows):
        row["code"], row["sources"] = f"c{number}", {"lib.a": "1", f"lib.of{number % 2}": "1"}
    assert objected(rows) == []
    rows[-1]["sources"]["lib.a"] = "2"
    assert objected(rows) == [("code", "lib.a: measured with 2 versions of the code (1, 2)")]


def test_gloo_with_scaled_messages_under_the_name_of_the_workload(rows):
    for row in the(rows):
        row.update(collective="gloo", payload_scale=0.01)
    text = (
        "gloo with payload_scale 0.01 does not represent resnet50-v100; publish it under its message size, or use the "
        "direct collective"
    )
    assert objected(rows) == [("payload", text)]
    for row in the(rows):
        row.update(payload_scale=1.0)
    assert objected(rows) == []


def test_congestion_control_that_was_not_chosen(rows):
    for row in the(rows):
        row["tcp"] = None
    assert objected(rows) == [("network", "TCP congestion control was not pinned; set network.tcp.congestion")]


def test_no_step_time_of_one_worker(rows):
    for row in the(rows):
        row["scalability"] = None
    assert objected(rows) == [("network", "its one-worker cell has no step time to compare with")]


def test_a_host_that_was_too_busy_to_emulate_compute(rows):
    row = the(rows)[0]
    row["overhead_s"] = 0.06 * row["step_time_s"]
    row["stall_s"] = row["step_time_s"] - row["compute_s"] - row["overhead_s"]
    assert objected(rows) == [("processor", "rep 0: 6.0 % of a step is overhead of the host; the limit is 5 %")]


def learned(rows, **values):
    for row in rows:
        row.update(accuracy=0.95, final_loss=0.2)
    for row in the(rows):
        row.update(values)


def test_a_loss_of_accuracy_beyond_the_limit(rows):
    learned(rows, accuracy=0.93)
    assert objected(rows) == []
    learned(rows, accuracy=0.92)
    assert objected(rows) == [("accuracy", "accuracy 0.920; the limit is 0.02 below that of ssgd (0.950)")]


def test_accuracies_after_unequal_steps_do_not_compare(rows):
    learned(rows)
    for row in rows:
        row["steps_total"] = 300
    for row in the(rows):
        row["steps_total"] = 400
    assert objected(rows) == [("accuracy", "accuracy is known after 400 steps, that of ssgd after 300")]


def test_training_needs_an_ssgd_of_the_same_workload_to_compare_with(rows):
    learned(rows)
    for row in the(rows):
        row["workload"] = "gpt-stdlib"
    assert objected(rows) == [
        ("accuracy", "no ssgd on as many workers trains gpt-stdlib, so there is no accuracy to compare with")
    ]


def test_training_that_diverged_is_outside_every_band(rows):
    learned(rows, accuracy=None, final_loss=float("nan"))
    assert objected(rows) == [("accuracy", "final loss nan; the limit is 1.1 times that of ssgd (0.200)")]


def test_a_cell_is_compared_with_ssgd_at_the_same_learning_rate(rows):
    learned(rows, accuracy=0.90)
    for row in (*the(rows), *the(rows, "ssgd")):
        row["axes"] = {"train.lr": 0.01}
    for row in the(rows, "ssgd"):
        row["accuracy"] = 0.91
    assert objected(rows) == []


def test_workloads_that_only_have_a_speed_are_named(rows):
    assert unmeasured(rows) == ["resnet50-v100"]
    learned(rows)
    assert unmeasured(rows) == []


def test_a_higher_loss_counts_if_there_is_no_accuracy(rows):
    learned(rows)
    for row in rows:
        row["accuracy"] = None
    for row in the(rows):
        row["final_loss"] = 0.23
    assert objected(rows) == [("accuracy", "final loss 0.230; the limit is 1.1 times that of ssgd (0.200)")]


def test_the_help_states_every_rule_and_every_limit():
    text = wanbench("verify", "--help").stdout
    for rule in RULES:
        assert f"\n  {rule} " in text
    assert [*RULES][:-1] == [*CHECKS]
    said = " ".join(text.split())
    for limit in (
        f"cell has {MIN_REPS} valid repetitions",
        f"differ by at most {MAX_SPREAD_PCT:g} %",
        f"At least {window_steps(0, 1, 0)} steps and 3 (D + p) steps were measured, in multiples of p",
        f"at most {MAX_EVENT_LATE_S:g} s after it was due",
        f"at most {MAX_OVERHEAD_PCT:g} % of a step",
        f"accuracy is within {ACCURACY_BAND:g} of ssgd's",
        f"the loss is within a factor of {LOSS_BAND:g}",
    ):
        assert limit in said


def test_the_command_prints_every_rule_and_the_verdict(tmp_path):
    finished(tmp_path)
    result = wanbench("verify", "smoke")
    assert result.exit_code == 4
    for rule in RULES:
        assert f"  {rule}" in result.stdout
    assert "1 valid repetition; at least 3 are needed" in result.stdout
    assert "problems: do not publish yet" in result.stderr


def test_a_result_that_cannot_be_read_is_named_and_counts_as_not_run(tmp_path):
    finished(tmp_path)
    first = min((tmp_path / "results/smoke/cells").glob("*/rep-0/result.json")).relative_to(tmp_path)
    first.write_text('{"half')
    result = wanbench("verify", "smoke")
    assert result.exit_code == 4
    assert result.stderr.startswith(f"wanbench: {first}: not a result, so not finished: not JSON (Unterminated string")
    assert f"{first.parts[-3]}: was never run" in result.stdout


@pytest.mark.parametrize("content", ["{", "[1]", '"x"'])
def test_a_run_whose_spec_cannot_be_read_is_refused_in_one_line(tmp_path, content):
    finished(tmp_path)
    path = tmp_path / "results/smoke/spec.resolved.json"
    path.write_text(content)
    said = refused("verify", "smoke")
    assert said.startswith("wanbench: results/smoke/spec.resolved.json: cannot be read (")
    assert said.endswith("); run the same experiment again to write it")


def test_a_rule_that_finds_a_problem_in_a_simulated_run_applies_to_it(rows):
    for row in rows:
        row.update(testbed="virtual", emulator=None, scalability=None)
    broken = {rule for rule, _ in objected(rows)}
    assert broken == {"network"}
    assert {rule for rule in RULES if not_applicable(rule, rows)} == {
        "fidelity", "hosts", "payload", "processor", "accuracy",
    }  # fmt: skip


def test_where_no_repetition_is_valid_no_rule_on_valid_ones_is_kept(rows):
    for row in rows:
        row.update(status="invalid", reason="paused")
    assert {rule for rule in RULES if not_applicable(rule, rows) is None} == {"complete", "consistent", "intact"}
    assert {rule for rule, _ in objected(rows)} == {"complete"}


# ---------------------------------------------------------------- several hosts


def of_two_hosts(rows, apart_pct, without=None):
    """The run as two hosts measured it together, divided as it is read."""
    (alone, *_) = rows
    found = two_hosts.without(two_hosts.shared(apart_pct, rows), without)
    for row in found:
        row["base_key"] = alone["cell_key"]
    rescale(found)
    return found


@pytest.mark.parametrize("apart_pct", [0.0, 1.0])
def test_hosts_that_are_alike_share_the_repetitions_of_a_cell(rows, apart_pct):
    """Each measures one worker with the same seeds, which is no repetition twice."""
    found = of_two_hosts(rows, apart_pct)
    assert objections(found, expected(found)) == []
    assert not_applicable("hosts", found) is None


def test_hosts_that_differ_are_refused_once(rows):
    assert objected(of_two_hosts(rows, 5.0), expected(rows)) == [
        ("hosts", "gpu8-77aa01 and gpu7-3f9a1c differ by 5.0 % in the step time of one worker; the limit is 3 %")
    ]


def test_every_host_needs_its_own_repetitions_of_one_worker(rows):
    found = of_two_hosts(rows, 0.0)
    kept = [row for row in found if row["workers"] > 1 or row["host"] == two_hosts.FAST or row["rep"] == 0]
    assert objected(kept, expected(rows)) == [("reps", "gpu8-77aa01: 1 valid repetition; at least 3 are needed")]


def test_a_host_without_its_own_one_worker_cell_is_refused(rows):
    found = of_two_hosts(rows, 0.0, without=two_hosts.SLOW)
    assert objected(found, expected(rows)) == [("hosts", "gpu8-77aa01 has no one-worker repetition to be compared by")]


def test_a_repetition_that_two_hosts_measured_is_not_two(rows):
    again = {**the(rows)[0], "host": "gpu9-000000"}
    assert ("reps", "two repetitions have the same seed") in objected([*rows, again])


def test_one_host_is_not_compared(rows):
    assert not_applicable("hosts", rows) == "measured on one host"
