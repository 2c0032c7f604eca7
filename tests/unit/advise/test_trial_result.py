"""What a trial measured beside the prediction, and the cause that is named."""

from __future__ import annotations

import json

import pytest

from wanbench.harness.advise.reproduce import cause, trial_result
from wanbench.harness.errors import SpecError

# Predicted: 50 ms of compute a step, and 40 ms of waiting in each fourth step.
AS_PREDICTED = [0.05, 0.05, 0.05, 0.09] * 10


@pytest.mark.parametrize(
    ("times_s", "expected"),
    [
        (AS_PREDICTED, ""),
        ([0.05, 0.05, 0.05, 0.06] * 10, "faster"),
        ([0.07, 0.07, 0.07, 0.11] * 10, "the processor"),
        ([0.05, 0.05, 0.05, 0.25] * 10, "slower"),
        ([*AS_PREDICTED, 2.0, 1.5], "rare long steps"),
    ],
)
def test_the_cause_follows_from_how_the_times_are_distributed(times_s, expected):
    found = cause(times_s, 0.06, 0.05)
    assert expected in found
    assert bool(found) == bool(expected)


def test_a_trial_is_compared_with_the_advice_of_its_run(tmp_path):
    advice = {"advised": {"algorithm": "sparse-p4", "collective": "direct", "step_time_s": 0.06},
              "workload": {"step_time_s": 0.05}}  # fmt: skip
    (tmp_path / "advice.json").write_text(json.dumps(advice))
    steps = tmp_path / "steps.jsonl"
    steps.write_text("".join(json.dumps({"step": i, "seconds": t}) + "\n" for i, t in enumerate(AS_PREDICTED)))
    found = trial_result(tmp_path, str(steps))
    assert found.difference == pytest.approx(0)
    assert found.text().endswith("in 40 steps: as predicted")


def test_an_advice_of_no_time_is_refused_and_not_met(tmp_path):
    advice = '{"advised": {"algorithm": "a", "collective": "b", "step_time_s": NaN}, "workload": {"step_time_s": 1}}'
    (tmp_path / "advice.json").write_text(advice)
    with pytest.raises(SpecError, match="no advice to compare with"):
        trial_result(tmp_path, "steps.jsonl")


@pytest.mark.parametrize("text", ["", "x", '{"seconds": null}\n' * 30, '{"step": 1}\n', '{"seconds": -1}\n' * 30])
def test_other_files_are_refused(text, tmp_path):
    (tmp_path / "advice.json").write_text(
        '{"advised": {"algorithm": "a", "collective": "b", "step_time_s": 1}, "workload": {"step_time_s": 1}}'
    )
    (tmp_path / "steps.jsonl").write_text(text)
    with pytest.raises(SpecError, match="expected"):
        trial_result(tmp_path, str(tmp_path / "steps.jsonl"))
    with pytest.raises(SpecError, match="no advice"):
        trial_result(tmp_path / "elsewhere", str(tmp_path / "steps.jsonl"))
