"""`payload_scale = "auto"`: the largest scale that the host carries, chosen once."""

from __future__ import annotations

import pytest
from on_relay import expand

from wanbench.harness.errors import SpecError
from wanbench.harness.plan.auto import SCALES, FixedHost
from wanbench.harness.plan.cell import Cell
from wanbench.harness.plan.load import Capacity, makespan
from wanbench.harness.plan.plan import Plan, make
from wanbench.harness.spec.experiment import Spec

GIB = 1 << 30
LAPTOP, SERVER = Capacity(2, 4 * GIB), Capacity(64, 256 * GIB)
SPEC = """
schema = 1
name = "t"
[workload]
params = 25_000_000
step_time = "300ms"
payload_scale = "auto"
[network]
rate = "10Gbit"
[algorithms]
ssgd = {}
[sweep]
workers = [4]
rtt = ["100ms"]
"""


def auto(text: str = SPEC, host: Capacity = LAPTOP, **earlier: object) -> Plan:
    return make(Spec.from_toml(text, "t.toml"), "t.toml", FixedHost(size=host), earlier)


def built_in(name: str, host: Capacity) -> Plan:
    spec = Spec.load(name)
    drop = ["gate"] if spec.gate.require else []
    return make(
        spec.override({"workload.payload_scale": "auto", "run.testbed": "netns"}, name, drop),
        name,
        FixedHost(size=host),
    )


def scale_of(plan: Plan) -> float:
    (scale,) = {cell.rate_scale for cell in plan.cells}
    assert plan.spec.workload.payload_scale == scale
    return scale


def test_a_server_runs_the_workload_itself_and_a_laptop_a_part_of_it():
    assert scale_of(built_in("latency-sweep", SERVER)) == 1
    assert scale_of(built_in("latency-sweep", LAPTOP)) < 0.1


def test_compression_must_not_lengthen_the_steps_of_a_small_host():
    slow = SPEC.replace("10Gbit", "50Mbit")  # so that nothing else decides
    dts, topk = (
        slow.replace("ssgd = {}", f"dts = {{ delay = 4, period = 4{more} }}")
        for more in ("", ', compression = { kind = "topk", ratio = 0.01 }')
    )
    two_cores = Capacity(2, 64 * GIB)
    assert scale_of(auto(dts, two_cores)) == scale_of(auto(topk, SERVER)) == 1
    plan = auto(topk, two_cores)
    assert scale_of(plan) < 0.2
    assert "compresses for" in str(plan.why_scale)


@pytest.mark.parametrize("name", [pytest.param("world4", marks=pytest.mark.long), "dts-timeline"])
def test_a_larger_host_never_chooses_a_smaller_scale(name):
    hosts = [Capacity(1, 2 * GIB), LAPTOP, Capacity(2, 8 * GIB), Capacity(4, 16 * GIB), Capacity(16, 64 * GIB), SERVER]
    scales = [scale_of(built_in(name, host)) for host in hosts]
    assert scales == sorted(scales)
    assert set(scales) <= set(SCALES)


def at(scale: float) -> list[Cell]:
    return expand(Spec.from_toml(SPEC, "t.toml").override({"workload.payload_scale": scale}), "t.toml")


def test_every_cell_keeps_to_the_limits_at_its_peak_and_the_next_scale_does_not():
    fitting = scale_of(auto())
    next_one = SCALES[SCALES.index(fitting) - 1]
    assert max(cell.load.peak_cpus for cell in at(fitting)) <= LAPTOP.cpu_limit
    assert max(cell.load.peak_cpus for cell in at(next_one)) > LAPTOP.cpu_limit


def test_memory_alone_can_decide():
    small = Capacity(64, 2 * GIB)
    fitting = scale_of(auto(host=small))
    assert 0.01 < fitting < scale_of(auto(host=Capacity(64, 256 * GIB)))
    assert max(cell.load.memory_bytes for cell in at(fitting)) <= small.memory_limit
    assert max(cell.load.memory_bytes for cell in at(SCALES[SCALES.index(fitting) - 1])) > small.memory_limit


def test_the_experiment_does_not_take_longer_than_at_the_smallest_scale():
    def seconds(scale: float) -> float:
        cells = expand(Spec.load("latency-sweep").override({"workload.payload_scale": scale}), "latency-sweep")
        return makespan(sorted((cell.load for cell in cells), key=lambda load: -load.seconds), host.slots, host)

    host = Capacity(8, 16 * GIB)
    plan = built_in("latency-sweep", host)
    larger = SCALES[SCALES.index(scale_of(plan)) - 1]
    assert seconds(scale_of(plan)) <= 1.2 * seconds(SCALES[-1])
    assert seconds(larger) > 1.2 * seconds(SCALES[-1])
    assert f"; at {larger:g}, a repetition of all cells takes" in str(plan.why_scale)


def test_it_is_one_value_for_all_cells():
    text = SPEC.replace("[4]", "[2, 16]").replace('["100ms"]', '["0ms", "1000ms"]')
    assert scale_of(auto(text)) < scale_of(auto(text.replace("[2, 16]", "[2]")))


def test_the_smallest_scale_is_chosen_where_none_fits():
    plan = auto(host=Capacity(1, 1 << 20))
    assert scale_of(plan) == SCALES[-1]
    assert str(plan.why_scale).startswith("the smallest, but too large for 1 processor and 0.0 GiB")


def test_the_reason_names_the_host_and_the_cell_that_the_next_scale_overloads():
    assert auto().why_scale == (
        "the largest that fits 2 processors and 4.0 GiB of available memory; at 0.01, ssgd w4 100ms keeps 2.2 "
        "processors busy at its peak (limit 1.2)"
    )


def test_the_choice_is_stored_with_the_run():
    stored = auto().to_json()
    assert stored["auto"] == {"testbed": "netns", "emulator": {"netns": "relay"}, "payload_scale": 0.005}
    assert stored["spec"]["workload"]["payload_scale"] == 0.005


def test_cells_are_those_of_a_spec_that_names_the_value():
    named = Spec.from_toml(SPEC, "t.toml").override({"workload.payload_scale": 0.005})
    assert [cell.key for cell in auto().cells] == [cell.key for cell in expand(named, "t.toml")]


@pytest.mark.parametrize("host", [LAPTOP, SERVER])
def test_a_run_that_continues_on_another_host_keeps_its_scale(host):
    plan = auto(host=host, payload_scale=0.02)
    assert scale_of(plan) == plan.auto["payload_scale"] == 0.02
    assert plan.why_scale == "as chosen when this run began; --fresh chooses again"


@pytest.mark.parametrize("stored", ["auto", 7.0, None])
def test_a_stored_value_that_auto_cannot_have_is_not_kept(stored):
    assert scale_of(auto(payload_scale=stored)) == scale_of(auto())


def test_a_simulation_runs_the_workload_itself_on_any_host():
    plan = auto(SPEC + '[run]\ntestbed = "virtual"\n', Capacity(1, 1 << 20), payload_scale=0.02)
    assert scale_of(plan) == 1
    assert (dict(plan.auto), plan.why_scale) == ({}, None)


def test_a_workload_that_trains_a_model_is_not_scaled():
    text = SPEC.replace("params = 25_000_000", 'name = "digits-cnn"')
    plan = auto(text, Capacity(1, 1 << 20))
    assert (scale_of(plan), plan.why_scale) == (1, None)


def test_a_sweep_that_names_its_scales_leaves_nothing_to_choose():
    plan = auto(SPEC + "payload_scale = [0.5, 0.1]\n")
    assert {cell.rate_scale for cell in plan.cells if not cell.is_baseline} == {0.5, 0.1}
    assert "payload_scale" not in plan.auto


@pytest.mark.parametrize(
    "entry", ['payload_scale = ["auto", 0.1]', '[[sweep.include]]\n"workload.payload_scale" = "auto"']
)
def test_auto_is_no_value_of_an_axis(entry):
    with pytest.raises(SpecError) as refused:
        auto(SPEC.replace('"auto"', "0.1") + entry)
    assert "\n" not in str(refused.value)
    for part in ("t.toml", "payload_scale:", '"auto" is one value for all cells'):
        assert part in str(refused.value)


def test_a_gated_spec_names_its_scale():
    with pytest.raises(SpecError) as refused:
        auto(SPEC + '[[gate.require]]\nmetric = "scalability"\nwhere = { rtt = "100ms" }\nmin = 0.5\n')
    assert str(refused.value) == (
        't.toml: workload.payload_scale: "auto" depends on the host, but an experiment with [[gate.require]], or for '
        "`check`, must be the same on every host; name the scale, such as 0.01"
    )


def test_a_command_has_no_scale():
    with pytest.raises(SpecError, match="payload_scale: not allowed with command"):
        auto('schema = 1\nname = "t"\n[workload]\ncommand = ["true"]\npayload_scale = "auto"\n[sweep]\nrtt = ["1ms"]\n')


def test_another_word_is_refused_with_what_is_expected():
    with pytest.raises(SpecError) as refused:
        Spec.from_toml(SPEC.replace('"auto"', '"all"'), "t.toml")
    assert str(refused.value) == "t.toml: workload.payload_scale: expected a number or 'auto', got 'all'"
