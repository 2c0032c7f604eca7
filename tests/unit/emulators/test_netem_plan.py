"""The netem plan: the routes of packets, the queues they pass, and their values."""

import dataclasses
import ipaddress
import re
from pathlib import Path

import pytest
from free_network import free
from hypothesis import given, settings
from hypothesis import strategies as st

from wanbench.harness.emulators.netem.plan import (
    LOCAL,
    ONLY,
    ORDERED,
    UNSHAPED,
    Class,
    End,
    Fifo,
    From,
    Netem,
    Root,
    Route,
    Router,
    Veth,
    commands,
    delay_device,
    down_device,
    line_packets,
    minor_of,
    path_device,
    shapes,
    steps_of,
    up_device,
    worker_device,
)
from wanbench.harness.emulators.plan import DEVICE, UNLIMITED, EmulatedNetwork, Link, Queue, build, worker_address
from wanbench.netprofiles import Delay, Rate, load, uniform

MS = 1_000_000
GOLDEN = Path(__file__).with_name("netem_two_sites.tc")


def network(site_of, *, up=UNLIMITED, down=UNLIMITED, path=UNLIMITED, delay_ms=20, jitter_ns=0, loss=0.0):
    sites = max(site_of) + 1
    return EmulatedNetwork(
        sites=tuple(f"s{site}" for site in range(sites)),
        site_of=site_of,
        up=(up,) * sites,
        down=(down,) * sites,
        local_delay_ns=(50_000,) * sites,
        links={
            (a, b): Link(delay_ms * MS, jitter_ns, loss, path) for a in range(sites) for b in range(sites) if a != b
        },
    )


def at(shape_type, planned, end, minor):
    (found,) = [s for s in planned if isinstance(s, shape_type) and (s.at, s.minor) == (end, minor)]
    return found


# ---------------------------------------------------------------- the route of a packet


def egresses(steps, src, dst):
    """The (device, class) of every egress between two workers, according to routes, cables and filters."""
    cables = {
        end: other for veth in steps if isinstance(veth, Veth) for end, other in ((veth.a, veth.b), (veth.b, veth.a))
    }
    roots = {step.at: step.default for step in steps if isinstance(step, Root)}
    target, here, passed = ipaddress.ip_address(worker_address(dst)), f"worker-{src}", []
    while here != f"worker-{dst}":
        routes = [s for s in steps if isinstance(s, Route) and s.namespace == here]
        matching = [route for route in routes if target in ipaddress.ip_network(route.to)]
        best = max(matching, key=lambda route: ipaddress.ip_network(route.to).prefixlen)
        assert best.device is not None, f"{here} has no route to {target}"
        out = End(here, best.device)
        if out in roots:
            by_source = [
                s.minor for s in steps if isinstance(s, From) and (s.at, s.address) == (out, worker_address(src))
            ]
            passed.append((out, by_source[0] if by_source else roots[out]))
        here = cables[out].namespace
        assert len(passed) <= 5, "a loop"
    return passed


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 3), min_size=2, max_size=7))
def test_every_packet_passes_up_path_delay_and_down_in_this_order_and_in_its_own_class(places):
    numbers = {place: index for index, place in enumerate(dict.fromkeys(places))}
    net = network(tuple(numbers[place] for place in places))
    steps = steps_of(net)
    for src in range(net.workers):
        for dst in range(net.workers):
            a, b = net.site_of[src], net.site_of[dst]
            if src == dst:
                continue
            last = worker_device(net, dst)
            if a == b:
                assert egresses(steps, src, dst) == [(last, LOCAL)]
                continue
            assert egresses(steps, src, dst) == [
                (up_device(net, a), ONLY),
                (path_device(b), minor_of(a)),
                (delay_device(b), minor_of(a)),
                (down_device(b), ONLY),
                (last, ONLY),
            ]


def test_nothing_is_shaped_at_the_sender():
    net = network((0, 0, 1))
    assert not any(s.at.device == DEVICE for s in [*shapes(net), *(s for s in steps_of(net) if isinstance(s, Root))])


def test_a_packet_to_no_worker_is_dropped_by_the_first_shared_router():
    holes = [step for step in steps_of(network((0, 1))) if isinstance(step, Route) and step.device is None]
    assert holes == [Route("paths", "10.99.0.0/16", None)]


def test_every_end_of_a_cable_has_a_unique_hardware_address():
    cables = [step for step in steps_of(network((0, 0, 1, 2))) if isinstance(step, Veth)]
    addresses = [cable.mac(end) for cable in cables for end in (cable.a, cable.b)]
    assert len(set(addresses)) == len(addresses) == 2 * (4 + 3 * 4)
    assert all(address.startswith("02:") and len(address) == 17 for address in addresses)


def test_device_names_fit_the_kernel_even_for_the_last_worker():
    net = dataclasses.replace(network((0,)), site_of=(0,))
    assert len(worker_device(net, 0).device) <= 15
    assert len("w63999") <= 15


def test_a_site_name_that_cannot_name_a_namespace_becomes_a_number():
    net = dataclasses.replace(network((0, 1)), sites=("são paulo", "s1"))
    assert [s.namespace for s in steps_of(net) if isinstance(s, Router)][-2:] == ["site-0", "site-s1"]


# ---------------------------------------------------------------- values


def test_every_limit_is_a_class_with_its_rate_and_a_buffer_in_bytes():
    up, path, down = Queue(12.5e6, 1_250_000), Queue(2.5e6, 250_000), Queue(5e6, 500_000)
    net = network((0, 1), up=up, path=path, down=down)
    planned = list(shapes(net))
    for end, minor, queue in (
        (up_device(net, 0), ONLY, up),
        (path_device(1), minor_of(0), path),
        (down_device(1), ONLY, down),
    ):
        assert at(Class, planned, end, minor).rate == queue.rate_bytes_per_s
        assert at(Fifo, planned, end, minor).limit == queue.buffer_bytes


def test_bursts_are_two_milliseconds_of_the_rate_or_one_packet():
    for mbit, burst in ((100, 25_000), (10, 2_500), (1, 1_500)):
        planned = list(shapes(network((0, 1), path=Queue(mbit * 125e3, 10**6))))
        assert at(Class, planned, path_device(1), minor_of(0)).burst == burst


def test_without_limits_packets_are_neither_delayed_nor_dropped():
    net = network((0, 1))
    planned = list(shapes(free(net)))
    assert {shape.rate for shape in planned if isinstance(shape, Class)} == {UNSHAPED}
    assert {shape.rate for shape in planned if isinstance(shape, Netem)} == {ORDERED}
    assert {shape.limit for shape in planned if isinstance(shape, Fifo)} == {2**30}
    assert {(n.link.delay_ns, n.link.jitter_ns, n.link.loss) for n in planned if isinstance(n, Netem)} == {(0, 0, 0.0)}


def test_the_wire_before_the_delay_has_the_slowest_rate():
    wide, narrow = Queue(10e6, 10**6), Queue(1e6, 10**6)
    for up, path, rate in ((wide, narrow, 1e6), (narrow, wide, 1e6), (wide, UNLIMITED, 10e6), (UNLIMITED, narrow, 1e6)):
        assert at(Netem, shapes(network((0, 1), up=up, path=path)), delay_device(1), minor_of(0)).rate == rate


def test_the_wire_of_the_last_device_has_the_down_rate():
    net = network((0, 1, 1), down=Queue(5e6, 10**6))
    planned = list(shapes(net))
    assert at(Netem, planned, worker_device(net, 2), ONLY).rate == 5e6
    local = at(Netem, planned, worker_device(net, 2), LOCAL)
    assert (local.rate, local.link.delay_ns) == (ORDERED, 50_000)


@pytest.mark.parametrize(
    ("delay_ms", "jitter_ms", "rate", "packets"),
    [
        (50, 0, 12.5e6, 312_500),  # a second of bare acknowledgements at 100 Mbit/s
        (1000, 0, 12.5e6, 312_500),
        (2000, 100, 12.5e6, 750_000),  # four standard deviations
        (50, 0, None, 31_250_000),  # as if it were 10 Gbit/s
    ],
)
def test_a_delay_line_holds_every_packet_that_can_be_in_flight(delay_ms, jitter_ms, rate, packets):
    assert line_packets(delay_ms * MS, jitter_ms * MS, rate) == packets + 1000


def test_a_shorter_delay_has_room_for_the_packets_in_flight():
    before, after = (
        at(Netem, shapes(network((0, 1), delay_ms=ms, path=Queue(12.5e6, 10**6))), delay_device(1), minor_of(0))
        for ms in (900, 1)
    )
    assert after.limit >= before.limit


def test_equal_placements_have_the_same_classes_and_leaves():
    keys = [
        {(type(shape), shape.at, shape.minor) for shape in shapes(net)}
        for net in (
            network((0, 1, 1)),
            network((0, 1, 1), up=Queue(1e6, 10**5), loss=0.1),
            free(network((0, 1, 1))),
        )
    ]
    assert keys[0] == keys[1] == keys[2]


def test_each_path_with_random_loss_has_its_own_seed():
    seeds = [s.seed for s in shapes(network((0, 1, 2), loss=0.1), 7) if isinstance(s, Netem) and "->" in s.path]
    assert len(set(seeds)) == 6
    assert None not in seeds
    again = [s.seed for s in shapes(network((0, 1, 2), loss=0.1), 8) if isinstance(s, Netem) and "->" in s.path]
    assert not set(seeds) & set(again)
    assert {s.seed for s in shapes(network((0, 1)), 7) if isinstance(s, Netem)} == {None}


def test_profiles_of_the_catalog_can_be_planned():
    profile = load("aws")
    net = build(profile, [site.name for site in profile.sites])
    assert len({s.path for s in shapes(net) if isinstance(s, Fifo) and "->" in s.path}) == len(net.links)


# ---------------------------------------------------------------- commands


def test_the_commands_match_the_golden_file():
    net = build(uniform(2, Delay.from_ms(40), Rate.from_mbit(100)), ["w0", "w1"])
    assert commands(net) == GOLDEN.read_text().splitlines()


def test_bursts_are_written_as_tc_reads_them():
    net = network((0, 1))
    link = dataclasses.replace(net.links[0, 1], loss=0.1, loss_burst=5.0)
    lines = commands(dataclasses.replace(net, links={**net.links, (0, 1): link}))
    (line,) = [line for line in lines if line.startswith("tc -n delays qdisc add dev to1 parent 1:10 ")]
    assert " delay 20000us loss gemodel 2.222222222% 20% rate " in line


def test_jitter_loss_and_fractions_are_written_as_tc_reads_them():
    net = network((0, 1), delay_ms=20, jitter_ns=169_700, loss=1e-7)
    (line,) = [line for line in commands(net) if line.startswith("tc -n delays qdisc add dev to1 parent 1:10 ")]
    assert line.endswith(
        "netem limit 31251000 delay 20000us 169.7us distribution normal loss 1e-05% rate 80000000000000bit"
    )


def test_every_device_has_the_mtu_and_a_class_sends_a_packet_at_a_time():
    jumbo = dataclasses.replace(network((0, 1), up=Queue(1e6, 64_000)), mtu=9001)
    lines = commands(jumbo)
    assert {word for line in lines for word in re.findall(r"mtu \d+", line)} == {"mtu 9001"}
    assert {word for line in lines for word in re.findall(r"quantum \d+", line)} == {"quantum 9015"}
    assert any(" burst 9001 " in line for line in lines), "a burst holds a packet even where 2 ms of the rate do not"
    usual = commands(dataclasses.replace(jumbo, mtu=1500))
    changed = [re.sub(r"(mtu 1500|quantum 1514|burst 2000)\b", "", line) for line in usual]
    assert changed == [re.sub(r"(mtu 9001|quantum 9015|burst 9001)\b", "", line) for line in lines]
