"""The generated parts of the reference: complete, and true to the text in the code."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from wanbench_docs import markdown, pages

from wanbench.harness.cli import COMMANDS
from wanbench.harness.spec.library import builtin_names
from wanbench.netprofiles import catalog_names
from wanbench.workloads.algorithms import registry as algorithms
from wanbench.workloads.compression import registry as compressors

ROOT = Path(__file__).resolve().parents[3]


def test_every_generated_part_is_on_one_page():
    assert sorted(pages.marks(ROOT / "docs")) == sorted(pages.PARTS)


@pytest.mark.parametrize(
    ("part", "names"),
    [
        ("commands", COMMANDS),
        ("compressors", compressors.kinds()),
        ("experiments", builtin_names()),
        ("profiles", catalog_names()),
    ],
)
def test_a_part_has_a_section_for_everything(part, names):
    headings = [line for line in pages.PARTS[part]().splitlines() if line.startswith("## ")]
    assert headings == [f"## {name}" for name in names]


def test_algorithms_come_with_the_papers_symbols():
    assert "| [`diloco`](algorithms/diloco.md) |  | H |" in pages.PARTS["algorithms"]()
    line = "| `delay` | int | required | t (D = t - 1 in Eq. 3) | D, in steps; 0 or more. |"
    assert line in pages.PARTS["algorithm dts"]().splitlines()


def test_algorithms_with_peers_state_what_they_do_without_one():
    found = {kind: pages.PARTS[f"algorithm {kind}"]() for kind in algorithms.kinds()}
    assert "When a peer is gone, " not in found.pop("local")
    for kind, text in found.items():
        assert f"When a peer is gone, {algorithms.find(kind).without_a_peer}." in text.splitlines()


def test_a_table_between_rules_becomes_a_table():
    rules = "====  =====\n"
    assert markdown.docstring(f"{rules}here  there\n{rules}D     t * 2\n{rules}") == (
        "| here | there |\n| --- | --- |\n| D | t \\* 2 |\n"
    )
    assert markdown.docstring(f"{rules}D     t\n{rules}") == "|  |  |\n| --- | --- |\n| D | t |\n"


def test_keys_show_their_values_and_defaults():
    text = pages.PARTS["keys"]()
    assert '*Takes* `"auto"` or `"netem"` or `"relay"`; default `"auto"`.' in text
    assert "*Takes* whole number; default `3`." in text


def test_a_docstring_keeps_its_equations_and_loses_its_attributes():
    doc = """
        One line with x_i and |v|.

        On worker k::

            x_i <- x_i * 2

        **Strong**, and `code_with_marks`:

        * a point
        * another

        Attributes:
            alpha, beta: first
                and more.
            gamma: last.
        """
    assert markdown.docstring(doc) == (
        "One line with x\\_i and \\|v\\|.\n\nOn worker k:\n\n```text\nx_i <- x_i * 2\n```\n\n\n"
        "**Strong**, and `code_with_marks`:\n\n* a point\n* another"
    )
    assert markdown.attributes(doc) == {"alpha": "first and more.", "beta": "first and more.", "gamma": "last."}


def test_an_unknown_mark_is_an_error():
    with pytest.raises(KeyError):
        pages.fill("<!-- generated: nothing -->\n")


def test_broken_links_and_external_files_are_named(tmp_path):
    (tmp_path / "a.html").write_text(
        '<a href="b.html#here">x</a><a href="b.html#gone">x</a><a href="c.html">x</a>'
        '<a href="https://example.org/">fine</a><script src="https://cdn.example/x.js"></script>'
    )
    (tmp_path / "b.html").write_text('<p id="here">x</p>')
    script = [sys.executable, str(ROOT / "scripts" / "check_site.py"), str(tmp_path)]
    done = subprocess.run(script, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        "a.html: loads https://cdn.example/x.js",
        "a.html: b.html#gone: no such anchor on that page",
        "a.html: c.html: no such file",
    ]
    (tmp_path / "a.html").write_text('<a href="b.html#here">x</a>')
    assert subprocess.run(script, check=False).returncode == 0
