"""Advice for machines that differ: the step times of the question are in every candidate, text and file."""

from __future__ import annotations

import ast
from types import SimpleNamespace

import pytest

from wanbench.harness.advise.answer import _asked
from wanbench.harness.advise.candidates import Setting, with_setting
from wanbench.harness.advise.evidence import Evidence, Tier
from wanbench.harness.advise.question import Limits, ask
from wanbench.harness.advise.ranking import Candidate, Measured, law_s
from wanbench.harness.advise.reproduce import emulation_spec, trial
from wanbench.harness.advise.sensitivity import moved
from wanbench.harness.plan.auto import FixedHost
from wanbench.harness.plan.expand import expand
from wanbench.harness.spec.experiment import Spec

SECONDS = (0.3, 0.9, 0.9, 0.9)


@pytest.fixture(params=['{ oregon = "300ms", default = "900ms" }', '["300ms", "900ms", "900ms", "900ms"]'])
def question(tmp_path, request):
    file = tmp_path / "workload.toml"
    file.write_text(f"[workload]\nparams = 1_000_000\ntensors = 4\nstep_time = {request.param}\n")
    return ask({"profile": "world4"}, str(file), None, Limits())


def test_a_workload_file_gives_each_worker_its_time_with_one_worker_on_each_site(question):
    assert question.workers == 4
    assert question.reference.each_step_time_s == SECONDS
    candidate = with_setting(question.reference, Setting("dts-d4-p4", "dts", {"delay": 4, "period": 4}))
    assert candidate.each_step_time_s == SECONDS
    assert law_s(candidate) == pytest.approx(0.9)
    ddp = Measured(Candidate(question.reference, Evidence(Tier.NO_RISK), 0.9), 0.9)
    lines = dict(_asked(SimpleNamespace(question=question, baseline=ddp)))
    assert "300 ms to 900 ms a step of compute" in lines["question"]
    assert "1.0 times the slowest worker's compute" in lines["binds"]


def test_other_step_times_are_a_multiple_of_each(question):
    candidate = with_setting(question.reference, Setting("localsgd-p4", "localsgd", {"period": 4}))
    measured = Measured(Candidate(candidate, Evidence(Tier.NO_RISK), law_s(candidate)), law_s(candidate))
    half = question.changed({"workload.step_time": [f"{500 * seconds:g}ms" for seconds in SECONDS]}).reference
    there = moved(measured, half)
    assert there.candidate.cell.each_step_time_s == tuple(seconds / 2 for seconds in SECONDS)
    assert there.step_time_s < 0.6 * measured.step_time_s


def test_the_spec_and_the_trial_have_the_times(question):
    ssgd = with_setting(question.reference, Setting("ssgd", "ssgd", {}))
    spec = Spec.from_toml(emulation_spec(question, [ssgd], 1).replace('"auto"', "1"), "advised.toml")
    assert expand(spec, "advised.toml", FixedHost())[-1].each_step_time_s == SECONDS
    script = trial(ssgd, 1.0)
    ast.parse(script)
    assert "STEP_TIMES_S = [0.3, 0.9, 0.9, 0.9]" in script
