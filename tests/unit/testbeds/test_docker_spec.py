"""[containers]: its keys, the cells that it applies to, and the resulting options of a container."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from small_spec import cells, edited, refusal, swept

from wanbench.harness.testbeds.base import Group
from wanbench.harness.testbeds.docker.testbed import host_options, image_name, options
from wanbench.harness.testbeds.group import group_of

END = 'rtt = ["10ms"]\n'


def test_limits_are_part_of_the_cell_and_reach_the_group():
    table = '\n[run]\ntestbed = "docker"\n\n[containers]\nimage = "mine"\nmemory = "1GiB"\ncpuset = ["0", "1-2"]\n'
    for cell in cells(edited((END, END + table))):  # with the one-worker cell, to which the others are compared
        assert cell.containers.plain() == {"image": "mine", "memory": "1GiB", "cpuset": ["0", "1-2"]}
        group = group_of(cell.repetition(0))
        assert (group.image, group.memory_bytes, group.cpuset) == ("mine", 2**30, ("0", "1-2"))


def test_a_cell_on_another_testbed_has_no_limits():
    sweep = '\ntestbed = ["netns", "docker"]\n\n[containers]\nmemory = "1GiB"\n'
    found = {cell.testbed: cell.containers.plain() for cell in swept(edited((END, END.rstrip() + sweep)))}
    assert found == {"netns": {}, "docker": {"memory": "1GiB"}}


def test_containers_are_refused_without_the_testbed_docker():
    assert refusal((END, f'{END}\n[containers]\nmemory = "1GiB"\n')) == (
        'x.toml: containers: only testbed docker uses it; set run.testbed = "docker", or remove it'
    )
    assert refusal((END, f'{END}"containers.memory" = ["1GiB", "2GiB"]\n')) == (
        'x.toml: containers: only testbed docker uses it; set run.testbed = "docker", or remove it'
    )


@pytest.mark.parametrize(
    ("table", "line"),
    [
        ('memory = "1"', "containers.memory: '1' has no unit; "),
        ("memory = 1", "containers.memory: expected a string in quotes, got 1"),
        ('cpuset = "0,x"', 'containers.cpuset: expected processors, such as "0" or "0-1,3" or a list, got \'0,x\''),
        ('cpuset = ["a"]', 'containers.cpuset.0: expected processors, such as "0" or "0-1,3", got \'a\''),
        ('image = ""', "containers.image: expected at least 1 character, got ''"),
        ('memmory = "1GiB"', "containers.memmory: unknown key; did you mean 'memory'?"),
    ],
)
def test_a_mistake_is_refused_in_one_line(table, line):
    assert refusal((END, f"{END}\n[containers]\n{table}\n")).startswith(f"x.toml: {line}")


def test_the_image_of_the_spec_precedes_the_users_and_ours(monkeypatch):
    monkeypatch.delenv("WANBENCH_IMAGE", raising=False)
    assert image_name(None) == "wanbench-worker"
    monkeypatch.setenv("WANBENCH_IMAGE", "mine")
    assert image_name(None) == "mine"
    assert image_name("the-specs") == "the-specs"


TCP = (("congestion", "reno"), ("slow_start_after_idle", False))
GROUP = Group(3, tcp=TCP, congestion="reno", memory_bytes=2**30, cpuset=("0", "1"))


def test_a_container_has_no_network_and_no_capability_it_does_not_need():
    made = host_options(Path("/tmp/w"), 2, "tun", GROUP)
    assert made["network_mode"] == "none"
    assert (made["cap_drop"], made["cap_add"]) == (["ALL"], ["NET_ADMIN", "SETUID", "SETGID"])
    assert made["devices"] == ["/dev/net/tun:/dev/net/tun:rw"]
    assert made["security_opt"] == ["no-new-privileges"]
    assert (made["mem_limit"], made["memswap_limit"], made["cpuset_cpus"]) == (2**30, 2**30, "0")
    assert "privileged" not in made
    control, *code = made["mounts"]
    assert (control["Source"], control["Target"], control["Type"]) == ("/tmp/w", "/tmp/w", "bind")
    assert all(mount["ReadOnly"] and mount["Target"].startswith("/wanbench/") for mount in code)
    assert made["init"] is False


def test_a_container_that_sends_its_namespace_has_no_capability():
    made = host_options(Path("/tmp/w"), 0, "netns", GROUP)
    assert (made["cap_drop"], made["cap_add"], made["devices"]) == (["ALL"], [], [])
    assert options(Path("/tmp/w"), "w-0", 0, "netns", GROUP)["user"] != "0:0"


def test_a_container_knows_its_name_and_those_of_its_peers():
    group = dataclasses.replace(GROUP, hosts=("oregon-0", "ohio-1", "tokyo-2"))
    assert options(Path("/tmp/w"), "w-2", 2, "tun", group)["hostname"] == "tokyo-2"
    found = host_options(Path("/tmp/w"), 2, "tun", group)["extra_hosts"]
    assert found == {"oregon-0": "10.99.0.1", "ohio-1": "10.99.0.2", "tokyo-2": "10.99.0.3"}
    assert options(Path("/tmp/w"), "w-2", 2, "tun", GROUP)["hostname"] is None


def test_tcp_settings_are_sysctls_of_the_container():
    sysctls = host_options(Path("/tmp/w"), 0, "netns", GROUP)["sysctls"]
    assert sysctls["net.ipv4.tcp_congestion_control"] == "reno"
    routed = host_options(Path("/tmp/w"), 0, "tun", GROUP)["sysctls"]
    assert sysctls == {**routed, "net.ipv4.tcp_congestion_control": "reno"}, "the worker sets it on its route"
    assert sysctls["net.ipv4.tcp_slow_start_after_idle"] == "0"
    assert sysctls["net.ipv4.tcp_rmem"] == "4096 131072 67108864"


def test_groups_that_differ_only_in_number_or_sites_share_their_containers():
    assert Group(2, sites=("a", "b"), memory_bytes=1).like(Group(3, sites=("b", "a", "c"), memory_bytes=1))
    assert not Group(2, memory_bytes=1).like(Group(2, memory_bytes=2))
    assert Group(2, hosts=("a-0", "b-1")).like(Group(2))
    assert not Group(2).like(Group(2, hosts=("a-0", "b-1")))


def test_workers_are_replaced_if_their_devices_have_another_mtu():
    usual, jumbo = Group(4, congestion="reno"), Group(4, congestion="reno", mtu=9001)
    assert usual.is_fixed_like(Group(2, congestion="reno"))
    assert not usual.is_fixed_like(jumbo)
    assert not usual.like(jumbo)
