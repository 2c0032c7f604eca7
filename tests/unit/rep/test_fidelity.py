"""A repetition gets a reason for each way in which its emulation was not faithful, and else none."""

from __future__ import annotations

import pytest
from on_relay import expand

from wanbench.harness.emulators.emulator import EmulatorStats
from wanbench.harness.plan.cell import Cell
from wanbench.harness.rep.fidelity import HostMeter, judge, judge_settings, share_of_programs
from wanbench.harness.spec.experiment import Spec
from wanbench.workloads.process.finished import Processor

IDLE_HOST = {"cpu_pct": 30.0, "softnet_dropped": 0}
GOOD_PROBE = {"ok": True, "reasons": [], "one_way_error_ms": 0.1}


def cell(rtt: str = "10ms", step_time: str = "10ms", workers: int = 2) -> Cell:
    spec = Spec.from_toml(
        'schema = 1\nname = "t"\n[workload]\nparams = 1000\nstep_time = "10ms"\nstep_cv = 0.0\n'
        "[algorithms]\ndelayed = { delay = 100 }\n[sweep]\nworkers = [2]\n",
        "x.toml",
    )
    changes = {"network.rtt": rtt, "workload.step_time": step_time, "sweep.workers": [workers]}
    return expand(spec.override(changes), "x.toml")[-1]


def stats(**fields) -> EmulatorStats:
    drops = {"up": 0, "path": 0, "down": 0, "loss": 0, "unknown": 0, "refused": 0, "gone": 0}
    given = {
        "emulator": "relay", "seconds": 10.0, "sent_bytes": 10**6, "packets": 1000, "segments": 1000,
        "offload": True, "bytes": 10**6, "not_ipv4": 0, "paths": (),
        "sites": (), "lateness_p50_ms": 0.1, "lateness_p99_ms": 0.5, "lateness_max_ms": 50.0,
        "read_lag_p99_ms": 0.5, "read_lag_max_ms": 50.0, "overdue_pct": 1.3, "cpu_s": 1.0,
        **fields,
    }  # fmt: skip
    return EmulatorStats(**{**given, "drops": {**drops, **fields.get("drops", {})}})


def reasons(of: Cell | None = None, host=IDLE_HOST, probe=GOOD_PROBE, **fields) -> list[str]:
    of = of or cell()
    return judge(of.repetition(0), stats(**fields), host, probe)


def test_a_faithful_repetition_has_no_reasons():
    assert reasons() == []


def test_a_repetition_without_a_probe_is_judged_by_its_own_statistics():
    assert reasons(probe=None) == []


def test_the_probes_reasons_apply_to_every_repetition_on_its_network():
    found = ["w0 -> w1: one-way delay 7.0 ms, configured 5.0 ms"]
    assert reasons(probe={"ok": False, "reasons": found}) == found


@pytest.mark.parametrize(
    ("network", "limit"),
    [
        ({}, 2.0),  # 2 ms if the other limits are smaller
        ({"rtt": "1000ms"}, 10.0),  # 2 % of the one-way delay
        ({"step_time": "500ms"}, 5.0),  # 1 % of the predicted step
    ],
)
@pytest.mark.parametrize(
    ("field", "words"),
    [
        ("lateness_p99_ms", "packets were late by {} ms (p99), limit {} ms, during 1.3 % of the time"),
        ("read_lag_p99_ms", "packets waited {} ms to be read (p99), limit {} ms, during 1.3 % of the time"),
    ],
)
def test_packets_can_be_late_up_to_a_limit(network, limit, field, words):
    of = cell(**network)
    assert reasons(of, **{field: limit}) == []
    assert reasons(of, **{field: limit + 0.1}) == [words.format(f"{limit + 0.1:.1f}", f"{limit:.1f}")]


def test_unknown_lateness_is_no_reason():
    assert reasons(lateness_p99_ms=None, read_lag_p99_ms=None) == []


def test_late_packets_of_short_pauses_are_a_reason_only_if_the_pauses_add_up():
    late = {"lateness_p99_ms": 9.0, "read_lag_p99_ms": 9.0}
    assert reasons(**late, overdue_pct=1.0) == []
    (reason,) = reasons(**late, overdue_pct=1.1)
    assert "late by 9.0 ms and waited 9.0 ms" in reason


def test_an_emulator_that_was_behind_for_long_is_a_reason_even_if_most_packets_were_in_time():
    assert reasons(overdue_pct=5.0) == []
    assert reasons(overdue_pct=5.1) == ["the emulator was behind during 5.1 % of the time, limit 5 %"]
    assert len(reasons(overdue_pct=5.1, lateness_p99_ms=9.0)) == 1


@pytest.mark.parametrize("cause", ["refused", "unknown"])
def test_a_loss_outside_the_models_queues_is_a_reason(cause):
    assert reasons(drops={cause: 3}) == ["3 packets were lost outside the model's queues"]


@pytest.mark.parametrize("cause", ["up", "path", "down", "loss", "gone"])
def test_a_loss_of_the_model_is_no_reason(cause):
    assert reasons(drops={cause: 3}) == []


def test_packets_dropped_by_the_kernel_are_a_reason():
    assert reasons(host={**IDLE_HOST, "softnet_dropped": 7}) == ["the kernel dropped 7 packets (softnet backlog)"]


def test_datagrams_dropped_by_a_full_socket_buffer_are_a_reason():
    assert reasons(host={**IDLE_HOST, "udp_overflows": 7}) == [
        "7 datagrams were dropped because a worker's socket buffer was full"
    ]


def test_an_unknown_load_is_no_reason():
    assert reasons(host={"cpu_pct": None, "softnet_dropped": 0}) == []


def test_all_reasons_are_listed():
    found = reasons(
        probe={"reasons": ["bad path"]},
        host={"softnet_dropped": 1},
        lateness_p99_ms=9.0,
        read_lag_p99_ms=9.0,
        drops={"refused": 1},
    )
    assert len(found) == 4
    assert found[0] == "bad path"


def test_a_single_worker_is_not_judged_by_its_network():
    alone = cell(workers=1)
    assert reasons(alone, lateness_p99_ms=99.0, host={"softnet_dropped": 1}, probe={"reasons": ["x"]}) == []


def test_the_meter_reads_the_load_of_the_host():
    with HostMeter() as meter:
        meter.start()
        sum(i * i for i in range(300_000))
    host = meter.load()
    assert host["cpu_pct"] is None or 0 <= host["cpu_pct"] <= 100
    assert host["softnet_dropped"] >= 0
    assert host["cores"] >= 1


@pytest.mark.parametrize("workers", [1, 2])
def test_a_worker_that_waits_for_a_processor_is_a_reason_even_if_it_is_alone(workers):
    of = cell(workers=workers)
    assert reasons(of, host={**IDLE_HOST, "worker_cpu_wait_pct": 30.0}) == []
    assert reasons(of, host={**IDLE_HOST, "worker_cpu_wait_pct": 30.1}) == [
        "the threads of a worker waited for a processor 30.1 % of the time, limit 30 %"
    ]


def test_a_program_that_waits_for_a_processor_is_a_reason_only_if_others_use_the_processors():
    waiting = {**IDLE_HOST, "program_cpu_wait_pct": 60.0}
    assert reasons(host={**waiting, "others_cpu_pct": 10.0}) == []  # it oversubscribes the host itself
    assert reasons(host={**waiting, "others_cpu_pct": 40.0}) == [
        "a program waited for a processor 60.0 % of the time, limit 30 %, while others used 40.0 % of all processors"
    ]
    assert reasons(host={**waiting, "program_cpu_wait_pct": 30.0, "others_cpu_pct": 40.0}) == []


def test_the_share_of_others_is_what_neither_programs_nor_relay_used():
    host = {"cpu_pct": 80.0, "cores": 2}
    processor = [Processor(1.0, 4.0), Processor(3.0, 5.0)]
    assert share_of_programs(host, processor, stats(seconds=10.0, cpu_s=1.0)) == {
        "program_cpu_wait_pct": 30.0,
        "others_cpu_pct": 30.0,
    }
    unknown = share_of_programs({"cpu_pct": None, "cores": 2}, processor, stats())
    assert set(unknown.values()) == {None}


CHANGED = ("wan0", "qdisc tbf, at the start noqueue")


def test_a_network_that_changed_is_named_with_its_worker_and_site():
    assert judge_settings({0: None, 2: CHANGED, 3: CHANGED}, ("oregon", "ohio", "tokyo", "london"), stats()) == [
        "the network was changed: wan0 of worker 2 (tokyo): qdisc tbf, at the start noqueue"
    ]


def test_a_router_that_changed_is_named_if_no_worker_did():
    routers = stats(changed="to1 of router delays: qdisc tbf, at the start none")
    words = "the network was changed: to1 of router delays: qdisc tbf, at the start none"
    assert judge_settings({0: None}, ("oregon",), routers) == [words]


def test_a_network_that_stayed_has_no_reason():
    assert judge_settings({0: None, 1: None}, ("oregon", "ohio"), stats()) == []
