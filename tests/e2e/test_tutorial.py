"""The part of docs/tutorial.md that needs a host which emulates."""

import re

from documents import as_said, commands, typed, write_files


def test_the_emulated_part_of_the_tutorial_goes_as_it_says(tmp_path):
    write_files("tutorial.md", tmp_path)
    steps_ms = []
    for line in commands("tutorial.md"):
        # The first simulated run is what the emulated one is compared with.
        if line.needs == "emulated" or line.command.startswith("wanbench run smoke --testbed virtual"):
            done = typed(line, tmp_path)
            if done.returncode == 4 and "no valid result" in done.stdout:  # a busy host; the tutorial says what to do
                done = typed(line, tmp_path)
            assert done.returncode == 0, done.stdout
            assert as_said(done.stdout, line.says), f"$ {line.command}\n{done.stdout}"
            steps_ms += [float(found) for found in re.findall(r"rank 0 in oregon: (\d+) ms", done.stdout)]
    averaged_at_once, late = steps_ms
    assert averaged_at_once > 100 + 2 * 48  # two round trips of gloo
    assert late < averaged_at_once - 48


def test_doctor_has_the_lines_that_the_tutorial_speaks_of(tmp_path):
    (line,) = [line for line in commands("tutorial.md") if line.needs == "host"]
    done = typed(line, tmp_path)
    assert as_said(done.stdout, line.says), done.stdout
    for topic in ("namespaces", "TUN device"):
        assert re.search(rf"^ok +{topic}", done.stdout, re.MULTILINE)
