"""Losses end with the last step, because replicas are then compared over TCP, which can be silent for minutes."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace

from small_spec import edited, swept
from traffic import network as network_with

from wanbench.harness.testbeds.base import Group, Trained, Training
from wanbench.harness.testbeds.training import _follow
from wanbench.workloads.process.finished import FinishedJob


def test_workers_tell_their_last_step_at_once_if_the_network_loses_packets():
    for loss, told in (("0%", False), ("10%", True)):
        (cell,) = swept(edited(("[sweep]", f'[sweep]\nloss = ["{loss}"]')))
        assert [tuple(job.told_steps) for job in cell.repetition(0).jobs] == [(cell.steps,) if told else ()] * 2


class Emulator:
    """Notes what is asked of it."""

    def __init__(self):
        self.updates = []

    def stats(self, *, reset=False):
        assert reset

    def update(self, network):
        self.updates.append(network)


def test_losses_end_when_all_workers_have_ended_their_last_step():
    network = network_with(2, loss=0.3)
    messages = [(rank, {"event": "warm", "now_ns": 0}) for rank in (0, 1)]
    messages += [(0, {"event": "step", "step": 5, "now_ns": 1}), (1, {"event": "step", "step": 5, "now_ns": 2})]
    seen = []

    def events(ranks, silence_s):
        for rank, message in messages:
            seen.append(len(emulator.updates))
            yield rank, message
        for rank in (0, 1):
            seen.append(len(emulator.updates))
            yield rank, {"event": "finished", **dict.fromkeys(field.name for field in fields(FinishedJob))}

    emulator = Emulator()
    two = [SimpleNamespace(steps=5)] * 2
    repetition = SimpleNamespace(jobs=two, network=network, schedule=None, patience_s=1.0)
    training = Training(repetition, Group(2), Path(), lambda: None)
    listeners = [SimpleNamespace(hear=lambda message: None)] * 2
    _follow(SimpleNamespace(emulator=emulator, events=events), training, listeners, Trained(), None)
    assert seen == [0, 0, 0, 0, 1, 1]
    assert not emulator.updates[0].loses
    assert network.loses
