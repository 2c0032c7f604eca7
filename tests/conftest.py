"""Lanes: tests that need more of the host than others are marked by what they need.

Where the host lacks it they are skipped, with the reason and the remedy; a lane that is named in WANBENCH_REQUIRE
(`WANBENCH_REQUIRE=netem pytest`) fails instead, so that a host made for it cannot silently pass.

A test that makes a claim about time waits for its turn on this host. The others emulate whenever they come.
"""

from __future__ import annotations

import fcntl
import gc
import importlib.util
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest
from hypothesis import settings

from wanbench.harness.emulators.choice import why_no_netem
from wanbench.harness.run.host import SWITCH, host_turn

# How long an example takes says more about the host's other work than about the code.
settings.register_profile("shared-host", deadline=None)
settings.load_profile("ci" if "CI" in os.environ else "shared-host")

os.environ[SWITCH] = "off"
# Tests run side by side, and threads of torch that wait for each other take whole processors. Workers have one, too.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# The files of real runs that take longest, longest first.
LONGEST = (
    "test_readme", "test_exec", "test_lost_workers", "test_crash", "test_command_workload", "test_lossy",
    "test_process_group", "test_pytest_plugin", "test_timeline_runs", "test_changed_networks", "test_advise_runs",
    "test_wrapped_sweep", "test_asynchronous", "test_learning", "test_algorithms", "test_failures", "test_installed",
)  # fmt: skip

SITE = Path(__file__).resolve().parents[1] / "build" / "site"


def why_no_browser() -> str | None:
    missing = [tool for tool in ("chromium", "chromedriver") if shutil.which(tool) is None]
    missing += [] if importlib.util.find_spec("selenium") else ["selenium"]
    missing += [] if (SITE / "index.html").is_file() else [f"site in {SITE}"]
    return f"there is no {' and no '.join(missing)}" if missing else None


def why_no_cluster() -> str | None:
    return None if importlib.util.find_spec("ray") else "Ray is not installed"


LANES = {
    "netem": (why_no_netem, "`make test-kernel` runs them in User-Mode Linux"),
    "cluster": (why_no_cluster, "`make test-cluster` installs it"),
    "browser": (why_no_browser, "`make test-browser` builds the site and, as root, installs the rest"),
}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Without `-m long`, or `-m "long and ..."`, what takes long is left out."""
    if "long" not in config.option.markexpr:
        long = [item for item in items if item.get_closest_marker("long")]
        config.hook.pytest_deselected(items=long)
        items[:] = [item for item in items if item not in long]

    if hasattr(config, "workerinput"):  # of pytest-xdist
        _longest_first(items)


def pytest_configure(config: pytest.Config) -> None:
    """Let pytest-xdist start files in the order of `_longest_first`; its own is by the number of their tests."""
    if hasattr(config.option, "loadscopereorder"):
        config.option.loadscopereorder = False


def _longest_first(items: list[pytest.Item]) -> None:
    """Start with the files that take longest, so that no long one is left when the other processes have ended."""
    tests = Counter(item.path for item in items)
    last = len(LONGEST)
    place = {path: (LONGEST.index(path.stem) if path.stem in LONGEST else last, -tests[path]) for path in tests}
    items.sort(key=lambda item: (place[item.path], item.path))


def pytest_collection_finish() -> None:
    """Keep the garbage collector from visiting all modules and tests again and again: they live to the end."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    timed = item.get_closest_marker("timed") is not None
    if timed:
        del os.environ[SWITCH]
    with host_turn(print) if timed else nullcontext():
        done = yield
    os.environ[SWITCH] = "off"
    return done


@pytest.fixture
def turns_of_nobody_else() -> Iterator[None]:
    """Wait until no other test takes the host's turn without a claim about time: lanes run side by side."""
    with (Path(tempfile.gettempdir()) / f"wanbench-tests-turn-{os.getuid()}").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def pytest_runtest_setup(item: pytest.Item) -> None:
    for lane, (why_not, remedy) in LANES.items():
        if item.get_closest_marker(lane) is None or (reason := why_not()) is None:
            continue
        if lane in os.environ.get("WANBENCH_REQUIRE", "").split(","):
            pytest.fail(f"the lane {lane!r} is required: {reason}", pytrace=False)
        pytest.skip(f"{reason}; {remedy}")
