"""However a run ends, none of its containers is left, and no other container is touched."""

from __future__ import annotations

import contextlib
import os
import signal
import time

import pytest
from cli_session import SOON_S, by_numbers
from docker_bench import IMPATIENT

RUN = ("run", "spec.toml", "--out", "out", "--no-figures", "--jobs", "1")


def spec(name: str, algorithms: str) -> str:
    return by_numbers(name, algorithms, window=60, run='testbed = "docker"')


@contextlib.contextmanager
def measuring(bench):
    bench.spec(spec("steady", "ssgd = {}\ndelayed = { delay = 2 }"))
    command = bench.start(*RUN)
    command.until(lambda: len(bench.training("ssgd")) == 2 or len(bench.training("delayed-d2")) == 2)
    time.sleep(0.3)
    yield command


def completes(bench, finished):
    """Run the same command: finished repetitions are kept, the rest is measured, and the host is unchanged."""
    again = bench.start(*RUN)
    result = again.wait()
    assert result.code == 0, result.err
    assert f"3 reps, {3 - len(finished)} to do" in result.err
    after = bench.finished("steady")
    assert len(after) == 3
    assert {path: after[path] for path in finished} == finished
    assert bench.containers() == []
    assert again.left_nothing()
    assert list(again.temp.iterdir()) == []


def gone(bench) -> bool:
    deadline = time.monotonic() + SOON_S
    while bench.containers() and time.monotonic() < deadline:
        time.sleep(0.1)
    return not bench.containers()


def paused(bench, command):
    bench.api.pause(bench.containers()[0]["Id"])


def relay_stopped(bench, command):
    for pid in command.relays():
        os.kill(pid, signal.SIGSTOP)


@pytest.mark.long  # without containers that hang, the next test kills a run each time
@pytest.mark.parametrize("hanging", [paused, None, relay_stopped])
def test_a_killed_run_leaves_nothing_even_if_containers_hang_and_is_resumed(bench, hanging):
    with measuring(bench) as command:
        finished = bench.finished("steady")
        if hanging is not None:
            hanging(bench, command)
        os.kill(command.process.pid, signal.SIGKILL)
        command.process.wait()
    assert gone(bench)
    assert command.left_nothing()
    assert bench.finished("steady") == finished
    completes(bench, finished)


def test_if_all_of_a_run_is_killed_its_containers_end_and_clean_removes_them(bench):
    with measuring(bench) as command:
        labels = bench.containers()[0]["Config"]["Labels"]
        os.killpg(janitor(labels["org.wanbench.run"]), signal.SIGKILL)
        os.killpg(command.process.pid, signal.SIGKILL)
        command.process.wait()
    deadline = time.monotonic() + SOON_S
    while any(c["State"]["Running"] for c in bench.containers()) and time.monotonic() < deadline:
        time.sleep(0.1)
    left = sorted(c["Name"].removeprefix("/") for c in bench.containers())
    assert {c["State"]["Status"] for c in bench.containers()} == {"exited"}
    bench.api.create_container(bench.image, name=f"{left[0]}-not", command="true")
    try:
        listed = bench.run("clean", "--dry-run")
        (folder,) = command.temp.iterdir()
        lines = [f"would remove {folder}", *(f"would remove container {name}" for name in left)]
        assert (listed.code, listed.out.splitlines()) == (0, lines)
        cleaned = bench.run("clean")
        assert cleaned.out.splitlines() == [line.replace("would remove", "removed") for line in lines]
        assert [c["Name"] for c in bench.containers()] == [f"/{left[0]}-not"]
        assert (bench.run("clean").out, bench.run("clean").err) == ("", "nothing to clean\n")
    finally:
        bench.api.remove_container(f"{left[0]}-not")


def janitor(run: str) -> int:
    """Return the id of the process that removes a run's containers."""
    for path in os.listdir("/proc"):
        with contextlib.suppress(OSError, ValueError):
            with open(f"/proc/{int(path)}/cmdline", "rb") as line:
                words = line.read().decode().split("\0")
            if "wanbench.harness.testbeds.docker.janitor" in words and run in words:
                return int(path)
    raise AssertionError("no janitor")


@pytest.mark.long  # one that is interrupted while containers start leaves none each time
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_ends_soon_and_leaves_no_container(bench, number):
    with measuring(bench) as command:
        command.process.send_signal(number)
        result = command.wait(SOON_S)
    assert result.code == 130
    assert bench.containers() == []
    assert command.left_nothing()
    assert list(command.temp.iterdir()) == []
    assert {row["status"] for row in bench.rows("steady")} == {"ok"}  # a dropped repetition is not a failure


@pytest.mark.long
def test_one_of_two_runs_can_be_killed_while_the_other_continues(bench):
    bench.spec(spec("steady", "ssgd = {}\ndelayed = { delay = 2 }"))
    other = tuple("other" if word == "out" else word for word in RUN)
    second = bench.start(*other, "--set", "run.repeats=9")
    second.until(bench.containers)
    theirs = runs(bench)
    command = bench.start(*RUN)
    command.until(lambda: bench.finished("steady") and len(runs(bench)) == 2)
    os.kill(command.process.pid, signal.SIGKILL)
    command.process.wait()
    finished = bench.finished("steady")
    second.until(lambda: runs(bench) == theirs)
    again = bench.run(*RUN)
    assert again.code == 0, again.err
    assert {path: bench.finished("steady")[path] for path in finished} == finished
    assert second.process.poll() is None
    assert runs(bench) == theirs
    second.process.terminate()
    result = second.wait(SOON_S)
    assert result.code == 130
    assert " FAILED: " not in result.err
    assert bench.containers() == []
    assert second.left_nothing()


def runs(bench) -> set[str]:
    """Return the runs that own containers."""
    return {container["Config"]["Labels"]["org.wanbench.run"] for container in bench.containers()}


def test_an_interrupt_while_containers_start_ends_the_run_too(bench):
    bench.spec(spec("steady", "ssgd = {}"))
    command = bench.start(*RUN)
    command.until(bench.containers)
    command.process.send_signal(signal.SIGTERM)
    result = command.wait(SOON_S)
    assert result.code == 130
    assert result.last_line == "wanbench: interrupted; finished repetitions are kept; the same command continues"
    assert bench.containers() == []


def test_a_foreign_container_with_our_name_is_reported_and_left_alone(bench):
    program = [
        *IMPATIENT[:-1],
        "import wanbench.harness.run.host as s; s.tempfile.mkdtemp = lambda prefix: "
        "(p := s.tempfile.gettempdir() + '/wanbench-taken', __import__('os').mkdir(p))[0]; " + IMPATIENT[-1],
    ]
    made = bench.api.create_container(bench.image, name="wanbench-taken-0", command="true", labels={"of": "others"})
    try:
        bench.spec(spec("taken", "ssgd = {}"))
        result = bench.run(*RUN, program=program)
        assert result.code == 3
        assert result.last_line == (
            "wanbench: docker: a container 'wanbench-taken-0' exists that this run did not make, and is left alone; "
            "rename it, or run again"
        )
        assert [c["Id"] for c in bench.containers()] == [made["Id"]]
        assert bench.containers()[0]["Config"]["Labels"] == {"of": "others"}
    finally:
        bench.api.remove_container(made["Id"])
