"""What can be asked, and how a wrong question is refused."""

from __future__ import annotations

import ast
from dataclasses import replace

import pytest

from wanbench.harness.advise.candidates import Setting, reference_on_gloo, with_collective, with_setting
from wanbench.harness.advise.question import Limits, ask, workload_tables
from wanbench.harness.advise.recipe import Recipe
from wanbench.harness.advise.reproduce import emulation_spec, training, trial
from wanbench.harness.errors import SpecError
from wanbench.harness.plan.auto import FixedHost
from wanbench.harness.plan.plan import make
from wanbench.harness.spec.experiment import Spec

UNIFORM = {"profile": "uniform", "rtt": "100ms", "rate": "1Gbit"}


def test_a_workload_is_a_name_numbers_a_model_or_a_file(tmp_path):
    calibrated = tmp_path / "workload.toml"
    calibrated.write_text('# Measured\n[workload]\nparams = 5\ntensors = 1\nstep_time = "3ms"\nstep_cv = 0.1\n')
    assert workload_tables("resnet50-v100")[0] == {"name": "resnet50-v100"}
    assert workload_tables("params=7e9,tensors=291,step_time=800ms")[0] == {
        "params": 7_000_000_000, "tensors": 291, "step_time": "800ms",
    }  # fmt: skip
    assert workload_tables("my_pkg.model:make")[0] == {"model": "my_pkg.model:make"}
    assert workload_tables(str(calibrated))[0]["step_time"] == "3ms"
    assert workload_tables("gpt-stdlib")[1] == {"optimizer": "adamw", "batch_size": 8}  # as it was recorded


@pytest.mark.parametrize(
    ("workload", "reason"),
    [
        ("params=many", "expected params, tensors"),
        ("size=7e9", "expected params, tensors, step_time, step_cv"),
        ("nowhere/at-all.toml", "No such file"),
        ("resnet51", "resnet5"),
        ("params=7e9", "step_time"),
    ],
)
def test_a_wrong_workload_is_refused_in_one_line(workload, reason):
    with pytest.raises(SpecError, match=reason) as caught:
        ask(UNIFORM, workload, 4, Limits())
    assert "\n" not in str(caught.value)


def test_a_network_without_a_rate_is_refused():
    with pytest.raises(SpecError, match="no rate is known"):
        ask({"profile": "uniform", "rtt": "100ms"}, "resnet50-v100", 4, Limits())


def test_one_worker_on_each_site_is_the_default():
    assert ask({"profile": "world4"}, "resnet50-v100", None, Limits()).workers == 4
    assert ask(UNIFORM, "resnet50-v100", None, Limits()).workers == 4
    two = {"profile": "world4", "place": {"oregon": 2, "tokyo": 1}}
    assert ask(two, "resnet50-v100", None, Limits()).reference.placement == ("oregon", "oregon", "tokyo")


def test_the_spec_of_an_answer_measures_the_same_cells():
    question = ask({"profile": "world4"}, "resnet50-v100", None, Limits())
    dts = Setting("dts-d4-p4-topk", "dts", {"delay": 4, "period": 4, "compression": {"kind": "topk", "ratio": 0.01}})
    cells = [with_collective(with_setting(question.reference, dts)), reference_on_gloo(question)]
    spec = Spec.from_toml(emulation_spec(question, cells, 3), "advised")
    plan = make(spec.override({"workload.payload_scale": 1.0, "run.testbed": "virtual"}), "advised", FixedHost())
    measured = [cell for cell in plan.cells if not cell.is_baseline]
    assert [(cell.label, cell.collective) for cell in measured] == [("dts-d4-p4-topk", "direct"), ("ssgd", "gloo")]
    assert measured[0].params == dts.params
    assert measured[0].profile == question.reference.profile


@pytest.mark.parametrize("collective", ["gloo", "direct", "hierarchical", "ring"])
def test_the_lines_for_a_loop_and_the_trial_are_programs(collective):
    question = ask({"profile": "world4"}, "resnet50-v100", None, Limits())
    cell = with_setting(question.reference, Setting("dts-d4-p4", "dts", {"delay": 4, "period": 4}))
    cell = replace(cell, comm=cell.comm.model_copy(update={"collective": collective}))
    lines = training(question, cell, Recipe({"delay": 4, "period": 4, "outer_lr": 0.4}, None), "train.py")
    for text in (lines, trial(cell, 0.5)):
        ast.parse(text)
        assert ('"gloo"' in text or "'gloo'" in text) == (collective == "gloo")
    assert "wrap(model, optimizer, 'dts', delay=4, period=4, outer_lr=0.4)" in lines
