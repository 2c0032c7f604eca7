"""`kill` of a timeline: the commands to workers, their answers during a run, and the entries that are refused."""

from __future__ import annotations

import itertools
import signal
import time
from dataclasses import fields, replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from on_relay import expand

from wanbench.harness.emulators.plan import build
from wanbench.harness.errors import SpecError
from wanbench.harness.rep.command import program_of
from wanbench.harness.rep.program import Ended, Program, play_timeline, watch
from wanbench.harness.spec.experiment import Spec
from wanbench.harness.timeline.changes import Change, described
from wanbench.harness.timeline.schedule import Schedule, read_timeline, schedule_for_program
from wanbench.netprofiles import Delay, uniform
from wanbench.workloads.process.finished import FinishedProgram

S = 1_000_000_000
FOR_A_WHILE = 'at = "20ms"\nfor = "30ms"\nwhere = 1\nkill = true'
FOR_GOOD = 'at = "20ms"\nwhere = 1\nkill = true'
COMMAND = """
schema = 1
name = "own"
[workload]
command = ["true"]
[network]
rtt = "20ms"
[sweep]
workers = [3]
"""


def schedule(folder, *entries, workers=3):
    path = folder / "k.toml"
    path.write_text("".join(f"[[timeline]]\n{entry}\n" for entry in entries))
    profile = uniform(workers, Delay.from_ms(20))
    network = build(profile, tuple(site.name for site in profile.sites))
    return schedule_for_program(tuple(map(Change.from_config, read_timeline(path))), network, profile, "k.toml")


def refused(folder, *entries, workers=3):
    with pytest.raises(SpecError) as caught:
        schedule(folder, *entries, workers=workers)
    return str(caught.value)


# ---------------------------------------------------------------- commands to workers


def commands(schedule, time_ns):
    return [(command.ranks, dict(command.message)) for command in schedule.resolved({}).moment(time_ns).commands]


def test_a_worker_is_killed_at_the_start_and_started_again_at_the_end(tmp_path):
    timeline = schedule(tmp_path, 'at = "1s"\nfor = "1s"\nevery = "3s"\ntimes = 2\nwhere = "w1"\nkill = true')
    resolved = timeline.resolved({})
    assert resolved.times == (1 * S, 2 * S, 4 * S, 5 * S)
    assert [resolved.moment(at).what for at in resolved.times] == [("w1: killed",), ("w1: started again",)] * 2
    assert commands(timeline, 4 * S) == [((1,), {"cmd": "kill", "again": True, "due_ns": 4 * S})]
    assert commands(timeline, 5 * S) == [((1,), {"cmd": "restart", "due_ns": 5 * S})]
    assert resolved.moment(4 * S).network == timeline.network


def test_without_an_end_a_worker_is_not_started_again(tmp_path):
    assert commands(schedule(tmp_path, FOR_GOOD), 20_000_000) == [
        ((1,), {"cmd": "kill", "again": False, "due_ns": 20_000_000})
    ]


def test_a_site_names_all_its_workers():
    profile = uniform(2, Delay.from_ms(20))
    network = build(profile, ("w0", "w1", "w1"))
    change = Change.from_config({"at": "1s", "for": "1s", "where": "w1", "kill": True})
    timeline = Schedule([change], network, profile)
    assert [ranks for ranks, _ in commands(timeline, 1 * S)] == [(1, 2)]
    assert timeline.restarts() == [0, 1, 1]


def test_the_description_of_a_kill(tmp_path):
    timeline = schedule(tmp_path, 'at = "6s"\nfor = "2s"\nwhere = 2\nkill = true')
    assert described(timeline.changes) == "worker 2: killed at 6 s for 2 s"


def test_the_environment_of_a_process_has_the_number_of_its_restarts(tmp_path):
    twice = 'at = "1s"\nfor = "1s"\nevery = "3s"\ntimes = 2\nwhere = 1\nkill = true'
    timeline = schedule(tmp_path, twice, 'at = "20s"\nwhere = 1\nkill = true')
    one = program(timeline)
    restarts = [one.environment_of(worker, "id")["TORCHELASTIC_MAX_RESTARTS"] for worker in range(3)]
    assert restarts == ["0", "2", "0"]
    assert one.environment_of(1, "id")["TORCHELASTIC_RESTART_COUNT"] == "0"
    assert program(None).environment_of(1, "id")["TORCHELASTIC_MAX_RESTARTS"] == "0"


# ---------------------------------------------------------------- a run


def program(timeline=None, processes=1):
    sites = ("w0", "w1", "w2")
    return Program(command=("true",), sites=sites, processes=processes, cwd=Path("/w"), schedule=timeline)


class Slot:
    """Workers that send given messages, and record the commands that they get. SIGKILL ends them at once."""

    def __init__(self, *messages) -> None:
        self.emulator, self.updates = self, 0
        self.messages, self.sent = list(messages), []
        self.handles = [Handle(self, rank) for rank in range(3)]

    def update(self, network) -> None:
        self.updates += 1

    def events(self, ranks, silence_s):
        while self.messages:
            yield self.messages.pop(0)
        raise TimeoutError


class Handle:
    def __init__(self, slot, rank) -> None:
        self.slot, self.rank = slot, rank

    def send(self, message, fds=()) -> None:
        self.slot.sent.append((self.rank, message))
        if message["cmd"] == "signal" and message["number"] == signal.SIGKILL:
            self.slot.messages.append(finished(self.rank))


def finished(rank):
    return rank, {
        "cmd": "program",
        "event": "finished",
        **dict.fromkeys(field.name for field in fields(FinishedProgram)),
    }


def exited(rank, code=0, process=0):
    return rank, {"cmd": "program", "event": "exited", "process": process, "code": code, "seconds": 9.0}


def killed(rank, *, again, processes=(0,)):
    return rank, {
        "cmd": "program", "event": "killed", "due_ns": 2 * S, "at_ns": 7 * S, "again": again,
        "processes": processes, "seconds": 2.0,
    }  # fmt: skip


def restarted(rank):
    return rank, {"cmd": "program", "event": "restarted", "due_ns": 3 * S, "at_ns": 8 * S}


def watched(*messages, processes=1, timeout_s=None, **more):
    slot, ended = Slot(*messages), Ended()
    once = SimpleNamespace(restarts=lambda: [1, 1, 1])
    watch(
        replace(program(once, processes), timeout_s=timeout_s),
        slot,
        slot.handles,
        ended,
        itertools.repeat(None),
        **more,
    )
    return ended, slot.sent


ALL_WELL = [exited(0), finished(0), exited(2), finished(2)]


def test_a_killed_worker_without_restart_has_ended_and_not_failed():
    ended, sent = watched(killed(1, again=False, processes=(0, 1)), finished(1), *ALL_WELL, processes=2)
    assert (ended.code, ended.failed, sent) == (0, None, [])
    assert ended.lasted == {0: 9.0, 2: 2.0, 3: 2.0, 4: 9.0}
    assert ended.done_ns == {(1, 2 * S): 7 * S}


def test_a_restarted_worker_lasts_until_its_own_end():
    ended, sent = watched(killed(1, again=True), restarted(1), exited(1), finished(1), *ALL_WELL)
    assert (ended.code, sent, ended.lasted[1]) == (0, [], 9.0)
    assert ended.done_ns == {(1, 2 * S): 7 * S, (1, 3 * S): 8 * S}


def test_a_restarted_worker_can_fail():
    ended, sent = watched(killed(1, again=True), restarted(1), exited(1, 7), finished(1), *ALL_WELL)
    assert (ended.code, ended.failed) == (7, 1)
    assert [(rank, message["number"]) for rank, message in sent] == [(n, signal.SIGTERM) for n in range(3)]


def test_a_worker_that_waits_for_its_restart_at_the_time_limit_is_late():
    ended, _ = watched(killed(1, again=True), *ALL_WELL, timeout_s=1e-9)
    assert ended.late == (1,)


def until(condition):
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_events_have_the_time_of_the_worker_and_none_if_its_program_had_ended(tmp_path):
    slot, ended = Slot(), Ended()
    timeline = schedule(tmp_path, FOR_A_WHILE, FOR_GOOD.replace("20ms", "80ms").replace("= 1", "= 2"))
    with play_timeline(timeline, slot, slot.handles, ended) as begin:
        begin()
        until(lambda: len(slot.sent) == 3)
        now = time.monotonic_ns()
        ended.done_ns |= {(1, 20_000_000): now, (1, 50_000_000): now + 1000}
    assert [(rank, message["cmd"]) for rank, message in slot.sent] == [(1, "kill"), (1, "restart"), (2, "kill")]
    assert [(event["what"], event["asked_s"], event["at_ns"]) for event in ended.events] == [
        ("worker 1: killed", 0.02, now),
        ("worker 1: started again", 0.05, now + 1000),
        ("worker 2: killed", 0.08, None),
    ]
    assert ended.events[0]["actual_s"] >= 0.02
    assert slot.updates == 0, "the network does not change"


# ---------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        (
            ('at = "1s"\nfor = "5s"\nwhere = 1\nkill = true', 'at = "3s"\nwhere = "w1"\nkill = true'),
            "timeline.1: kill: worker 1 is already dead at 3 s, killed by timeline.0; expected a worker that is alive",
        ),
        (
            ('at = "3s"\nfor = "1s"\nwhere = 1\nkill = true', 'at = "1s"\nwhere = 1\nkill = true'),
            "timeline.0: kill: worker 1 is already dead at 3 s, killed by timeline.1; expected a worker that is alive",
        ),
        (
            tuple(f'at = "{n + 1}s"\nwhere = {n}\nkill = true' for n in range(3)),
            "timeline.2: kill: no worker would be alive at 3 s; leave at least one alive",
        ),
        (('at = "1s"\nwhere = 3\nkill = true',), "timeline.0: where: no worker 3; expected 0 to 2"),
        (
            ('at = "5 steps"\nwhere = 1\nkill = true',),
            'timeline.0.at: the steps of a program are not known; give a time, e.g. "5s"',
        ),
    ],
)
def test_an_impossible_kill_is_refused_in_one_line(tmp_path, entries, message):
    assert refused(tmp_path, *entries) == f"k.toml: {message}"


def test_a_single_worker_cannot_be_killed(tmp_path):
    assert refused(tmp_path, 'at = "1s"\nfor = "1s"\nwhere = 0\nkill = true', workers=1) == (
        "k.toml: timeline.0: kill: no worker would be alive at 1 s; leave at least one alive"
    )


def test_all_workers_can_be_killed_one_after_another(tmp_path):
    entries = [f'at = "{n + 1}s"\nfor = "1s"\nwhere = {n}\nkill = true' for n in range(3)]
    assert schedule(tmp_path, *entries).restarts() == [1, 1, 1]


def test_the_one_worker_cell_of_a_command_has_no_kill():
    alone, together = sorted(expand(Spec.from_toml(f"{COMMAND}[[timeline]]\n{FOR_A_WHILE}\n", "k.toml"), "k.toml"),
                             key=lambda cell: cell.workers)  # fmt: skip
    assert not alone.changes
    assert program_of(alone.repetition(0), Path("s")).schedule is None
    timeline = program_of(together.repetition(0), Path("s")).schedule
    assert timeline is not None
    assert timeline.restarts() == [0, 1, 0]
