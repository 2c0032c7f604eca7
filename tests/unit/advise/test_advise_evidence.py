"""What the learning library proves of a setting, and what it does not."""

from __future__ import annotations

import hashlib
import math
import statistics
from dataclasses import replace
from pathlib import Path

import pytest
from scipy import stats

from wanbench.harness.advise.candidates import WITHOUT, Setting, settings, with_setting
from wanbench.harness.advise.evidence import Library, Tier, more_steps
from wanbench.harness.advise.question import Limits, ask
from wanbench.harness.advise.ranking import weighed
from wanbench.harness.learning.recording import Recording, Trajectory, recorded
from wanbench.harness.spec.experiment import Spec
from wanbench.workloads.algorithms import registry

UNIFORM = {"profile": "uniform", "rtt": "100ms", "rate": "1Gbit"}


def trajectory(setting, seed, ends_at, *, params=None, kind=None, reached=0.9, condition="base"):
    """Accuracy grows evenly until `reached` after `ends_at` steps, and stays; loss is its complement."""
    steps = list(range(0, 101, 10))
    accuracy = [min(reached, reached * step / ends_at) for step in steps]
    return Trajectory(
        setting=setting, condition=condition, kind=kind or setting, params=params or {}, workers=4, lr=0.1,
        outer_lr=None, at_end=False, seed=seed, diverged=False, steps=steps, accuracy=accuracy, loss_every=10,
        loss=[1 - min(reached, reached * (step + 5) / ends_at) for step in steps[:-1]],
    )  # fmt: skip


def recording(*trajectories, workload="mnist-cnn", optimizer="sgd"):
    about = {"workload": {"name": workload}, "train": {"optimizer": optimizer}, "conditions": []}
    return Recording("small", about, {}, (), trajectories)


def by_seed(*trajectories):
    return {one.seed: one for one in trajectories}


def library(*trajectories, network=""):
    return Library((recording(*trajectories),), True, Limits(), network)


def cell(kind, **params):
    question = ask(UNIFORM, "resnet50-v100", 4, Limits())
    return with_setting(question.reference, Setting(kind, kind, params))


def test_a_setting_that_learns_at_half_the_speed_needs_twice_the_steps_to_the_same_accuracy():
    ssgd = by_seed(*(trajectory("ssgd", seed, 50) for seed in (1, 2, 3)))
    slow = by_seed(*(trajectory("slow", seed, 100) for seed in (1, 2, 3)))
    ratio, low, high = more_steps(slow, ssgd, Limits(accuracy_drop=0.0))
    assert ratio == pytest.approx(2)
    assert low == pytest.approx(2) == high


def test_a_setting_that_ends_below_the_allowed_drop_never_gets_there():
    ssgd = by_seed(*(trajectory("ssgd", seed, 50) for seed in (1, 2, 3)))
    worse = by_seed(*(trajectory("worse", seed, 50, reached=0.88) for seed in (1, 2, 3)))
    assert more_steps(worse, ssgd, Limits(accuracy_drop=0.01)) == (None, None, None)
    ratio, *_ = more_steps(worse, ssgd, Limits(accuracy_drop=0.05))
    # 0.85 is reached after 0.85/0.9 and 0.85/0.88 of 50 steps
    assert ratio == pytest.approx(0.9 / 0.88)


def test_a_target_loss_is_reached_from_above():
    ssgd = by_seed(*(trajectory("ssgd", seed, 50) for seed in (1, 2, 3)))
    slow = by_seed(*(trajectory("slow", seed, 100) for seed in (1, 2, 3)))
    ratio, *_ = more_steps(slow, ssgd, Limits(target_loss=0.5))
    assert ratio == pytest.approx(2, rel=0.01)
    assert more_steps(slow, ssgd, Limits(target_loss=0.01))[0] is None


def test_fewer_than_three_seeds_have_no_interval():
    ssgd, slow = by_seed(trajectory("ssgd", 1, 50)), by_seed(trajectory("slow", 1, 100))
    assert more_steps(slow, ssgd, Limits()) == (pytest.approx(2), None, None)


def test_the_mathematics_of_ssgd_has_no_risk_on_any_collective_and_compression_has():
    assert library().evidence(cell("ssgd")).tier is Tier.NO_RISK
    assert library().evidence(cell("ssgd", compression={"kind": "topk", "ratio": 0.01})).tier is Tier.UNKNOWN
    assert library().evidence(cell("delayed", delay=1)).tier is Tier.UNKNOWN


def test_a_recorded_setting_is_evidence_and_one_between_two_recorded_ones_is_not():
    trajectories = [
        trajectory(name, seed, 50, kind=kind, params=params)
        for seed in (1, 2, 3)
        for name, kind, params in (
            ("ssgd", "ssgd", {}), ("delayed-d4", "delayed", {"delay": 4}), ("delayed-d20", "delayed", {"delay": 20}),
        )
    ]  # fmt: skip
    found = library(*trajectories)
    assert found.evidence(cell("delayed", delay=4)).tier is Tier.EVIDENCE
    assert found.evidence(cell("delayed", delay=4, compression="none")).tier is Tier.EVIDENCE
    assert found.evidence(cell("delayed", delay=8)).tier is Tier.UNKNOWN
    assert found.evidence(cell("delayed", delay=4, compression="fp16")).tier is Tier.UNKNOWN


def test_two_seeds_are_no_evidence():
    trajectories = [
        trajectory(name, seed, 50, kind=kind, params=params)
        for seed in (1, 2)
        for name, kind, params in (("ssgd", "ssgd", {}), ("delayed-d4", "delayed", {"delay": 4}))
    ]
    assert library(*trajectories).evidence(cell("delayed", delay=4)).tier is Tier.UNKNOWN
    third = [replace(one, seed=3) for one in trajectories[:2]]
    assert library(*trajectories, *third).evidence(cell("delayed", delay=4)).tier is Tier.EVIDENCE


def test_training_that_depends_on_time_is_known_only_on_the_network_where_it_was_recorded():
    trajectories = [
        trajectory(name, seed, 50, condition=condition)
        for seed in (1, 2, 3)
        for name, condition in (("ssgd", "base"), ("adpsgd", "base"), ("ssgd", "world4"), ("adpsgd", "world4"))
    ]
    assert library(*trajectories, network="world4").evidence(cell("adpsgd")).tier is Tier.EVIDENCE
    assert library(*trajectories, network="elsewhere").evidence(cell("adpsgd")).tier is Tier.UNKNOWN


@pytest.mark.parametrize("workload", ["resnet50-v100", "params=7e9,step_time=800ms"])
def test_all_recordings_are_the_proxies_of_a_model_that_was_not_recorded(workload, tmp_path):
    found = Library.for_question(ask(UNIFORM, workload, 4, Limits()), (), tmp_path)
    assert found.proxy
    assert {each.design for each in found.recordings} == {each.design for each in recorded()}


def test_a_recording_of_the_model_itself_is_no_proxy(tmp_path):
    question = ask(UNIFORM, "gpt-stdlib", 4, Limits())
    found = Library.for_question(question, (), tmp_path)
    assert not found.proxy
    assert all(each.about["workload"]["name"] == "gpt-stdlib" for each in found.recordings)


def test_no_two_settings_have_the_same_label_whatever_the_library_calls_them(tmp_path):
    question = ask(UNIFORM, "resnet50-v100", 4, Limits())
    found = Library.for_question(question, (), tmp_path)
    every = settings(found.settings)
    assert len(every) > 1000
    assert {one.identity for one in found.settings} <= {one.identity for one in every}
    assert len({one.label for one in every}) == len({one.identity for one in every}) == len(every)
    # The library has top-k of a tenth under the name that a hundredth has by its parameters.
    tenth, hundredth = ({"kind": "topk", "ratio": ratio} for ratio in (0.1, 0.01))
    weighed_ = weighed([cell("olco3", staleness=1, period=4, compression=each) for each in (tenth, hundredth)], found)
    assert [each.evidence.tier for each in weighed_] == [Tier.EVIDENCE, Tier.UNKNOWN]


def test_methods_without_a_recording_are_considered_and_their_accuracy_is_unknown(tmp_path):
    question = ask(UNIFORM, "resnet50-v100", 4, Limits())
    every = settings(Library.for_question(question, (), tmp_path).settings)
    sparse = [one.params for one in every if one.kind == "sparseloco"]
    assert {one["period"] for one in sparse} == {2, 4, 8, 10, 20, 50, 100}
    assert not any("compression" in one for one in sparse)  # with its own compressor only
    eager = [one.params for one in every if one.kind == "eager-diloco" and "outer_lr" not in one.params]
    assert {one["staleness"] for one in eager} == {1, 2, 4}
    assert {"period": 50, "staleness": 1, "compression": "none"} in eager
    found = weighed([cell("sparseloco", period=10), cell("eager-diloco", period=10)], Library((), True, Limits()))
    assert [each.evidence.tier for each in found] == [Tier.UNKNOWN, Tier.UNKNOWN]


def test_every_algorithm_is_considered_or_left_out_by_name():
    """A kind with a required parameter that has no values would be left out silently."""
    assert {one.kind for one in settings(())} == set(registry.kinds()) - set(WITHOUT)


def test_of_several_proxies_all_must_have_recorded_a_setting_and_the_least_favourable_counts():
    def of(workload, *settings):
        found = [trajectory("ssgd", seed, 50) for seed in (1, 2, 3)]
        found += [
            trajectory(f"delayed-d{delay}", seed, ends_at, kind="delayed", params={"delay": delay})
            for seed in (1, 2, 3)
            for delay, ends_at in settings
        ]
        return replace(recording(*found, workload=workload), design=workload)

    both = Library((of("mnist-cnn", (1, 60), (4, 60)), of("gpt-stdlib", (1, 80))), True, Limits(accuracy_drop=0.0))
    assert both.evidence(cell("delayed", delay=1)).more_steps == pytest.approx(1.6)
    assert both.evidence(cell("delayed", delay=4)).tier is Tier.UNKNOWN
    assert both.evidence(cell("delayed", delay=4)).more_steps is None


def differing(*points, workload="mnist-cnn"):
    """A recording in which `sparse-p4` ends this many points above `ssgd`, by seed."""
    found = []
    for seed, more in enumerate(points, start=1):
        found.append(trajectory("ssgd", seed, 50))
        found.append(trajectory("sparse-p4", seed, 50, kind="sparse", params={"period": 4}, reached=0.9 + more / 100))
    return replace(recording(*found, workload=workload), design=workload)


@pytest.mark.parametrize(
    ("points", "holds", "tier"),
    [
        ((-0.2, -0.3, -0.1), True, Tier.EVIDENCE),  # -0.2 +- 0.25
        ((-0.9, -0.8, -0.4), None, Tier.UNKNOWN),  # -0.7 +- 0.66, so perhaps more than the allowed point
        ((-2.0, 2.0, 0.0), None, Tier.UNKNOWN),  # 0 +- 5, as three seeds of the transformer have it
        ((-2.2, -2.3, -2.1), False, Tier.EVIDENCE),
    ],
)
def test_a_recording_whose_interval_contains_the_allowed_drop_decides_nothing(points, holds, tier):
    known = Library((differing(*points),), False, Limits()).evidence(cell("sparse", period=4))
    assert (known.tier, known.sources[0].holds) == (tier, holds)
    assert (known.more_steps is not None) is bool(holds)
    assert ("would decide it" in known.undecided) is (holds is None)


def test_a_setting_counts_for_another_model_if_it_holds_in_every_recording():
    holds, open_, fails = (-0.2, -0.3, -0.1), (-0.9, -0.8, -0.4), (-2.2, -2.3, -2.1)
    asked = cell("sparse", period=4)
    tiers = {}
    for name, second in (("holds", holds), ("open", open_), ("fails", fails)):
        both = (differing(*holds), differing(*second, workload="gpt-stdlib"))
        tiers[name] = Library(both, True, Limits()).evidence(asked)
    assert [known.tier for known in tiers.values()] == [Tier.EVIDENCE, Tier.UNKNOWN, Tier.EVIDENCE]
    assert [known.more_steps is not None for known in tiers.values()] == [True, False, False]
    assert tiers["open"].undecided == " (gpt-stdlib has 3 seeds, 6 would decide it)"
    third = differing(*holds, workload="mnist-gru")
    third = replace(third, trajectories=[each for each in third.trajectories if each.setting == "ssgd"])
    lacking = Library((differing(*holds), third), True, Limits()).evidence(asked)
    assert lacking.tier is Tier.UNKNOWN  # one of the models has not tried it


def test_as_many_seeds_as_are_said_to_decide_do_and_one_fewer_does_not():
    points = (-0.9, -0.8, -0.4)
    (known,) = Library((differing(*points),), False, Limits()).evidence(cell("sparse", period=4)).sources
    seeds, apart = known.deciding_seeds, 1 + statistics.fmean(points)

    def half(count):
        return stats.t.ppf(0.975, count - 1) * statistics.stdev(points) / math.sqrt(count)

    assert half(seeds) < apart <= half(seeds - 1)


def test_a_target_loss_that_not_every_seed_reaches_decides_nothing():
    def ending(*reached):
        found = [trajectory("ssgd", seed, 50) for seed in (1, 2, 3)]
        found += [
            trajectory("sparse-p4", seed, 50, kind="sparse", params={"period": 4}, reached=most)
            for seed, most in enumerate(reached, start=1)
        ]
        limits = Limits(target_loss=0.2)
        return Library((recording(*found),), False, limits).evidence(cell("sparse", period=4))

    assert [ending(*each).tier for each in ((0.9, 0.9, 0.9), (0.9, 0.9, 0.79), (0.7, 0.7, 0.7))] == [
        Tier.EVIDENCE, Tier.UNKNOWN, Tier.EVIDENCE,
    ]  # fmt: skip
    assert ending(0.7, 0.7, 0.7).more_steps is None


def test_recordings_of_one_model_with_two_optimisers_complete_each_other():
    def of(design, optimizer, delay, ends_at):
        found = [trajectory("ssgd", seed, 50) for seed in (1, 2, 3)]
        found += [trajectory("d", seed, ends_at, kind="delayed", params={"delay": delay}) for seed in (1, 2, 3)]
        return replace(recording(*found, workload="gpt-stdlib", optimizer=optimizer), design=design)

    both = Library((of("gpt", "adamw", 1, 80), of("gpt-sgd", "sgd", 4, 60)), True, Limits(accuracy_drop=0.0))
    assert both.evidence(cell("delayed", delay=1)).more_steps == pytest.approx(1.6)
    assert both.evidence(cell("delayed", delay=4)).more_steps == pytest.approx(1.2)


def test_intervals_contain_their_ratio():
    ssgd = by_seed(*(trajectory("ssgd", seed, 50) for seed in (1, 2, 3)))
    slow = by_seed(*(trajectory("slow", seed, 60 + 10 * seed) for seed in (1, 2, 3)))
    ratio, low, high = more_steps(slow, ssgd, Limits(accuracy_drop=0.3))
    assert low < ratio < high
    assert math.isfinite(high)


def test_where_ssgd_hardly_learns_nothing_is_shown_of_the_others():
    drop = Limits().accuracy_drop
    for gain, learned in ((2 * drop, False), (5 * drop, True)):
        both = [trajectory(name, seed, 50, reached=gain) for name in ("ssgd", "sparse-p4") for seed in (1, 2, 3)]
        both = [replace(one, kind=one.setting.partition("-")[0]) for one in both]
        both = [replace(one, params={"period": 4}) if one.kind == "sparse" else one for one in both]
        known = library(*both)
        expected = [] if learned else [f"small: ssgd gained {100 * gain:.1f} points of accuracy"]
        assert known.without_learning == expected
        question = ask(UNIFORM, "resnet50-v100", 4, Limits())
        cell = with_setting(question.reference, Setting("sparse-p4", "sparse", {"period": 4}))
        assert known.evidence(cell).tier is (Tier.EVIDENCE if learned else Tier.UNKNOWN)
        # The loss is judged by its own target.
        assert replace(known, limits=Limits(target_loss=1.0)).without_learning == []


@pytest.fixture
def own(tmp_path, monkeypatch):
    """`own(workers, **train)`: what the library says of a recording of `tiny:make` by 4 workers, with a batch of 32."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "helpers.py").write_text("WIDTH = 3\n")
    learned = tmp_path / "results" / "learn-tiny"
    learned.mkdir(parents=True)
    digest = hashlib.sha256((tmp_path / "helpers.py").read_bytes()).hexdigest()[:12]
    about = {"workload": {"model": "tiny:make"}, "train": {"momentum": 0.9}, "workers": 4, "conditions": []}
    made = {"sources": {"helpers": digest}, "data": None}
    trained = [trajectory(name, seed, 50) for name in ("ssgd", "sparse") for seed in (1, 2, 3)]
    Recording("tiny", about, made, (), trained).write(learned / "learned.json.gz")

    def library_of(workers=4, **train):
        asked = ask(UNIFORM, "params=1000,step_time=10ms", workers, Limits())
        cell = replace(asked.reference, train=asked.reference.train.model_copy(update=train))
        spec = asked.spec.to_dict() | {"workload": {"model": "tiny:make", "step_time": "10ms"}}
        question = replace(asked, spec=Spec.from_dict(spec, "t"), reference=cell)
        return Library.for_question(question, (), tmp_path / "results")

    return library_of


def test_a_recording_of_this_very_training_is_its_evidence(own):
    found = own()
    assert ([each.design for each in found.recordings], found.proxy, found.trained_otherwise) == (["tiny"], False, ())


@pytest.mark.parametrize(
    ("changes", "difference"),
    [
        ({"workers": 8}, "workers 4, here 8"),
        ({"batch_size": 64}, "batch_size 32, here 64"),
        ({"momentum": 0.0}, "momentum 0.9, here 0.0"),
        ({"optimizer": "adamw"}, "optimizer sgd, here adamw"),
    ],
)
def test_a_recording_that_was_trained_otherwise_is_no_evidence_and_says_how(own, changes, difference):
    found = own(**changes)
    assert found.proxy
    assert "tiny" not in [each.design for each in found.recordings]
    assert found.trained_otherwise == (f"tiny: {difference}",)


def test_a_recording_is_no_evidence_once_a_helper_of_its_model_has_changed(own):
    Path("helpers.py").write_text("WIDTH = 300\n")
    assert own().trained_otherwise == ("tiny: helpers has changed",)
