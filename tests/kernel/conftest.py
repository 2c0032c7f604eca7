"""Fixtures: labs of workers on each emulator, which end with the test."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from lab import Lab

from wanbench.harness.emulators.emulator import Emulator, NetemEmulator, RelayEmulator
from wanbench.harness.emulators.plan import EmulatedNetwork

MakeLab = Callable[[EmulatedNetwork], Lab]


def _labs(kind: type[Emulator]) -> Iterator[MakeLab]:
    labs: list[Lab] = []

    def make(network: EmulatedNetwork) -> Lab:
        labs.append(Lab(network, kind))
        return labs[-1]

    yield make
    for each in labs:
        each.close()


@pytest.fixture(params=[RelayEmulator, pytest.param(NetemEmulator, marks=pytest.mark.netem)], ids=["relay", "netem"])
def emulator(request: pytest.FixtureRequest) -> type[Emulator]:
    """Return every emulator, one after the other."""
    return request.param


@pytest.fixture
def lab(emulator: type[Emulator]) -> Iterator[MakeLab]:
    """Return a factory of labs that end with the test, on every emulator, one after the other."""
    yield from _labs(emulator)


@pytest.fixture
def relay_lab() -> Iterator[MakeLab]:
    """Return a factory of labs on the relay."""
    yield from _labs(RelayEmulator)


@pytest.fixture
def netem_lab() -> Iterator[MakeLab]:
    """Return a factory of labs on netem."""
    yield from _labs(NetemEmulator)
