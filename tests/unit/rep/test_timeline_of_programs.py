"""Timelines of programs, with `exec` and as a workload: what a file can contain, and when the network changes."""

from __future__ import annotations

import time

import pytest
from command_line import as_it_was, refused, wanbench  # noqa: F401  # the fixture is used by all
from on_relay import expand

from wanbench.harness.emulators.emulator import EmulatorError
from wanbench.harness.emulators.plan import build
from wanbench.harness.errors import SpecError
from wanbench.harness.rep.program import Ended, play_timeline
from wanbench.harness.spec.experiment import Spec
from wanbench.harness.timeline.changes import Change
from wanbench.harness.timeline.schedule import read_timeline, schedule_for_program
from wanbench.netprofiles import Delay, uniform

CUT = '[[timeline]]\nat = "20ms"\nwhere = 1\ncut = true\n'
PROFILE = uniform(2, Delay.from_ms(20))
NETWORK = build(PROFILE, ("w0", "w1"))


class Slot:
    """The part of a slot that a player needs: an emulator that counts updates, or fails."""

    def __init__(self, fails: bool = False) -> None:
        self.emulator, self.fails, self.updates, self.asked = self, fails, 0, False

    def update(self, network) -> None:
        self.asked = True
        if self.fails:
            raise EmulatorError("relay: refused")
        self.updates += 1


def schedule(tmp_path, text=CUT):
    path = tmp_path / "changes.toml"
    path.write_text(text)
    return schedule_for_program(tuple(map(Change.from_config, read_timeline(path))), NETWORK, PROFILE, "changes.toml")


def until(condition):
    deadline = time.monotonic() + 20
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.005)


def test_the_timeline_of_a_program_begins_with_its_start(tmp_path):
    slot, ended, lines = Slot(), Ended(), []
    with play_timeline(schedule(tmp_path), slot, [], ended, lines.append) as begin:
        time.sleep(0.1)
        assert slot.updates == 0, "time counts from the start of the processes"
        begin()
        until(lambda: slot.updates == 1)
    ((what, asked_s),) = [(event["what"], event["asked_s"]) for event in ended.events]
    assert (what, asked_s) == ("worker 1: cut off", 0.02)
    assert lines == ["0.02 s: worker 1: cut off"]


def test_a_failed_change_ends_the_program_with_its_reason(tmp_path):
    slot = Slot(fails=True)

    def program():
        with play_timeline(schedule(tmp_path), slot, [], Ended()) as begin:
            begin()
            until(lambda: slot.asked)

    with pytest.raises(EmulatorError, match="relay: refused"):
        program()


def test_without_a_timeline_nothing_changes():
    ended = Ended()
    with play_timeline(None, Slot(), [], ended) as begin:
        begin()
    assert ended.events == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "changes.toml: timeline: this key is required"),
        ('[[timeline]]\nat = "1s"\ncutt = true', "changes.toml: timeline.0.cutt: unknown key; did you mean 'cut'?"),
        ("[[timeline]", "changes.toml: not valid TOML: "),
        ("[[timeline]]\nat = " + "9" * 5000, "changes.toml: not valid TOML: Exceeds the limit"),
        (
            '[[timeline]]\nat = "5 steps"\ncut = true',
            "changes.toml: timeline.0.at: the steps of a program are not known; give a time",
        ),
        (
            '[[timeline]]\nat = "5s"\nslow = 2.0',
            "changes.toml: timeline.0.slow: a program's compute time cannot be changed; leave it out",
        ),
        ('[[timeline]]\nat = "5s"\nwhere = "tokyo"\ncut = true', "changes.toml: timeline.0: where: no site 'tokyo'"),
    ],
)
def test_an_invalid_file_is_refused_in_one_line(tmp_path, monkeypatch, text, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "changes.toml").write_text(text)
    arguments = ("exec", "--profile", "uniform", "--rtt", "20ms", "-n", "2", "--emulator", "relay")
    line = refused(*arguments, "--timeline", "changes.toml", "--", "true").removeprefix("wanbench: ")
    assert line.startswith(message)
    assert len(line.splitlines()) == 1


def test_a_timeline_of_a_command_cannot_refer_to_steps():
    text = """
schema = 1
name = "own"
[workload]
command = ["true"]
[network]
rtt = "20ms"
[[timeline]]
at = "5 steps"
cut = true
"""
    with pytest.raises(SpecError, match="the steps of a program are not known; give a time"):
        expand(Spec.from_toml(text, "own.toml"), "own.toml")
    (cell,) = [c for c in expand(Spec.from_toml(text.replace("5 steps", "5s"), "own.toml"), "own.toml") if c.changes]
    assert cell.workers > 1


def test_plan_prints_the_timeline():
    output = wanbench("plan", "partition", "--testbed", "virtual").stdout
    assert "\ntimeline: worker 3: cut off at 6 s for 5 s\n" in output
