"""What a spec may say, and the exact words with which it is refused."""

from __future__ import annotations

import pytest
from small_spec import GOOD

from wanbench.harness.errors import SpecError
from wanbench.harness.spec.axes import points
from wanbench.harness.spec.experiment import Spec, parse_assignment
from wanbench.harness.spec.library import builtin_names, find, read
from wanbench.harness.spec.tables import NetworkTable
from wanbench.workloads.compute.optim import SGDConfig
from wanbench.workloads.data.shards import DEFAULT_BATCH_SIZE


def spec(text: str = GOOD) -> Spec:
    return Spec.from_toml(text, "x.toml")


def refusal(text: str) -> str:
    with pytest.raises(SpecError) as caught:
        spec(text)
    return str(caught.value)


def edited(old: str, new: str) -> str:
    assert old in GOOD
    return GOOD.replace(old, new)


def test_the_spec_that_the_refusals_are_made_from_is_a_good_one():
    assert spec().to_dict()["network"] == {"rate": "1Gbit"}


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ('rate = "1Gbit"', 'rat = "1Gbit"', "network.rat: unknown key; did you mean 'rate'?"),
        (
            'rate = "1Gbit"',
            "zzz = 1",
            f"network.zzz: unknown key; known keys: {', '.join(sorted(NetworkTable.model_fields))}",
        ),
        ("[sweep]", "[comms]\n[sweep]", "comms: unknown key; did you mean 'comm'?"),
        (
            "[sweep]",
            "[network.tcp]\ncongest = 'reno'\n[sweep]",
            "network.tcp.congest: unknown key; did you mean 'congestion'?",
        ),
        (
            "[sweep]",
            "[[gate.require]]\nmetric = 's'\nwhere = {}\nmni = 0.9\n[sweep]",
            "gate.require.0.mni: unknown key; did you mean 'min'?",
        ),
        (
            'rate = "1Gbit"',
            "rtt = '80'",
            "network.rtt: '80' has no unit; a delay is a number and one of ns, us, ms, s, such as '80ms'",
        ),
        (
            'rate = "1Gbit"',
            "rtt = '-5ms'",
            "network.rtt: '-5ms' is negative; a delay is a number and one of ns, us, ms, s, such as '80ms'",
        ),
        (
            'rate = "1Gbit"',
            "rate = '1ms'",
            "network.rate: '1ms' has the unknown unit 'ms'; "
            "a rate is a number and one of bit, kbit, Mbit, Gbit, such as '10Gbit'",
        ),
        (
            'rate = "1Gbit"',
            "loss = '150%'",
            "network.loss: '150%' is above 1; a ratio is a number from 0 to 1, or a percentage, such as '0.1%'",
        ),
        (
            'rate = "1Gbit"',
            "loss_burst = 0.5",
            "network.loss_burst: a number of packets is 1 or more, or 0 for none, not 0.5",
        ),
        ('rate = "1Gbit"', "loss_burst = true", "network.loss_burst: expected a number, got true"),
        ('rate = "1Gbit"', "rate = 5", "network.rate: expected a string in quotes, got 5"),
        ("tensors = 2", "tensors = 'two'", "workload.tensors: expected a whole number, got 'two'"),
        ("tensors = 2", "tensors = 2.0", "workload.tensors: expected a whole number, got 2.0"),
        ("tensors = 2", "tensors = true", "workload.tensors: expected a whole number, got true"),
        ("ssgd = {}", "ssgd = 1", "algorithms.ssgd: expected a table, got 1"),
        ("[sweep]", "[run]\nrepeats = 0\n[sweep]", "run.repeats: expected at least 1, got 0"),
        ("[sweep]", "[train]\ntarget = 90\n[sweep]", "train.target: expected at most 1.0, got 90"),
        ("[sweep]", "[train]\nlr = nan\n[sweep]", "train.lr: expected a finite number, got nan"),
        (
            "[sweep]",
            "[run]\nwindow = '20'\n[sweep]",
            "run.window: expected a count of steps, such as \"20 steps\", got '20'",
        ),
        (
            "[sweep]",
            "[train]\nuntil = '10 epochs'\n[sweep]",
            "train.until: expected a count of steps, such as \"20 steps\", got '10 epochs'",
        ),
        ("ssgd = {}", "", "algorithms: expected at least 1 entry, got {}"),
        ('name = "t"', "", 'name: this key is required; add name = "my-experiment"'),
        ('name = "t"', 'name = "../t"', "name: expected letters, digits, '.', '_' and '-' ('-' not first), got '../t'"),
        ('name = "t"', f'name = "{"t" * 81}"', f"name: expected at most 80 characters, got {'t' * 81!r}"),
        ("schema = 1", "", "schema: this key is required; add schema = 1"),
    ],
)
def test_a_mistake_is_one_line_with_file_key_and_what_was_expected(old, new, line):
    assert refusal(edited(old, new)) == f"x.toml: {line}"


@pytest.mark.parametrize("version", ["true", "1.0", "2", "'1'"])
def test_a_schema_that_merely_equals_1_is_refused(version):
    got = version.replace('"', "'")
    line = f"x.toml: schema: expected 1, the only version so far, got {got}"
    assert refusal(edited("schema = 1", f"schema = {version}")) == line


@pytest.mark.parametrize(
    ("table", "key", "value", "choices", "near"),
    [
        ("run", "testbed", "netn", "'auto', 'netns', 'docker' or 'virtual'", "netns"),
        ("run", "emulator", "rely", "'auto', 'netem' or 'relay'", "relay"),
        ("comm", "collective", "glo", "'auto', 'direct', 'gloo', 'ring' or 'hierarchical'", "gloo"),
        ("comm", "collective", "nccl", "'auto', 'direct', 'gloo', 'ring' or 'hierarchical'", None),
        ("train", "schedule", "cosin", "'constant' or 'cosine'", "cosine"),
        ("comm", "channels", "aut", "'auto' or a whole number", "auto"),
    ],
)
def test_an_unknown_word_gets_the_known_ones_and_the_nearest(table, key, value, choices, near):
    hint = f"; did you mean {near!r}?" if near else ""
    said = refusal(GOOD + f"[{table}]\n{key} = '{value}'\n")
    assert said == f"x.toml: {table}.{key}: expected {choices}, got {value!r}{hint}"


@pytest.mark.parametrize(
    ("value", "line"),
    [
        ("0", "comm.channels: expected 'auto' or at least 1, got 0"),
        ("65", "comm.channels: expected 'auto' or at most 64, got 65"),
        ("true", "comm.channels: expected 'auto' or a whole number, got true"),
    ],
)
def test_a_key_that_takes_a_word_or_a_number_is_refused_in_one_line(value, line):
    assert refusal(GOOD + f"[comm]\nchannels = {value}\n") == f"x.toml: {line}"


@pytest.mark.parametrize(
    ("place", "line"),
    [
        ("'block'", "place: expected 'blocked' or 'round-robin' or a table, got 'block'; did you mean 'blocked'?"),
        ("5", "place: expected 'blocked' or 'round-robin' or a table, got 5"),
        ("{tokyo = 'two'}", "place.tokyo: expected a whole number, got 'two'"),
    ],
)
def test_a_wrong_place_is_refused_where_it_is_wrong(place, line):
    assert refusal(edited('rate = "1Gbit"', f"place = {place}")) == f"x.toml: network.{line}"


def test_several_mistakes_are_several_lines_in_the_order_of_the_schema():
    text = "name = 'a b'\n[workload]\nparamz = 1\n[algorithms]\nssgd = {}\n[run]\nrepeats = 0\ntestbed = 'netn'\n"
    assert refusal(text).splitlines() == [
        "x.toml: schema: this key is required; add schema = 1",
        "x.toml: name: expected letters, digits, '.', '_' and '-' ('-' not first), got 'a b'",
        "x.toml: workload.paramz: unknown key; did you mean 'params'?",
        "x.toml: run.testbed: expected 'auto', 'netns', 'docker' or 'virtual', got 'netn'; did you mean 'netns'?",
        "x.toml: run.repeats: expected at least 1, got 0",
    ]


def test_broken_toml_is_refused_with_line_and_column():
    assert refusal('schema = 1\nname = "t\n') == (
        "x.toml: not valid TOML: Illegal character '\\n' (at line 2, column 10)"
    )


def test_a_file_and_a_built_in_name_are_read_alike(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(read("smoke"))
    assert Spec.load(path) == Spec.load("smoke")


@pytest.mark.parametrize("name", builtin_names())
def test_every_built_in_experiment_is_named_as_its_file_and_described(name):
    built_in = Spec.load(name)
    assert built_in.name == name
    assert built_in.description.endswith(".")
    assert built_in.network.tcp.model_fields_set >= {"congestion"}, "TCP is pinned by every built-in experiment"


def test_an_unknown_experiment_gets_a_near_miss_or_the_names_there_are():
    with pytest.raises(SpecError) as near:
        find("latency-swep")
    assert str(near.value) == "latency-swep: no such file and no such experiment; did you mean 'latency-sweep'?"
    with pytest.raises(SpecError) as far:
        find("qqq.toml")
    known = ", ".join(builtin_names())
    assert str(far.value) == f"qqq.toml: no such file and no such experiment; built-in experiments: {known}"


def test_a_binary_file_is_refused_in_one_line(tmp_path):
    path = tmp_path / "noise.toml"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(SpecError) as caught:
        Spec.load(path)
    assert str(caught.value) == f"{path}: not a text file; expected TOML in UTF-8"


def test_an_unreadable_file_is_refused_in_one_line(tmp_path, monkeypatch):
    path = tmp_path / "secret.toml"
    path.write_text(GOOD)

    def refuse(*_args, **_options):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("wanbench.netprofiles.user_file.os.open", refuse)
    with pytest.raises(SpecError) as caught:
        Spec.load(path)
    assert str(caught.value) == f"{path}: cannot be read: Permission denied"


@pytest.mark.parametrize(
    ("text", "assignment"),
    [
        ("run.repeats=1", ("run.repeats", 1)),
        ("train.lr=0.1", ("train.lr", 0.1)),
        ("train.nesterov=true", ("train.nesterov", True)),
        ("network.rtt=80ms", ("network.rtt", "80ms")),
        ('network.rtt="80ms"', ("network.rtt", "80ms")),
        ("train.shards=dirichlet:0.5", ("train.shards", "dirichlet:0.5")),
        ('sweep.rtt=["1ms", "2ms"]', ("sweep.rtt", ["1ms", "2ms"])),
        ("network.place={w0 = 2}", ("network.place", {"w0": 2})),
        (" name = two words ", ("name", "two words")),
        ("description=a=b", ("description", "a=b")),
        ("name=", ("name", "")),
    ],
)
def test_a_set_value_is_toml_or_else_a_bare_string(text, assignment):
    assert parse_assignment(text) == assignment


@pytest.mark.parametrize("text", ["repeats", "=1", " =1"])
def test_a_set_value_without_a_key_or_an_equals_sign_is_refused(text):
    with pytest.raises(SpecError) as caught:
        parse_assignment(text)
    assert str(caught.value) == f"--set {text}: expected key=value, e.g. --set run.repeats=1"


def test_an_override_changes_its_key_and_keeps_everything_else():
    before = spec().to_dict()
    after = spec().override({"run.repeats": 5, "network.tcp.congestion": "cubic"}).to_dict()
    assert after.pop("run") == {"repeats": 5}
    assert after["network"].pop("tcp") == {"congestion": "cubic"}
    assert after == before


def test_an_override_leaves_the_original_alone():
    original = spec()
    original.override({"run.repeats": 5, "algorithms.dts": {"delay": 1, "period": 1}})
    assert original == spec()


@pytest.mark.parametrize(
    ("key", "value", "line"),
    [
        ("run.repeatz", 5, "--set: run.repeatz: unknown key; did you mean 'repeats'?"),
        ("runn.repeats", 5, "--set: runn: unknown key; did you mean 'run'?"),
        ("run.repeats", "many", "--set: run.repeats: expected a whole number, got 'many'"),
        ("name.x", 5, "--set: name.x: 'name' is a value, not a table"),
    ],
)
def test_an_override_is_checked_as_strictly_as_the_file(key, value, line):
    with pytest.raises(SpecError) as caught:
        spec().override({key: value})
    assert str(caught.value) == line


def test_the_defaults_that_the_spec_shows_are_those_that_a_worker_uses():
    train, worker = spec().train, SGDConfig()
    shared = set(type(train).model_fields) & set(SGDConfig.__dataclass_fields__)
    assert shared == {"optimizer", "lr", "momentum", "nesterov", "weight_decay", "schedule", "warmup_steps"}
    by_optimizer = {"lr", "weight_decay"}  # of which each has its own
    assert {key: getattr(train, key) for key in by_optimizer} == dict.fromkeys(by_optimizer)
    shared -= by_optimizer
    assert {key: getattr(train, key) for key in shared} == {key: getattr(worker, key) for key in shared}
    assert train.batch_size == DEFAULT_BATCH_SIZE


def test_a_spec_error_ends_with_exit_code_2():
    assert SpecError("x").exit_code == 2


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"run.seed": 2**53}, "run.seed: expected at most"),
        ({"run.repeats": 10**12}, "run.repeats: expected at most 10000, got 1000000000000"),
        ({"sweep.workers": [10**12]}, "sweep.workers: expected a whole number from 1 to 4096, got 1000000000000"),
        ({"sweep.workers": [2] * 20_000}, "sweep: 20000 cells; expected at most 10000"),
        ({"algorithms.dts": {"delay": [*range(200)], "period": [*range(200)]}}, "sweep: 40001 cells; expected at most"),
        ({"run.repeats": 10_000, "sweep.workers": [2] * 5000}, "5000 cells and 50000000 repetitions"),
    ],
)
def test_a_sweep_too_large_is_refused_before_it_is_made(changes, error):
    data = {
        "schema": 1, "name": "x", "workload": {"name": "digits-cnn"}, "network": {"rtt": "1ms"},
        "algorithms": {"ssgd": {}}, "sweep": {"workers": [2]},
    }  # fmt: skip
    with pytest.raises(SpecError) as caught:
        list(points(Spec.from_dict(data).override(changes), "x.toml"))
    assert error in str(caught.value)
