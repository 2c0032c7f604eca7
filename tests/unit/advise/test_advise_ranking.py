"""The order of measured candidates, which are worth measuring, and what the law says of other networks."""

from __future__ import annotations

from dataclasses import replace

import pytest

from wanbench.harness.advise.candidates import Setting, candidates, settings, with_setting
from wanbench.harness.advise.evidence import Evidence, Library, Tier
from wanbench.harness.advise.question import Limits, ask
from wanbench.harness.advise.ranking import (
    Candidate,
    Measured,
    advisable,
    first,
    law_s,
    promising,
    ranked,
    sending_s,
    shortlist,
    weighed,
    without_risk,
)
from wanbench.harness.advise.sensitivity import sensitivity

UNIFORM = {"profile": "uniform", "rtt": "100ms", "rate": "1Gbit"}
QUESTION = ask(UNIFORM, "resnet50-v100", 4, Limits())


class Known(Evidence):
    """Evidence with a fixed number of steps."""

    steps = None

    @property
    def more_steps(self):
        return self.steps


def evidence(steps, tier=Tier.EVIDENCE):
    found = Known(tier)
    object.__setattr__(found, "steps", steps)
    return found


def measured(kind, step_time_s, steps=1.0, tier=Tier.EVIDENCE, **params):
    cell = with_setting(QUESTION.reference, Setting("-".join([kind, *map(str, params.values())]), kind, params))
    return Measured(Candidate(cell, evidence(steps, tier), law_s(cell)), step_time_s)


def test_the_shortest_time_to_the_target_comes_first_not_the_shortest_step():
    fast_steps, fewer_steps = measured("delayed", 0.30, 1.5, delay=20), measured("ssgd", 0.40)
    assert ranked([fast_steps, fewer_steps]) == [fewer_steps, fast_steps]


def test_of_equals_the_least_stale_comes_first_then_the_fewest_bytes():
    stale, fresh = measured("delayed", 0.300, delay=20), measured("delayed", 0.302, delay=4)
    assert ranked([stale, fresh]) == [fresh, stale]
    whole = measured("localsgd", 0.300, period=4)
    small = measured("localsgd", 0.302, period=4, compression={"kind": "topk", "ratio": 0.01})
    assert ranked([whole, small]) == [small, whole]


def test_a_setting_without_evidence_or_below_the_target_is_never_advised():
    unknown, missed = (
        measured("dts", 0.1, None, Tier.UNKNOWN, delay=4, period=4),
        measured("sparse", 0.1, None, period=4),
    )
    known, safe = measured("delayed", 0.3, delay=4), measured("ssgd", 0.5, tier=Tier.NO_RISK)
    assert advisable([unknown, missed, known, safe]) == [known, safe]
    assert without_risk([unknown, missed, known, safe]) == [safe]


@pytest.fixture(scope="module")
def weighed_candidates(tmp_path_factory):
    library = Library.for_question(QUESTION, (), tmp_path_factory.mktemp("none"))
    cells, left_out = candidates(QUESTION, settings(library.settings))
    return weighed(cells, library), left_out


def test_the_shortlist_has_every_family_and_everything_that_can_be_advised(weighed_candidates):
    every, _ = weighed_candidates
    chosen = shortlist(every, 50)
    assert {each.cell.kind for each in chosen} == {each.cell.kind for each in every}
    assert {each.cell.label for each in every if each.eligible} <= {each.cell.label for each in chosen}
    assert 50 <= len(chosen) < 90
    assert len({each.cell.key for each in chosen}) == len(chosen)


def test_a_setting_that_cannot_train_is_left_out_with_its_reason():
    library = Library((), True, Limits())
    question = ask(UNIFORM, "params=1e6,step_time=100ms", 4, Limits())
    cells, left_out = candidates(question, [each for each in settings(library.settings) if each.kind == "dts"])
    assert cells
    powersgd = [each for each in left_out if "powersgd" in each.label]
    assert powersgd
    assert all("matrices" in each.reason for each in powersgd)
    assert not any("powersgd" in cell.label for cell in cells)


def test_little_memory_leaves_out_what_holds_many_messages():
    question = replace(QUESTION, limits=Limits(memory_bytes=1.5e9, excluded=frozenset({"diloco"})))
    asked = [Setting("a", "delayed", {"delay": 1}), Setting("b", "delayed", {"delay": 20})]
    kept, left_out = candidates(question, [*asked, Setting("c", "diloco", {"period": 10})])
    assert {cell.label for cell in kept} == {"a"}
    assert {each.label: each.reason.split()[0] for each in left_out} == {"b": "needs", "c": "excluded"}


def test_on_a_nearer_network_the_synchronous_method_wins_again():
    far = ask({**UNIFORM, "rtt": "300ms", "rate": "10Gbit"}, "resnet50-v100", 4, Limits())

    def by_law(kind, steps, tier, **params):
        cell = with_setting(far.reference, Setting(kind, kind, params))
        return Measured(Candidate(cell, evidence(steps, tier), law_s(cell)), law_s(cell))

    delayed, ssgd = by_law("delayed", 1.6, Tier.EVIDENCE, delay=4), by_law("ssgd", 1.0, Tier.NO_RISK)
    assert ranked([ssgd, delayed])[0] is delayed
    found = sensitivity(far, delayed, [delayed, ssgd])
    # What makes messages shorter beside compute. A higher rate gains less than 5 %.
    assert {(each.axis, each.factor < 1) for each in found} == {("RTT", True), ("step time", False)}
    assert all(each.name.startswith("ssgd") and each.gain > 0.01 for each in found)


def slow_settings():
    """`ssgd`, and settings that send less: every fourth vector, 1 % and 10 % of its values."""
    ratios = {"tenth": 0.1, "hundredth": 0.01}
    sparse = {name: {"period": 4, "compression": {"kind": "topk", "ratio": ratio}} for name, ratio in ratios.items()}
    return {
        "ssgd": measured("ssgd", 0.0, tier=Tier.NO_RISK).candidate,
        "dts": measured("dts", 0.0, delay=4, period=4).candidate,
        **{name: measured("sparse", 0.0, **params).candidate for name, params in sparse.items()},
        "unknown": measured("delayed", 0.0, None, Tier.UNKNOWN, delay=4).candidate,
    }


def test_those_that_send_the_least_are_simulated_first():
    found = slow_settings()
    assert first(found.values()) == [found["hundredth"], found["tenth"], found["dts"]]


@pytest.mark.parametrize("lossy", [1, 25])
def test_what_is_hopeless_by_its_bytes_is_not_simulated_however_much_longer_they_take_than_by_the_law(lossy):
    found = slow_settings()
    begun = [(found[name], 0.3 + lossy * sending_s(found[name].cell)) for name in ("hundredth", "tenth")]
    kept = promising(found.values(), begun)
    assert found["ssgd"] in kept  # all are compared with it
    assert (found["dts"] in kept) == (found["unknown"] in kept) == (lossy == 1)


def test_where_bytes_cost_nothing_all_are_simulated():
    found = slow_settings()
    assert promising(found.values(), [(found["hundredth"], 0.3), (found["tenth"], 0.3)]) == [*found.values()]
    assert promising(found.values(), [(found["tenth"], 9.0)]) == [*found.values()]
