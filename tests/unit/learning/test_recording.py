"""Recordings: small files with equal bytes for equal data, which say where training diverged."""

from __future__ import annotations

import json
import math

import pandas as pd
import pytest
from command_line import as_it_was, wanbench  # noqa: F401  # the fixture is used by all
from wanbench_docs.learned import tables

from wanbench.harness.errors import SpecError
from wanbench.harness.learning import recording as recordings
from wanbench.harness.learning.recording import Recording, Trajectory, curve, read
from wanbench.harness.learning.summary import lines, text

STEPS = [10, 20]


def trajectory(setting="ssgd", seed=1, accuracy=(0.5, 0.9), **changes):
    fields = {
        "setting": setting,
        "condition": "base",
        "kind": setting,
        "params": {},
        "workers": 4,
        "lr": 0.1,
        "outer_lr": None,
        "at_end": False,
        "seed": seed,
        "diverged": False,
        "steps": STEPS,
        "accuracy": list(accuracy),
        "loss_every": 10,
        "loss": [1.0, 0.5],
    }
    return Trajectory(**{**fields, **changes})


def recording(*trajectories, **fields):
    return Recording("t", {"profiles": [*fields.get("step_time_s", {})]}, {}, trajectories=trajectories, **fields)


def write_rep(folder, losses, accuracy):
    """Write the step rows of two workers, whose losses are 1 apart around `losses`, and the evaluations by step."""
    rows = [
        {"rank": rank, "step": step, "loss": loss + rank - 0.5} for rank in range(2) for step, loss in enumerate(losses)
    ]
    pd.DataFrame(rows).to_parquet(folder / "steps.parquet")
    pd.DataFrame({"step": [*accuracy], "accuracy": [*accuracy.values()]}).to_parquet(folder / "evaluations.parquet")


def test_a_curve_has_mean_losses_over_steps_and_workers_and_all_evaluations(tmp_path):
    write_rep(tmp_path, [4.0, 2.0, 1.0, 0.5], {0: 0.1, 2: 0.25, 4: 0.75})
    found = curve(tmp_path, 2)
    assert found["loss"] == [3.0, 0.75]
    assert (found["steps"], found["accuracy"]) == ([0, 2, 4], [0.1, 0.25, 0.75])
    assert found["diverged"] is False


@pytest.mark.parametrize("lost", [math.nan, math.inf])
def test_a_training_that_diverged_has_no_loss_from_there_on_and_the_measured_accuracy(tmp_path, lost):
    write_rep(tmp_path, [4.0, 2.0, lost, 1.0, 1.0, 1.0], {2: 0.25, 6: 0.1})
    found = curve(tmp_path, 2)
    assert (found["diverged"], found["loss"], found["accuracy"]) == (True, [3.0, None, None], [0.25, 0.1])


def test_a_recording_is_read_as_it_was_written_with_equal_bytes_for_equal_data(tmp_path):
    data = recording(trajectory(), trajectory("dts", accuracy=(None, 0.1), diverged=True, loss=[1.0, None]))
    data.write(tmp_path / "a.json.gz")
    again = read(tmp_path / "a.json.gz")
    assert [*again.trajectories] == [*data.trajectories]
    again.write(tmp_path / "b.json.gz")
    assert (tmp_path / "a.json.gz").read_bytes() == (tmp_path / "b.json.gz").read_bytes()


@pytest.mark.parametrize("content", [b"", b"no gzip", b"\x1f\x8b\x08"])
def test_a_damaged_recording_is_refused_in_one_line(tmp_path, content):
    (tmp_path / "t.json.gz").write_bytes(content)
    with pytest.raises(SpecError, match=r"t\.json\.gz: not a recording of a design"):
        read(tmp_path / "t.json.gz")


def test_a_line_has_the_mean_over_seeds_and_the_paired_difference_from_the_reference():
    mine = [trajectory("dts", seed, (0.1, value)) for seed, value in ((1, 0.80), (2, 0.86), (3, 0.92))]
    reference = [trajectory("ssgd", seed, (0.1, value)) for seed, value in ((1, 0.84), (2, 0.90), (3, 0.96))]
    line = next(line for line in lines([recording(*mine, *reference)]) if line["setting"] == "dts")
    # 95 % of Student's t with 2 degrees of freedom: 4.30265; the differences are all equal, so their interval is empty
    half = 4.30265 * 0.06 / math.sqrt(3)
    assert line["accuracy"] == pytest.approx(0.86)
    assert (line["accuracy_low"], line["accuracy_high"]) == pytest.approx((0.86 - half, 0.86 + half), abs=1e-5)
    assert [line[key] for key in ("difference", "difference_low", "difference_high")] == pytest.approx([-0.04] * 3)


def test_on_another_network_the_reference_is_that_of_the_base_whose_training_does_not_depend_on_it():
    conditions = [{"name": "far", "network": {"profile": "wan"}}, {"name": "eight", "workers": 8}]
    ours = [trajectory("adpsgd", accuracy=(0.1, 0.7), condition=each["name"]) for each in conditions]
    found = lines([Recording("t", {"conditions": conditions}, {}, trajectories=[trajectory(), *ours])])
    differences = {line["condition"]: line["difference"] for line in found}
    assert differences == {"base": None, "far": pytest.approx(-0.2), "eight": None}


def test_one_seed_has_no_interval_and_the_reference_no_difference():
    (line,) = lines([recording(trajectory())])
    assert (line["accuracy"], line["accuracy_low"], line["difference"]) == (0.9, None, None)


def test_the_table_marks_a_rate_at_the_end_of_its_grid_and_counts_diverged_seeds():
    found = text([recording(trajectory(at_end=True, diverged=True), trajectory(seed=2))])
    assert "0.1*" in found
    assert "1 of 2 seeds diverged" in found


def test_equal_time_ends_with_the_fastest_setting_and_has_no_value_before_the_first_evaluation():
    times = {"wan": {"fast": 0.1, "half": 0.2, "slow": 0.5}}
    seeds = [trajectory(name, seed) for name in times["wan"] for seed in (1, 2, 3)]
    table = tables(recording(*seeds, step_time_s=times))
    assert "| wan, 2 s |" in table  # 20 steps of 0.1 s
    last = {row.split("|")[1].strip(): row.split("|")[-2].strip() for row in table.splitlines()[2:]}
    assert last == {"`fast`": "90.0 +- 0.0 (20 steps)", "`half`": "50.0 +- 0.0 (10 steps)", "`slow`": "- (4 steps)"}


def test_at_equal_time_an_algorithm_whose_schedule_depends_on_the_network_has_the_curve_from_there():
    seeds = [
        each
        for seed in (1, 2, 3)
        for each in (
            trajectory(seed=seed),
            trajectory("adpsgd", seed, accuracy=(0.5, 0.8)),
            trajectory("adpsgd", seed, accuracy=(0.5, 0.6), condition="wan"),
        )
    ]
    about = {"profiles": ["wan"], "conditions": [{"name": "wan", "network": {"profile": "wan"}}]}
    times = {"wan": {"ssgd": 0.1, "adpsgd": 0.1}}
    table = tables(Recording("t", about, {}, trajectories=seeds, step_time_s=times))
    (row,) = [line for line in table.splitlines() if line.startswith("| `adpsgd`")]
    assert "| 80.0 +- 0.0 | -10.0 +- 0.0 | 60.0 +- 0.0 (20 steps) |" in row


def test_conditions_are_columns_with_the_accuracy_of_ssgd_and_the_points_from_it():
    conditions = [{"name": "eight", "workers": 8}]
    seeds = [
        each
        for seed in (1, 2, 3)
        for each in (
            trajectory(seed=seed),
            trajectory(seed=seed, condition="eight"),
            trajectory("dts", seed, condition="eight", accuracy=(0.1, 0.7), diverged=seed == 1),
        )
    ]
    second = tables(Recording("t", {"conditions": conditions}, {}, trajectories=seeds)).split("\n\n")[1].splitlines()
    assert second[0] == "| setting | eight |"
    assert second[2:] == ["| `ssgd` | 90.0 +- 0.0 |", "| `dts` | -20.0 +- 0.0 (1 of 3 diverged) |"]


def test_recorded_designs_are_listed_for_people_and_for_programs(tmp_path, monkeypatch):
    monkeypatch.setattr(recordings, "RECORDED", tmp_path)
    assert "nothing recorded yet" in wanbench("list", "learning").stdout
    recording(trajectory(), trajectory("dts")).write(tmp_path / "t.json.gz")
    listed = json.loads(wanbench("list", "learning", "--json").stdout)
    assert [(line["design"], line["setting"], line["difference"]) for line in listed] == [
        ("t", "ssgd", None),
        ("t", "dts", 0.0),
    ]
    assert "points from ssgd" in wanbench("list", "learning").stdout
