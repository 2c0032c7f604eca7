"""How two times of a network are compared: the first difference, in words; else nothing."""

from __future__ import annotations

import random

import pytest

from wanbench.workloads.process.configuration import first_change
from wanbench.workloads.process.namespace import attribute, attributes

DEVICE = ("wan0", "device", "up with MTU 1500", b"1000")
QDISC = ("wan0", "qdisc", "noqueue", b"")
ADDRESS = ("wan0", "address", "10.99.0.1/16", b"\x0a\x63\x00\x01")
ROUTE = ("wan0", "route", "10.99.0.0/16", b"congctl cubic")
RULE = ("the namespace", "rule", "32766", b"")
RMEM = ("the namespace", "/proc/sys/net/ipv4/tcp_rmem", "4096 131072 67108864", b"")
SET = (DEVICE, QDISC, ADDRESS, ROUTE, RULE, RMEM)


@pytest.mark.parametrize(
    ("gone", "new", "words"),
    [
        (QDISC, ("wan0", "qdisc", "tbf", b"rate"), "wan0: qdisc tbf, at the start noqueue"),
        (
            DEVICE, ("wan0", "device", "up with MTU 1400", b"1000"),
            "wan0: device up with MTU 1400, at the start up with MTU 1500",
        ),
        (DEVICE, None, "wan0: device down or gone, at the start up with MTU 1500"),
        (ADDRESS, None, "wan0: address none, at the start 10.99.0.1/16"),
        (ROUTE, (*ROUTE[:3], b"window 4000"), "wan0: route 10.99.0.0/16, at the start with other values"),
        (None, ("wan0", "route", "10.99.0.2/32", b""), "wan0: route 10.99.0.2/32, at the start none"),
        (None, ("lo", "qdisc", "netem", b""), "lo: qdisc netem, at the start none"),
        (RULE, None, "the namespace: rule none, at the start 32766"),
        (
            RMEM, (*RMEM[:2], "4096 4096 4096", b""),
            "the namespace: /proc/sys/net/ipv4/tcp_rmem 4096 4096 4096, at the start 4096 131072 67108864",
        ),
    ],
)  # fmt: skip
def test_a_thing_that_changed_is_named_with_both_states(gone, new, words):
    now = [thing for thing in SET if thing != gone] + ([new] if new else [])
    random.Random(1).shuffle(now)
    change = first_change(SET, now)
    assert change is not None
    assert ": ".join(change) == words


def test_what_stayed_is_no_change_in_any_order():
    assert first_change(SET, SET[::-1]) is None


def test_the_first_of_several_differences_is_the_first_that_was_set():
    assert first_change(SET, SET[2:]) == ("wan0", "device down or gone, at the start up with MTU 1500")


def test_a_change_is_short_enough_for_the_control_channel():
    change = first_change([("wan0", "route", "1" * 5000, b"")], [("wan0", "route", "2" * 5000, b"")])
    assert change is not None
    assert len(change[1]) < 200


def test_attributes_are_read_as_they_are_written():
    wanted = {1: b"tbf\0", 2: b"", 300: b"12345"}
    assert attributes(b"".join(attribute(*each) for each in wanted.items())) == wanted


@pytest.mark.parametrize("damaged", [b"\0\0\0\0" * 3, b"\xff\xff\1\0", b"\1"])
def test_damaged_attributes_end(damaged):
    assert len(attributes(damaged)) <= 1
