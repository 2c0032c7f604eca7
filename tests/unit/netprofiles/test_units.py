"""Quantities are read exactly, print so that they read back the same, and refuse what no network has."""

import dataclasses
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wanbench.netprofiles import Delay, Packets, Rate, Ratio, Size, UnitError


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("80ms", 80_000_000),
        ("1.5s", 1_500_000_000),
        ("200us", 200_000),
        ("0ms", 0),
        ("7ns", 7),
        (" 5 ms ", 5_000_000),
        (".5us", 500),
        ("1e3ms", 1_000_000_000),
        ("48.55ms", 48_550_000),
    ],
)
def test_a_delay_is_read_to_the_nanosecond(text, ns):
    assert Delay.parse(text).ns == ns


@pytest.mark.parametrize(
    ("text", "bps"), [("10Gbit", 10**10), ("100Mbit", 10**8), ("42.3Mbit", 42_300_000), ("1bit", 1)]
)
def test_a_rate_is_read_to_the_bit_per_second(text, bps):
    assert Rate.parse(text).bps == bps


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("10Gbps", "10Gbit"), ("100mbps", "100Mbit"), ("100 MBPS", "100Mbit"), ("10gbit", "10Gbit"),
        ("1.5Gbit/s", "1.5Gbit"), ("64kbps", "64kbit"), ("9bps", "9bit"),
    ],
)  # fmt: skip
def test_bits_per_second_may_be_spelled_in_several_ways(text, shown):
    assert str(Rate.parse(text)) == shown


@pytest.mark.parametrize("text", ["10GB", "10GB/s", "10 gb", "10Gb/s", "10GBps", "1.5MB", "8kB/s", "100B"])
def test_a_rate_that_may_be_bytes_is_a_question(text):
    with pytest.raises(UnitError, match="bits or bytes"):
        Rate.parse(text)


@pytest.mark.parametrize(
    ("text", "size"),
    [("25MiB", 25 * 2**20), ("64kB", 64_000), ("1500B", 1500), ("0B", 0), ("0.5KiB", 512), ("1GB", 10**9)],
)
def test_sizes_tell_powers_of_1024_from_powers_of_1000(text, size):
    assert Size.parse(text).bytes == size


@pytest.mark.parametrize(("text", "value"), [("0.1%", 0.001), ("0.001", 0.001), ("1e-7", 1e-7), ("100%", 1.0)])
def test_a_ratio_is_a_number_or_a_percentage(text, value):
    assert Ratio.parse(text).value == value


@pytest.mark.parametrize(("text", "value"), [("5", 5.0), ("2.5", 2.5), ("1", 1.0), ("0", 0.0)])
def test_a_number_of_packets_has_no_unit(text, value):
    assert Packets.parse(text).value == value
    assert str(Packets.parse(text)) == text


_DELAY = "a delay is a number and one of ns, us, ms, s, such as '80ms'"
_RATE = "a rate is a number and one of bit, kbit, Mbit, Gbit, such as '10Gbit'"
_SIZE = "a size is a number and one of B, kB, KiB, MB, MiB, GB, GiB, such as '25MiB'"
_PACKETS = "a number of packets is 1 or more, or 0 for none, such as '5'"
_RATIO = "a ratio is a number from 0 to 1, or a percentage, such as '0.1%'"


@pytest.mark.parametrize(
    ("kind", "text", "message"),
    [
        (Delay, "80", f"'80' has no unit; {_DELAY}"),
        (Delay, "80msec", f"'80msec' has the unknown unit 'msec'; {_DELAY}; did you mean 'ms'?"),
        (Delay, "10Mbit", f"'10Mbit' has the unknown unit 'Mbit'; {_DELAY}"),
        (Delay, "-80ms", f"'-80ms' is negative; {_DELAY}"),
        (Delay, "nanms", f"'nanms' is not a quantity; {_DELAY}"),
        (Delay, "infs", f"'infs' is not a quantity; {_DELAY}"),
        (Delay, "", f"'' is not a quantity; {_DELAY}"),
        (Delay, "0.1ns", f"'0.1ns' is not a whole number of ns; {_DELAY}"),
        (Delay, "1e999999999s", f"'1e999999999s' is not a quantity; {_DELAY}"),
        (Rate, "10Gbits", f"'10Gbits' has the unknown unit 'Gbits'; {_RATE}; did you mean 'Gbit'?"),
        (Rate, "10 GB", "'10 GB': bits or bytes? write '10Gbit', or '80Gbit' for 10 gigabytes per second"),
        (Rate, "0Mbit", "a rate must be above zero; remove it if nothing limits it"),
        (Size, "25mib", f"'25mib' has the unknown unit 'mib'; {_SIZE}; did you mean 'MiB'?"),
        (Size, "0.5B", f"'0.5B' is not a whole number of bytes; {_SIZE}"),
        (Ratio, "5", f"'5' is above 1; {_RATIO}; did you mean '5%'?"),
        (Ratio, "101%", f"'101%' is above 1; {_RATIO}"),
        (Ratio, "-0.1%", f"'-0.1%' is negative; {_RATIO}"),
        (Ratio, "nan", f"'nan' is not a quantity; {_RATIO}"),
        (Packets, "5ms", f"'5ms' has the unknown unit 'ms'; {_PACKETS}"),
        (Packets, "-5", f"'-5' is negative; {_PACKETS}"),
        (Packets, "0.5", "a number of packets is 1 or more, or 0 for none, not 0.5"),
        (Ratio, "5ms", f"'5ms' has the unknown unit 'ms'; {_RATIO}"),
    ],
)
def test_text_that_is_no_quantity_is_refused_with_what_was_expected(kind, text, message):
    with pytest.raises(UnitError) as refused:
        kind.parse(text)
    assert str(refused.value) == message


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Delay(-1), "a delay cannot be negative: -1 ns"),
        (lambda: Delay(1.5), "a delay counts whole ns, not 1.5"),
        (lambda: Delay(True), "a delay counts whole ns, not True"),
        (lambda: Delay.from_ms(float("nan")), "a delay must be finite, not nan"),
        (lambda: Rate.from_mbit(float("inf")), "a rate must be finite, not inf"),
        (lambda: Rate(0), "a rate must be above zero; remove it if nothing limits it"),
        (lambda: Size(-1), "a size cannot be negative: -1 bytes"),
        (lambda: Ratio(float("nan")), "a ratio is a number from 0 to 1, or from 0% to 100%, not nan"),
        (lambda: Ratio(1.01), "a ratio is a number from 0 to 1, or from 0% to 100%, not 1.01"),
    ],
)
def test_numbers_that_no_network_has_are_refused(make, message):
    with pytest.raises(UnitError) as refused:
        make()
    assert str(refused.value) == message


def test_quantities_print_in_the_largest_unit_that_they_fill():
    assert [str(Delay(ns)) for ns in (0, 7, 1_500, 80_000_000, 1_500_000_000)] == [
        "0ms",
        "7ns",
        "1.5us",
        "80ms",
        "1.5s",
    ]
    assert [str(Rate(bps)) for bps in (5, 56_000, 42_300_000, 10**10)] == [
        "5bit",
        "56kbit",
        "42.3Mbit",
        "10Gbit",
    ]
    assert [str(Size(n)) for n in (0, 1500, 64_000, 25 * 2**20)] == ["0B", "1500B", "64kB", "25MiB"]
    assert [str(Ratio(value)) for value in (0.0, 1e-7, 0.001, 1.0)] == ["0%", "0.00001%", "0.1%", "100%"]


@given(st.integers(0, 10**15))
def test_a_printed_delay_reads_back_the_same(ns):
    assert Delay.parse(str(Delay(ns))) == Delay(ns)


@given(st.integers(1, 10**14))
def test_a_printed_rate_reads_back_the_same(bps):
    assert Rate.parse(str(Rate(bps))) == Rate(bps)


@given(st.integers(0, 2**50))
def test_a_printed_size_reads_back_the_same(size):
    assert Size.parse(str(Size(size))) == Size(size)


@given(st.floats(0, 1))
def test_a_printed_ratio_reads_back_the_same(value):
    assert Ratio.parse(str(Ratio(value))) == Ratio(value)


def test_conversions_give_the_unit_in_their_name():
    assert Delay.from_ms(48.55) == Delay.parse("48.55ms")
    assert Delay.parse("80ms").ms == 80.0
    assert Delay.parse("80ms").seconds == 0.08
    assert Rate.from_mbit(42.3).bps == 42_300_000
    assert Rate.parse("100Mbit").mbit == 100.0
    assert Rate.parse("100Mbit").bytes_per_s == 12_500_000.0
    assert Ratio(1e-7).percent == 1e-5


def test_quantities_are_ordered_frozen_hashable_and_picklable():
    assert Delay.parse("1s") > Delay.parse("999ms")
    assert len({Rate.parse("1Gbit"), Rate.parse("1000Mbit")}) == 1
    assert pickle.loads(pickle.dumps(Size(7))) == Size(7)
    with pytest.raises(dataclasses.FrozenInstanceError):
        Delay(1).ns = 2
