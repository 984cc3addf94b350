"""Pictures to look at before a change of the pages lands: the explorer and its tour, a report, the site's start page.

    python benchmarks/screenshots.py [FOLDER]

writes docs/figures/explorer.png, the picture of the docs, and everything else into FOLDER (default build/screenshots).
Needs playwright (the dev extra), a Chromium, and for the site `make docs`.
"""

import functools
import http.server
import io
import json
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from urllib.parse import urlencode

from PIL import Image
from playwright.sync_api import sync_playwright

import transformula as tf
from transformula.show.report_page import write_report

ROOT = Path(__file__).parents[1]
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
SIZES = {"": {"width": 1280, "height": 900}, "-phone": {"width": 390, "height": 844}}
STATE = {
    "formula": "sin(x1)*cos(x2)", "on": "x1=0..pi, x2=0..pi", "eps": "0.1", "construction": "partition",
    "at": "x1:0.95,x2:0.8",
}  # fmt: skip
SITE = ("", "theory/", "gallery/", "how_to/", "tutorials/inside/")
BLACK_SCHOLES = (
    "S*(1 + erf((log(S/K) + (r + s**2/2)*T)/(s*sqrt(2*T))))/2"
    " - K*exp(-r*T)*(1 + erf((log(S/K) + (r - s**2/2)*T)/(s*sqrt(2*T))))/2"
)
MARKET = "S=80..120, K=90..110, r=0.01..0.05, s=0.2..0.4, T=0.5..1"


def main() -> None:
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "build" / "screenshots"
    out.mkdir(parents=True, exist_ok=True)
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if found is None:
        sys.exit("no chromium on this machine")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=FLAGS)
        _explorer(browser, out)
        _report(browser, out)
        if (ROOT / "build" / "site").is_dir():
            _site(browser, out)
        browser.close()


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *said):
        pass


def _site(browser, out) -> None:
    """Pages as a server gives them: opened as files they have no search."""
    handler = functools.partial(_Quiet, directory=ROOT / "build" / "site")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        for name in SITE:
            url = f"http://127.0.0.1:{server.server_port}/{name}"
            _shoot(browser, url, out / f"site-{name.strip('/').replace('/', '-') or 'index'}")
        server.shutdown()


def _shoot(browser, url, path) -> None:
    for suffix, size in SIZES.items():
        page = browser.new_page(viewport=size)
        page.goto(url, wait_until="networkidle")
        page.screenshot(path=f"{path}{suffix}.png", full_page=True)
        print(
            f"{path.name}{suffix}: {page.evaluate('document.documentElement.scrollHeight') / size['height']:.1f} screens"
        )
        page.close()


def _explorer(browser, out) -> None:
    command = [sys.executable, "-c", "from transformula.cli import main; main()", "explore"]
    server = subprocess.Popen([*command, "--no-browser", "--json"], stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    url = json.loads(server.stdout.readline())["url"]
    try:
        page = browser.new_page(viewport={"width": 1280, "height": 1100})
        page.goto(f"{url}#{urlencode(STATE)}")
        _drawn(page)
        # 256 colours do, at a third of the size
        full = Image.open(io.BytesIO(page.screenshot(full_page=True))).convert("RGB")
        target = ROOT / "docs" / "figures" / "explorer.png"
        full.quantize(256, method=Image.Quantize.MAXCOVERAGE, kmeans=5).save(target, optimize=True)
        for suffix, size in SIZES.items():
            page.set_viewport_size(size)
            _tour(page, out, suffix)
    finally:
        server.send_signal(signal.SIGINT)
        server.wait(30)


def _tour(page, out, suffix) -> None:
    """Every step before its button is pressed and after."""
    page.click("#tour-start")
    for step in range(1, 8):
        page.wait_for_function(
            "n => document.getElementById('tour-count').textContent.startsWith(`Step ${n} `)", arg=step
        )
        _drawn(page)
        page.click("#tour-act")
        page.wait_for_function("() => document.getElementById('tour-after').textContent")
        _drawn(page)
        page.screenshot(path=out / f"tour-{step}{suffix}.png", full_page=not suffix)
        page.click("#tour-next")


def _drawn(page) -> None:
    page.wait_for_selector("body[data-state=done]", timeout=120_000)
    model = page.get_attribute("body", "data-model")
    page.wait_for_selector(f"#picture-chart[data-drawn^='{model}'] .main-svg", timeout=120_000)
    page.wait_for_function("() => document.getElementById('answer').textContent", timeout=120_000)
    page.wait_for_timeout(500)


def _report(browser, out) -> None:
    with tempfile.TemporaryDirectory() as folder:
        model = tf.compile(BLACK_SCHOLES, on=MARKET, eps=1e-2)
        _shoot(browser, write_report(model.save(f"{folder}/model")).page.as_uri(), out / "report")


if __name__ == "__main__":
    main()
