"""The documentation site of `make docs` in a browser: no page is broken or wider than the screen."""

from __future__ import annotations

from pathlib import Path

import pytest

pytestmark = pytest.mark.browser

SITE = Path(__file__).resolve().parents[2] / "build" / "site"
PHONE, DESK = 390, 1280
# Tables, equations and code scroll in their own boxes. The page itself must fit the screen.
TOO_WIDE = "return [document.documentElement.scrollWidth, document.documentElement.clientWidth]"
FLAT_EQUATIONS = (
    "return [...document.querySelectorAll('math')].filter((one) => !one.getBoundingClientRect().height).length"
)
BROKEN_IMAGES = "return [...document.images].filter((image) => !image.naturalWidth).map((image) => image.src)"
SMALL_FIGURES = (
    "return [...document.querySelectorAll('article p > img')]"
    ".filter((image) => image.getBoundingClientRect().width < 600).map((image) => image.src)"
)
FOUND = "return document.querySelectorAll('.search li').length"


def pages() -> list[Path]:
    return sorted(SITE.rglob("*.html"))


def look(browser, page, width, scheme="light"):
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width == PHONE}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    browser.get(page if isinstance(page, str) else page.as_uri())


@pytest.mark.parametrize(("width", "scheme"), [(PHONE, "dark"), (DESK, "light")])
def test_no_page_has_an_error_a_missing_picture_or_is_too_wide(browser, width, scheme):
    for page in pages():
        look(browser, page, width, scheme)
        assert browser.get_log("browser") == [], page.name
        wide, seen = browser.execute_script(TOO_WIDE)
        assert wide <= seen, page.name
        assert browser.execute_script(BROKEN_IMAGES) == [], page.name
        assert browser.execute_script(FLAT_EQUATIONS) == 0, page.name


def test_a_phone_shows_figures_at_a_size_that_can_be_read(browser):
    for page in ("index.html", "explanation/accuracy.html", "how-to/papers.html"):
        look(browser, SITE / page, PHONE)
        assert browser.execute_script(SMALL_FIGURES) == [], page


def test_every_page_is_reached_from_the_first(browser):
    look(browser, SITE / "index.html", DESK)
    links = browser.execute_script("return [...document.links].map((link) => link.href.split('#')[0])")
    generated = {"genindex.html", "search.html"}
    assert {page.as_uri() for page in pages() if page.name not in generated} <= set(links)


def test_a_word_is_found_without_a_server(browser):
    from selenium.webdriver.support.ui import WebDriverWait

    look(browser, f"{(SITE / 'search.html').as_uri()}?q=payload_scale", DESK)
    WebDriverWait(browser, 20).until(lambda _: browser.execute_script(FOUND))
    assert browser.get_log("browser") == []
