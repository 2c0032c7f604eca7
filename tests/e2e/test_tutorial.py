"""The parts of documents that need a host which can emulate networks."""

import re

import pytest
from cli_session import patiently
from documents import as_said, commands, typed, write_files


def emulated(document, folder, beside=""):
    """Run the emulated commands of a document, and those that begin with `beside`; return their checked output."""
    write_files(document, folder)
    said = []
    for line in commands(document):
        if line.needs == "emulated" or (beside and line.command.startswith(beside)):
            done = patiently(  # on a busy host; the tutorial explains this
                lambda line=line: typed(line, folder),
                lambda done: done.returncode == 4 and "no valid result" in done.stdout,
            )
            assert done.returncode == 0, done.stdout
            assert as_said(done.stdout, line.says), f"$ {line.command}\n{done.stdout}"
            said.append(done.stdout)
    return said


@pytest.mark.timed
def test_the_tutorial_measures_what_it_simulated_and_then_a_script(tmp_path):
    said = emulated("tutorial.md", tmp_path, beside="wanbench run smoke --testbed virtual")
    assert len(said) == 5
    averaged_at_once, late = (float(ms) for out in said for ms in re.findall(r"rank 0 in oregon: (\d+) ms", out))
    assert averaged_at_once > 100 + 2 * 48  # two round trips of gloo
    assert late < averaged_at_once - 48


@pytest.mark.timed
def test_a_program_runs_as_the_guide_shows(tmp_path):
    assert len(emulated("how-to/own-script.md", tmp_path)) == 1


def test_doctor_has_the_lines_that_the_tutorial_speaks_of(tmp_path):
    (line,) = [line for line in commands("tutorial.md") if line.needs == "host"]
    done = typed(line, tmp_path)
    assert as_said(done.stdout, line.says), done.stdout
    for topic in ("namespaces", "TUN device"):
        assert re.search(rf"^ok +{topic}", done.stdout, re.MULTILINE)
