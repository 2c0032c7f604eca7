"""Profile files are read strictly: each error is one line with the place, and with a suggestion if one is close."""

import pytest
from longest import max_rtt

from wanbench.netprofiles import Delay, Packets, ProfileError, Provenance, Rate, Ratio, Size, load

TOML = """
schema = 1
name = "two"
description = "Two sites."
notes = ["A note."]

[sources]
ping = "own ping, 2026-03-01"

[site_defaults]
up = "10Gbit"
up_standing = "assumed"
up_source = "ping"

[path_defaults]
rtt_standing = "measured"
rtt_source = "ping"
loss = "0.1%"

[[sites]]
name = "oregon"
region = "us-west-2"
city = "Oregon"

[[sites]]
name = "london"
up = "1Gbit"
up_standing = "given"
up_source = "ping"
local_rtt = "0.1ms"

[[paths]]
src = "us-west-2"
dst = "london"
rtt = "145ms"
jitter = "2ms"
rate = "5Gbit"
buffer = "1MiB"
"""


@pytest.fixture
def toml(tmp_path, monkeypatch):
    """Write the file, with replacements, and load it by its relative name."""
    monkeypatch.chdir(tmp_path)

    def write_and_load(*replacements):
        text = TOML
        for old, new in replacements:
            assert text.count(old) == 1, old
            text = text.replace(old, new)
        (tmp_path / "two.toml").write_text(text)
        return load("two.toml")

    return write_and_load


def refusal(load_it, *args):
    with pytest.raises(ProfileError) as refused:
        load_it(*args)
    return str(refused.value)


def test_a_toml_profile_has_the_values_of_its_file(toml):
    profile = toml()
    oregon, london = profile.sites
    assert (profile.name, profile.description, profile.notes) == ("two", "Two sites.", ("A note.",))
    assert (oregon.region, oregon.city, oregon.up, oregon.down) == ("us-west-2", "Oregon", Rate(10**10), None)
    assert (london.up, london.local_rtt) == (Rate(10**9), Delay.parse("0.1ms"))
    path = profile.path("oregon", "london")
    assert path.delay == Delay.parse("72.5ms")
    assert (path.jitter, path.loss) == (Delay.parse("2ms"), Ratio(0.001))
    assert (path.rate, path.buffer) == (Rate(5 * 10**9), Size(2**20))


def test_bursts_of_loss_are_a_number_of_packets(toml):
    profile = toml(('loss = "0.1%"', 'loss = "0.1%"\nloss_burst = 2.5'))
    path = profile.path("oregon", "london")
    assert path.loss_burst == Packets(2.5)
    assert path.provenance["loss_burst"] == Provenance("given", "two.toml")
    plain = profile.to_json()["paths"][0]
    assert plain["loss_burst"] == 2.5
    assert "loss_burst" not in toml().to_json()["paths"][0]


def test_each_value_has_its_provenance_and_source(toml):
    profile = toml()
    ping = "own ping, 2026-03-01"
    assert profile.site("oregon").provenance == {"up": Provenance("assumed", ping)}
    assert profile.site("london").provenance == {
        "up": Provenance("given", ping),
        "local_rtt": Provenance("given", "two.toml"),
    }
    assert profile.path("oregon", "london").provenance == {
        "rtt": Provenance("measured", ping),
        "jitter": Provenance("given", "two.toml"),
        "loss": Provenance("given", "two.toml"),
        "rate": Provenance("given", "two.toml"),
        "buffer": Provenance("given", "two.toml"),
    }


def test_a_path_given_in_one_direction_applies_to_both(toml):
    profile = toml()
    assert profile.path("london", "oregon") == profile.path("oregon", "london").reversed()
    assert profile.rtt("oregon", "london") == Delay.parse("145ms")


def test_a_one_way_delay_is_used_unchanged(toml):
    profile = toml(('rtt = "145ms"', 'one_way = "70ms"\none_way_standing = "inferred"\none_way_source = "ping"'))
    path = profile.path("oregon", "london")
    assert path.delay == Delay.parse("70ms")
    assert path.provenance["rtt"] == Provenance("inferred", "own ping, 2026-03-01")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("schema = 1", "schema = 2", "two.toml: schema is 2; expected schema = 1"),
        ("schema = 1", "", "two.toml: schema is missing; expected schema = 1"),
        ('name = "two"\n', "", "two.toml: top level: missing key 'name'; expected text in quotes"),
        ('name = "two"', "name = 2", "two.toml: top level.name: 2 is invalid; expected text in quotes"),
        ('notes = ["A note."]', 'notes = "A"', "two.toml: notes is invalid; expected a list of texts in quotes"),
        (
            "[site_defaults]",
            "[site_default]",
            "two.toml: top level: unknown key 'site_default'; expected one of schema, name, description, "
            "notes, sources, site_defaults, path_defaults, sites, paths, paths_file; "
            "did you mean 'site_defaults'?",
        ),
        (
            'city = "Oregon"',
            'citty = "Oregon"',
            "two.toml: sites[0]: unknown key 'citty'; expected one of name, region, city, up, up_standing, "
            "up_source, down, down_standing, down_source, buffer, buffer_standing, "
            "buffer_source, local_rtt, local_rtt_standing, local_rtt_source; "
            "did you mean 'city'?",
        ),
        (
            'rtt = "145ms"',
            'rtt = ["145ms"]',
            "two.toml: paths[oregon -> london].rtt: expected one quantity in quotes, not ['145ms']",
        ),
        (
            'rtt = "145ms"',
            'rtt = "145ms"\none_way = "70ms"',
            "two.toml: paths[oregon -> london]: both rtt and one_way are set; expected only one",
        ),
        (
            'rtt = "145ms"\n',
            "",
            "two.toml: paths: oregon -> london: no delay; expected an RTT or a one-way delay",
        ),
        (
            'dst = "london"',
            'dst = "lodnon"',
            "two.toml: paths[0].dst: unknown site 'lodnon'; expected one of [[sites]]; did you mean 'london'?",
        ),
        ('dst = "london"\n', "", "two.toml: paths[0]: missing key 'dst'; expected text in quotes"),
        (
            'rtt_standing = "measured"',
            'rtt_standing = "mesured"',
            "two.toml: paths[oregon -> london].rtt_standing: unknown provenance 'mesured'; expected one of measured, "
            "inferred, assumed, fitted, given; did you mean 'measured'?",
        ),
        (
            'rtt_source = "ping"',
            'rtt_source = "pign"',
            "two.toml: paths[oregon -> london].rtt_source: no source 'pign' in [sources]; did you mean 'ping'?",
        ),
        (
            'rtt_source = "ping"\n',
            "",
            "two.toml: paths[oregon -> london]: rtt_standing without rtt_source; expected both",
        ),
        (
            'rtt_standing = "measured"\n',
            "",
            "two.toml: paths[oregon -> london]: rtt_source without rtt_standing; expected both",
        ),
        (
            'region = "us-west-2"',
            'region = "london"',
            "two.toml: paths[0].src: unknown site 'us-west-2'; expected one of [[sites]]",
        ),
        ("[[paths]]", "[paths]", "two.toml: paths is not a list of tables; expected [[paths]]"),
    ],
)
def test_a_mistake_in_toml_is_named_with_its_key(toml, old, new, message):
    assert refusal(toml, (old, new)) == message


@pytest.mark.parametrize(
    ("old", "new", "where", "value"),
    [
        ('up = "1Gbit"', 'up = "1Gib"', "two.toml: sites[london].up: ", "'1Gib'"),
        ('rtt = "145ms"', "rtt = 145", "two.toml: paths[oregon -> london].rtt: ", "'145'"),
        ('jitter = "2ms"', 'jitter = "60ms"', "two.toml: paths: oregon -> london: jitter ", "60ms"),
    ],
)
def test_an_impossible_value_in_toml_is_named_with_its_key(toml, old, new, where, value):
    message = refusal(toml, (old, new))
    assert message.startswith(where)
    assert value in message


def test_sources_are_a_table_of_texts(toml):
    assert refusal(toml, ('[sources]\nping = "own ping, 2026-03-01"\n', 'sources = "ping"\n')) == (
        "two.toml: sources is not a table; expected [sources]"
    )
    assert refusal(toml, ('ping = "own ping, 2026-03-01"', "ping = 1")) == (
        "two.toml: sources.ping: 1 is invalid; expected text in quotes"
    )


def test_broken_toml_is_refused_with_its_line(toml):
    assert refusal(toml, ("schema = 1", "schema 1")) == (
        "two.toml: not valid TOML: Expected '=' after a key in a key/value pair (at line 2, column 8)"
    )


def test_a_path_given_twice_is_refused(toml):
    again = '[[paths]]\nsrc = "oregon"\ndst = "london"\nrtt = "1ms"\n\n[[paths]]'
    assert refusal(toml, ("[[paths]]", again)) == (
        "two.toml: paths: oregon -> london is given twice; expected once per direction"
    )


def test_a_pair_without_a_path_is_refused(toml):
    assert refusal(toml, ("[[paths]]", '[[sites]]\nname = "tokyo"\n\n[[paths]]')) == (
        "two.toml: no path oregon -> tokyo; every ordered pair of sites needs one"
    )


def test_paths_can_be_in_a_csv_beside_the_file(toml, tmp_path):
    (tmp_path / "paths.csv").write_text("src,dst,rtt_ms,loss_pct\nlondon,us-west-2,145,\noregon,london,147,1\n")
    start = TOML.index("[[paths]]")
    inline = TOML[start:]
    profile = toml((inline, ""), ("[sources]", 'paths_file = "paths.csv"\n\n[sources]'))
    there, back = profile.path("oregon", "london"), profile.path("london", "oregon")
    assert (there.loss, back.loss) == (Ratio(0.01), Ratio(0.001))
    assert profile.rtt("oregon", "london") == Delay.parse("146ms")
    assert there.provenance["rtt"] == Provenance("measured", "own ping, 2026-03-01")


def test_a_mistake_in_that_csv_is_named_with_file_and_line(toml, tmp_path):
    inline = TOML[TOML.index("[[paths]]") :]
    with_file = ((inline, ""), ("[sources]", 'paths_file = "paths.csv"\n\n[sources]'))
    assert refusal(toml, *with_file) == "paths.csv: cannot be read: No such file or directory"
    (tmp_path / "paths.csv").write_text("src,dst,rtt_ms\noregon,lndon,1\n")
    assert refusal(toml, *with_file) == (
        "paths.csv, line 2, dst: unknown site 'lndon'; expected one of [[sites]]; did you mean 'london'?"
    )


def test_paths_can_be_given_in_only_one_place(toml):
    assert refusal(toml, ("[sources]", 'paths_file = "x.csv"\n\n[sources]')) == (
        "two.toml: both paths and paths_file are set; expected only one"
    )


def test_sites_in_a_file_of_paths_are_refused(toml, tmp_path):
    inline = TOML[TOML.index("[[paths]]") :]
    (tmp_path / "paths.csv").write_text("src,dst,rtt_ms,up_mbps\noregon,,,1\n")
    assert refusal(toml, (inline, ""), ("[sources]", 'paths_file = "paths.csv"\n\n[sources]')) == (
        "paths.csv, line 2, dst: empty; a paths_file has paths only, sites belong in [[sites]]"
    )


def test_a_file_that_is_not_text_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.toml").write_bytes(b"\xff\xfe\xfa")
    assert refusal(load, "bad.toml") == "bad.toml: not a text file; expected UTF-8"
    assert refusal(load, "none.csv") == "none.csv: cannot be read: No such file or directory"


def test_a_file_in_a_windows_editor_s_utf_8_is_read(tmp_path):
    (tmp_path / "bom.csv").write_bytes(b"\xef\xbb\xbfsrc,dst,rtt_ms\r\na,b,80\r\n")
    assert max_rtt(load(str(tmp_path / "bom.csv"))) == Delay.parse("80ms")
