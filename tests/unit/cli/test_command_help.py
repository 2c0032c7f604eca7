"""The examples of every command work as written, a shell completes its words, and the man page matches the help."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest
from command_line import as_it_was, wanbench  # noqa: F401  # the fixture is used by all
from documents import DOCS, commands
from wanbench_docs import commands as described
from wanbench_docs import manual

from wanbench.harness.cli import COMMANDS, main
from wanbench.harness.show import papers
from wanbench.harness.spec.library import builtin_names

ROOT = Path(__file__).resolve().parents[3]

EXAMPLES = {command.name: command.examples for command in described.commands()}
ALL = [(name, example) for name, examples in EXAMPLES.items() for example in examples]
LIGHT = ("list", "show", "init", "completion")  # commands whose examples can be run without a network


def arguments(example: str) -> list[str]:
    """Return the arguments that a shell passes on, without its own syntax."""
    words = shlex.split(example)
    assert words[0] == "wanbench"
    return words[1 : words.index(">") if ">" in words else None]


def parsed(args: list[str]) -> dict[str, object]:
    """Return the values that a command receives. Raises: click.UsageError."""
    outer = main.make_context("wanbench", list(args))
    command = main.get_command(outer, args[0])
    assert command is not None
    return command.make_context(args[0], args[1:], parent=outer).params


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_an_example(name):
    assert EXAMPLES[name]


@pytest.mark.parametrize("example", [example for _, example in ALL])
def test_every_example_is_accepted_unchanged(example):
    given = parsed(arguments(example))
    spec = str(given.get("spec_source", "own.toml"))
    assert spec in builtin_names() or spec.endswith(".toml")


DOCUMENTS = sorted(str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md"))


@pytest.mark.parametrize("document", DOCUMENTS)
def test_commands_in_a_document_are_accepted(document):
    for line in commands(document):
        if line.command.startswith("wanbench "):
            parsed(arguments(line.command.partition(" #")[0]))


def test_the_examples_of_the_main_help_are_accepted():
    (lines,) = [p.text for p in described.preface() if p.text.startswith("Try:")]
    tried = [line.strip() for line in lines.removeprefix("Try:").splitlines()]
    assert len(tried) == 3
    for line in tried:
        parsed(arguments(line))


def test_a_mistake_in_an_example_would_be_found():
    with pytest.raises(click.UsageError, match="No such option"):
        parsed(arguments("wanbench run smoke --onyl algorithm=ssgd"))


@pytest.mark.parametrize("example", [example for name, example in ALL if name in LIGHT])
def test_the_example_of_a_light_command_runs(example):
    result = wanbench(*arguments(example))
    assert result.exit_code == 0
    assert result.stdout


@pytest.mark.parametrize("name", ["plan", "run"])
def test_the_example_of_a_sweep_names_cells_that_exist(name):
    for example in EXAMPLES[name]:
        _, *words = arguments(example)
        done = wanbench("plan", *words, "--testbed", "virtual")
        assert done.exit_code == 0, done.stderr


# ---------------------------------------------------------------- completion


def completed(*words: str) -> set[str]:
    """Return the completions that a shell offers for the last word."""
    from click.shell_completion import BashComplete

    found = BashComplete(main, {}, "wanbench", "_X").get_completions(list(words[:-1]), words[-1])
    return {item.value for item in found if item.type == "plain"}


def test_commands_options_and_names_are_completed(tmp_path):
    (tmp_path / "results" / "mine").mkdir(parents=True)
    (tmp_path / "results" / "mine" / "manifest.json").touch()
    assert completed("re") == {"results", "report", "record"}
    assert completed("run", "lat") == {"latency-sweep", "latency-sweep-gloo", "latency-sweep-stock"}
    assert completed("plan", "smoke", "--te") == {"--testbed"}
    assert completed("results", "m") == {"mine"}
    assert completed("compare", "mine", "") == {"mine"}
    assert completed("show", "algorithm", "dt") == {"dts"}
    assert completed("show", "profile", "wor") == {"world4", "world4-2025"}
    assert completed("exec", "--profile", "uni") == {"uniform"}
    assert completed("record", "") == set(papers.names())


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_shell_can_read_the_completion_script(shell):
    script = wanbench("completion", shell).stdout
    assert "_WANBENCH_COMPLETE" in script
    if shutil.which(shell):
        subprocess.run([shell, "-n"], input=script, text=True, check=True)


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_bash_completes_with_the_script(tmp_path):
    command = tmp_path / "wanbench"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -P -m wanbench.harness.cli "$@"\n')
    command.chmod(0o755)
    typing = "COMP_WORDS=(wanbench run smo); COMP_CWORD=2; compopt() { :; }; _wanbench_completion wanbench"
    done = subprocess.run(
        ["bash", "-c", f"{wanbench('completion', 'bash').stdout}\n{typing}; echo ${{COMPREPLY[@]}}"],
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["smoke"], done.stderr


# ---------------------------------------------------------------- man page


def test_the_man_page_holds_the_help_of_every_command():
    assert (ROOT / "harness" / "cli" / "wanbench.1").read_text() == manual.page(), "the commands changed: make man"


@pytest.mark.skipif(shutil.which("groff") is None, reason="there is no groff")
def test_the_man_page_is_rendered_without_a_warning():
    done = subprocess.run(
        ["groff", "-man", "-ww", "-Tutf8", ROOT / "harness" / "cli" / "wanbench.1"], capture_output=True, check=True
    )
    assert done.stderr == b""
    assert "wanbench exec" in done.stdout.decode()
