"""Some pages of the site in a real browser: the README as its start page, the theorems and a tutorial."""

import functools
import http.server
import threading
from pathlib import Path

import pytest

from support.browsing import AXE, serious

ROOT = Path(__file__).parents[1]
#: Enough of docs/ to build in seconds; links to the other pages lead nowhere here, `make docs` refuses such.
KEPT = ("index.md", "theory.md", "tutorials/inside.py")
OUT_OF_SIGHT = """() => [...document.querySelectorAll('article .katex-display, article img')].filter((part) => {
  const box = part.getBoundingClientRect();
  return box.right > innerWidth + 1 || box.left < 0;
}).map((part) => part.outerHTML.slice(0, 80))"""


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves a folder and logs nothing."""

    def log_message(self, *said):
        pass


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The address of the built pages."""
    build = pytest.importorskip("mkdocs.commands.build", reason="the extra docs is not installed")
    from mkdocs.config import load_config

    out, work = tmp_path_factory.mktemp("site"), tmp_path_factory.mktemp("work")
    names = (path.relative_to(ROOT / "docs").as_posix() for path in ROOT.glob("docs/**/*.*"))
    left_out = "\n".join(name for name in names if name.endswith((".md", ".py")) and name not in KEPT)
    options = {"plugins": ["material/search"], "nav": [], "exclude_docs": left_out, "strict": False}
    config = load_config(str(ROOT / "mkdocs.yml"), site_dir=str(out), **options)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(work)
        build.build(config)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=out)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture
def show(browser, site):
    """show(page, **device) opens a page and nothing from elsewhere; nothing may be logged."""
    contexts, logged = [], []

    def open_page(name, **device):
        contexts.append(browser.new_context(**device))
        contexts[-1].route(lambda url: not url.startswith(site), lambda route: route.abort())  # which is logged
        tab = contexts[-1].new_page()
        tab.on("console", lambda message: logged.append(message.text))
        tab.on("pageerror", lambda error: logged.append(str(error)))
        tab.goto(f"{site}/{name}")
        return tab

    yield open_page
    for context in contexts:
        context.close()
    assert logged == []


@pytest.mark.skipif(not AXE.exists(), reason="axe-core and KaTeX are not installed: make web")
@pytest.mark.parametrize(
    ("page", "width", "scheme"),
    [("", 1280, "light"), ("", 390, "dark"), ("theory", 390, "light"), ("tutorials/inside", 1280, "dark")],
)
def test_a_page_can_be_read(show, page, width, scheme):
    tab = show(page, viewport={"width": width, "height": 900}, color_scheme=scheme)
    assert serious(tab) == []
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    assert tab.evaluate(OUT_OF_SIGHT) == []
    if not page:
        picture = "document.querySelector('picture img')"
        assert tab.evaluate(f"{picture}.currentSrc").endswith("readme.svg" if width > 1000 else "readme-phone.svg")
        assert tab.evaluate(f"{picture}.naturalWidth") > 0


def test_a_tutorial_shows_what_its_cells_print(show, site):
    tab = show("tutorials/inside")
    printed = tab.locator(".output").all_text_contents()
    assert "table at block 0, head 0: sin(x)" in printed[0] and len(printed) == 6
    assert "# >" not in tab.text_content("article")
    tab.goto(f"{site}/theory")
    assert tab.locator("article .katex").count() > 80 and "$" not in tab.text_content("article h1 ~ p")
