"""The parts of documents that need a host which can emulate networks."""

import re

import pytest
import warm
from cli_session import patiently
from documents import commands, matches, typed, write_files


def emulated(document, folder, beside=""):
    """Run the emulated commands of a document, and those that begin with `beside`; return their checked output."""
    write_files(document, folder)
    outputs = []
    for line in commands(document):
        if line.needs == "emulated" or (beside and line.command.startswith(beside)):
            done = patiently(  # on a busy host; the tutorial explains this
                lambda line=line: typed(line, folder, warm.path()),
                lambda done: done.returncode == 4 and "no valid result" in done.stdout,
            )
            assert done.returncode == 0, done.stdout
            assert matches(done.stdout, line.output), f"$ {line.command}\n{done.stdout}"
            outputs.append(done.stdout)
    return outputs


@pytest.mark.long  # the README is run each time
@pytest.mark.timed
def test_the_tutorial_measures_its_simulated_experiment_and_then_a_script(tmp_path):
    outputs = emulated("tutorial.md", tmp_path, beside="wanbench run smoke --testbed virtual")
    assert len(outputs) == 5
    averaged_at_once, late = (float(ms) for each in outputs for ms in re.findall(r"rank 0 in oregon: (\d+) ms", each))
    assert averaged_at_once > 100 + 2 * 48  # two round trips of gloo
    assert late < averaged_at_once - 48


@pytest.mark.timed
def test_a_program_runs_as_the_guide_shows(tmp_path):
    assert len(emulated("how-to/own-script.md", tmp_path)) == 1


def test_doctor_prints_the_lines_that_the_tutorial_mentions(tmp_path):
    (line,) = [line for line in commands("tutorial.md") if line.needs == "host"]
    done = typed(line, tmp_path, warm.path())
    assert matches(done.stdout, line.output), done.stdout
    for topic in ("namespaces", "TUN device"):
        assert re.search(rf"^ok +{topic}", done.stdout, re.MULTILINE)
