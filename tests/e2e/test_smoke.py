"""The first command of every user: everything that a run writes, and the effect of running it again."""

from __future__ import annotations

import json

import pandas as pd
import pytest
from contract import CONTRACT

from wanbench.harness.spec.library import find

pytestmark = pytest.mark.timed


@pytest.fixture(scope="module")
def smoke(shared_bench):
    """Return the result of `wanbench run smoke`, and its folder."""
    return shared_bench.measure("smoke"), shared_bench


@pytest.fixture(scope="module")
def rows(smoke):
    _, bench = smoke
    return bench.rows("smoke")


def test_the_last_line_on_stdout_is_the_folder(smoke):
    result, _ = smoke
    assert result.out == "out/smoke\n"


def test_every_repetition_has_its_result_steps_network_and_logs(smoke):
    _, bench = smoke
    reps = sorted((bench.folder / "out/smoke").glob("cells/*/rep-0"))
    assert len(reps) == 5
    for rep in reps:
        result = json.loads((rep / "result.json").read_text())
        logs = {f"worker-{rank}.log" for rank in range(result["workers"])}
        files = {"result.json", "steps.parquet", "network.json", *logs}
        files |= {"messages.parquet"} if result["workers"] > 1 else set()
        assert {path.name for path in rep.iterdir()} == files
        steps = pd.read_parquet(rep / "steps.parquet")
        assert set(steps["rank"]) == set(range(result["workers"]))
        assert steps.groupby("rank")["step"].apply(lambda s: list(s) == list(range(len(s)))).all()


def test_what_was_just_measured_is_intact(smoke):
    _, bench = smoke
    verdicts = bench.run("verify", "out/smoke").out.splitlines()
    assert [line.split()[0] for line in verdicts if " intact " in line] == ["ok"], verdicts


def test_network_json_holds_the_configured_and_the_measured_network(smoke):
    _, bench = smoke
    found = sorted((bench.folder / "out/smoke").glob("cells/*-w2-*/rep-0/network.json"))
    assert len(found) == 4
    for path in found:
        network = json.loads(path.read_text())
        one_way_ms = 5.0 if "rtt10ms" in path.parts[-3] else 20.0
        assert [(row["src"], row["dst"]) for row in network["probe"]["rows"]] == [("w0", "w1"), ("w1", "w0")]
        for row in network["probe"]["rows"]:
            assert row["one_way_ms"] == one_way_ms
            assert row["measured_one_way_ms"] == pytest.approx(one_way_ms, abs=1.0)
            assert row["measured_rate_mbit"] == pytest.approx(100.0, rel=0.1)
        assert network["tcp"]["tcp_congestion_control"] == "reno"
        assert network["tcp"]["tcp_slow_start_after_idle"] == "0"


def test_each_repetition_is_one_object_with_every_column(rows):
    assert len(rows) == 5
    assert len({(row["cell"], row["rep"]) for row in rows}) == 5
    for row in rows:
        assert set(row) >= CONTRACT
        assert (row["status"], row["reason"], row["run"]) == ("ok", None, "smoke")


def test_step_times_are_within_15_percent_of_the_law(rows):
    for row in rows:
        assert row["step_time_s"] == pytest.approx(row["predicted_step_time_s"], rel=0.15), row["cell"]


def test_compute_stall_and_overhead_add_up_to_the_step(rows):
    for row in rows:
        assert row["compute_s"] + row["stall_s"] + row["overhead_s"] == pytest.approx(row["step_time_s"])
        assert row["overhead_s"] < 0.15 * row["step_time_s"]


def test_more_bytes_cross_the_wire_than_the_payload_but_not_many(rows):
    for row in rows:
        if row["workers"] == 2:
            assert row["payload_bytes"] < row["wire_bytes"] < 1.15 * row["payload_bytes"]


def test_a_lone_worker_has_no_network(rows):
    (alone,) = [row for row in rows if row["workers"] == 1]
    assert alone["scalability"] == 1.0
    absent = ("emulator", "collective", "channels", "profile", "rtt_ms", "rate_mbps", "loss_pct", "tcp")
    assert {name: alone[name] for name in absent} == dict.fromkeys(absent)


def test_figures_exist_in_all_formats(smoke):
    _, bench = smoke
    for form, magic in (("svg", b"<?xml"), ("pdf", b"%PDF"), ("png", b"\x89PNG")):
        figures = list((bench.folder / "out/smoke/figures").glob(f"*.{form}"))
        assert figures
        assert all(path.read_bytes().startswith(magic) for path in figures)


def test_running_again_measures_nothing(smoke):
    _, bench = smoke
    before = bench.finished("smoke")
    again = bench.run("run", "smoke", "--out", "out", "--no-figures")
    assert again.code == 0
    assert "5 reps, 0 to do" in again.err
    assert bench.finished("smoke") == before


AXES = """
workers = [2]
rtt = ["10ms", "40ms", "5ms"]
testbed = ["netns", "virtual"]

[[sweep.exclude]]
testbed = "netns"
rtt = "5ms"
"""


@pytest.fixture(scope="module")
def simulated_too(smoke):
    """Return what had finished before the spec got a new value and a new axis, what has finished since, and how."""
    _, bench = smoke
    before = bench.finished("smoke")
    text = find("smoke").read_text().replace('workers = [2]\nrtt = ["10ms", "40ms"]\n', AXES)
    result = bench.measure(bench.spec(text), "--no-figures")
    return before, bench.finished("smoke"), result


def test_a_new_axis_and_a_new_value_measure_only_the_new_cells(simulated_too):
    before, after, result = simulated_too
    assert "12 reps, 7 to do" in result.err
    assert {path: after[path] for path in before} == before
    assert sorted(path.parts[-3].rpartition("-")[0] for path in set(after) - set(before)) == [
        "dts-d4-p2-w2-rtt10ms-testbedvirtual",
        "dts-d4-p2-w2-rtt40ms-testbedvirtual",
        "dts-d4-p2-w2-rtt5ms-testbedvirtual",
        "one-worker-w1",
        "ssgd-w2-rtt10ms-testbedvirtual",
        "ssgd-w2-rtt40ms-testbedvirtual",
        "ssgd-w2-rtt5ms-testbedvirtual",
    ]


def test_the_simulation_agrees_with_the_emulation(smoke, simulated_too):
    """Check `compare --by testbed` on a small scale; the large crosscheck is a benchmark."""
    _, bench = smoke
    result = bench.run("compare", "smoke", "--out", "out", "--format", "json")
    assert result.code == 0, result.err
    pairs = json.loads(result.out)["pairs"]
    assert [(pair["base"], pair["head"]) for pair in pairs] == [("netns", "virtual")] * 4
    for pair in pairs:
        assert pair["ratio"] == pytest.approx(1.0, abs=0.15), pair
    assert (bench.folder / "out/smoke/figures/parity-by-testbed.png").read_bytes().startswith(b"\x89PNG")
