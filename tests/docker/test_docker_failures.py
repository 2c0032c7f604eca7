"""A container that ends, hangs or vanishes fails its cell with the reason; the rest of the run continues."""

from __future__ import annotations

import os
import signal
import time

import pytest
from cli_session import by_numbers
from docker_bench import IMPATIENT

RUN = ("run", "spec.toml", "--out", "out", "--no-figures", "--jobs", "1")


def spec(name: str, algorithms: str) -> str:
    return by_numbers(name, algorithms, window=200, run='testbed = "docker"')


@pytest.fixture(scope="module")
def unlucky(shared_bench):
    """Run while a worker of each cell in turn is killed, removed and paused, and then a relay killed."""
    bench = shared_bench
    bench.spec(
        spec(
            "unlucky",
            "killed = { kind = 'ssgd' }\nremoved = { kind = 'delayed', delay = 1 }\n"
            "paused = { kind = 'delayed', delay = 2 }\nrelayless = { kind = 'delayed', delay = 3 }\n"
            "spared = { kind = 'delayed', delay = 4 }",
        )
    )
    bench.api.create_container(bench.image, name="bystander", command="true")
    before = bench.containers()
    command = bench.start(*RUN, program=IMPATIENT)
    todo = {
        "killed": lambda container: bench.api.kill(container),
        "removed-d1": lambda container: bench.api.remove_container(container, force=True),
        "paused-d2": lambda container: bench.api.pause(container),
        "relayless-d3": lambda container: os.kill(command.relays()[0], signal.SIGKILL),
    }

    def reached() -> dict[str, dict]:
        everyone = bench.containers()
        return {name: found[1] for name in todo if 1 in (found := bench.training(name, everyone))}

    while todo:
        for name, container in command.until(reached).items():
            time.sleep(0.3)
            todo.pop(name)(container["Id"])
    yield bench, command.wait(), command, before
    bench.api.remove_container("bystander")


@pytest.fixture(scope="module")
def reasons(unlucky):
    return {row["algorithm"]: row["reason"] for row in unlucky[0].rows("unlucky")}


def test_the_rest_of_the_run_finishes_and_the_exit_code_is_4(unlucky, reasons):
    _, result, _, _ = unlucky
    assert result.code == 4
    assert result.last_line.startswith("wanbench: 4 repetitions have no valid result")
    assert {name for name, reason in reasons.items() if reason is None} == {"one-worker", "spared-d4"}


def test_a_killed_container_is_named_with_its_signal(reasons):
    assert reasons["killed"] == "worker 1 was killed by SIGKILL"


def test_a_removed_container_is_reported_as_removed(reasons):
    assert reasons["removed-d1"] == "worker 1 was lost: someone removed its container"


def test_a_paused_container_fails_its_cell_and_is_named(reasons):
    assert reasons["paused-d2"] == "hung: no message from any worker for 5 s; stopped by a signal: worker 1"


def test_a_relay_that_is_killed_is_named(reasons):
    assert reasons["relayless-d3"] == "relay: the process was killed by SIGKILL"


def test_containers_and_host_are_as_before(unlucky):
    bench, _, command, before = unlucky
    assert [(c["Id"], c["State"]["Status"]) for c in bench.containers()] == [(before[0]["Id"], "created")]
    assert command.left() == []
