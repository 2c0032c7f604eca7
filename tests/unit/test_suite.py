"""The test suite: every lane can collect it."""

from collections import Counter
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]


def test_no_two_modules_have_the_same_name():
    names = Counter(path.name for path in TESTS.rglob("*.py") if path.name not in {"__init__.py", "conftest.py"})
    assert [name for name, times in names.items() if times > 1] == []
