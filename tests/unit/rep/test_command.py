"""A command as a workload: placeholders, labels, the identity of cells, step times, and every refusal."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import pytest
from on_relay import expand

from wanbench.harness.errors import RepFailed, SpecError
from wanbench.harness.plan.cell import Cell, CommandCell
from wanbench.harness.rep import command
from wanbench.harness.rep.command import program_of, silence, step_time
from wanbench.harness.rep.sources import sources_before
from wanbench.harness.results.row import describe
from wanbench.harness.results.scalability import one_worker_step_times, scalability
from wanbench.harness.spec.command import check_there, filled, name_of
from wanbench.harness.spec.experiment import Spec
from wanbench.harness.testbeds.slot import WorkerSlot
from wanbench.workloads.group.settings import settings

GOOD = """\
schema = 1
name = "t"

[workload]
command = ["python", "t.py", "--H", "{H}"]

[sweep]
workers = [2]
rtt = ["10ms"]
H = [1, 8]
"""


def cells(text: str = GOOD, where: str = "x.toml") -> list[Cell]:
    return expand(Spec.from_toml(text, where), where)


def swept(text: str = GOOD) -> list[Cell]:
    return [cell for cell in cells(text) if not cell.is_baseline]


def edited(*changes: tuple[str, str]) -> str:
    text = GOOD
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return text


def refusal(*changes: tuple[str, str]) -> str:
    with pytest.raises(SpecError) as caught:
        cells(edited(*changes))
    return str(caught.value)


# ---------------------------------------------------------------- placeholders


def test_an_axis_of_any_name_is_inserted_into_the_command():
    assert [cell.command[-1] for cell in swept()] == ["1", "8"]


@pytest.mark.parametrize(
    ("argument", "result"),
    [
        ("{H}", "8"),
        ("--H={H}@{rtt}", "--H=8@10ms"),
        ('{{"H": {H}}}', '{"H": 8}'),
        ("{nesterov}", "true"),
        ("{network.place}", "blocked"),
        ("plain", "plain"),
    ],
)
def test_placeholders_are_replaced_and_double_braces_become_braces(argument, result):
    values = {"H": 8, "rtt": "10ms", "nesterov": True, "network.place": "blocked"}
    assert filled([argument], values, "x") == [result]


def test_every_axis_is_in_the_environment_of_the_program(tmp_path):
    env = program_of(swept()[1].repetition(2), tmp_path / "s").environment
    assert env["WANBENCH_H"] == "8"
    assert env["WANBENCH_RTT"] == "10ms"
    assert env["WANBENCH_WORKERS"] == "2"
    assert env["WANBENCH_SEED"] == "3"


def test_without_algorithms_the_label_has_the_scripts_name_and_its_own_axes():
    assert [cell.label for cell in swept()] == ["t-H1", "t-H8"]
    cell = swept()[1]
    assert (cell.label, cell.kind, cell.params) == ("t-H8", "command:t", {"H": 8})


def test_the_environment_of_a_command_has_the_algorithm_and_its_parameters(tmp_path):
    text = GOOD + "[algorithms]\nlocal = {}\ndiloco = { outer = [0.5, 0.7] }\n"
    found = swept(text.replace('"{H}"', '"{H}", "{algorithm}"'))
    assert [cell.label for cell in found][:3] == ["local-H1", "diloco-outer0.5-H1", "diloco-outer0.7-H1"]
    assert found[2].command[-1] == "diloco"
    env = program_of(found[2].repetition(0), tmp_path / "s").environment
    assert env["WANBENCH_ALGORITHM"] == "diloco"
    assert json.loads(env["WANBENCH_PARAMS"]) == {"outer": 0.7}


def test_a_users_algorithm_has_its_kind_in_the_environment_and_its_key_in_the_label(tmp_path):
    table = '{ kind = "my_pkg.sync:Mine", compression = ["none", { kind = "topk", ratio = [0.1, 0.2] }] }'
    found = swept(GOOD + f"[algorithms]\nmine = {table}\n")
    assert [cell.label for cell in found[:3]] == [
        "mine-compressionnone-H1",
        "mine-compressiontopk-ratio0.1-H1",
        "mine-compressiontopk-ratio0.2-H1",
    ]
    env = program_of(found[1].repetition(0), tmp_path / "s").environment
    assert env["WANBENCH_ALGORITHM"] == "my_pkg.sync:Mine"
    assert json.loads(env["WANBENCH_PARAMS"]) == {"compression": {"kind": "topk", "ratio": 0.1}}


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (["python", "a/train.py", "--x", "b.py"], "train.py"),
        (["python", "-m", "pkg.train"], "pkg.train"),
        (["sh", "-c", "echo hi"], "sh"),
        (["./run.sh"], "run.sh"),
        (["/usr/bin/env", "-i", "go.sh"], "go.sh"),
    ],
)
def test_a_command_is_named_after_its_script(command, name):
    assert name_of(command) == name


# ---------------------------------------------------------------- identity


def test_every_distinct_command_has_its_own_one_worker_cell():
    found = cells()
    bases = {cell.key: cell for cell in found if cell.is_baseline}
    assert [base.command[-1] for base in bases.values()] == ["1", "8"]
    for cell in swept():
        assert bases[cell.base_key].command == cell.command


def test_a_one_worker_cell_serves_all_networks_unless_the_command_contains_the_network():
    two = ('["10ms"]', '["10ms", "20ms"]')
    assert sum(cell.is_baseline for cell in cells(edited(two))) == 2
    assert sum(cell.is_baseline for cell in cells(edited(two, ('"{H}"', '"{H}", "{rtt}"')))) == 4


def test_scalability_uses_the_one_worker_cell_of_the_same_command():
    rows = []
    for cell in cells():
        h = cell.params["H"]
        seconds = {1: 10.0, 8: 2.0}[h] if cell.is_baseline else 20.0
        rows.append({**describe(cell, 0), "status": "ok", "step_time_s": seconds})
    alone = one_worker_step_times(rows)
    found = {row["algorithm"]: scalability(row, alone) for row in rows if row["workers"] == 2}
    assert found == {"t-H1": 0.5, "t-H8": 0.1}


def test_a_cells_key_depends_on_command_and_axes_but_not_on_the_timeout():
    key = swept()[0].key
    assert swept(edited(('"--H"', '"--h"')))[0].key != key
    assert swept(edited(("H = [1, 8]", "H = [2, 8]")))[0].key != key
    assert swept(edited(("[sweep]", 'timeout = "5s"\n[sweep]')))[0].key == key
    assert swept(edited(("[sweep]", 'timeout = "5s"\n[sweep]')))[0].timeout_s == 5


def test_the_code_hash_depends_on_the_script_and_not_on_other_files(tmp_path):
    (tmp_path / "t.py").write_text("one")
    (tmp_path / "other.py").write_text("one")
    (cell, *_) = cells(GOOD.replace('"t.py"', '"t.py", "WANBENCH_H"'), str(tmp_path / "x.toml"))
    before = sources_before(cell.inputs)
    (tmp_path / "other.py").write_text("two!")
    assert sources_before(cell.inputs) == before
    (tmp_path / "t.py").write_text("two!")
    assert sources_before(cell.inputs) != before


def test_the_code_hash_depends_on_a_module_of_the_folder(tmp_path):
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "t.py").write_text("one")
    (cell, *_) = cells(GOOD.replace('"t.py"', '"-m", "pkg.t"'), str(tmp_path / "x.toml"))
    before = sources_before(cell.inputs)
    (tmp_path / "pkg" / "t.py").write_text("two!")
    assert sources_before(cell.inputs) != before


def test_a_row_describes_the_command_and_leaves_unknown_columns_null():
    row = describe(swept()[1], 0)
    assert row["command"] == ["python", "t.py", "--H", "8"]
    assert (row["workload"], row["algorithm"], row["params"]) == ("t.py", "t-H8", {"H": 8})
    unknown = ("collective", "channels", "predicted_step_time_s", "law_inputs", "message_bytes", "compute_s", "stall_s",
               "overhead_s", "payload_bytes", "messages_sent", "final_loss", "accuracy")  # fmt: skip
    assert {row[name] for name in unknown} == {None}


# ---------------------------------------------------------------- what carries its groups of gloo


def of_collectives() -> dict[str, CommandCell]:
    axes = ("H = [1, 8]", 'H = [1]\ncollective = ["gloo", "direct"]')
    return {cell.collective: cell for cell in swept(edited(axes, ("[sweep]", '[network]\nrate = "100Mbit"\n[sweep]')))}


def test_the_collective_is_an_axis_of_its_own_and_in_the_row():
    found = of_collectives()
    assert sorted(found) == ["direct", "gloo"]
    assert [describe(cell, 0)["collective"] for cell in found.values()] == list(found)
    assert len({cell.key for cell in found.values()}) == 2
    assert len({cell.base_key for cell in found.values()}) == 1


def test_every_program_is_told_its_network_and_gloo_is_replaced_only_if_the_spec_says_so():
    cell = of_collectives()["direct"]
    first, second = replace(cell, processes=2).repetition(0).group
    assert settings({**first, "MASTER_ADDR": "127.0.0.1"}).sites == cell.placement[:1] * 2 + cell.placement[1:2] * 2
    (own, _, other, _), (back, *_) = (json.loads(each["WAN_PACES"]) for each in (first, second))
    assert own == [None, None]
    assert other == back
    together, alone = json.loads(cell.repetition(0).group[0]["WAN_PACES"])[1]
    assert other == pytest.approx([together / 4, alone / 2])  # two processes send, each to two
    by_site = json.loads(replace(cell, processes=2, collective="hierarchical").repetition(0).group[0]["WAN_PACES"])
    assert by_site[2] == pytest.approx([together, alone / 2])  # one process of each site sends
    around = replace(cell, processes=2, collective="ring").repetition(0).group[0]
    assert (around["WAN_COLLECTIVE"], around["WAN_RING"]) == ("ring", "0,1,2,3")
    assert json.loads(around["WAN_PACES"])[2] == pytest.approx([together, alone / 2])  # one process sends to the next
    assert (first["WAN_REPLACES_GLOO"], first["WAN_COLLECTIVE"]) == ("1", "direct")
    assert "WAN_REPLACES_GLOO" not in of_collectives()["gloo"].repetition(0).group[0]


# ---------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ([('"{H}"', '"{h}"')], "workload.command: {h} in '{h}' is not an axis of this sweep; did you mean 'H'?"),
        ([('"{H}"', '"{H}{wokers}"')], "did you mean 'workers'?"),
        ([('"{H}"', '"{"')], "x.toml: workload.command: '{': expected an axis in each pair of braces, such as"),
        ([('"{H}"', '"{H:03d}"')], "x.toml: workload.command: '{H:03d}': expected an axis in each pair of braces"),
        ([("H = [1, 8]", "H = [[1]]")], "x.toml: sweep.H: expected text, numbers or true and false, got [1]"),
        ([("H = [1, 8]", "H = [1]\nh = [2]")], "x.toml: sweep.h: uses the same variable WANBENCH_H as sweep.H"),
        ([("H = [1, 8]", "H = [1]\nsite = [2]")], "x.toml: sweep.site: the variable WANBENCH_SITE is already in use"),
        ([("[sweep]", "step_time = '1s'\n[sweep]")], "workload.step_time: not allowed with command; only name or"),
        ([("[sweep]", "warmup = '3'\n[sweep]")], "x.toml: workload.warmup: expected a count of steps, such as"),
        ([("[sweep]", "timeout = '3'\n[sweep]")], "x.toml: workload.timeout: '3' has no unit;"),
        ([("[sweep]", "step_times = 'hok'\n[sweep]")], "x.toml: workload.step_times: expected 'hook', got 'hok'"),
        ([("[sweep]", "nproc_per_worker = 0\n[sweep]")], "x.toml: workload.nproc_per_worker: expected at least 1"),
        ([("[sweep]", "[comm]\nchannels = 2\n[sweep]")], "x.toml: comm.channels: only applies to wanbench's own"),
        ([("[sweep]", "[train]\nlr = 0.1\n[sweep]")], "x.toml: train: only applies to wanbench's own training loop"),
        ([("H = [1, 8]", "H = [1]\ncollective = ['auto']")], "'auto': a command can have one of gloo, direct, "),
        ([("[sweep]", "[run]\nwindow = '30 steps'\n[sweep]")], "x.toml: run.window: a command decides on its"),
        ([("[sweep]", "[algorithms]\na = { kind = 4 }\n[sweep]")], "x.toml: algorithms.a.kind: expected a name or"),
        ([("[sweep]", "[algorithms]\na = { H = [] }\n[sweep]")], "x.toml: algorithm 'a': H = []; expected a value or"),
        ([('command = ["python", "t.py", "--H", "{H}"]', "command = []")], "x.toml: workload.command: expected"),
        (
            [("[sweep]", "[run]\ntestbed = 'virtual'\n[sweep]")],
            "x.toml: run.testbed: a command cannot be simulated; `wanbench exec --describe -- CMD` turns it into a",
        ),
    ],
)  # fmt: skip
def test_a_spec_that_cannot_run_is_refused_in_one_line(changes, words):
    line = refusal(*changes)
    assert words in line
    assert "\n" not in line


def test_an_axis_that_nothing_reads_is_refused_with_a_near_miss(tmp_path):
    (tmp_path / "t.py").write_text("import os; os.environ['WANBENCH_K']")
    where = str(tmp_path / "x.toml")
    with pytest.raises(SpecError) as caught:
        cells(GOOD + 'rtts = ["1ms"]\n', where)
    assert str(caught.value) == (
        f"{where}: sweep.rtts: nothing reads this axis; put {{rtts}} into workload.command, or read "
        "WANBENCH_RTTS in the script; did you mean 'rtt'?"
    )
    assert cells(GOOD + "K = [1]\n", where)


def test_only_commands_can_have_an_axis_of_any_name():
    line = refusal(('command = ["python", "t.py", "--H", "{H}"]', 'name = "digits-cnn"'),
                   ("[sweep]", "[algorithms]\nssgd = {}\n[sweep]"))  # fmt: skip
    assert line.startswith("x.toml: sweep.H: unknown axis;")


def test_every_other_workload_needs_algorithms():
    line = refusal(('command = ["python", "t.py", "--H", "{H}"]', 'name = "digits-cnn"'))
    assert line == "x.toml: algorithms: this key is required; add [algorithms] with ssgd = {}"


# ---------------------------------------------------------------- step times

MS = 1_000_000


def ends(*ms: float) -> list[int]:
    return [int(one * MS) for one in ms]


def timed(reported, *, lasted=None, more: str = ""):
    (cell, *_) = swept(edited(("[sweep]", f"{more}\n[sweep]")))
    return step_time(cell.repetition(0), reported, lasted or {0: 9.0, 1: 12.0})


def test_the_step_time_is_that_of_the_slowest_process_after_the_warm_up():
    reported = {0: ("hook", ends(0, 500, 900, 910, 920)), 1: ("hook", ends(0, 500, 900, 930, 960))}
    assert timed(reported) == {"steps": 2, "steps_total": 5, "step_time_s": 0.03, "step_times": "hook"}


def test_one_long_step_in_many_counts_in_full():
    reported = {0: ("step", ends(0, 1, 2, 3, 4, 5, 106))}
    assert timed(reported)["step_time_s"] == pytest.approx(0.026)  # the median step is 1 ms


def test_the_spec_sets_the_warm_up():
    reported = {0: ("hook", ends(0, 500, 510, 520))}
    assert timed(reported, more="warmup = '1 steps'")["step_time_s"] == pytest.approx(0.52 / 3)


def test_steps_reported_by_the_program_take_precedence_over_the_hook():
    reported = {0: ("hook", ends(*range(9))), 1: ("step", ends(0, 10, 20, 30))}
    assert timed(reported) == {"steps": 1, "steps_total": 4, "step_time_s": 0.01, "step_times": "step"}


def test_without_steps_the_whole_program_is_timed_and_the_number_of_steps_is_null():
    assert timed({}) == {"steps": None, "steps_total": None, "step_time_s": 12.0, "step_times": "total"}


def test_a_hook_that_saw_no_step_is_an_error():
    with pytest.raises(RepFailed, match=r"^workload.step_times: no optimizer step of torch was seen;"):
        timed({}, more="step_times = 'hook'")


def test_the_step_time_of_a_killed_process_includes_its_downtime():
    reported = {0: ("step", ends(0, 10, 20, 30, 40, 50)), 1: ("step", ends(0, 10, 20, 30, 2030, 2040))}
    assert timed(reported)["step_time_s"] == pytest.approx(2.02 / 3)


def test_a_kill_during_the_warm_up_is_an_error_that_suggests_a_later_kill():
    more = "[[timeline]]\nat = '1s'\nwhere = 1\nkill = true"
    with pytest.raises(RepFailed, match=r"rank 1 reported 1 steps, .* let the program run longer, or kill it later$"):
        timed({0: ("hook", ends(1, 2, 3, 4)), 1: ("hook", ends(1))}, more=more)


def test_a_program_that_ends_within_its_warm_up_is_an_error():
    message = "workload.warmup: rank 1 reported 3 steps, and the first 3 are warm-up; let the program run longer"
    with pytest.raises(RepFailed, match=f"^{message}$"):
        timed({0: ("hook", ends(1, 2, 3, 4)), 1: ("hook", ends(1, 2, 3))})


def test_a_script_that_is_not_executable_is_refused_with_the_remedy(tmp_path):
    (tmp_path / "train.py").touch(mode=0o644)
    with pytest.raises(SpecError) as refused:
        check_there("./train.py", tmp_path)
    remedy = "use chmod +x, or its interpreter, as in: python ./train.py"
    assert str(refused.value) == f"./train.py: not executable; {remedy}"


# ---------------------------------------------------------------- silence


def test_workers_that_exchange_next_to_nothing_are_mentioned_with_a_likely_cause(tmp_path):
    cell = swept()[0]
    assert isinstance(cell, CommandCell)
    assert silence(cell, tmp_path, 2, 4001) is None
    assert silence(cell, tmp_path, 1, 0) is None
    assert silence(cell, tmp_path, 2, 4000) == (
        "the 2 workers exchanged next to nothing: the program must form its group from RANK, WORLD_SIZE, "
        "MASTER_ADDR and MASTER_PORT"
    )
    (tmp_path / "t.py").write_text("x\nos.environ['MASTER_ADDR'] = '127.0.0.1'\n")
    assert "t.py: MASTER_ADDR'] = '127.0.0.1 is the same on every worker" in str(silence(cell, tmp_path, 2, 0))


def test_a_program_without_traffic_gets_one_hint_while_it_runs(tmp_path, monkeypatch):
    said: list[str] = []
    monkeypatch.setattr(command, "_PATIENCE_S", 0.05)
    cell = swept()[0]
    assert isinstance(cell, CommandCell)
    program = replace(program_of(cell.repetition(0), tmp_path / "x"), cwd=tmp_path)
    for nbytes in (4001, 4000):
        asked = SimpleNamespace(emulator=SimpleNamespace(stats=lambda nbytes=nbytes: SimpleNamespace(bytes=nbytes)))
        looks = command._alarm(program, cast(WorkerSlot, asked), said.append)
        next(looks)
        assert said == []
        time.sleep(0.06)
        next(looks), next(looks)
    assert [line[:76] for line in said] == [
        "hint: after 0 s, the 2 workers exchanged next to nothing: the program must fo"[:76]
    ]
