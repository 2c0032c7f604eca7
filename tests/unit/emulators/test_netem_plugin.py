"""Our netem for pyroute2 encodes and decodes options in the kernel's layout."""

import statistics
import struct

import pytest
from pyroute2.netlink.rtnl.tcmsg import plugins, tcmsg

from wanbench.harness.emulators.netem.plugin import (
    install,
    netem_parameters,
    netem_values,
    normal,
    without_ethernet_header,
)

KEYWORDS = {
    "delay_ns": 49_000_123,
    "jitter_ns": 169_700,
    "loss": 42_949_673,
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
        "limit": 313_500,
        "rate": 12_500_000,
        "gap": 0,
        "duplicate": 0,
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


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        (KEYWORDS | {"delay": 50}, r"^netem: unknown \['delay'\], missing \[\]$"),
        ({name: value for name, value in KEYWORDS.items() if name != "limit"}, r"missing \['limit'\]$"),
    ],
)
def test_a_keyword_that_is_unknown_or_missing_is_an_error(keywords, message):
    with pytest.raises(TypeError, match=message):
        netem_parameters(keywords)


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
