"""Whatever a file says, the answer is an experiment or a network, or one line for each mistake."""

import random
import re
from pathlib import Path

import pytest

import harness
import netprofiles
from harness.cells import expand
from harness.errors import SpecError
from harness.spec import Spec
from netprofiles import load
from netprofiles.errors import ProfileError

MUTANTS = 1000
SPECS = sorted((Path(harness.__file__).parent / "experiments").glob("*.toml"))
CATALOG = Path(netprofiles.__file__).parent / "catalog"
PROFILES = sorted(CATALOG.glob("*.toml"))
CSV = "src,dst,rtt_ms,rate_mbps,loss_pct,jitter_ms\noregon,london,145,1000,0.01,0.5\nlondon,tokyo,210,500,,\n"
GARBAGE = (
    '""', "-1", "0", "1e400", "nan", "inf", "true", "[]", "{}", '"\\u0000"', '"80 parsecs"', "99999999999999999999",
    "[1, 2", '"', "=", "'''", "2026-11-21", '"../../etc/passwd"', '"🌍"', "null", "-0.0", '"1ms"', '"0 steps"', "0x1F",
)  # fmt: skip


def mutant(text: str, rng: random.Random) -> str:
    """One to three things that go wrong in an editor, or that someone tries."""
    for _ in range(rng.randint(1, 3)):
        lines = text.splitlines()
        here, there = rng.randrange(len(lines)), rng.randrange(len(lines))
        match rng.randrange(8):
            case 0:
                del lines[here]
            case 1:
                lines.insert(here, lines[there])
            case 2:
                lines[here], lines[there] = lines[there], lines[here]
            case 3:
                lines[here] = re.sub(r"=\s*.*$", lambda _: f"= {rng.choice(GARBAGE)}", lines[here])
            case 4:
                lines[here] = re.sub(r"[0-9.]+", lambda _: rng.choice(("-5", "0", "1e9", "7.5", "")), lines[here])
            case 5:
                at = rng.randrange(len(lines[here]) + 1)
                lines[here] = lines[here][:at] + rng.choice('"[]{}=,.#\t\x00x') + lines[here][at:]
            case 6:
                lines[here] = lines[here].replace(rng.choice("aeiost"), rng.choice("aeiost"), 1)
            case _:
                lines = lines[: here + 1]
        text = "\n".join(lines or ["#"])
    return text


def is_clear(error: str, where: str) -> bool:
    """One line for each mistake, and each names the file."""
    lines = error.splitlines()
    return bool(lines) and all(where in line and len(line) < 1000 for line in lines)


@pytest.mark.parametrize("path", SPECS, ids=lambda path: path.stem)
def test_a_mutilated_spec_is_cells_or_one_line(path):
    rng = random.Random(path.stem)
    refused = []
    for _ in range(MUTANTS // len(SPECS) + 1):
        text = mutant(path.read_text(), rng)
        try:
            expand(Spec.from_toml(text, "x.toml"), "x.toml")
        except SpecError as error:
            refused.append((text, str(error)))
    assert len(refused) > MUTANTS // len(SPECS) // 4  # most mutants are no experiments: the test tests something
    assert [(text, error) for text, error in refused if not is_clear(error, "x.toml")] == []


@pytest.mark.parametrize(
    ("text", "suffix"),
    [*((path.read_text(), ".toml") for path in PROFILES), (CSV, ".csv")],
    ids=[*(path.stem for path in PROFILES), "csv"],
)
def test_a_mutilated_profile_is_a_network_or_one_line(text, suffix, tmp_path):
    rng = random.Random(len(text))
    file = tmp_path / f"mine{suffix}"
    for table in CATALOG.glob("*.csv"):
        (tmp_path / table.name).write_bytes(table.read_bytes())
    refused = []
    for _ in range(MUTANTS // (len(PROFILES) + 1) // (1 + len(text) // 20_000) + 1):
        mutated = mutant(text, rng)
        file.write_text(mutated)
        try:
            load(str(file))
        except ProfileError as error:
            refused.append((mutated, str(error)))
    assert refused
    assert [(text, error) for text, error in refused if not is_clear(error, tmp_path.name)] == []
