"""Any file is either a valid experiment or network, or is refused with one line for each mistake."""

import json
import random
import re
import shutil
from pathlib import Path

import pytest
from command_line import as_it_was, finished, wanbench  # noqa: F401  # the fixture is used by all
from on_relay import expand

from wanbench.harness.errors import SpecError
from wanbench.harness.results.store import write_json
from wanbench.harness.spec.experiment import Spec
from wanbench.netprofiles import load
from wanbench.netprofiles.errors import ProfileError

MANY = pytest.mark.long
MUTANTS = pytest.mark.parametrize("mutants", [300, pytest.param(3000, marks=MANY)])
DAMAGED = pytest.mark.parametrize("damaged", [100, pytest.param(600, marks=MANY)])
SPECS = sorted((Path(__file__).resolve().parents[3] / "harness" / "spec" / "experiments").glob("*.toml"))
CATALOG = Path(__file__).resolve().parents[3] / "netprofiles" / "catalog"
PROFILES = sorted(CATALOG.glob("*.toml"))
CSV = "src,dst,rtt_ms,rate_mbps,loss_pct,jitter_ms\noregon,london,145,1000,0.01,0.5\nlondon,tokyo,210,500,,\n"
GARBAGE = (
    '""', "-1", "0", "1e400", "nan", "inf", "true", "[]", "{}", '"\\u0000"', '"80 parsecs"', "99999999999999999999",
    "[1, 2", '"', "=", "'''", "2026-11-21", '"../../etc/passwd"', '"🌍"', "null", "-0.0", '"1ms"', '"0 steps"', "0x1F",
)  # fmt: skip


def mutant(text: str, rng: random.Random) -> str:
    """Return a spec with one to three changes such as typing mistakes."""
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


def is_refused_clearly(*command: str, where: str) -> bool:
    """Return whether it is refused with exit code 2 and one line for each mistake; false for exit code 0."""
    result = wanbench(*command)
    if result.exit_code == 0:
        return False
    assert result.exit_code == 2, (command, result.output)
    assert result.stdout == ""
    assert is_clear(result.stderr.removeprefix("wanbench: "), where), result.stderr
    return True


def is_clear(error: str, where: str) -> bool:
    """Return whether each mistake has one line, which names the file."""
    lines = error.splitlines()
    return bool(lines) and all(where in line and len(line) < 1000 for line in lines)


@MUTANTS
@pytest.mark.parametrize("path", SPECS, ids=lambda path: path.stem)
def test_a_damaged_spec_becomes_cells_or_is_refused_clearly(path, mutants):
    rng = random.Random(path.stem)
    refused = []
    for _ in range(mutants // len(SPECS) + 1):
        text = mutant(path.read_text(), rng)
        try:
            expand(Spec.from_toml(text, "x.toml"), "x.toml")
        except SpecError as error:
            refused.append((text, str(error)))
    assert len(refused) > mutants // len(SPECS) // 4  # most mutants are not valid, so the refusal is really tested
    assert [(text, error) for text, error in refused if not is_clear(error, "x.toml")] == []
    for text, _ in refused[::10]:
        Path("x.toml").write_text(text)
        assert is_refused_clearly("plan", "x.toml", where="x.toml")


@MUTANTS
@pytest.mark.parametrize(
    ("text", "suffix"),
    [*((path.read_text(), ".toml") for path in PROFILES), (CSV, ".csv")],
    ids=[*(path.stem for path in PROFILES), "csv"],
)
def test_a_damaged_profile_becomes_a_network_or_is_refused_clearly(text, suffix, mutants, tmp_path):
    rng = random.Random(len(text))
    file = tmp_path / f"mine{suffix}"
    for table in CATALOG.glob("*.csv"):
        (tmp_path / table.name).write_bytes(table.read_bytes())
    refused = []
    for _ in range(mutants // (len(PROFILES) + 1) // (1 + len(text) // 20_000) + 1):
        mutated = mutant(text, rng)
        file.write_text(mutated)
        try:
            load(str(file))
        except ProfileError as error:
            refused.append((mutated, str(error)))
    assert refused
    assert [(text, error) for text, error in refused if not is_clear(error, tmp_path.name)] == []
    for mutated, _ in refused[::10]:
        file.write_text(mutated)
        assert is_refused_clearly("show", "profile", str(file), where=tmp_path.name)


VALUES = (None, True, -1, 0, 1e400, 1 << 80, -0.0, 1e300, "", "x", "\0", "nan", [], {}, [[1]], {"delay": None}, "🌍")


def damage(folder: Path, rng: random.Random) -> None:
    """Damage a run folder as a crash, a full disk or an editor does."""
    files = sorted(path for path in folder.rglob("*.json"))
    file = rng.choice(files)
    text = file.read_text()
    match rng.randrange(8):
        case 0 | 1 | 2:  # of the row or of its values
            data = json.loads(text)
            inside = rng.choice([data, *(value for value in data.values() if isinstance(value, dict) and value)])
            inside[rng.choice([*inside, "unheard of"])] = rng.choice(VALUES)
            file.write_text(json.dumps(data))
        case 3:
            data = json.loads(text)
            del data[rng.choice([*data])]
            file.write_text(json.dumps(data))
        case 4:
            file.write_bytes(file.read_bytes()[: rng.randrange(len(text))])
        case 5:
            file.write_text(mutant(text, rng), encoding="utf-8")
        case 6:
            file.unlink()
            if rng.random() < 0.5:
                file.mkdir()
        case _:
            name = rng.choice(("rep-1", "rep-x", "rep-0.failed-1", "rep-0.failed-x", "rep-0.part", "rep-0 copy"))
            rep = rng.choice([path for path in folder.glob("cells/*/rep-0") if path.is_dir()])
            shutil.copytree(rep, rep.with_name(name), dirs_exist_ok=True)


COMMANDS = (
    *(("results", "smoke", "--format", form) for form in ("table", "pivot", "md", "csv", "json", "parquet")),
    ("verify", "smoke"),
    ("compare", "smoke", "--by", "testbed", "--no-figures"),
    ("plan", "smoke"),
)


@DAMAGED
def test_damaged_results_are_reported_and_left_out_or_refused_in_one_line(damaged, tmp_path):
    rng = random.Random("damaged results")
    finished(tmp_path)
    good = tmp_path / "good"
    (tmp_path / "results" / "smoke").rename(good)
    write_json(good / "spec.resolved.json", Spec.load("smoke").to_dict())
    write_json(good / "manifest.json", {"schema": 1})
    named = 0
    for number in range(damaged):
        folder = tmp_path / "results" / "smoke"
        shutil.copytree(good, folder)
        damage(folder, rng)
        before = {path: path.read_bytes() for path in folder.rglob("*.json") if path.is_file()}
        for command in (
            rng.choice(COMMANDS),
            *([("figures", "smoke", "--formats", "svg"), ("report", "smoke")] if number % 50 == 0 else ()),
        ):
            result = wanbench(*command)
            assert result.exit_code in (0, 2, 4), (command, result.output)
            assert result.exit_code != 4 or command[0] == "verify"
            lines = result.stderr.splitlines()
            assert all(len(line) < 1000 for line in lines)
            named += any("not a result, so not finished" in line for line in lines)
            if result.exit_code == 2:
                assert result.stdout == ""
                assert is_clear("\n".join(line for line in lines if "not finished" not in line), "results")
        assert {path: path.read_bytes() for path in before} == before
        shutil.rmtree(folder)
    assert named > damaged // 5
