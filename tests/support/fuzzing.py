"""Valid input that is then damaged, as hypothesis strategies; and how often a test tries it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

SAME = 400  # a build must not fail by chance
CASES = pytest.mark.parametrize(
    "cases", [100, *(pytest.param(cases, marks=pytest.mark.long) for cases in (SAME, 20_000))]
)

DEEP: list[Any] = []
for _ in range(500):
    DEEP = [DEEP]
JUNK = (
    None, True, False, -1, 0, 1, 2**53, 2**63 - 1, 2**63, 10**12, 10**30, -0.0, 0.5, 1e300, float("inf"), float("nan"),
    "", "x", "nan", "1ms", "80 parsecs", "0 steps", "\0", "\x1b]0;x\x07", "a\nb", "🌍", "n" * 60, "n" * 300,
    "../../etc/passwd", "/dev/zero", "--help", "=1+1", [], {}, [[1]], [1, "x"], {"delay": None}, DEEP,
)  # fmt: skip
IN_TOML = (
    '""', "-1", "0", "1e400", "nan", "inf", "true", "[]", "{}", '"\\u0000"', '"80 parsecs"', "99999999999999999999",
    "[1, 2", '"', "=", "'''", "2026-11-21", '"../../etc/passwd"', '"🌍"', "null", "-0.0", '"1ms"', '"0 steps"', "0x1F",
    "9223372036854775807", "[1000000000000]", "1000000000000", '"/dev/zero"', f'"{"n" * 60}"', f'"{"n" * 300}"',
    "[" * 500 + "]" * 500, '"\\u001b]0;x\\u0007"', '"a\\nb"',
)  # fmt: skip


def fuzz(
    cases: int, strategy: st.SearchStrategy[Any], check: Callable[[Any], None], corpus: Iterable[Any] = ()
) -> None:
    """Check each case of the corpus, and then many of the strategy; up to `SAME` are always the same ones."""
    for case in corpus:
        check(case)

    @settings(
        max_examples=cases,
        derandomize=cases <= SAME,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def generated(case: Any) -> None:
        check(case)

    generated()


def is_clear(error: str, where: str = "") -> bool:
    """Whether each mistake has one line that can be printed, is not too long, and names the place."""
    lines = error.split("\n")
    return all(where in line and 0 < len(line) < 1500 and line.isprintable() for line in lines)


@contextmanager
def or_refused(*kinds: type[Exception], where: str = "") -> Iterator[None]:
    """Accept success, and an error of these kinds that is clear."""
    try:
        yield
    except kinds as error:
        if not is_clear(str(error), where):
            raise


def _places(data: Any) -> Iterator[tuple[Any, Any]]:
    keys = data if isinstance(data, dict) else range(len(data)) if isinstance(data, list) else ()
    for key in keys:
        yield data, key
        if data[key] is not DEEP:  # it is shared by all cases
            yield from _places(data[key])


def _copied(data: Any) -> Any:
    """A copy that shares DEEP, which is too deep to copy wherever little of the stack is left."""
    if data is DEEP or not isinstance(data, dict | list):
        return data
    return {key: _copied(each) for key, each in data.items()} if isinstance(data, dict) else [*map(_copied, data)]


@st.composite
def damaged(draw: st.DrawFn, valid: Any, junk: tuple[Any, ...] = JUNK) -> Any:
    """Plain data with one to three values replaced, left out, added or repeated."""
    data = _copied(valid)
    for _ in range(draw(st.integers(1, 3))):
        places = list(_places(data))
        if not places:
            return data
        inside, key = places[draw(st.integers(0, len(places) - 1))]
        match draw(st.integers(0, 5)):
            case 0:
                del inside[key]
            case 1 if isinstance(inside, dict):
                inside[draw(st.sampled_from(("unheard of", "\x1b[2J", "a\nb", "")))] = inside[key]
            case 1:
                inside.insert(key, _copied(inside[key]))
            case 2 if isinstance(inside[key], int | float) and not isinstance(inside[key], bool):
                inside[key] = draw(
                    st.sampled_from((-inside[key], inside[key] + 1, inside[key] * 10**9, str(inside[key])))
                )
            case _:
                inside[key] = _copied(draw(st.sampled_from(junk)))
    return data


@st.composite
def damaged_text(draw: st.DrawFn, texts: tuple[str, ...]) -> str:
    """Text with one to three changes such as typing mistakes, lost lines, or a cut."""
    text = draw(st.sampled_from(texts))
    for _ in range(draw(st.integers(1, 3))):
        lines = text.splitlines() or [""]
        here, there = (draw(st.integers(0, len(lines) - 1)) for _ in range(2))
        match draw(st.integers(0, 7)):
            case 0:
                del lines[here]
            case 1:
                lines.insert(here, lines[there])
            case 2:
                lines[here], lines[there] = lines[there], lines[here]
            case 3:
                value = draw(st.sampled_from(IN_TOML))
                lines[here] = re.sub(r"=\s*.*$", lambda _, value=value: f"= {value}", lines[here])
            case 4:
                number = draw(st.sampled_from(("-5", "0", "1e9", "7.5", "", "1e400", "9" * 30, "nan")))
                lines[here] = re.sub(r"[0-9.]+", lambda _, number=number: number, lines[here], count=1)
            case 5:
                at = draw(st.integers(0, len(lines[here])))
                lines[here] = lines[here][:at] + draw(st.sampled_from('"[]{}=,.#\t\x00\x1bx\r')) + lines[here][at:]
            case 6:
                lines[here] = lines[here].replace(*(draw(st.sampled_from("aeiost")) for _ in range(2)), 1)
            case _:
                lines = lines[: here + 1]
        text = "\n".join(lines)
    return text


def damaged_json(valid: Any) -> st.SearchStrategy[str]:
    """The text of plain data that was damaged before or after it was written."""
    return st.one_of(
        damaged(valid).map(json.dumps), damaged(valid).map(json.dumps), damaged_text((json.dumps(valid, indent=1),))
    )
