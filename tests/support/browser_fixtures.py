"""A real browser for the pages we write: Debian's or any other Chromium, driven by Playwright."""

import re
import shutil
from urllib.parse import urlencode

import pytest

from support.browsing import reach

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    # The address bar's popup is a page of its own in every window; the others are those that Playwright leaves out.
    "--disable-features=WebUIOmniboxPopup,HttpsUpgrades,MediaRouter,OptimizationHints,PaintHolding",
)


#: The first draws pages only, without the windows around them, and takes a third less time.
BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")


@pytest.fixture(scope="session")
def browser():
    """A Chromium; the test is skipped where Playwright or a browser is missing."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        pytest.skip("no chromium on this machine")
    with sync_api.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=found, args=list(FLAGS))
        yield started
        started.close()


#: Chrome's remarks about graphics drivers, not ours.
DRIVER = re.compile(r"WebGL|GL Driver|willReadFrequently")


@pytest.fixture(scope="session")
def server():
    """One explorer for all tests that ask for no special one."""
    from support.explorer import running  # every test loads this file, also where there is no web server

    with running() as at:
        yield at


@pytest.fixture
def visit(browser, server):
    """visit(state, **device) opens the page and waits for its model; nothing may be logged meanwhile."""
    from support.explorer import PATIENCE

    contexts, logged = [], []

    def open_page(state=None, wait="done", **device):
        contexts.append(browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **device}))
        page = contexts[-1].new_page()
        page.set_default_timeout(1000 * PATIENCE)
        page.on("console", lambda message: logged.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: logged.append(f"page error: {error}"))
        page.goto(server.url + (f"/#{urlencode(state)}" if state else "/"))
        reach(page, wait)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert [line for line in logged if not DRIVER.search(line)] == []
