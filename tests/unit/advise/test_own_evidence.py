"""The design that would measure what the fastest settings cost with one's own model."""

from __future__ import annotations

import tomllib
from collections import Counter

import pytest

from wanbench.harness.advise import own_evidence
from wanbench.harness.advise.candidates import Setting, reference_on_gloo, with_collective, with_setting
from wanbench.harness.advise.evidence import Evidence, Tier
from wanbench.harness.advise.own_evidence import proposal
from wanbench.harness.advise.question import Limits, ask
from wanbench.harness.advise.ranking import Candidate, Measured
from wanbench.harness.learning import design as designs
from wanbench.harness.learning.cost import Price
from wanbench.netprofiles.toml_text import document

UNIFORM = {"profile": "uniform", "rtt": "100ms", "rate": "1Gbit"}
FASTER = {
    "dts-d4-p4": ("dts", {"delay": 4, "period": 4}),
    "dts-d8-p4": ("dts", {"delay": 8, "period": 4}),
    "dts-d20-p4": ("dts", {"delay": 20, "period": 4}),
    "sparse-p4": ("sparse", {"period": 4}),
    "adpsgd": ("adpsgd", {}),
    "diloco-p10": ("diloco", {"period": 10}),
}


@pytest.fixture
def question(monkeypatch):
    monkeypatch.setattr(own_evidence, "measured", lambda _cell: Price(gradient_s=0.01, evaluation_s=0.1))
    monkeypatch.setattr(own_evidence.os, "cpu_count", lambda: 2)
    return ask(UNIFORM, "digits-cnn", 4, Limits())


def simulated(question, faster=FASTER):
    """`ssgd` takes a second for a step; the others are faster, the first the fastest."""
    ssgd = Candidate(reference_on_gloo(question), Evidence(Tier.NO_RISK), 1.0)
    found = [Measured(ssgd, 1.0)]
    for place, (label, (kind, params)) in enumerate(faster.items()):
        cell = with_collective(with_setting(question.reference, Setting(label, kind, params)))
        found.append(Measured(Candidate(cell, Evidence(Tier.UNKNOWN), 0.1), 0.1 + 0.1 * place))
    return found


def test_it_has_the_fastest_settings_beside_ssgd_and_at_most_two_of_a_family(question):
    design = proposal(question, simulated(question), 60).design
    assert set(design.settings) == {"ssgd", "dts-d4-p4", "dts-d8-p4", "sparse-p4", "diloco-p10"}
    assert max(Counter(table.get("kind", name) for name, table in design.settings.items()).values()) == 2
    assert design.workers == 4
    assert design.seeds == 3
    assert design.workload["name"] == "digits-cnn"


@pytest.mark.parametrize("minutes", [2, 10, 60, 1e6])
def test_its_trajectories_fit_the_budget(question, minutes):
    found = proposal(question, simulated(question), minutes)
    assert found.minutes <= minutes
    steps = int(found.design.train["until"].split()[0])
    assert 100 <= steps <= 2000
    assert steps % found.design.train["eval_every"] == 0
    rates, outer = len(found.design.tune.lr), len(found.design.tune.outer_lr)
    diloco = "diloco-p10" in found.design.settings
    tuned = len(found.design.settings) * rates + (rates * (outer - 1) if diloco else 0)
    final = 3 * len(found.design.settings)
    step_s = 4 * (0.01 + 3e-4)
    # On two processors; while rates are tuned, only the last step is evaluated.
    seconds = -(-tuned // 2) * (steps * step_s + 0.1) + -(-final // 2) * (steps * step_s + 11 * 0.1)
    assert 60 * found.minutes == pytest.approx(seconds, rel=0.01)


def test_a_small_budget_has_fewer_settings_and_a_tiny_one_none(question):
    few, many = (len(proposal(question, simulated(question), minutes).design.settings) for minutes in (1.2, 60))
    assert 2 <= few < many
    assert proposal(question, simulated(question), 0.1) is None


def test_it_is_written_as_it_is(question):
    found = proposal(question, simulated(question), 60)
    assert designs.parse(tomllib.loads(document(found.design.plain())), "learn.toml") == found.design


def test_without_data_or_without_a_faster_setting_there_is_none(question):
    numbers = ask(UNIFORM, "params=1000,step_time=10ms", 4, Limits())
    assert proposal(numbers, simulated(numbers), 60) is None
    assert proposal(question, simulated(question, {}), 60) is None
