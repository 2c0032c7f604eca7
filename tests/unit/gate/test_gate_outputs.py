"""The outputs of a report for people and CI systems."""

from __future__ import annotations

import json
from xml.etree import ElementTree

import pytest

from wanbench.harness.errors import HostError, SpecError
from wanbench.harness.gate import noise, output
from wanbench.harness.gate.output import as_text
from wanbench.harness.gate.verdict import Judgement, Report, Timing, Verdict

TIMING = Timing(0.412, 0.498, 0.209, 0.181, 0.238, 0.019, 0.05, 10)
REPORT = Report(
    "wan-gate",
    "head against base",
    cells=(
        Judgement("ddp w4 80ms", Verdict.UNCHANGED, timing=Timing(1.874, 1.869, -0.003, -0.015, 0.009, None, 0.05, 5)),
        Judgement("diloco w4 80ms", Verdict.REGRESSED, "messages_sent 4 -> 8 (+100 %)", TIMING),
        Judgement("diloco w4 1ms", Verdict.INCONCLUSIVE),
        Judgement("rps w4", Verdict.FAILED, "head, rep 0: failed: it | <broke>\n"),
    ),
    claims=(
        Judgement("scalability of ddp: at least 0.9", Verdict.REGRESSED, "is 0.5"),
        Judgement("scalability of diloco: at least 0.9", Verdict.UNCHANGED, "is 0.99"),
    ),
    notes=("the noise of this host is not known",),
)


def report(*verdicts: Verdict) -> Report:
    return Report("e", "against b", cells=tuple(Judgement(f"c{i}", verdict) for i, verdict in enumerate(verdicts)))


@pytest.mark.parametrize(
    ("verdicts", "code"),
    [
        ((Verdict.UNCHANGED, Verdict.IMPROVED, Verdict.ACCEPTED), 0),
        ((Verdict.UNCHANGED, Verdict.NEW), 5),
        ((Verdict.UNCHANGED, Verdict.REGRESSED, Verdict.INCONCLUSIVE), 1),
        ((Verdict.REGRESSED, Verdict.FAILED), 4),
        ((Verdict.UNCHANGED, Verdict.INCONCLUSIVE), 5),
        ((Verdict.IMPROVED, Verdict.NOT_COMPARABLE), 5),
    ],
)
def test_the_exit_code_follows_the_worst_verdict(verdicts, code):
    assert report(*verdicts).exit_code() == code
    assert report(*verdicts).exit_code(undecided=0) == (0 if code == 5 else code)


def test_a_broken_requirement_is_a_regression():
    broken = Report("e", "b", claims=(Judgement("c", Verdict.REGRESSED),))
    assert broken.exit_code() == 1


def test_the_text_shows_the_noise_of_every_change_and_the_worst_cell_first():
    assert as_text(REPORT) == (
        "wan-gate: head against base\n"
        "\n"
        "cell            base s/step  head s/step   change   95 % interval    noise  margin  pairs  verdict\n"
        "--------------  -----------  -----------  -------  --------------  -------  ------  -----  -------\n"
        "rps w4                                                                                     "
        "FAILED     head, rep 0: failed: it | <broke>\n"
        "diloco w4 80ms       0.4120       0.4980  +20.9 %  [+18.1, +23.8]    1.9 %   5.0 %     10  "
        "REGRESSED  messages_sent 4 -> 8 (+100 %)\n"
        "diloco w4 1ms                                                                              inconclusive\n"
        "ddp w4 80ms          1.8740       1.8690   -0.3 %    [-1.5, +0.9]  unknown   5.0 %      5  unchanged\n"
        "\n"
        "requirement\n"
        "-----------------------------------\n"
        "scalability of ddp: at least 0.9     NOT MET    is 0.5\n"
        "scalability of diloco: at least 0.9  met        is 0.99\n"
        "\n"
        "note: the noise of this host is not known\n"
        "2 comparisons and 2 requirements judged; your code: none\n"
        "1 failed, 1 regressed, 1 inconclusive, 1 unchanged; 1 of 2 requirements not met.\n"
    )


def test_the_summary_begins_with_the_verdicts_and_escapes_markdown():
    text = output.as_markdown(REPORT)
    assert text.splitlines()[:3] == [
        "### wanbench check: wan-gate",
        "",
        "**1 failed, 1 regressed, 1 inconclusive, 1 unchanged; 1 of 2 requirements not met.**",
    ]
    assert "| rps w4 | FAILED | head, rep 0: failed: it \\| &lt;broke>  |" in text
    cells = [line for line in text.splitlines() if " w4" in line]
    assert [line.split()[1] for line in cells] == ["rps", "diloco", "diloco", "ddp"]


@pytest.mark.parametrize("limit", [400, 700, 2000])
def test_a_summary_that_is_too_long_is_cut_and_shows_how_many_lines_are_missing(limit):
    many = report(*[Verdict.REGRESSED] * 500)
    text = output.as_markdown(many, limit)
    assert len(text.encode()) <= limit
    assert "**500 regressed.**" in text
    shown = text.count("REGRESSED")
    assert f"{501 - shown} more lines" in text  # including the empty line that ends the table


def test_the_summaries_of_one_step_together_fit_githubs_limit(tmp_path):
    path = tmp_path / "summary.md"
    path.write_text("x" * (output.GITHUB_LIMIT_BYTES - 500))
    output.append_summary(path, report(*[Verdict.REGRESSED] * 500))
    assert path.stat().st_size <= output.GITHUB_LIMIT_BYTES
    assert "**500 regressed.**" in path.read_text()


def test_github_shows_ten_annotations_so_the_worst_come_first():
    many = [Judgement(f"c{i}", Verdict.REGRESSED, timing=Timing(1, 1, i / 100, 0, 0, None, 0.05, 5)) for i in range(40)]
    every = Report(
        "e", "b", cells=(*many, Judgement("f", Verdict.FAILED, "50%\nlost"), Judgement("i", Verdict.IMPROVED))
    )
    lines = output.as_annotations(every, "a,b:c.toml")
    assert len(lines) == 8
    assert [line.partition(" ")[0] for line in lines] == ["::error", "::error", "::notice", *["::error"] * 5]
    assert lines[0] == "::error file=a%2Cb%3Ac.toml,title=wanbench check::1 failed: f"
    assert lines[1].endswith("::40 regressed: " + ", ".join(f"c{i}" for i in range(10)) + " and 30 more")
    assert lines[3].endswith("::c39: regressed +39.0 %25")
    all_kinds = Report("e", "b", cells=(*every.cells, Judgement("n", Verdict.NOT_COMPARABLE), *report(*Verdict).cells))
    assert len(output.as_annotations(all_kinds, "s.toml")) == output.MOST


def test_an_unchanged_report_has_no_annotation():
    assert output.as_annotations(report(Verdict.UNCHANGED), "s.toml") == []


def test_junit_has_a_case_for_every_cell_and_requirement(tmp_path):
    output.write_junit(tmp_path / "new" / "gate.xml", REPORT)
    suite = ElementTree.parse(tmp_path / "new" / "gate.xml").getroot()
    assert {key: suite.get(key) for key in ("tests", "failures", "errors", "skipped")} == {
        "tests": "6",
        "failures": "2",
        "errors": "1",
        "skipped": "1",
    }
    found = {case.get("name"): [(child.tag, child.get("message")) for child in case] for case in suite}
    assert found["diloco w4 80ms"] == [("failure", "regressed (+20.9 %): messages_sent 4 -> 8 (+100 %)")]
    assert found["diloco w4 1ms"] == [("skipped", "inconclusive")]
    assert found["ddp w4 80ms"] == []
    assert "<system-out>met: is 0.99</system-out>" in output.as_junit(REPORT)


def test_junit_replaces_characters_that_xml_cannot_hold():
    text = output.as_junit(Report("e", "b", cells=(Judgement("c", Verdict.FAILED, "a\x1b[31mb"),)))
    assert ElementTree.fromstring(text)[0][0].get("message") == "failed: a?[31mb"


def test_json_holds_the_whole_report():
    data = json.loads(json.dumps(REPORT.to_json(4)))
    assert (data["exit_code"], data["counts"]["regressed"]) == (4, 2)
    assert data["cells"][1]["timing"]["change"] == 0.209
    assert data["requirements"][0]["verdict"] == "regressed"


def test_an_unwritable_output_is_reported_in_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    for write in (output.write_junit, output.append_summary):
        with pytest.raises(HostError, match="cannot write"):
            write(tmp_path / "file" / "x", REPORT)


def test_noise_is_stored_by_experiment_and_testbed_and_not_used_on_another_machine(tmp_path, monkeypatch):
    path = tmp_path / "state" / "noise.json"
    assert noise.read(path, "a", "netns").remark == (
        f"the noise of this host is not known; measure it with `wanbench check a --aa` ({path})"
    )
    noise.write(path, "a", "netns", {"c": 0.02})
    noise.write(path, "b", "netns", {"c": 0.5})
    noise.write(path, "a", "docker", {"c": 0.6})
    noise.write(path, "a", "netns", {"d": 0.03})
    assert (noise.read(path, "a", "netns").cells, noise.read(path, "a", "netns").remark) == (
        {"c": 0.02, "d": 0.03},
        None,
    )
    monkeypatch.setattr(noise, "cpu_model", lambda: "another")
    moved = noise.read(path, "a", "netns")
    assert moved.cells == {}
    assert "another machine measured it" in moved.remark
    noise.write(path, "a", "netns", {"c": 0.01})
    assert noise.read(path, "b", "netns").cells == {}


def test_the_noise_is_stored_in_the_users_state_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert noise.default_path() == tmp_path / "wanbench" / "noise.json"
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", "/home/me")
    assert str(noise.default_path()) == "/home/me/.local/state/wanbench/noise.json"


NOISE = '{"schema": 1, "host": {}, "experiments": {"a on netns": {"c": %s}}}'


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-0.1", "true", '"0.1"', "null", "1" + "0" * 400, "[0.1]"])
def test_a_noise_that_was_not_measured_is_refused_in_one_line(tmp_path, value):
    path = tmp_path / "noise.json"
    path.write_text(NOISE % value)
    with pytest.raises(SpecError) as caught:
        noise.read(path, "a", "netns")
    assert str(caught.value).startswith(f"{path}: not a noise file of `check --aa`: experiments.a on netns.c: ")
    assert str(caught.value).endswith("; remove it, and measure again")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["", "[]", "[" * 100_000, NOISE.replace("1", "2", 1), NOISE.replace("{}", "7", 1)])
def test_a_file_that_holds_no_noise_is_refused(tmp_path, text):
    path = tmp_path / "noise.json"
    path.write_text(text.replace("%s", "0.1"))
    with pytest.raises(SpecError, match="not a noise file of `check --aa`: "):
        noise.read(path, "a", "netns")
