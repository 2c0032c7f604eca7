"""What `wanbench exec` reports of a network that differs from its profile."""

from __future__ import annotations

from wanbench.harness.run.attend import differences


def row(reasons: list[str], measured: float | None = 100.0, rate: float | None = 50000.0) -> dict[str, object]:
    return {"rate_mbit": rate, "measured_rate_mbit": measured, "reasons": reasons}


RATES = [row([f"a -> b: rate {mbit} Mbit/s, configured 50000 Mbit/s"], mbit) for mbit in (12000.0, 10880.0, 16000.0)]


def test_rates_that_are_not_reached_are_one_note_with_a_scale_that_is():
    assert list(differences({"rows": RATES, "shared_up": RATES[0]}, "relay")) == [
        "note: relay does not reach the profile's rates on this host (10880 of 50000 Mbit/s), so `verify` refuses this "
        "run; for rates that it reaches, use --rate-scale 0.1, or with uniform a lower --rate"
    ]


def test_all_else_is_one_warning_however_many_paths_it_concerns():
    rows = [row([f"a -> {n}: one-way delay 9 ms"]) for n in range(6)] + [row(["a -> z: rate 60000 Mbit/s"], 60000.0)]
    (line,) = differences({"rows": rows, "shared_up": None}, "relay")
    assert line.startswith("warning: the network is not as configured")
    assert line.endswith("and 5 more")


def test_a_network_as_configured_is_not_mentioned():
    assert list(differences({"rows": [row([])], "shared_up": None}, "relay")) == []
