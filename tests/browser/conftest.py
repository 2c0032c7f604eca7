"""Headless Chromium. Synthetic runs come from the unit tests' helpers."""

from __future__ import annotations

import pytest

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-dev-shm-usage",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars",
)  # fmt: skip


@pytest.fixture(scope="session")
def browser(tmp_path_factory):
    """A browser with an empty profile that can open only files."""
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    for flag in (
        *FLAGS,
        f"--user-data-dir={tmp_path_factory.mktemp('profile')}",
        "--host-resolver-rules=MAP * ~NOTFOUND",
    ):
        options.add_argument(flag)
    options.binary_location = _which("chromium")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(_which("chromedriver")))
    yield driver
    driver.quit()


def _which(tool: str) -> str:
    import shutil

    found = shutil.which(tool)
    assert found is not None
    return found
