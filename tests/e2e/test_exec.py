"""`wanbench exec`: the user's program, unchanged, on an emulated network."""

import os
import re
import shlex
import signal
import sys
from pathlib import Path

import exec_claims
import pytest

PROGRAMS = Path(__file__).parent / "programs"
PYTHON = [sys.executable]
TWO = ["exec", "--profile", "uniform", "--rtt", "20ms", "-n", "2", "--"]


@pytest.mark.long  # the README's script, a line of torchrun and a swept script run unchanged each time
@pytest.mark.timed
def test_a_data_parallel_script_runs_unchanged_and_its_replicas_agree(bench):
    result = exec_claims.valid(bench, "exec", "--profile", "uniform", "--rtt", "40ms", "-n", "2",
                               "--nproc-per-node", "2", "--", *PYTHON, str(PROGRAMS / "ddp.py"))  # fmt: skip
    lines = re.findall(r"\[(\d) w(\d)\] rank (\d) of 4 local (\d) step ([\d.]+) sum (\S+)", result.out)
    assert sorted((int(a), int(b), int(c), int(d)) for a, b, c, d, *_ in lines) == [
        (0, 0, 0, 0), (1, 0, 1, 1), (2, 1, 2, 0), (3, 1, 3, 1)
    ]  # fmt: skip
    assert len({line[5] for line in lines}) == 1
    assert all(float(line[4]) > 0.040 for line in lines)  # it did wait for the network
    folder, row = exec_claims.run_folder(result, bench), exec_claims.row_of(result, bench)
    assert row["status"] == "ok"
    assert row["wire_bytes"] > 10 * 650 * 4
    assert row["one_way_error_ms"] < 1
    assert "rank 3 of 4" in (folder / "rank-3.log").read_text()


@pytest.mark.long  # a data-parallel script is swept each time
def test_torchs_model_averaging_runs_unchanged(bench):
    exec_claims.torchs_model_averaging_runs_unchanged(bench, [], PYTHON)


@pytest.mark.timed
def test_programs_see_the_round_trips_and_the_rate_of_the_profile(bench):
    exec_claims.programs_see_the_round_trips_and_the_rate_of_the_profile(bench, [], PYTHON)


def test_the_first_program_that_fails_is_named_with_its_site(bench):
    exec_claims.the_first_failure_sets_the_exit_code(bench, [])


def test_a_worker_killed_by_the_timeline_restarts_and_the_others_continue(bench):
    exec_claims.a_killed_worker_restarts_on_the_same_network_and_the_others_continue(bench, [], PYTHON)
    assert bench.commands[-1].left_nothing()


# Rank 0 checks whether rank 1 exists.
DYING = """
echo up
setsid sleep 1007 &
if [ $RANK = 1 ]; then exec flock --no-fork lock sh -c 'echo > locked; exec sleep 1006'; fi
until [ -s locked ]; do sleep 0.05; done
flock lock true
echo rank 1 is gone
exec sleep 1006
"""


def test_a_run_ended_while_a_worker_is_dead_starts_nothing_and_leaves_nothing(bench):
    (bench.folder / "killed.toml").write_text(exec_claims.KILLED.replace("500ms", "600s"))
    command = bench.start(*TWO[:-1], "--timeline", "killed.toml", "--", "sh", "-c", DYING)
    command.until(lambda: "rank 1 is gone" in _logs(bench))
    command.process.terminate()
    assert command.wait().code == 128 + signal.SIGTERM
    assert _logs(bench).count("up") == 2
    assert command.left_nothing()


def test_a_program_gets_the_requested_variables_and_nccl_the_emulated_device(bench):
    show = "echo $RANK says $GREETING; echo $NCCL_SOCKET_IFNAME $NCCL_NET $NCCL_HOSTID $GLOO_SOCKET_IFNAME; "
    script = show + "cat /proc/net/dev"
    result = bench.run(*TWO[:-1], "--env", "GREETING=hello there", "--", "sh", "-c", script)
    assert result.code == 0, result.err
    assert sorted(re.findall(r"\d says .*", result.out)) == ["0 says hello there", "1 says hello there"]
    stored = bench.written("results/exec-*/*.json*")
    assert "GREETING=***" in stored
    assert "hello there" not in stored
    found = re.findall(r"\[(\d) w\d\] (\w+) Socket (\S+) (\w+)$", result.out, re.M)
    assert {(nccl, gloo) for _, nccl, _, gloo in found} == {("wan0", "wan0")}
    assert len({host for _, _, host, _ in found}) == 2
    assert len(re.findall(r"\] +wan0:", result.out)) == 2
    assert "warning: the 2 workers exchanged next to nothing: the program must form its group" in result.err


def test_a_program_killed_by_a_signal_exits_with_128_plus_the_signal(bench):
    result = bench.run(*TWO, "sh", "-c", "if [ $RANK = 0 ]; then kill -KILL $$; fi; sleep 100")
    assert result.code == 128 + signal.SIGKILL


TRAPPING = "trap 'echo got it; exit 0' INT TERM; echo up; while :; do sleep 0.1; done"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_is_passed_on_nothing_is_left_and_only_the_user_can_read_the_shared_files(bench, number):
    command = bench.start(*TWO[:-1], "--rendezvous", "local", "--", "sh", "-c", TRAPPING)
    command.until(lambda: _logs(bench).count("up") == 2)
    (control,) = command.temp.glob("wanbench-*")
    assert control.stat().st_mode & 0o7777 == 0o700
    (door,) = control.glob("*-door")
    assert door.stat().st_mode & 0o777 == 0o600
    command.process.send_signal(number)
    result = command.wait()
    assert result.code == 128 + (signal.SIGTERM if number == signal.SIGHUP else number)  # a terminal that closes
    assert result.out.count("got it") == 2
    assert command.left_nothing()


def test_background_processes_of_a_program_end_with_it(bench):
    result = bench.run(*TWO, "sh", "-c", "setsid sleep 1000 & sleep 0.2; echo left")
    assert result.code == 0
    assert bench.commands[-1].left_nothing()


def _logs(bench):
    return bench.written("results/exec-*/cells/*/rep-*/rank-*.log")


# ---------------------------------------------------------------- a worker is a machine


PORTS = """
import os, socket, time
place = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]) + 1)
print("I am", socket.gethostname(), "at", socket.gethostbyname(socket.gethostname()))
if os.environ["RANK"] == "0":
    peer = socket.create_server(place).accept()[0]
else:
    while True:
        try:
            peer = socket.create_connection(place)
            break
        except ConnectionRefusedError:
            time.sleep(0.05)
peer.sendall(b"here")
print("peer is", peer.recv(4).decode())
"""


def test_a_program_finds_its_own_name_and_uses_more_ports_of_rank_0(bench):
    (bench.folder / "ports.py").write_text(PORTS)
    result = bench.run(*TWO, *PYTHON, "ports.py")
    assert result.code == 0, result.err
    assert sorted(re.findall(r"I am (\S+) at (\S+)", result.out)) == [("w0-0", "10.99.0.1"), ("w1-1", "10.99.0.2")]
    assert result.out.count("peer is here") == 2


TORCHRUN = [*PYTHON, "-m", "torch.distributed.run"]
README = "--nnodes=4 --node_rank 0 --master_addr=123.45.67.89 --master_port 1234"


@pytest.mark.parametrize(
    ("options", "line", "world"),
    [
        ([], README, 2),
        pytest.param([], "--nproc-per-node 2", 4, marks=pytest.mark.long),  # the others are tested as texts each time
        pytest.param([], "--standalone", 2, marks=pytest.mark.long),
        pytest.param(
            [], "--nnodes 1:4 --rdzv-backend=c10d --rdzv-endpoint host1:29400 --rdzv-conf last_call_timeout=1", 2,
            marks=pytest.mark.long,
        ),
        pytest.param(["--rendezvous", "local"], README, 2, marks=pytest.mark.long),
        pytest.param(["--rendezvous", "local"], "--rdzv-backend c10d", 2, marks=pytest.mark.long),
    ],
)  # fmt: skip
def test_a_line_of_torchrun_for_any_machines_forms_one_world_of_all_workers(bench, options, line, world):
    command = [*TORCHRUN, *line.split(), str(PROGRAMS / "ddp.py")]
    result = bench.run(*TWO[:-1], "--timeout", "2min", *options, "--", *command)
    assert result.code == 0, result.err
    assert sorted(re.findall(r"rank (\d) of (\d)", result.out)) == [(str(rank), str(world)) for rank in range(world)]
    assert ("wanbench: on each worker: " in result.err) == (line != "--nproc-per-node 2")
    assert "exchanged next to nothing" not in result.err


@pytest.mark.long  # a line of torchrun runs each time
def test_torchrun_in_a_shell_finds_the_other_workers_by_variables(bench):
    command = shlex.join([*TORCHRUN, "--nproc-per-node", "1", str(PROGRAMS / "ddp.py")])
    result = bench.run(*TWO, "sh", "-c", command)
    assert result.code == 0, result.err
    assert sorted(re.findall(r"rank (\d) of (\d)", result.out)) == [("0", "2"), ("1", "2")]


def test_torchrun_that_exec_would_start_several_times_on_a_worker_is_refused_before_anything_starts(bench):
    result = bench.run(*TWO[:-1], "--nproc-per-node", "2", "--", *TORCHRUN, "train.py")
    assert result.code == 2
    assert "torchrun: starts all processes of a worker, but 2 of it would run on each" in result.err
    assert not (bench.folder / "results").exists()


def test_a_script_that_waits_at_its_own_localhost_is_named_as_the_cause(bench):
    (bench.folder / "own.py").write_text(
        'import os\nos.environ["MASTER_ADDR"] = "127.0.0.1"\nimport torch.distributed\n'
        'torch.distributed.init_process_group("gloo")\n'
    )
    result = bench.run(*TWO[:-1], "--timeout", "15s", "--", *PYTHON, "own.py")
    assert result.code == 124
    assert "the 2 workers exchanged next to nothing: own.py: MASTER_ADDR" in result.err


def test_a_launcher_runs_once_and_starts_processes_on_all_workers(bench):
    script = 'for host in $(echo $WANBENCH_HOSTS | tr , " "); do $WANBENCH_RSH $host "echo at \\$(hostname)"; done'
    result = bench.run(*TWO[:-1], "--launcher", "--", "sh", "-c", script)
    assert result.code == 0, result.err
    assert re.findall(r"\[0 w0\] at (\S+)", result.out) == ["w0-0", "w1-1"]
    assert bench.commands[-1].left_nothing()


def test_rank_0_reads_the_input(bench):
    command = bench.start(*TWO, "sh", "-c", "echo $RANK got $(cat)", program=["sh", "-c", 'echo hello | "$@"', "sh",
                                                                                     *bench.program])  # fmt: skip
    result = command.wait()
    assert sorted(re.findall(r"\d got.*", result.out)) == ["0 got hello", "1 got"]


def test_a_program_that_hangs_is_ended_at_its_timeout(bench):
    result = bench.run(*TWO[:-1], "--timeout", "0.03min", "--", "sleep", "1005")
    assert result.code == 124
    assert "wanbench: failed: hung: ranks 0, 1 had not ended after 1.8 s (--timeout)" in result.err
    assert "exchanged next to nothing" in result.err
    assert bench.commands[-1].left_nothing()


def test_programs_shared_memory_and_temporary_files_end_with_a_killed_harness_even_in_another_session(bench):
    before = sorted(os.listdir("/dev/shm"))
    files = "echo > /dev/shm/segment; echo > $TMPDIR/file; mktemp; ls $TMPDIR"
    command = bench.start(*TWO, "sh", "-c", f"setsid sleep 1001 & {files}; echo all.up; exec sleep 1004")
    command.until(lambda: _logs(bench).count("all.up") == 2)  # mktemp prints any letters
    assert sorted(os.listdir("/dev/shm")) == before
    command.process.kill()
    command.wait()
    assert command.left_nothing()
