"""The catalogue of published measurements, and how predictions are counted."""

from __future__ import annotations

import json
import shutil

import pytest

import scripts
from wanbench.harness.errors import SpecError
from wanbench.harness.plan.auto import FixedHost
from wanbench.harness.plan.expand import expand
from wanbench.harness.spec.experiment import Spec

published = scripts.load("benchmarks/published.py")
FOLDER, PREDICTIONS, Agreement = published.FOLDER, published.PREDICTIONS, published.Agreement
compared, counted, load, read = published.compared, published.counted, published.load, published.read
SOURCES = load(FOLDER)
TEXT = """
title = "t"
short = "s"
kind = "all-reduces"
citation = "c"
url = "u"
revision = "r"
licence = "none found: facts only"
seen = false
primary = true
tier = 1
tolerance = 0.2
why_tolerance = "w"
set_aside = false

[conditions]
hosts = "h"

[[reading]]
name = "first"
chosen = "a"
spec = ""

[[reading]]
name = "second"
chosen = "b"
spec = ""

[[number]]
where = "table 1"
printed = "1.0"
value = 1.0
unit = "s"
quantity = "step_time_s"
"""


def line(reading: str, error: float | None, plain_error: float | None = None) -> dict:
    return {"source": "s", "reading": reading, "error": error, "plain_error": plain_error}


@pytest.fixture
def source(tmp_path):
    (tmp_path / "s.toml").write_text(TEXT)
    return load(tmp_path)["s"]


def test_at_least_six_sources_that_nobody_had_compared_have_at_least_sixty_numbers():
    blind = [source for source in SOURCES.values() if not source.seen and source.primary and source.tier <= 2]
    assert len({source.url.split("/")[3] for source in blind}) >= 6
    assert sum(len(source.number) for source in blind) >= 60
    assert sum(source.set_aside for source in blind) == 2


@pytest.mark.parametrize("name", SOURCES)
def test_every_reading_of_every_number_is_a_spec_of_one_cell_on_the_simulated_clock(name):
    for reading in SOURCES[name].reading:
        spec = Spec.from_toml(reading.spec, str(FOLDER / reading.name))
        for number in SOURCES[name].number[:3]:
            cells = expand(spec.override(number.set, name), str(FOLDER / reading.name), FixedHost())
            (cell,) = {cell.key: cell for cell in cells if not cell.is_baseline}.values()
            assert cell.testbed == "virtual"


@pytest.mark.parametrize("name", SOURCES)
def test_every_number_is_named_once_and_lies_in_its_spread(name):
    numbers = SOURCES[name].number
    assert len({(number.where, number.quantity, str(number.set)) for number in numbers}) == len(numbers)
    for number in numbers:
        low, high = number.spread or (number.value, number.value)
        assert low <= number.value * 1.0001
        assert high >= number.value * 0.9999


def test_a_source_counts_at_its_worst_reading(source):
    near, far = line("first", 0.05), line("second", 0.25)
    assert counted({"s": source}, [near, far]) == {"s": [far]}
    assert counted({"s": source}, [far, near]) == {"s": [far]}
    farther = line("first", -0.1)
    assert counted({"s": source}, [near | {"reading": "second"}, farther]) == {"s": [farther]}


def test_what_has_no_prediction_is_none_within(source):
    agreement = Agreement.of(source, [line("first", 0.15, -0.05), line("first", None, None)])
    assert (agreement.numbers, len(agreement.errors), agreement.within, agreement.near) == (2, 1, 1, 0)
    assert (agreement.plain_near, agreement.median, agreement.worst) == (1, 0.15, 0.15)


def test_what_is_fitted_is_listed_and_counts_in_no_share(source):
    fitted, held_out = line("first", 0.0, 0.0) | {"fitted": True}, line("first", -0.3, 0.4)
    agreement = Agreement.of(source, [fitted, held_out])
    assert (agreement.numbers, agreement.errors, agreement.plain) == (1, [-0.3], [0.4])
    assert (agreement.within, agreement.near, agreement.worst) == (0, 0, -0.3)
    worse = [line("second", 0.9) | {"fitted": True}, line("second", 0.1)]
    assert counted({"s": source}, [fitted, held_out, *worse]) == {"s": [fitted, held_out]}


@pytest.mark.parametrize("name", SOURCES)
def test_only_a_source_that_was_seen_has_fitted_numbers_and_it_holds_out_more(name):
    fitted = [number for number in SOURCES[name].number if number.fitted]
    assert not fitted or SOURCES[name].seen
    assert 2 * len(fitted) < len(SOURCES[name].number)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("tolerance = 0.2", "tolerance = 0.0"), "s.toml: tolerance: "),
        (("tier = 1", "tier = 5"), "s.toml: tier: "),
        (('unit = "s"', 'units = "s"'), "s.toml: number.0.unit: Field required"),
        (("[conditions]", "[conditions"), "s.toml: not valid TOML: "),
    ],
)
def test_a_wrong_file_is_named_with_its_key(tmp_path, change, message):
    (tmp_path / "s.toml").write_text(TEXT.replace(*change))
    with pytest.raises(SpecError) as refused:
        load(tmp_path)
    assert str(refused.value).startswith(f"{tmp_path}/{message}")


def test_without_predictions_the_command_is_named(tmp_path):
    message = f"^{tmp_path / PREDICTIONS}: cannot be read; run `python benchmarks/published.py predict`$"
    with pytest.raises(SpecError, match=message):
        read(tmp_path / PREDICTIONS)


def test_every_number_has_a_prediction_under_every_reading_or_the_reason_why_not():
    lines = read(FOLDER / PREDICTIONS)
    keys = {(line["source"], line["reading"], line["where"], line["quantity"]) for line in lines}
    assert keys == {
        (name, reading.name, number.where, number.quantity)
        for name, source in SOURCES.items()
        for reading in source.reading
        for number in source.number
    }
    for recorded in lines:
        assert (recorded["predicted"] is None) == (recorded["why"] is not None), recorded
        if recorded["predicted"] is not None:
            assert recorded["error"] == pytest.approx(recorded["predicted"] / recorded["value"] - 1, abs=1e-4)


def test_a_source_is_nearer_than_the_plain_law_if_its_median_error_is_smaller(source):
    of = {"a": [line("r", 0.1, 0.2)], "b": [line("r", 0.3, -0.2)], "c": [line("r", 0.1, None)]}
    agreements = {name: Agreement.of(source, lines) for name, lines in of.items()}
    assert compared(agreements) == (["a"], ["b"])
    assert Agreement.together(dict.fromkeys(of, source), of).near == 2


@pytest.mark.long  # `make check-figures` compares it each time
def test_the_committed_figure_is_compared_with_the_one_that_is_drawn_from_its_predictions(
    tmp_path, monkeypatch, capsys
):
    for path in (FOLDER / PREDICTIONS, FOLDER / "nccl-aws-tc.toml", FOLDER / "sgp-poster.toml"):
        shutil.copy(path, tmp_path)
    monkeypatch.setattr(published, "FOLDER", tmp_path)
    files = {path.name for path in published.draw()}
    assert files == {path.name for path in FOLDER.glob(f"{published.NAME}*")}
    assert published.check() == 0
    lines = [json.loads(line) for line in (tmp_path / PREDICTIONS).read_text(encoding="utf-8").splitlines()]
    for line in lines:
        line["predicted"] = line["predicted"] and 2 * line["predicted"]
    (tmp_path / PREDICTIONS).write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    assert published.check() == 1
    assert f"{tmp_path / published.NAME}.csv: would be drawn differently now" in capsys.readouterr().out
