"""The table [containers]: memory, processors and image of every worker."""

from __future__ import annotations

from cli_session import by_numbers

RUN = ("run", "spec.toml", "--out", "out", "--no-figures", "--jobs", "1")


def spec(name: str, algorithms: str) -> str:
    return by_numbers(name, algorithms, window=60, run='testbed = "docker"')


def test_a_worker_without_enough_memory_fails_its_cell_with_the_limit(bench):
    bench.spec(spec("tight", "ssgd = {}"))
    result = bench.run(*RUN, "--set", "containers.memory=48MiB", "--only", "workers=2")
    assert result.code == 4, result.err
    reasons = {row["workers"]: row["reason"] for row in bench.rows("tight")}
    assert reasons[2] == "worker 0 ran out of memory: its container is limited to 48MiB"
    assert bench.containers() == []


def test_the_spec_sets_the_limits_and_processors_of_a_container(bench):
    bench.spec(spec("limits", "ssgd = {}") + '\n[containers]\nmemory = "1GiB"\ncpuset = ["0", "0-1"]\n')
    command = bench.start(*RUN)
    found = command.until(lambda: len(bench.training("ssgd")) == 2 and bench.training("ssgd"))
    assert {rank: c["HostConfig"]["CpusetCpus"] for rank, c in found.items()} == {0: "0", 1: "0-1"}
    assert {c["HostConfig"]["Memory"] for c in found.values()} == {2**30}
    assert command.wait().code == 0
