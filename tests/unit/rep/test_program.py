"""The environment, files and GPUs that `exec` gives a program, and the options that it refuses."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from command_line import as_it_was, refused  # noqa: F401

from wanbench.harness.errors import HostError, SpecError
from wanbench.harness.rep.program import Program, assign_gpus
from wanbench.harness.testbeds.base import FolderMount, Group
from wanbench.harness.testbeds.docker import mounts, testbed
from wanbench.harness.testbeds.docker.testbed import host_options
from wanbench.netprofiles import load

EXEC = ("exec", "--profile", "world4", "-n", "4")


@pytest.fixture(autouse=True)
def _readable(tmp_path):
    tmp_path.chmod(0o755)


def program(testbed="netns", **more):
    sites = tuple(site.name for site in load("world4").sites)
    return Program(command=("true",), sites=sites, processes=2, cwd=Path("/w"), contained=testbed == "docker", **more)


def environment_of(program, worker, local):
    return program.processes_of(worker, "id")[local]["env"]


# ---------------------------------------------------------------- environment


def test_the_environment_of_a_process_has_torchruns_variables_and_its_place():
    environment = environment_of(program(), 2, 1)
    assert {name: environment[name] for name in ("RANK", "LOCAL_RANK", "GROUP_RANK", "WORLD_SIZE")} == {
        "RANK": "5", "LOCAL_RANK": "1", "GROUP_RANK": "2", "WORLD_SIZE": "8",
    }  # fmt: skip
    assert environment["WANBENCH_SITE"] == json.loads(environment["WANBENCH_SITES"])[2]
    assert environment["WANBENCH_ADDRESS"] == environment["WANBENCH_ADDRESSES"].split(",")[2]


def test_torchrun_finds_its_node_unless_it_would_start_several_times_on_it():
    assert environment_of(program(), 2, 1).keys().isdisjoint({"PET_NNODES", "PET_NODE_RANK", "PET_MASTER_ADDR"})
    environment = environment_of(replace(program(), processes=1), 2, 0)
    first = environment["WANBENCH_ADDRESSES"].split(",")[0]
    assert {name: value for name, value in environment.items() if name.startswith("PET_")} == {
        "PET_NNODES": "4", "PET_NODE_RANK": "2", "PET_MASTER_ADDR": first,
    }  # fmt: skip
    assert (environment["NNODES"], environment["NODE_RANK"]) == ("4", "2")


def test_each_worker_runs_a_launcher_with_its_own_place_and_a_launcher_of_all_workers_runs_as_it_is():
    line = ("torchrun", "--nnodes", "9", "--node-rank", "0", "t.py")
    of_nodes = replace(program(), processes=1, command=line)
    assert of_nodes.processes_of(3, "id")[0]["argv"] == ("torchrun", "--nnodes=4", "--node-rank=3", "t.py")
    assert replace(of_nodes, launcher=Path("/agents")).processes_of(0, "id")[0]["argv"] == line


@pytest.mark.parametrize("testbed", ["netns", "docker"])
def test_nccl_uses_sockets_of_the_emulated_device_and_treats_workers_as_different_hosts(testbed):
    environments = [environment_of(program(testbed), worker, 0) for worker in range(4)]
    assert {one["NCCL_SOCKET_IFNAME"] for one in environments} == {"wan0"}
    assert {one["NCCL_NET"] for one in environments} == {"Socket"}
    assert len({one["NCCL_HOSTID"] for one in environments}) == 4
    assert {environment_of(program(), 1, local)["NCCL_HOSTID"] for local in (0, 1)} == {"id-1"}


def test_a_container_gets_only_the_requested_variables_of_this_host(monkeypatch):
    monkeypatch.setenv("SECRET", "token")
    assert environment_of(program("netns"), 0, 0)["SECRET"] == "token"
    assert "SECRET" not in environment_of(program("docker"), 0, 0)
    assert "PATH" not in environment_of(program("docker"), 0, 0)
    assert environment_of(program("docker", environment={"SECRET": "x"}), 0, 0)["SECRET"] == "x"


def test_the_command_of_a_launcher_runs_once_and_has_no_rank(monkeypatch):
    monkeypatch.delenv("RANK", raising=False)
    launching = program(launcher=Path("/agents"))
    assert [len(launching.processes_of(worker, "id")) for worker in range(4)] == [1, 0, 0, 0]
    assert "RANK" not in environment_of(launching, 0, 0)
    assert environment_of(launching, 0, 0)["MASTER_ADDR"] == environment_of(launching, 0, 0)["WANBENCH_ADDRESS"]


def test_a_local_rendezvous_has_the_same_address_on_every_worker():
    local = program(rendezvous="local")
    assert {environment_of(local, worker, 0)["MASTER_ADDR"] for worker in range(4)} == {"127.0.0.1"}
    first = environment_of(program(), 0, 0)["WANBENCH_ADDRESS"]
    assert {environment_of(program(), worker, 0)["MASTER_ADDR"] for worker in range(4)} == {first}


# ---------------------------------------------------------------- files


@pytest.mark.parametrize(
    ("text", "mount"),
    [
        ("{0}", FolderMount(Path("{0}"), Path("{0}"))),
        ("{0}:/data", FolderMount(Path("{0}"), Path("/data"))),
        ("{0}:ro", FolderMount(Path("{0}"), Path("{0}"))),
        ("{0}:/data:rw", FolderMount(Path("{0}"), Path("/data"), writable=True)),
        (".:rw", FolderMount(Path("{0}"), Path("{0}"), writable=True)),
        ("../{1}:/data", FolderMount(Path("{0}"), Path("/data"))),
    ],
)
def test_a_mount_has_a_source_a_target_and_a_mode(tmp_path, text, mount):
    def here(words):
        return str(words).format(tmp_path, tmp_path.name)

    expected = FolderMount(Path(here(mount.source)), Path(here(mount.target)), mount.writable)
    assert mounts.parse(here(text)) == expected


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "expected SOURCE[:TARGET][:rw]"),
        ("rw", "expected SOURCE[:TARGET][:rw]"),
        (".:/a:/b", "expected SOURCE[:TARGET][:rw]"),
        ("no-such-folder", "/no-such-folder does not exist"),
        (".:data", "expected an absolute path in the containers, got 'data'"),
        (".:/data/../usr", "expected an absolute path in the containers"),
        (".:/", "the image has its own folder at /; choose another target"),
        (".:/usr/lib", "the image has its own folder at /usr/lib"),
        (".:/proc", "the image has its own folder at /proc"),
    ],
)
def test_an_impossible_mount_is_refused_in_one_line(text, words):
    assert words in refused(*EXEC, "--testbed", "docker", "--mount", text, "--", "true")


@pytest.mark.parametrize("folder", ["/", "/usr", "/usr/share", "/etc", "/root", "/tmp"])
def test_a_current_folder_that_would_hide_a_folder_of_the_image_is_refused(folder):
    with pytest.raises(SpecError, match=r"the image has its own folder there; change to a folder of your project"):
        mounts.current(Path(folder))


def test_the_current_folder_is_mounted_read_only(tmp_path):
    tmp_path.chmod(0o755)
    assert mounts.current(tmp_path) == FolderMount(tmp_path, tmp_path, writable=False)


def test_a_current_folder_that_roots_containers_cannot_read_is_refused(tmp_path, monkeypatch):
    tmp_path.chmod(0o700)
    monkeypatch.setattr(os, "getuid", lambda: 0)
    with pytest.raises(SpecError) as caught:
        mounts.current(tmp_path)
    assert str(caught.value) == (
        f"{tmp_path}: root's containers run as user 65532, who cannot read it; run: chmod o+rx {tmp_path}, run as "
        "another user, or name a folder of the image with --workdir"
    )
    monkeypatch.setattr(os, "getuid", lambda: 1000)
    assert mounts.current(tmp_path).source == tmp_path


def test_containers_get_the_mounts_of_their_group(tmp_path):
    wanted = (FolderMount(Path("/a"), Path("/b")), FolderMount(Path("/c"), Path("/d"), writable=True))
    made = host_options(tmp_path, 0, "tun", Group(4, mounts=wanted))["mounts"]
    assert [(m["Source"], m["Target"], m["ReadOnly"]) for m in made] == [
        ("/a", "/b", True), ("/c", "/d", False), (str(tmp_path), str(tmp_path), False),
        *((mount["Source"], mount["Target"], True) for mount in testbed.mounts()),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("--image", "x"), "--image: needs --testbed docker; on netns programs see this host"),
        (("--mount", "."), "--mount: needs --testbed docker; on netns programs see this host"),
        (("--workdir", "/app"), "--workdir: needs --testbed docker; on netns programs see this host"),
        (
            ("--testbed", "docker", "--workdir", "app"),
            "--workdir app: expected an absolute path in the image, such as /app",
        ),
        (("--env", "=1"), "--env '=***': expected NAME=VALUE, or the NAME of a variable to pass on"),
        (("--name", "../../x"), "--name ../../x: expected letters, digits, '.', '_' and '-', at most 80"),
        (("--timeout", "0s"), "--timeout 0s: expected more than zero, such as 10min"),
        (("--name", ".."), "--name ..: expected letters, digits, '.', '_' and '-', at most 80"),
        (("--profile", "uniform"), "--rtt: the uniform profile needs an RTT; set it or sweep rtt"),
        (
            ("--profile", "uniform", "--rtt", "5ms", "--rate-scale", "0.5"),
            "--rate-scale: only a named profile takes it; uniform takes rtt, rate, buffer, jitter, loss, loss_burst",
        ),
    ],
)  # fmt: skip
def test_impossible_options_are_refused_in_one_line(arguments, line, tmp_path):
    assert refused(*EXEC, *arguments, "--", "true") == f"wanbench: {line}"
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_testbed_is_refused(tmp_path):
    assert "'moon' is not one of 'netns', 'docker'" in refused(*EXEC, "--testbed", "moon", "--", "true")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--rtt", "1ms"), "--rtt and --rate go with --profile uniform"),
        (("--profile", "world5"), "did you mean 'world4'"),
        (("--profile", "uniform", "--rtt", "1 parsec"), "--rtt: "),
        (("--profile", "nope.toml"), "--profile: "),
    ],
)
def test_an_impossible_network_is_refused_in_one_line(arguments, words, tmp_path):
    said = refused(*EXEC, *arguments, "--", "true")
    assert len(said.splitlines()) == 1
    assert words in said
    assert list(tmp_path.iterdir()) == []


def test_a_missing_program_is_refused_in_one_line(tmp_path):
    assert refused(*EXEC, "--", "no-such-program") == (
        "wanbench: no-such-program: no such program here; give a path, or a command on PATH"
    )
    assert list(tmp_path.iterdir()) == []


def test_a_variable_before_the_program_is_named_without_its_value():
    line = "wanbench: WANDB_API_KEY=...: a variable, not a program; put `env` before it"
    assert refused(*EXEC, "--", "WANDB_API_KEY=secret/1", "torchrun", "t.py") == line
    assert refused("exec", "--describe", "--", "WANDB_API_KEY=secret/1", "torchrun", "t.py") == line


def test_adopted_containers_need_a_working_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("WANBENCH_ADOPT", str(tmp_path))
    said = refused(*EXEC, "--testbed", "docker", "--", "true")
    assert said == ("wanbench: --workdir: required here: containers that already run cannot see the current folder")


# ---------------------------------------------------------------- GPUs


@pytest.fixture
def driver(tmp_path, monkeypatch):
    """A driver that lists two GPUs."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    for name in ("0000:01:00.0", "0000:02:00.0"):
        (tmp_path / "gpus" / name).mkdir(parents=True)
    return tmp_path / "gpus"


def test_each_process_gets_one_gpu_and_workers_share_them_if_there_are_too_few(driver):
    assert assign_gpus(2, 1, driver) == ("0", "1")
    assert assign_gpus(3, 1, driver) == ("0", "1", "0")
    assert assign_gpus(2, 2, driver) == ("0,1", "0,1")


def test_gpus_hidden_from_this_process_are_hidden_from_workers(driver, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert assign_gpus(2, 1, driver) == ("1", "1")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    with pytest.raises(HostError, match="no NVIDIA GPU on this host"):
        assign_gpus(1, 1, driver)


def test_a_worker_needs_a_gpu_for_each_of_its_processes(driver):
    with pytest.raises(HostError) as caught:
        assign_gpus(1, 3, driver)
    assert str(caught.value) == (
        "--device cuda: 3 processes per worker need as many GPUs, and this host has 2; use a smaller --nproc-per-node"
    )


def test_without_a_gpu_exec_is_refused_in_one_line_and_nothing_runs(monkeypatch, tmp_path):
    monkeypatch.setattr(assign_gpus, "__defaults__", (tmp_path / "none",))
    said = refused(*EXEC, "--device", "cuda", "--", "true", code=3)
    assert said == (
        f"wanbench: --device cuda: no NVIDIA GPU on this host ({tmp_path}/none lists none, or "
        "CUDA_VISIBLE_DEVICES hides it); use --device cpu"
    )


def test_a_worker_gets_its_gpus_by_a_variable_on_this_host_and_by_a_request_in_a_container(tmp_path):
    assigned = ("0,1", "2,3")
    assert environment_of(program(gpus=assigned), 3, 0)["CUDA_VISIBLE_DEVICES"] == "2,3"
    contained = program("docker", gpus=assigned)
    assert "CUDA_VISIBLE_DEVICES" not in environment_of(contained, 3, 0)
    (request,) = host_options(tmp_path, 3, "tun", Group(4, gpus=assigned))["device_requests"]
    assert (request["DeviceIDs"], request["Capabilities"]) == (["2", "3"], [["gpu"]])
    assert host_options(tmp_path, 3, "tun", Group(4))["device_requests"] == []
