"""A design in small: tuned, trained, recorded, resumed; what it records does not depend on the network."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
from command_line import as_it_was, refused, wanbench  # noqa: F401  # the fixture is used by all
from quick_learning import quickly  # noqa: F401
from wanbench_docs.learned import tables

from wanbench.harness.learning import campaign
from wanbench.harness.learning.campaign import Rates, Trial, at_an_end, best, data_hash
from wanbench.harness.learning.recording import read

DESIGN = """\
schema = 1
name = "small"
seeds = 2
profiles = ["lan"]
workload = { name = "digits-cnn" }
network = { rtt = "1ms" }
train = { batch_size = 8, until = "24 steps", eval_every = 6 }
tune = { lr = [0.01, 0.1] }

[settings]
ssgd = {}
dts = { delay = 2, period = 2 }

[[conditions]]
name = "far"
network = { profile = "world4" }
settings = ["dts"]
"""


class _Cell:
    """A cell as far as choosing rates reads it."""

    def __init__(self, key):
        self.key, self.seed = key, 0


def _row(accuracy, loss):
    return {"accuracy": accuracy, "final_loss": loss, "workload": "w"}


def test_the_most_accurate_rate_is_chosen_then_the_one_with_the_smaller_loss_and_never_a_diverged_one():
    outcomes = {0.1: (0.8, 1.0), 0.2: (0.9, 0.5), 0.4: (0.9, 0.4), 0.8: (0.95, float("nan"))}
    tried = [Trial("s", "base", Rates(lr), _Cell(str(lr))) for lr in outcomes]
    rows = {(str(lr), 0): _row(*outcome) for lr, outcome in outcomes.items()}
    assert best(tried, rows) == {"s": Rates(0.4)}
    rows |= {("every", seed): _row(accuracy, 0.4) for seed, accuracy in ((0, 0.9), (1, 0.1))}
    every = [Trial("s", "base", Rates(0.4), _Cell("every"))]
    assert best(tried, rows, every, seeds=2) == {"s": Rates(0.2)}, "a rate counts by the mean of its seeds, once known"
    rows["every", 1] = _row(0.894, 0.4)
    assert best(tried, rows, every, seeds=2) == {"s": Rates(0.4)}, "less than half a point is no reason to train more"
    chosen = [Trial("s", "base", Rates(lr), _Cell("")) for lr in (0.4, 0.8)]
    assert at_an_end(tried, chosen[:1]) == set()
    assert at_an_end(tried, chosen[1:]) == {("base", "s")}


def test_a_design_is_tuned_trained_and_recorded_and_the_same_command_trains_nothing_again(quickly, tmp_path):  # noqa: F811
    (tmp_path / "small.toml").write_text(DESIGN)
    done = wanbench("learn", "small.toml")
    assert done.exit_code == 0, done.stderr
    learned = tmp_path / done.stdout.strip()
    found = read(learned / "learned.json.gz")
    assert {(line["setting"], line["lr"]) for line in found.tuned} == {
        (s, lr) for s in ("ssgd", "dts") for lr in (0.01, 0.1)
    }
    assert {(one.setting, one.condition, one.seed) for one in found.trajectories} == {
        (setting, condition, seed)
        for setting, condition in (("ssgd", "base"), ("dts", "base"), ("dts", "far"))
        for seed in (1, 2)
    }
    # Loss and accuracy by step are those of the algorithm, its settings and the seed, on any network.
    near, far = found.by_setting["base", "dts"], found.by_setting["far", "dts"]
    for seed in (1, 2):
        assert near[seed].loss == far[seed].loss
        assert near[seed].accuracy == far[seed].accuracy
        assert near[seed].steps == [0, 6, 12, 18, 24]
    assert set(found.step_time_s["lan"]) == {"ssgd", "dts"}

    before = (learned / "learned.json.gz").read_bytes()
    rows = sorted(learned.glob("cells/*/rep-*/result.json"))
    assert len(rows) == 4 + 3 * 2 + 2
    times = [path.stat().st_mtime_ns for path in rows]
    again = wanbench("learn", "small.toml")
    assert again.exit_code == 0, again.stderr
    assert [path.stat().st_mtime_ns for path in sorted(learned.glob("cells/*/rep-*/result.json"))] == times
    assert (learned / "learned.json.gz").read_bytes() == before
    assert tables(found).startswith("| setting | lr | after 24 steps | points from ssgd | lan, ")


@pytest.mark.long  # trains once more; how rates are chosen is tested each time
def test_a_rate_that_diverges_with_a_seed_is_replaced_and_recorded_as_tried(quickly, tmp_path, monkeypatch):  # noqa: F811
    def rigged(tried, rows, trained, seeds):
        """Choose as if 0.1 were best with the seed of tuning, 0, and diverged with the others."""
        rates = {trial.cell.key: trial.rates.lr for trial in (*tried, *trained)}
        outcomes = {
            (key, seed): row | {"accuracy": rates[key], "final_loss": math.nan if seed and rates[key] == 0.1 else 1.0}
            for (key, seed), row in rows.items()
            if key in rates
        }
        return best(tried, outcomes, trained, seeds)

    monkeypatch.setattr(campaign, "best", rigged)
    (tmp_path / "small.toml").write_text(DESIGN)
    done = wanbench("learn", "small.toml", "--only", "condition=base")
    assert done.exit_code == 0, done.stderr
    recording = read(tmp_path / done.stdout.strip() / "learned.json.gz")
    assert {(trajectory.lr, trajectory.seed) for trajectory in recording.trajectories} == {(0.01, 1), (0.01, 2)}
    assert {(line["lr"], line["seed"]) for line in recording.tuned} == {(0.01, 0), (0.1, 0), (0.1, 1), (0.1, 2)}


def test_a_dry_run_prints_what_would_run_and_trains_nothing(tmp_path):
    (tmp_path / "small.toml").write_text(DESIGN)
    done = wanbench("learn", "small.toml", "--dry-run", "--only", "condition=base")
    assert (done.exit_code, done.stdout) == (0, "")
    assert "small: 2 settings: ssgd, dts" in done.stderr
    assert "10 trajectories, about " in done.stderr  # 2 x 2 to tune, 2 x 2 seeds, 2 step times
    assert not (tmp_path / "results").exists()


def test_refusals_name_the_option_and_what_was_expected(tmp_path):
    (tmp_path / "small.toml").write_text(DESIGN)
    assert "small.tml: no such file and no such design" in refused("learn", "small.tml")
    assert "--algorithm x = {: not valid TOML" in refused("learn", "small.toml", "--algorithm", "x = {")
    assert "remove --algorithm" in refused("learn", "small.toml", "--record", "--algorithm", "sparse = {}")
    assert "expected the four IDX files of MNIST" in refused("learn", "mnist", "--dry-run", "--data", str(tmp_path))


def test_the_hash_of_data_follows_names_and_content_but_not_the_place(tmp_path):
    def of(folder, **files):
        (tmp_path / folder).mkdir()
        for name, content in files.items():
            (tmp_path / folder / name).write_text(content)
        return data_hash(SimpleNamespace(task=SimpleNamespace(data=str(tmp_path / folder))))

    assert of("a", x="1", y="2") == of("b", y="2", x="1")
    assert len({of("c", x="1"), of("d", x="2"), of("e", z="1"), of("f", x="1", y="")}) == 4
