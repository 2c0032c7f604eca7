"""Any printable name of a site, a setting or a folder works everywhere, appears as written, and reaches no code."""

from __future__ import annotations

import ast
import contextlib
import csv
import html
import html.parser
import io
import json
import random
import sys
import tempfile
import tomllib
import types
from dataclasses import replace
from pathlib import Path

import pytest
import synthetic_rows
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.text import Text
from on_relay import planned
from written_run import write_run

from wanbench.harness.advise.candidates import Setting, with_setting
from wanbench.harness.advise.question import Limits, ask
from wanbench.harness.advise.recipe import Recipe
from wanbench.harness.advise.reproduce import emulation_spec, training, trial
from wanbench.harness.cli.options import named
from wanbench.harness.emulators.plan import build
from wanbench.harness.gate.output import as_annotations, as_junit, as_markdown
from wanbench.harness.gate.verdict import Judgement, Report, Verdict
from wanbench.harness.plan.cell import CommandCell
from wanbench.harness.rep.program import Program
from wanbench.harness.show.figures.gallery import gallery
from wanbench.harness.show.report import page
from wanbench.harness.show.tables import render
from wanbench.harness.spec.experiment import Spec
from wanbench.harness.timeline.edits import ranks_of, scope_of
from wanbench.netprofiles import ProfileError, load
from wanbench.netprofiles.toml_text import value
from wanbench.workloads.comm.base import CommError
from wanbench.workloads.group.settings import settings as group_settings

PIECES = (
    "London, UK", "東京", "Zürich", "Åland", "Москва", "🗼", "القاهرة", '"""', "'''", "'", '"', "\\", "%s", "%", "{}",
    "$HOME", "$x^2$", "{workers}", "<b>", "</script>", "&amp;", "-", "--env", "->", "<->", "=", ",", ";", ":", "::",
    "@", "|", "`", "#", "_", "*", "[a](b)", "..", "/", " ", "3", "x" * 300, "#aabbcc;", 'id="a"', "url(#a)", "\\n",
    "]]>", '""";__import__("a_name_that_ran");"""', "');import a_name_that_ran;('", '");import a_name_that_ran;("',
)  # fmt: skip
ANY = st.characters(exclude_categories=["Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp", "Zs"])
NAMES = (
    st.lists(st.sampled_from(PIECES) | ANY, min_size=1, max_size=6)
    .map("".join)
    .filter(lambda text: text == text.strip() and text.isprintable())
)
THREE = st.lists(NAMES, min_size=3, max_size=3, unique=True)
SAME = settings(max_examples=200, derandomize=True, deadline=None, database=None)
PLAIN = ["a", "b", "c"]


def profiles(folder: Path, names: list[str]) -> list[str]:
    """Files of the same network: in CSV as a table is exported, and in TOML as `wanbench measure` writes it."""
    text = io.StringIO()
    lines = csv.writer(text, quoting=csv.QUOTE_ALL)  # or a name that begins with # would be a comment
    lines.writerow(["src", "dst", "rtt_ms", "rate_mbps"])
    pairs = [(names[0], names[1]), (names[1], names[2]), (names[0], names[2])]
    lines.writerows([*pair, 80, 100] for pair in pairs)
    table, written = folder / "net.csv", folder / "net.toml"
    table.write_text(text.getvalue(), encoding="utf-8")
    sites = [{"name": each} for each in names]
    paths = [{"src": src, "dst": dst, "rtt": "80ms", "rate": "100Mbit"} for src, dst in pairs]
    plain = {"schema": 1, "name": "net", "description": "A network.", "sites": sites, "paths": paths}
    written.write_text("".join(f"{key} = {value(item)}\n" for key, item in plain.items()), encoding="utf-8")
    return [str(table), str(written)]


@contextlib.contextmanager
def folder():
    with tempfile.TemporaryDirectory() as made:
        yield Path(made)


@SAME
@given(THREE)
def test_a_site_is_named_in_profiles_processes_and_timelines_as_it_is_written(names):
    with folder() as made:
        networks = [load(path) for path in profiles(made, names)]
    assert all([site.name for site in network.sites] == names for network in networks)
    placement = (names[0], names[0], names[1], names[2])
    network = build(networks[0], placement)
    for number, site in enumerate(names):
        quoted = f'"{site}"'
        assert ranks_of(quoted, network, networks[0]) == tuple(r for r, at in enumerate(placement) if at == site)
        other = names[(number + 1) % 3]
        if '"' not in site + other:
            path = scope_of(f'{quoted} -> "{other}"', network, networks[0])
            assert path.pairs == ((number, (number + 1) % 3),)
    environment = Program(command=("true",), sites=placement, cwd=Path("/w"), hosts=tuple("abcd")).environment_of(
        2, "run"
    )
    assert environment["WANBENCH_SITE"] == names[1]
    assert json.loads(environment["WANBENCH_SITES"]) == list(placement)


SPEC = """
schema = 1
name = "t"
workload = { command = ["true"], nproc_per_worker = 2 }
network = { profile = PROFILE, place = PLACE }
comm = { collective = "hierarchical" }
sweep = { workers = [4] }
run = { testbed = "netns", emulator = "relay" }
"""


def programs_cell(profile: str, names: list[str]) -> CommandCell:
    place = {names[0]: 2, names[1]: 1, names[2]: 1}
    spec = Spec.from_toml(SPEC.replace("PROFILE", value(profile)).replace("PLACE", value(place)), "t.toml")
    plan = planned(spec, "t.toml")
    (cell,) = [each for each in plan.cells if each.workers == 4]
    assert isinstance(cell, CommandCell)
    return cell


@settings(SAME, max_examples=60)
@given(THREE)
def test_hierarchical_groups_the_processes_of_a_site_whatever_its_name(names):
    with folder() as made:
        cell = programs_cell(profiles(made, names)[0], names)
        told = cell.repetition(0).group
    for each in told:
        read = group_settings({**each, "MASTER_ADDR": "127.0.0.1", "WORLD_SIZE": "8"})
        assert read.sites == tuple(site for site in [names[0], *names] for _ in range(2))
    for part in cell.slug.split("/"):
        assert len(part.encode()) < 255


@pytest.mark.parametrize(
    ("text", "sites"),
    [
        ("paris,paris,tokyo", ("paris", "paris", "tokyo")),  # as people wrote it by hand
        ('["London, UK", "Paris", "Paris"]', ("London, UK", "Paris", "Paris")),
        ("London, UK,Paris,Paris", None),
        ('["paris", "tokyo"]', None),
        ('["paris", 1, "tokyo"]', None),
        ('["paris"', None),
    ],
)
def test_sites_that_are_not_one_for_each_rank_are_refused_and_never_guessed(text, sites):
    told = {"WAN_SITES": text, "WAN_COLLECTIVE": "hierarchical", "WORLD_SIZE": "3", "MASTER_ADDR": "127.0.0.1"}
    if sites is None:
        with pytest.raises(CommError, match="expected a JSON list with the site of each of 3 ranks") as caught:
            group_settings(told)
        assert "\n" not in str(caught.value)
    else:
        assert group_settings(told).sites == sites


# ---------------------------------------------------------------- programs and specs that advise writes


def advice(profile: str):
    question = ask({"profile": profile}, "params=1000000,tensors=2,step_time=100ms", 3, Limits())
    cell = with_setting(question.reference, Setting("dts-d4-p4", "dts", {"delay": 4, "period": 4}))
    return question, replace(cell, comm=cell.comm.model_copy(update={"collective": "hierarchical"}))


def structure(program: str) -> str:
    """What a program does, without its constants, and without the number of them in a list."""
    tree = ast.parse(program)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant):
            node.value = ""
    return ast.dump(tree)


def executed(program: str) -> dict[str, object]:
    """The constants of a program, run up to its first call of torch, with empty modules for all that it imports."""

    class Reached(Exception):
        pass

    def stop(*_, **__):
        raise Reached

    torch = types.ModuleType("torch")
    distributed = types.ModuleType("torch.distributed")
    torch.distributed, distributed.init_process_group = distributed, stop
    wanbench = types.ModuleType("wanbench")
    wanbench.wrap = stop
    constants: dict[str, object] = {}
    with pytest.MonkeyPatch.context() as patch:
        for name, module in (("torch", torch), ("torch.distributed", distributed), ("wanbench", wanbench)):
            patch.setitem(sys.modules, name, module)
        patch.setenv("RANK", "0")
        for key in ("WAN_SITES", "WAN_PACES", "WAN_COLLECTIVE", "WAN_ONE_SHOT_BYTES"):
            patch.setenv(key, "")
        with pytest.raises(Reached):
            exec(compile(program, "trial.py", "exec"), constants)
    return constants


def programs_of(question, cell) -> list[str]:
    return [trial(cell, 0.5), training(question, cell, Recipe(cell.params, None), "train.py")]


@pytest.fixture(scope="module")
def plainly():
    with folder() as made:
        question, cell = advice(profiles(made, PLAIN)[0])
        return [structure(text) for text in programs_of(question, cell)]


@settings(SAME, max_examples=60)
@given(names=THREE)
def test_a_program_that_advise_writes_does_the_same_whatever_its_sites_are_called(plainly, names):
    with folder() as made:
        question, cell = advice(profiles(made, names)[0])
        programs = programs_of(question, cell)
        assert [structure(text) for text in programs] == plainly
        found = executed(programs[0])
        assert found["SITES"] == names
        assert json.loads(found["TOLD"][0]["WAN_SITES"]) == names
        assert "a_name_that_ran" not in sys.modules
        spec = Spec.from_toml(emulation_spec(question, [cell], 3), "advised.toml")
        assert spec.network.profile == str(made / "net.csv")


# ---------------------------------------------------------------- what people read


class Markup(html.parser.HTMLParser):
    """The tags of a page, and its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)

    def handle_data(self, data):
        self.text += data


def drawn(figure) -> set[str]:
    found = {each.get_text(): each.get_parse_math() for each in figure.findobj(Text)}
    assert not any(text and as_mathematics for text, as_mathematics in found.items())
    return set(found)


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in (1, 2))])
def test_a_setting_is_named_in_tables_figures_and_the_report_as_it_is_written(seed, tmp_path):
    pieces = random.Random(seed).sample([p for p in PIECES if len(p) < 30 and p.strip()], 8)
    label = f"dts{pieces[0]}{' '.join(pieces[1:4])}x"
    profile = "".join(pieces[4:]) + "x"
    rows = [
        {**row, "algorithm": label if row["algorithm"] == "dts-d20-p4" else row["algorithm"]}
        | ({"profile": profile} if row["workers"] > 1 else {})
        for row in synthetic_rows.small_sweep()
    ]
    assert label in {line["algorithm"] for line in csv.DictReader(io.StringIO(render(rows, "csv")))}
    assert label in {line["algorithm"] for line in json.loads(render(rows, "json"))}
    assert label in render(rows, "pivot")
    for drawing in gallery(rows, "run"):
        texts = drawn(drawing.draw(6.3))
        assert any(label in text for text in texts), (drawing.name, texts)
        assert Path(drawing.name).name == drawing.name
        assert len(drawing.name.encode()) < 200
    shown, plainly = (
        page(write_run(tmp_path / run, of), tmp_path / run / "report.html")
        for run, of in (("t", rows), ("p", synthetic_rows.small_sweep()))
    )
    assert label in Markup(shown).text
    assert profile in Markup(shown).text
    assert set(Markup(shown).tags) == set(Markup(plainly).tags)
    assert all(
        Markup(shown).tags.count(tag) == Markup(plainly).tags.count(tag) for tag in ("script", "a", "b", "table")
    )


def test_two_networks_whose_names_are_written_alike_have_figures_of_their_own():
    rows = [
        {**row, "profile": profile, "cell": f"{row['cell']}{number}", "cell_key": f"{row['cell_key']}{number}"}
        for number, profile in enumerate(("a b", "a-b", "a,b"))
        for row in synthetic_rows.small_sweep()
        if row["workers"] > 1
    ]
    drawings = gallery([*synthetic_rows.one_worker(2), *rows], "run")
    assert len({each.name for each in drawings}) == len(drawings)


# ---------------------------------------------------------------- what a build reads


@SAME
@given(NAMES)
def test_a_cell_is_named_in_annotations_junit_and_markdown_as_it_is_written(text):
    from xml.etree import ElementTree

    finding = Judgement(text, Verdict.REGRESSED, text="slower")
    report = Report("e", "main", (finding,))
    assert all(
        line.startswith("::error file=s.toml,") and "\n" not in line for line in as_annotations(report, "s.toml")
    )
    (line,) = [line for line in as_annotations(report, "s.toml") if "%3A" not in line.split("::")[1]][-1:]
    sent = line.split("::", 2)[2]
    assert sent.replace("%0A", "\n").replace("%0D", "\r").replace("%25", "%").startswith(f"{text}: ")
    (case,) = ElementTree.fromstring(as_junit(report)).iter("testcase")
    assert case.get("name") == text
    (row,) = [row for row in as_markdown(report).splitlines() if "REGRESSED" in row]
    cells = cells_of(row)
    assert len(cells) == 3
    assert cells[0] == text.strip()


def cells_of(row: str) -> list[str]:
    """The text of the cells of a GitHub-flavoured table, whose backslashes protect the sign after them."""
    cells, signs = [""], iter(row.strip())
    for sign in signs:
        if sign == "|":
            cells.append("")
        else:
            cells[-1] += next(signs) if sign == "\\" else sign
    return [html.unescape(cell.strip()) for cell in cells[1:-1]]


# ---------------------------------------------------------------- names on command lines


@SAME
@given(st.lists(NAMES, min_size=1, max_size=2), NAMES)
def test_a_name_on_a_command_line_is_in_quotes_if_it_has_a_mark(names, rest):
    quoted = ",".join('"' + each.replace('"', '""') + '"' for each in names)
    assert named(f"{quoted}={rest}") == (names, rest)


def test_a_plain_name_needs_no_quotes():
    assert named("home,london=ping.txt") == (["home", "london"], "ping.txt")
    assert named("home , a@host=1=2") == (["home", "a@host"], "1=2")
    assert named("home") == ([], "home")


@pytest.mark.parametrize("odd", ["a\nb", "a\rb", "a\tb", "\x1b[31m", "a\x00", "a\u2028b", "a\u202eb"])
def test_a_name_with_a_newline_or_a_control_character_is_refused_in_one_line(odd, tmp_path):
    for path in profiles(tmp_path, [odd, "b", "c"]):
        with pytest.raises(ProfileError) as caught:
            load(path)
        assert "\n" not in str(caught.value)
        assert str(caught.value).isprintable()
        assert path in str(caught.value)


def test_the_profile_that_measure_writes_holds_any_name():
    from wanbench.harness.measure.profile import Reading, profile_toml

    names = ['London, "UK"', "東京\\"]
    text = profile_toml("n", {(names[0], names[1]): [Reading(rtt_ms=80.0, source="ping 'x'")]}, {}, {})
    assert [site["name"] for site in tomllib.loads(text)["sites"]] == names
