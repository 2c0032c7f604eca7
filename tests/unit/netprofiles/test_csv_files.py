"""A network in CSV: a row for each path, and for each site that shares a rate."""

import math

import pytest
from longest import max_rtt

from wanbench.netprofiles import Delay, Packets, ProfileError, Provenance, Rate, Ratio, Size, load
from wanbench.netprofiles.describe import render


@pytest.fixture
def csv(tmp_path, monkeypatch):
    """Write the lines as CSV and load them by the file's relative name."""
    monkeypatch.chdir(tmp_path)

    def write_and_load(*lines):
        (tmp_path / "net.csv").write_text("\n".join(lines) + "\n")
        return load("net.csv")

    return write_and_load


def test_a_csv_profile_has_the_sites_it_names(csv):
    profile = csv(
        "src, dst, rtt_ms, rate_mbps, jitter_ms, loss_pct, loss_burst, buffer",
        "a, b, 80, 100, 1.5, 0.1, 5, 256KiB",
        "",
        "a, c, 20.5, , , , ,",
        "b, c, 30, , , , ,",
    )
    assert profile.name == "net"
    assert [site.name for site in profile.sites] == ["a", "b", "c"]
    path = profile.path("b", "a")
    assert (path.delay, path.jitter) == (Delay.parse("40ms"), Delay.parse("1.5ms"))
    assert (path.loss, path.loss_burst) == (Ratio(0.001), Packets(5.0))
    assert (path.rate, path.buffer) == (Rate(10**8), Size(256 * 1024))
    assert path.provenance["rate"] == Provenance("given", "net.csv")
    other = profile.path("a", "c")
    assert (other.delay, other.rate, other.buffer) == (Delay.parse("10.25ms"), None, None)
    assert set(other.provenance) == {"rtt"}


def test_a_network_with_shared_rates_is_the_same_in_csv_and_in_toml(csv, tmp_path):
    from_csv = csv(
        "src,dst,rtt_ms,rate_mbps,up_mbps,down_mbps,buffer,local_rtt_ms",
        "a,,,,100,200.5,64KiB,0.1",
        "a,b,80,50,,,,",
        "b,,,,1000,,,",
    )
    (tmp_path / "net.toml").write_text("""
schema = 1
name = "net"
description = "Paths of net.csv."
sources = { csv = "net.csv" }
path_defaults = { rtt_standing = "given", rtt_source = "csv", rate_standing = "given", rate_source = "csv" }
paths = [{ src = "a", dst = "b", rtt = "80ms", rate = "50Mbit" }]

[site_defaults]
up_standing = "given"
up_source = "csv"
down_standing = "given"
down_source = "csv"
buffer_standing = "given"
buffer_source = "csv"
local_rtt_standing = "given"
local_rtt_source = "csv"

[[sites]]
name = "a"
up = "100Mbit"
down = "200.5Mbit"
buffer = "64KiB"
local_rtt = "0.1ms"

[[sites]]
name = "b"
up = "1Gbit"
""")
    assert from_csv == load("net.toml")


def test_a_site_without_a_path_is_a_network_of_one(csv):
    assert max_rtt(csv("src,dst,rtt_ms,up_mbps", "a,,,5")) == Delay(0)


def test_the_directions_of_a_path_in_csv_can_differ(csv):
    profile = csv("src,dst,one_way_ms,rate_mbps", "a,b,40,100", "b,a,60,10")
    assert profile.path("a", "b").delay == Delay.parse("40ms")
    assert profile.path("b", "a").rate == Rate(10**7)
    assert math.isclose(profile.rtt("a", "b").ms, 100)


_COLUMNS = (
    "expected src, dst, rtt_ms, one_way_ms, jitter_ms, loss_pct, loss_burst, rate_mbps, buffer, up_mbps, down_mbps, "
    "local_rtt_ms"
)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (
            ["src,dst,rt_ms", "a,b,1"],
            f"net.csv, line 1: unknown column 'rt_ms'; {_COLUMNS}; did you mean 'rtt_ms'?",
        ),
        (["src,src,rtt_ms"], "net.csv, line 1: column 'src' appears twice; expected once"),
        (["src,rtt_ms"], f"net.csv, line 1: no column 'dst'; {_COLUMNS}"),
        (["src,dst"], "net.csv, line 1: expected exactly one of the columns rtt_ms and one_way_ms"),
        (
            ["src,dst,rtt_ms,one_way_ms"],
            "net.csv, line 1: expected exactly one of the columns rtt_ms and one_way_ms",
        ),
        (["src,dst,rtt_ms", "a,b"], "net.csv, line 2: 2 cells; expected 3, as in line 1"),
        (["src,dst,rtt_ms", ",b,1"], "net.csv, line 2, src: empty; expected the name of a site"),
        (
            ["src,dst,rtt_ms", "a,,1"],
            "net.csv, line 2, rtt_ms: a line without dst is a site; expected only up_mbps, down_mbps, buffer, "
            "local_rtt_ms",
        ),
        (["src,dst,rtt_ms", "a,b,"], "net.csv, line 2, rtt_ms: empty; expected a number of ms, such as 80"),
        (
            ["src,dst,rtt_ms", "a,b,80ms"],
            "net.csv, line 2, rtt_ms: '80ms' is invalid; expected a number, 0 or more, without a unit",
        ),
        (
            ["src,dst,rtt_ms", "a,b,nan"],
            "net.csv, line 2, rtt_ms: 'nan' is invalid; expected a number, 0 or more, without a unit",
        ),
        (
            ["src,dst,rtt_ms,rate_mbps", "", "a,b,1,0"],
            "net.csv, line 3, rate_mbps: '0' is invalid; expected a number, above 0, without a unit",
        ),
        (
            ["src,dst,rtt_ms,loss_pct", "a,b,1,101"],
            "net.csv, line 2, loss_pct: '101' is invalid; expected a number, 0 to 100, without a unit",
        ),
        (
            ["src,dst,rtt_ms", "a,b,1", "a,b,2"],
            "net.csv, line 3: a -> b is given twice; expected once per direction",
        ),
        (
            ["src,dst,rtt_ms,up_mbps", "hom,,,40", "home,london,18,", "london,,,40"],
            "net.csv, line 2, src: no path names the site 'hom'; expected one of home, london; did you mean 'home'?",
        ),
    ],
)
def test_a_mistake_in_csv_is_named_with_its_line(csv, lines, message):
    with pytest.raises(ProfileError) as refused:
        csv(*lines)
    assert str(refused.value) == message


@pytest.mark.parametrize(
    ("lines", "where", "value"),
    [
        (["src,dst,rtt_ms,up_mbps", "a,b,1,9"], "net.csv, line 2, up_mbps: ", "rate_mbps"),
        (["src,dst,rtt_ms,up_mbps", "a,,,0"], "net.csv, line 2, up_mbps: ", "above 0"),
        (["src,dst,rtt_ms,up_mbps", "a,,,1", "a,,,2"], "net.csv, line 3: ", "site 'a' is given twice"),
        (["src,dst,rtt_ms,buffer", "a,b,1,64"], "net.csv, line 2, buffer: ", "'64'"),
        (["src,dst,rtt_ms,jitter_ms", "a,b,6,2"], "net.csv, line 2: a -> b: jitter ", "2ms"),
        (["src,dst,rtt_ms", "a,a,1"], "net.csv, line 2: a -> a: ", "local_rtt"),
        (["src,dst,rtt_ms", "a,b,1", "b,c,1"], "net.csv: no path ", "a -> c"),
        (["src,dst,rtt_ms"], "net.csv: profile 'net' ", "no site"),
    ],
)
def test_an_impossible_network_in_csv_is_named_with_its_line(csv, lines, where, value):
    with pytest.raises(ProfileError) as refused:
        csv(*lines)
    message = str(refused.value)
    assert message.startswith(where)
    assert value in message


MATRIX = ("from/to,dallas,london,tokyo", "dallas,,113,144", "london,114,,241", "tokyo,143,242,")


def test_a_table_of_round_trips_is_a_profile_with_the_mean_of_both_directions(csv):
    profile = csv(*MATRIX)
    assert [site.name for site in profile.sites] == ["dallas", "london", "tokyo"]
    rtts = {pair: profile.rtt(*pair).ms for pair in (("dallas", "london"), ("tokyo", "dallas"), ("london", "tokyo"))}
    assert rtts == {("dallas", "london"): 113.5, ("tokyo", "dallas"): 143.5, ("london", "tokyo"): 241.5}
    assert profile.path("dallas", "london").rate is None
    assert profile.notes == (
        "A round trip is the mean of both directions of the table.",
        "The table has no rates: nothing limits a path.",
    )


def test_a_table_of_round_trips_may_lack_directions_and_have_the_round_trip_inside_a_site(csv):
    profile = csv(",tokyo,london,", "", "# measured in March", "london,241ms,0.5,", "tokyo,2.5,-,")
    assert [site.name for site in profile.sites] == ["tokyo", "london"]
    assert profile.rtt("tokyo", "london").ms == 241
    assert [profile.site(name).local_rtt.ms for name in ("tokyo", "london")] == [2.5, 0.5]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ((*MATRIX[:3], "tokyo,143,,"), None),
        (("x,a,b,c", "a,,1,2", "b,1,,", "c,2,,"), "net.csv: no path b -> c"),
        (("x,a,b", "a,,1", "b,fast,"), "net.csv, line 3, a, rtt_ms: 'fast' is invalid"),
        (("x,a,b", "a,,1", "c,1,"), "net.csv, line 1: none of the columns src, dst, "),
        (("x,a,b", "a,,1", "b,1,", "b,2,"), "net.csv, line 4: a and b are given twice"),
    ],
)
def test_a_table_of_round_trips_that_is_not_complete_is_refused(csv, lines, message):
    if message is None:
        assert csv(*lines).rtt("london", "tokyo").ms == 241
        return
    with pytest.raises(ProfileError) as refused:
        csv(*lines)
    assert str(refused.value).startswith(message)


NUMBERS = "'.' before decimals and nothing between thousands"


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (
            ["src;dst;rtt_ms;rate_mbps", "München;São Paulo;203,5;200"],
            f"net.csv, line 1: cells are separated by ';'; expected ',' between cells, {NUMBERS}",
        ),
        (
            ["| RTT (ms) | Dallas | Washington DC |", "| --- | :---: | :---: |", "| **Dallas** |  | 31 |"],
            f"net.csv, line 1: cells are separated by '|'; expected ',' between cells, {NUMBERS}",
        ),
        (
            ["src,dst,rtt_ms,rate_mbps", 'A,B,20,"1,000"'],
            "net.csv, line 2, rate_mbps: '1,000' is invalid; expected a number, above 0, without a unit; "
            f"',' separates digits, expected {NUMBERS}",
        ),
        (["src,dst,rtt_ms", 'a,b,"1'], "net.csv, line 2: unexpected end of data; is a quote not closed?"),
        (["src,dst,rtt_ms", 'a,b,"' + "9" * 200_000], "net.csv, line 2: field larger than field limit (131072)"),
    ],
)
def test_other_separators_and_open_quotes_are_named(csv, lines, message):
    with pytest.raises(ProfileError) as refused:
        csv(*lines)
    assert str(refused.value).startswith(message)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_comments_empty_lines_trailing_commas_and_the_files_of_windows_are_read(tmp_path, monkeypatch, encoding):
    monkeypatch.chdir(tmp_path)
    lines = ["# of March", "", "src,dst,rtt_ms,", '"São Paulo",b,80,', " , ,,", ""]
    (tmp_path / "net.csv").write_bytes("\r\n".join(lines).encode(encoding))
    assert load("net.csv").rtt("São Paulo", "b").ms == 80


def test_what_differs_between_paths_is_shown_as_a_matrix_beside_the_round_trips(csv):
    page = render(
        csv("src,dst,rtt_ms,rate_mbps,jitter_ms", "paris,lima,180,30,1", "berlin,lima,190,20,1", "paris,berlin,20,90,1")
    )
    assert page.split("\n\n")[3].splitlines() == [
        "path rate, to   paris    lima  berlin",
        "paris                  30Mbit  90Mbit",
        "lima           30Mbit          20Mbit",
        "berlin         90Mbit  20Mbit",
    ]
    assert "jitter, to" not in page
