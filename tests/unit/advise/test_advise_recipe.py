"""How to train with the advised setting, and which settings are equals."""

from __future__ import annotations

import ast
import math
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from wanbench.harness.advise.answer import _decided, _further, _setting
from wanbench.harness.advise.candidates import Setting, with_setting
from wanbench.harness.advise.evidence import Evidence, Source, Tier
from wanbench.harness.advise.question import Limits, ask
from wanbench.harness.advise.ranking import Candidate, Measured, equals, ranked
from wanbench.harness.advise.recipe import Recipe, recipe
from wanbench.harness.advise.reproduce import training
from wanbench.harness.analysis.paired import MeanInterval
from wanbench.workloads.compute.optim import SGDConfig

UNIFORM = {"profile": "uniform", "rtt": "100ms", "rate": "1Gbit"}
QUESTION = ask(UNIFORM, "digits-cnn", 4, Limits())
TRAIN = {"momentum": 0.9, "batch_size": 16, "schedule": "cosine", "warmup_steps": 25, "until": "500 steps"}


def source(lr: float, reference_lr: float, *, proxy: bool, mean: float = 0.0, workload: str = "mnist-cnn") -> Source:
    return Source(
        design="a", condition="base", setting="diloco-p10", workload=workload, workers=4, seeds=3, optimizer="sgd",
        proxy=proxy, lr=lr, outer_lr=0.4, reference_lr=reference_lr, train=TRAIN,
        difference=MeanInterval(mean, mean - 0.01, mean + 0.01, 3), more_steps=1.0, low=None, high=None,
        holds=True, deciding_seeds=None,
    )  # fmt: skip


def measured(evidence: Evidence, kind: str = "diloco", step_s: float = 1.0, **params: object) -> Measured:
    cell = with_setting(QUESTION.reference, Setting(kind, kind, params))
    return Measured(Candidate(cell, evidence, 1.0), step_s)


def test_the_mathematics_of_ssgd_needs_no_other_rate():
    of_ssgd = recipe(measured(Evidence(Tier.NO_RISK), "ssgd"), ())
    assert (of_ssgd.lr, of_ssgd.of_ssgd, of_ssgd.train) == (None, (1.0, 1.0), {})
    assert of_ssgd.words == "with the learning rate, warm-up and schedule of DDP on as many workers: nothing changes"


def test_the_mathematics_of_ssgd_has_its_rate_where_that_was_measured_on_the_model():
    own = recipe(measured(Evidence(Tier.NO_RISK), "ssgd"), (source(0.05, 0.1, proxy=False, workload="m:make"),))
    assert (own.lr, own.params, own.proxy) == (0.1, {}, False)
    assert own.words.startswith("with learning rate 0.1, cosine schedule")


def test_the_rate_of_a_proxy_is_told_as_a_multiple_of_that_of_ssgd_there_and_as_unknown_for_the_model():
    sources = source(0.05, 0.1, proxy=True), source(0.4, 0.4, proxy=True, mean=-0.01, workload="gpt-stdlib")
    of_proxies = recipe(measured(Evidence(Tier.EVIDENCE, sources), period=10), ())
    assert of_proxies.lr is None
    assert of_proxies.params == {"period": 10, "outer_lr": 0.4}
    assert of_proxies.words == (
        "with 0.5 to 1 times the learning rate that is best for ssgd, outer learning rate 0.4, cosine schedule after a "
        "warm-up of 25 of 500 steps, as was best on mnist-cnn, gpt-stdlib; what is best for your model is unknown, so "
        "try half and twice that rate"
    )


def test_the_rate_measured_on_the_model_itself_is_given():
    own = recipe(measured(Evidence(Tier.EVIDENCE, (source(0.05, 0.1, proxy=False, workload="m:make"),))),
                 ())  # fmt: skip
    assert own.lr == 0.05
    assert own.words.startswith("with learning rate 0.05, outer learning rate 0.4, cosine schedule")
    assert own.words.endswith("as measured on this model (m:make)")


@pytest.mark.parametrize("schedule", ["cosine", "constant"])
def test_the_program_has_the_schedule_of_wanbenchs_own_loop(schedule):
    question = replace(QUESTION, spec=QUESTION.spec.override({"workload": {"model": "m:make"}}, "x"))
    how = Recipe({"period": 10}, 0.05, train=TRAIN | {"schedule": schedule}, proxy=False)
    text = training(question, measured(Evidence(Tier.NO_RISK)).candidate.cell, how, "a b/train.py")
    assert "python 'a b/train.py'" in text
    tree = ast.parse(text)
    wanted = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    scope: dict = {"math": math, "STEPS": 500, "WARM_UP": 25}
    exec(compile(ast.Module(wanted, []), "train.py", "exec"), scope)
    own = torch.tensor([scope["share_of_lr"](step) for step in range(500)])
    loop = SGDConfig(lr=1.0, schedule=schedule, warmup_steps=25, total_steps=500)
    assert torch.equal(own, torch.tensor([loop.lr_at(step) for step in range(500)]))
    assert "torch.optim.SGD(model.parameters(), lr=LR, momentum=0.9)" in text


def test_a_setting_within_5_percent_of_the_fastest_is_its_equal_and_the_least_stale_of_them_comes_first():
    slow, fast, equal = (
        measured(Evidence(Tier.NO_RISK), "ssgd", 1.06),
        measured(Evidence(Tier.NO_RISK), "delayed", 1.0, delay=20),
        measured(Evidence(Tier.NO_RISK), "delayed", 1.04, delay=4),
    )
    assert equals([slow, fast, equal]) == [fast, equal]
    assert ranked([slow, fast, equal]) == [equal, fast, slow]


@pytest.mark.parametrize(("high", "expected"), [(1.01, [1.0, 1.04]), (2.0, [1.09, 1.0, 1.04])])
def test_what_the_seeds_of_the_fastest_leave_open_makes_others_its_equals_up_to_a_tenth(high, expected):
    undecided = replace(source(0.1, 0.1, proxy=False), holds=True, more_steps=1.0, high=high)
    compared = [
        measured(Evidence(Tier.NO_RISK), step_s=1.09),
        measured(Evidence(Tier.EVIDENCE, (undecided,)), step_s=1.0),
        measured(Evidence(Tier.NO_RISK), step_s=1.04),
        measured(Evidence(Tier.NO_RISK), step_s=1.11),
    ]
    assert [result.step_time_s for result in equals(compared)] == expected


@pytest.mark.parametrize(
    ("emulated_s", "usual", "judged_s"), [(1.24, 1, 1), (0.76, 1, 1), (1.3, 1, 1.3), (1.3, 1.3, 1)]
)
def test_an_emulation_changes_the_order_only_where_it_takes_a_quarter_more_than_others(emulated_s, usual, judged_s):
    after = measured(Evidence(Tier.NO_RISK), step_s=1.0).as_emulated(emulated_s, usual)
    assert (after.step_time_s, after.emulated_s) == (pytest.approx(judged_s), emulated_s)


def test_the_speedup_is_that_of_the_step_time_beside_it():
    after = measured(Evidence(Tier.NO_RISK), "ssgd").as_emulated(1.2, usual=1.0)
    result = SimpleNamespace(baseline=measured(Evidence(Tier.NO_RISK), step_s=12.0))
    assert _setting(after, result).endswith(": 1.2 s a step (emulated), 10.0 times as fast as DDP on gloo")


@pytest.mark.parametrize(
    ("holds", "seeds", "words"),
    [
        (True, None, "accurate enough"),
        (False, None, "not accurate enough"),
        (None, 12, "undecided; 12 seeds would decide it"),
        (None, None, "undecided; over 100 seeds would decide it"),
    ],
)
def test_what_was_measured_decides_or_says_how_many_seeds_would(holds, seeds, words):
    assert _decided(replace(source(0.1, 0.1, proxy=False), holds=holds, deciding_seeds=seeds)) == words


def test_what_is_undecided_says_what_to_measure_next():
    few, many, hopeless = (
        replace(source(0.1, 0.1, proxy=False), holds=None, deciding_seeds=seeds, setting=f"{seeds}")
        for seeds in (8, 40, None)
    )
    assert _further([many, few]) == (
        "seeds = 8 in the design would decide 8; `wanbench learn` then trains only the new seeds"
    )
    assert _further([hopeless]).startswith("over 100 seeds would decide each of them")
