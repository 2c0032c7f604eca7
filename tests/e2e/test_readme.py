"""The README's commands, in its order, in a fresh clone."""

import os
import re
import subprocess
from pathlib import Path

import pytest
import warm
from cli_session import patiently
from documents import DOCS, blocks, commands, matches, typed

from wanbench.harness.show import papers

ROOT = Path(__file__).resolve().parents[2]
README = "../README.md"


@pytest.fixture(scope="module")
def clone(tmp_path_factory):
    """Clone the committed files, and run them in this checkout's virtual environment."""
    folder = tmp_path_factory.mktemp("readme") / "wanbench"
    subprocess.run(["git", "clone", "-q", ROOT, folder], check=True)
    (folder / ".venv").symlink_to(ROOT / ".venv")
    return folder


@pytest.fixture
def prints_what_is_shown(clone, monkeypatch):
    """Run commands of the README one after the other, and check their output."""
    monkeypatch.setenv("PYTHONPATH", str(clone))
    for name in ("MAKELEVEL", "MAKEFLAGS"):  # or a `make` below the lane's prints the folders that it enters
        monkeypatch.delenv(name, raising=False)
    return lambda lines, path=None: _check(lines, clone, path)


FIGURES = "wanbench figures --paper all --check"  # the lane `figures` is this command


@pytest.mark.parametrize("slow", [False, pytest.param(True, marks=pytest.mark.long)])
def test_every_command_that_emulates_nothing_prints_what_the_readme_and_the_site_show(
    prints_what_is_shown, clone, slow
):
    """Advice, and the sweep on the site's first page, simulate for minutes."""
    elsewhere = ("docker", "emulated", "minutes")
    lines = [line for line in commands(README) if line.needs not in elsewhere and line.command != FIGURES]
    advice = [line for line in lines if line.command.startswith("wanbench advise ")]
    known = {line.command for line in lines}
    site = [line for line in commands("index.md") if line.needs == "" and line.command not in known]
    assert (len(lines), len(advice), len(site)) == (7, 1, 2)
    chosen = [*advice, *site] if slow else [line for line in lines if line not in advice]
    printed = prints_what_is_shown(chosen, warm.path(clone))
    for page in sorted(DOCS.rglob("*.md")):
        for line in commands(page.relative_to(DOCS)):
            if line.output and line.command in printed:
                assert matches(printed[line.command], line.output), f"{page.name}: $ {line.command}"


def test_the_page_on_papers_shows_the_readmes_check_of_figures_with_all_papers():
    assert FIGURES in [line.command for line in commands(README)]
    (line,) = [line for line in commands("how-to/papers.md") if line.command == FIGURES]
    assert re.findall(r"^(\w+): no files differ$", line.output, re.M) == sorted(papers.names())


@pytest.mark.timed  # late packets make these results invalid
def test_every_emulated_command_prints_what_the_readme_shows(prints_what_is_shown, clone):
    lines = [line for line in commands(README) if line.needs == "emulated" or line.command.startswith("printf ")]
    assert [line.needs for line in lines].count("emulated") >= 2
    prints_what_is_shown(lines, warm.path(clone))


def _check(lines, clone, path):
    """Return the output of each command; `path` is as of `typed`."""
    printed, folder = {}, clone
    for line in lines:
        if line.command.startswith("cd "):
            folder = folder / line.command.removeprefix("cd ")
            continue
        done = patiently(  # a busy host
            lambda line=line, folder=folder: typed(line, folder, path),
            lambda done: "no valid result" in done.stdout or "the network is not as configured" in done.stdout,
        )
        assert done.returncode == 0, f"$ {line.command}\n{done.stdout}"
        assert shows(done.stdout, line), f"$ {line.command}\n{done.stdout}"
        assert "warning" not in done.stdout, f"$ {line.command}\n{done.stdout}"
        printed[line.command] = done.stdout
    return printed


def shows(output, line):
    """Return whether output matches. For an emulated command, ignore the order of workers' lines, and step times."""
    if line.needs != "emulated":
        return matches(output, line.output)
    return workers_lines(output) == workers_lines(line.output)


def workers_lines(text):
    return sorted(re.sub(r"\d+ ms", "N ms", line) for line in text.splitlines() if line.startswith("["))


def test_the_python_example_runs(clone):
    (example,) = [block for block in blocks(README, "python") if block.startswith("import wanbench")]
    done = subprocess.run(
        [".venv/bin/python", "-c", example],
        cwd=clone,
        env={**os.environ, "PYTHONPATH": str(clone)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert "scalability" in done.stdout


def test_the_readme_can_be_read_in_five_minutes():
    text = (ROOT / "README.md").read_text()
    assert len(text.split()) <= 800
    for link in re.findall(r"\]\(([^)#:]+)\)", text):
        assert (ROOT / link).exists(), link
