"""Nothing that the product needs happens inside an assert: `python -O` leaves those out."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]
PURE = {"isinstance", "len", "all", "any"}


def impure(source: str) -> list[int]:
    """Return the lines of asserts that call something or bind a name, so that leaving them out could matter."""
    asserts = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Assert)]
    return [each.lineno for each in asserts if any(_acts(node) for node in ast.walk(each.test))]


def _acts(node: ast.AST) -> bool:
    if isinstance(node, ast.Call):
        return ast.unparse(node.func) not in PURE
    return isinstance(node, ast.NamedExpr | ast.Await | ast.Yield)


def test_an_assert_of_the_product_calls_nothing_that_could_act():
    rooms = ("harness", "workloads", "netprofiles", "wanbench")
    texts = {path: path.read_text() for room in rooms for path in (ROOT / room).rglob("*.py")}
    asserting = {path: text for path, text in texts.items() if "assert " in text}
    assert sum(text.count("assert ") for text in asserting.values()) >= 40
    assert [f"{path}:{line}" for path, text in asserting.items() for line in impure(text)] == []


def test_an_assert_that_acts_would_be_seen():
    assert impure("assert wanted.pop('x', routed) == routed\nassert isinstance(a, int)\nassert (b := c)\n") == [1, 3]
