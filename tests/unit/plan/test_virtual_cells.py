"""Specs that ask for the virtual testbed."""

from __future__ import annotations

import pytest
from on_relay import expand
from small_spec import cells, edited, refusal

from wanbench.harness.errors import SpecError
from wanbench.harness.plan.conditions import effective_conditions
from wanbench.harness.plan.law import round_trips
from wanbench.harness.run.host import check_host
from wanbench.harness.spec.experiment import Spec
from wanbench.netprofiles import load, place

VIRTUAL = ("[sweep]", '[run]\ntestbed = "virtual"\n\n[sweep]')


def test_a_simulated_cell_has_no_emulator_and_lists_its_models():
    for cell in cells(edited(VIRTUAL)):
        assert cell.testbed == "virtual"
        assert cell.emulator is None
        assert cell.virtual.tcp_ramp


def test_the_model_of_tcp_is_not_part_of_an_emulated_cell():
    switched_off = ("[sweep]", "[virtual]\ntcp_ramp = false\n\n[sweep]")
    assert [cell.key for cell in cells(edited(switched_off))] == [cell.key for cell in cells()]
    plain, off = cells(edited(VIRTUAL)), cells(edited(VIRTUAL, switched_off))
    assert not off[-1].virtual.tcp_ramp
    assert plain[-1].key != off[-1].key


def test_the_testbed_is_an_axis():
    found = cells(edited(("[sweep]", '[sweep]\ntestbed = ["netns", "virtual"]')))
    assert [(cell.axes.get("testbed"), cell.testbed) for cell in found if not cell.is_baseline] == [
        ("netns", "netns"),
        ("virtual", "virtual"),
    ]
    assert [cell.testbed for cell in found if cell.is_baseline] == ["netns", "virtual"]


def test_a_congestion_control_that_is_not_simulated_is_refused():
    asked = ("[sweep]", '[sweep]\ncongestion = ["vegas"]')
    assert cells(edited(asked))[-1].tcp.congestion == "vegas"
    assert refusal(VIRTUAL, asked) == (
        "x.toml: network.tcp.congestion: 'vegas' is not simulated; expected 'reno', 'cubic', 'bbr', or an emulated "
        'testbed: run.testbed = "netns"'
    )


def test_the_error_for_an_unknown_collective_lists_the_known_ones():
    assert refusal(VIRTUAL, ("[sweep]", '[comm]\ncollective = "rings"\n\n[sweep]')) == (
        "x.toml: comm.collective: expected 'auto', 'direct', 'gloo', 'ring' or 'hierarchical', got 'rings'; "
        "did you mean 'ring'?"
    )


def test_real_compute_cannot_be_simulated():
    real = ('params = 1000\ntensors = 2\nstep_time = "10ms"', 'name = "digits-cnn"\nstep_time = "real"')
    assert refusal(VIRTUAL, real) == (
        "x.toml: workload: digits-cnn has no compute model, which testbed virtual needs; "
        'set workload.step_time, such as "300ms"'
    )


@pytest.mark.parametrize(
    ("change", "key"),
    [
        (('rtt = ["10ms"]', 'rtt = ["-10ms"]'), "network.rtt"),
        (('step_time = "10ms"', 'step_time = "-10ms"'), "workload.step_time"),
    ],
)
def test_a_negative_duration_is_refused(change, key):
    refused = refusal(VIRTUAL, change)
    assert key in refused
    assert "-10ms" in refused
    assert "\n" not in refused


def test_an_unknown_switch_is_refused():
    with pytest.raises(SpecError) as caught:
        cells(edited(VIRTUAL, ("[sweep]", "[virtual]\ntcp = false\n\n[sweep]")))
    assert str(caught.value).startswith("x.toml: virtual.tcp: unknown key")


def test_thousands_of_simulated_workers_need_little_memory():
    text = edited(VIRTUAL, ("params = 1000", "params = 1_000_000_000"))
    (cell,) = [cell for cell in cells(text) if not cell.is_baseline]
    assert cell.memory_bytes < 1 << 20
    check_host([cell])


@pytest.mark.parametrize("collective", ["direct", "gloo", "ring", "hierarchical"])
def test_every_collective_has_conditions_on_every_placement(collective):
    profile = load("world4")
    for workers in (2, 3, 5, 8):
        for how in ("blocked", "round-robin"):
            rtt_s, rate = effective_conditions(profile, place(profile, workers, how), collective)
            assert 0 < rtt_s < 0.5
            assert rate is not None
            assert rate > 0
            assert round_trips(collective, workers, 1_000_000) >= 1


def test_a_built_in_experiment_can_be_simulated():
    spec = Spec.load("latency-sweep").override({"run.testbed": "virtual"})
    assert {cell.testbed for cell in expand(spec, "latency-sweep")} == {"virtual"}
