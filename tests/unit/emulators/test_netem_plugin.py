"""Our netem for pyroute2 encodes and decodes options in the kernel's layout."""

import statistics
import struct

import pytest
from pyroute2.netlink.rtnl.tcmsg import plugins, tcmsg

from wanbench.harness.emulators.netem.kernel import (
    install,
    keywords,
    netem_parameters,
    netem_values,
    normal,
    without_ethernet_header,
)
from wanbench.harness.emulators.netem.plan import End, Netem
from wanbench.harness.emulators.plan import UNLIMITED, Link

KEYWORDS = {
    "delay_ns": 49_000_123,
    "jitter_ns": 169_700,
    "loss": 42_949_673,
    "burst_begins": 0,
    "burst_ends": 0,
    "limit": 313_500,
    "rate": 12_500_000,
    "distribution": normal(),
    "seed": 2**63 + 7,
}


@pytest.fixture(autouse=True)
def _installed(monkeypatch):
    for kind in ("netem", "bfifo"):
        monkeypatch.delitem(plugins, kind, raising=False)
    install()


def encoded(**changed):
    """The bytes of TCA_OPTIONS, as they are sent to the kernel."""
    message = tcmsg()
    message["attrs"] = [["TCA_KIND", "netem"], ["TCA_OPTIONS", netem_parameters(KEYWORDS | changed)]]
    message.encode()
    return bytes(message.data)


def decoded(data):
    message = tcmsg(data)
    message.decode()
    return netem_values(message.get_attr("TCA_OPTIONS"))


def test_encoded_values_are_decoded():
    assert decoded(encoded()) == {
        "delay_ns": 49_000_123,
        "jitter_ns": 169_700,
        "loss": 42_949_673,
        "burst_begins": 0,
        "burst_ends": 0,
        "burst_survival": 0,
        "loss_between_bursts": 0,
        "limit": 313_500,
        "rate": 12_500_000,
        "gap": 0,
        "duplicate": 0,
        "corrupt": 0,
        "seed": 2**63 + 7,
    }


def test_the_layout_is_that_of_the_kernel():
    data = encoded()
    # struct tc_netem_qopt: latency, limit, loss, gap, duplicate, jitter
    assert struct.pack("=6I", 0, 313_500, 42_949_673, 0, 0, 0) in data
    assert struct.pack("=HHq", 12, 10, 49_000_123) in data  # TCA_NETEM_LATENCY64
    assert struct.pack("=HHq", 12, 11, 169_700) in data  # TCA_NETEM_JITTER64
    assert struct.pack("=HHIiIi", 20, 6, 12_500_000, 0, 0, 0) in data  # TCA_NETEM_RATE
    assert struct.pack("=HHQ", 12, 14, 2**63 + 7) in data  # TCA_NETEM_PRNG_SEED
    assert struct.pack("=HH", 4 + 2 * 4096, 2) + normal() in data  # TCA_NETEM_DELAY_DIST


def test_a_rate_beyond_32_bits_has_its_own_attribute():
    data = encoded(rate=10**13)
    assert struct.pack("=HHIiIi", 20, 6, 2**32 - 1, 0, 0, 0) in data
    assert struct.pack("=HHQ", 12, 8, 10**13) in data  # TCA_NETEM_RATE64
    assert decoded(data)["rate"] == 10**13


def test_no_rate_is_sent_as_zero_because_a_change_would_keep_the_old_rate():
    assert decoded(encoded(rate=0))["rate"] == 0


def test_no_seed_is_sent_for_none():
    assert decoded(encoded(seed=None))["seed"] is None


def test_a_link_that_loses_bursts_is_a_gilbert_elliott_model():
    """It loses 10 % in bursts of 5: a burst ends with 1/5 per packet, and begins with 1/5 x 0.1/0.9."""
    link = Link(20_000_000, 0, 0.1, UNLIMITED, loss_burst=5.0)
    leaf = keywords(Netem(End("delays", "to1"), 16, "a -> b", link, 12_500_000, 313_500, 7))
    begins, ends = round((2**32 - 1) / 45), round((2**32 - 1) / 5)
    data = encoded(**leaf)
    # TCA_NETEM_LOSS with NETEM_LOSS_GE, struct tc_netem_gemodel: p, r, h, k1
    assert struct.pack("=HHHH4I", 24, 5, 20, 2, begins, ends, 0, 0) in data
    found = decoded(data)
    assert (found["loss"], found["burst_begins"], found["burst_ends"]) == (0, begins, ends)
    assert {name: found[name] for name in leaf if name != "distribution"} == {
        name: value for name, value in leaf.items() if name != "distribution"
    }


def test_without_bursts_no_model_is_sent_and_a_change_removes_the_old_one():
    assert struct.pack("=HH", 24, 5) not in encoded()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (KEYWORDS | {"delay": 50}, r"^netem: unknown \['delay'\], missing \[\]$"),
        ({name: value for name, value in KEYWORDS.items() if name != "limit"}, r"missing \['limit'\]$"),
    ],
)
def test_a_keyword_that_is_unknown_or_missing_is_an_error(given, message):
    with pytest.raises(TypeError, match=message):
        netem_parameters(given)


def test_our_keywords_are_removed_from_the_request():
    request = {"kind": "netem", "index": 2, "handle": 0x10000, "parent": 7, **KEYWORDS}
    plugins["netem"].fix_request(request)
    assert request == {"kind": "netem", "index": 2, "handle": 0x10000, "parent": 7}


def test_the_distribution_is_a_normal_one():
    samples = struct.unpack("=4096h", normal())
    assert list(samples) == sorted(samples)
    assert statistics.fmean(samples) == pytest.approx(0, abs=1)
    assert statistics.pstdev(samples) == pytest.approx(8192, rel=0.001)
    within = sum(abs(sample) < 8192 for sample in samples) / 4096
    assert within == pytest.approx(0.6827, abs=0.001)


def test_sizes_exclude_the_ethernet_header():
    # TCA_STAB_BASE: struct tc_sizespec
    assert without_ethernet_header() == struct.pack("=HHBBhiIIII", 28, 1, 0, 0, 0, -14, 0, 0, 0, 0)
