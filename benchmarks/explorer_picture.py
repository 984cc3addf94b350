"""The explorer's picture in the docs: opens it in Chromium and takes docs/figures/explorer.png.

Needs playwright (the dev extra) and a Chromium.
"""

import io
import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

OUT = Path(__file__).parents[1] / "docs" / "figures" / "explorer.png"
STATE = "#formula=sin(x1)*cos(x2)&on=x1=0..pi,%20x2=0..pi&eps=0.1&construction=partition&at=x1:0.95,x2:0.8"
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
SIZE = {"width": 1280, "height": 1100}


def main() -> None:
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if found is None:
        sys.exit("no chromium on this machine")
    command = [sys.executable, "-c", "from transformula.cli import main; main()", "explore"]
    server = subprocess.Popen([*command, "--no-browser", "--json"], stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    url = json.loads(server.stdout.readline())["url"]
    try:
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=found, args=FLAGS)
            page = browser.new_page(viewport=SIZE)
            page.goto(url + STATE)
            for part in ("picture", "error", "attention"):
                page.wait_for_selector(f"#{part}-chart .main-svg", timeout=120_000)
            page.wait_for_function("() => document.getElementById('answer').textContent")
            picture = page.screenshot(full_page=True)
            browser.close()
    finally:
        server.send_signal(signal.SIGINT)
        server.wait(30)
    # 256 colours do, at a third of the size
    full = Image.open(io.BytesIO(picture)).convert("RGB")
    full.quantize(256, method=Image.Quantize.MAXCOVERAGE, kmeans=5).save(OUT, optimize=True)
    print(f"{OUT.name}: {OUT.stat().st_size // 1000} kB")


if __name__ == "__main__":
    main()
