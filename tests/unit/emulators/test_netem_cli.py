"""`plan --tc` prints the networks of an experiment as ip and tc commands, on any host."""

from command_line import as_it_was, refused, wanbench  # noqa: F401  # the fixture is used by all
from on_relay import expand

from wanbench.harness.emulators.netem.plan import commands
from wanbench.harness.spec.experiment import Spec


def test_each_distinct_network_is_printed_once_under_the_names_of_its_cells():
    cells = [cell for cell in expand(Spec.load("smoke"), "smoke") if not cell.is_baseline]
    lines = wanbench("plan", "smoke", "--tc").stdout.splitlines()
    titles = [line for line in lines if line.startswith("#")]
    assert len(titles) == 2
    assert sorted(name for title in titles for name in title[2:].split(", ")) == sorted(cell.slug for cell in cells)
    first = next(cell for cell in cells if cell.slug in titles[0])
    assert lines[1 : lines.index(titles[1])] == commands(first.emulated_network)


def test_only_the_selected_cells_are_printed():
    lines = wanbench("plan", "smoke", "--tc", "--only", "rtt=10ms").stdout.splitlines()
    assert len([line for line in lines if line.startswith("#")]) == 1
    assert any("netem" in line and "delay 5000us" in line for line in lines)


def test_commands_and_json_exclude_each_other():
    assert refused("plan", "smoke", "--tc", "--json") == "wanbench: --json and --tc: choose one"
