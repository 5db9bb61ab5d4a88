"""One browser and one server a module. A browser that stayed open for longer would keep its event loop running, and
asynchronous tests of the same worker could not start theirs. Without a chromium these tests are skipped."""

from collections.abc import Iterator

import pytest

from tests.browser.site import CHROMIUM, Site, launch


@pytest.fixture(scope="module")
def browser() -> Iterator[object]:
    """Not for the whole session: no asynchronous test can run in a process where Playwright has its event loop."""
    if not CHROMIUM:
        pytest.skip("there is no chromium to look with; apt install chromium")
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with sync_api.sync_playwright() as playwright:
        playwright_browser = launch(playwright)
        yield playwright_browser
        playwright_browser.close()


@pytest.fixture(scope="module")
def site(browser: object, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    new_site = Site(tmp_path_factory.mktemp("site"), {"MISTRAL_BASE_URL": "http://127.0.0.1:9/v1"})
    yield new_site
    new_site.close()
