"""A recording gets new settings without training the old ones again, if the reference trains as it did."""

from __future__ import annotations

from dataclasses import replace

import pytest
from command_line import as_it_was, refused, wanbench  # noqa: F401  # the fixture is used by all
from quick_learning import quickly  # noqa: F401

from wanbench.harness.errors import SpecError
from wanbench.harness.learning import recording as recordings
from wanbench.harness.learning.recording import extended, read

DESIGN = """\
schema = 1
name = "small"
seeds = 2
profiles = ["lan"]
workload = { name = "digits-cnn" }
network = { rtt = "1ms" }
train = { batch_size = 8, until = "12 steps", eval_every = 6 }
tune = { lr = [0.01, 0.1] }

[settings]
ssgd = {}
dts = { delay = 2, period = 2 }
"""


@pytest.fixture
def recorded(tmp_path, monkeypatch, quickly):  # noqa: F811
    """The recording of the design in the package, after one of its settings was recorded, then another one added."""
    monkeypatch.setattr(recordings, "RECORDED", tmp_path)
    (tmp_path / "small.toml").write_text(DESIGN)
    done = wanbench("learn", "small.toml", "--record")
    assert done.exit_code == 0, done.stderr
    before = read(tmp_path / "small.json.gz")
    (tmp_path / "small.toml").write_text(DESIGN + "sparse = { period = 2 }\n")
    done = wanbench("learn", "small.toml", "--record", "--only", "setting=sparse", "--out", "elsewhere")
    assert done.exit_code == 0, done.stderr
    return before, read(tmp_path / "small.json.gz")


@pytest.mark.long  # trains 5 settings; a design is tuned, trained and recorded each time
def test_a_new_setting_stands_beside_the_recorded_ones_which_stay_as_they_were(recorded, tmp_path):
    before, after = recorded
    assert set(after.by_setting) == {*before.by_setting, ("base", "sparse")}
    assert all(after.by_setting[place] == seeds for place, seeds in before.by_setting.items())
    assert {each["setting"] for each in after.tuned} == {"ssgd", "dts", "sparse"}
    assert set(after.step_time_s["lan"]) == {"ssgd", "dts", "sparse"}

    (tmp_path / "small.toml").write_text(DESIGN.replace("12 steps", "18 steps"))
    refusal = refused("learn", "small.toml", "--record", "--only", "setting=dts", "--out", "third")
    assert "small: train differs from what is recorded" in refusal
    assert read(tmp_path / "small.json.gz") == after

    # As on a host whose arithmetic differs.
    first = before.trajectories[0]
    other = replace(
        before, trajectories=[replace(first, loss=[2.0 * each for each in first.loss]), *before.trajectories[1:]]
    )
    with pytest.raises(SpecError, match="ssgd trains otherwise here than recorded"):
        extended(other, after, dict(after.about))


def test_nothing_is_added_to_a_recording_that_does_not_exist(tmp_path, monkeypatch):
    monkeypatch.setattr(recordings, "RECORDED", tmp_path)
    (tmp_path / "small.toml").write_text(DESIGN)
    assert "small has none; record the whole design" in refused(
        "learn", "small.toml", "--record", "--only", "setting=dts"
    )
