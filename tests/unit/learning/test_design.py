"""Designs: what they train is stated in a file, and every mistake in it is one line."""

from __future__ import annotations

import pytest

from wanbench.harness.errors import SpecError
from wanbench.harness.learning import design as designs
from wanbench.harness.learning.campaign import Rates, grid, spec_of, timed, trials, tuning
from wanbench.harness.spec.library import builtin_names
from wanbench.workloads.algorithms import registry

SMALL = {
    "schema": 1,
    "name": "small",
    "workload": {"name": "digits-cnn"},
    "network": {"rtt": "1ms"},
    "train": {"momentum": 0.9, "until": "30 steps", "eval_every": 10},
    "tune": {"lr": [0.05, 0.1], "outer_lr": [0.4, 0.7, 1.0]},
    "settings": {
        "ssgd": {},
        "delayed-d4": {"kind": "delayed", "delay": 4},
        "diloco-p10": {"kind": "diloco", "period": 10},
        "dgc": {
            "kind": "ssgd",
            "compression": {"kind": "dgc", "momentum": 0.9},
            "train": {"momentum": 0.0},
        },
    },
    "conditions": [
        {"name": "workers-8", "workers": 8, "settings": ["ssgd", "delayed-d4"]},
        {"name": "adamw", "train": {"optimizer": "adamw"}, "without": ["momentum"], "settings": ["ssgd"], "lr": [0.01]},
        {"name": "unchanged", "settings": ["ssgd", "delayed-d4"], "lr_of": "ssgd"},
    ],
}


def small(**changes):
    return designs.parse({**SMALL, **changes}, "small.toml")


@pytest.mark.parametrize("name", builtin_names(designs.DESIGNS))
def test_every_cell_of_a_built_in_design_can_run(name):
    design = designs.load(name)
    for condition in (design.base, *design.conditions):
        settings = condition.settings or design.settings
        lr = (condition.lr or design.tune.lr)[0]
        made = list(trials(spec_of(design), design, condition, {setting: [Rates(lr)] for setting in settings}))
        assert [trial.setting for trial in made] == [*settings]
        assert all(trial.cell.train.lr == lr for trial in made)
    assert len(timed(design)) == len(design.profiles) * len(design.settings)


@pytest.mark.parametrize("name", ["mnist", "gpt"])
def test_algorithms_whose_schedule_depends_on_the_network_are_trained_on_three_networks(name):
    design = designs.load(name)
    kinds = {setting: str(table.get("kind", setting)) for setting, table in design.settings.items()}
    depending = {
        setting
        for setting, kind in kinds.items()
        if not registry.create(
            kind, {k: v for k, v in design.settings[setting].items() if k not in ("kind", "train")}
        ).promises.repeats
    }
    assert "adpsgd" in depending
    on_networks = [condition for condition in design.conditions if condition.network]
    assert {condition.network["profile"] for condition in on_networks} == {*design.profiles}
    assert all(depending <= {*condition.settings} for condition in on_networks)


def test_every_setting_is_tuned_by_the_same_grid_and_outer_rates_are_crossed_with_it():
    design = small()
    assert grid(design, design.base, "delayed-d4") == [Rates(0.05), Rates(0.1)]
    assert grid(design, design.base, "diloco-p10") == [Rates(lr, o) for lr in (0.05, 0.1) for o in (0.4, 0.7, 1.0)]
    cells = [trial.cell for trial in tuning(design, design.base)]
    assert len({cell.key for cell in cells}) == len(cells) == 2 + 2 + 6 + 2
    assert {cell.seed for cell in cells} == {0}
    assert {cell.train.eval_every for cell in cells} == {0}


def test_a_setting_can_need_other_training_keys_and_a_condition_can_leave_keys_out():
    design = small()
    momentum = {trial.setting: trial.cell.train.momentum for trial in tuning(design, design.base)}
    assert momentum == {"ssgd": 0.9, "delayed-d4": 0.9, "diloco-p10": 0.9, "dgc": 0.0}
    (adamw,) = tuning(design, design.conditions[1])
    assert (adamw.cell.train.optimizer, "momentum" in adamw.cell.train.model_fields_set) == ("adamw", False)


def test_conditions_with_equal_rates_share_their_cells():
    design = small()
    rates = {"delayed-d4": [Rates(0.1)]}
    (base,) = trials(spec_of(design), design, design.base, rates)
    (unchanged,) = trials(spec_of(design), design, design.conditions[2], rates)
    (eight,) = trials(spec_of(design), design, design.conditions[0], rates)
    assert base.cell.key == unchanged.cell.key != eight.cell.key
    assert eight.cell.workers == 8


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"conditions": [{"name": "base"}]}, "small.toml: the file: .*different names"),
        ({"conditions": [{"name": "x", "settings": ["dts"]}]}, "small.toml: the file: .*no setting 'dts'"),
        ({"conditions": [{"name": "x", "lr": [0.1], "lr_of": "ssgd"}]}, "small.toml: conditions.0: .*choose one"),
        ({"tune": {"lr": [0.1], "seed": 2}}, "small.toml: the file: .*none of the recorded seeds"),
        ({"tune": {"lr": []}}, "small.toml: tune.lr: "),
        ({"sedes": 3}, "small.toml: sedes: .*did you mean 'seeds'"),
    ],
)
def test_a_wrong_design_is_refused_in_one_line(changes, message):
    with pytest.raises(SpecError, match=message) as refusal:
        small(**changes)
    assert "\n" not in str(refusal.value)


def test_a_setting_is_one_combination_of_parameters():
    design = small(settings={"ssgd": {}, "delayed": {"delay": [4, 20]}}, conditions=[])
    with pytest.raises(SpecError, match="small: base: delayed: expected one combination of parameters, not 2"):
        list(tuning(design, design.base))


def test_only_keeps_the_reference_and_the_conditions_that_still_have_settings():
    kept = designs.narrowed(small(), {"setting": {"delayed-d4"}})
    assert [*kept.settings] == ["ssgd", "delayed-d4"]
    assert [condition.name for condition in kept.conditions] == ["workers-8", "adamw", "unchanged"]
    kept = designs.narrowed(small(), {"condition": {"base"}})
    assert ([*kept.settings], kept.conditions) == ([*SMALL["settings"]], [])
    with pytest.raises(SpecError, match=r"--only setting=delayed-d5: .*delayed-d4"):
        designs.narrowed(small(), {"setting": {"delayed-d5"}})
    with pytest.raises(SpecError, match=r"--only workers=.*expected setting=NAME or condition=NAME"):
        designs.narrowed(small(), {"workers": {"8"}})


def test_a_users_algorithm_is_tuned_by_the_grid_of_the_design_beside_the_reference():
    design = small().with_settings({"mine": {"kind": "localsgd", "period": 2}})
    assert ([*design.settings], design.conditions) == (["ssgd", "mine"], [])
    assert grid(design, design.base, "mine") == grid(small(), small().base, "ssgd")
    with pytest.raises(SpecError, match=r"--algorithm dgc: .*choose another name"):
        small().with_settings({"dgc": {"kind": "localsgd", "period": 2}})
