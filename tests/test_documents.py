"""README and docs do what they say: every block is run, and compared with what the text shows.

`make test` follows the README, `make dist` all pages. The tutorials are run by `make docs`, and compared by `make dist`.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from support.follow import RUN, MismatchError, blocks_of, follow
from transformula.cli.app import app
from transformula.kernel.syntax.definitions import known
from transformula.optional import EXTRAS

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
PAGES = [README, *(ROOT / name for name in ("CONTRIBUTING.md", "CHANGELOG.md")), *sorted(ROOT.glob("docs/**/*.md"))]
LANGUAGES = {*RUN, "text", "json"}


def runs(page):
    return any(block.language in RUN and not block.not_run for block in blocks_of(page))


FIRST = [
    README,
    *(ROOT / "docs" / f"{name}.md" for name in ("first_steps", "theory", "commands", "constructions", "how_to")),
]
FOLLOWED = [page for page in PAGES if runs(page)] if os.environ.get("TRANSFORMULA_DIST") else FIRST


@pytest.mark.parametrize("page", FOLLOWED, ids=lambda p: p.name)
def test_a_page_does_what_it_says(page, tmp_path):
    """In its own process and folder, as a reader would."""
    command = [sys.executable, str(ROOT / "tests" / "support" / "follow.py"), str(page)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_no_block_hides_from_the_tests(page):
    for block in blocks_of(page):
        assert block.language in LANGUAGES, f"{page.name}, line {block.line}: name the block's language"
        hidden = block.language not in RUN and re.search(
            r"^(\$ |transformula |import |from \w+ import )", block.text, re.M
        )
        assert not hidden, f"{page.name}, line {block.line}: this can be run"


def anchors(page):
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.M)
    return {re.sub(r"[^\w\- ]", "", heading).strip().lower().replace(" ", "-") for heading in headings}


def test_the_readme_leads_somewhere():
    """Its links are relative: they work on the repository's page, and benchmarks/site.py makes them those of the site."""
    text = README.read_text(encoding="utf-8")
    targets = re.findall(r'\]\(([^)]*)\)|(?:src|srcset)="([^"]*)"', text)
    targets = [one or other for one, other in targets]
    assert len(targets) > 15
    for target in targets:
        path, _, anchor = target.partition("#")
        assert path.startswith("docs/") and (ROOT / path).is_file(), target
        assert not anchor or anchor in anchors(ROOT / path), target
    assert not re.findall(r"`docs/[^`]*`", text), "a page is linked, not named"


def test_the_first_screen_of_the_readme():
    """The sentence, the picture, the two commands and the table come first, and the rest is short."""
    lines = README.read_text(encoding="utf-8").splitlines()
    first = "\n".join(lines[:24])
    assert (
        "docs/figures/readme.svg" in first and "make demo" in first and "make test" in first and "| you are |" in first
    )
    assert len(lines) <= 90


def test_the_docs_list_what_there_is():
    def page(name):
        return (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")

    listed = re.search(r"<!-- functions:.*?-->\n(.*?)\n<!-- end of functions -->", page("notations"), re.DOTALL)[1]
    assert listed.split() == [f"`{name}`" for name in known()]
    verbs = {command.name or command.callback.__name__ for command in app.registered_commands}
    assert verbs == set(re.findall(r"^\| `([\w-]+)` \|", page("commands"), re.M))
    extras = set(re.findall(r"^\| `(\w+)` \|", page("install"), re.M))
    assert extras == {*EXTRAS.values(), "all"}


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_no_product_is_read_as_emphasis(page):
    """Two bare asterisks of a formula vanish, on the repository page or the site, and what is between them is slanted."""
    text = re.sub(r"\$\$.*?\$\$|\$[^$\n]+\$", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    markdown = pytest.importorskip("markdown", reason="the extra docs is not installed").markdown
    for made in (MarkdownIt("commonmark").enable("table").render(text), markdown(text, extensions=["extra"])):
        assert re.findall(r"[\w)]<(?:em|strong)>.{0,40}|.{0,40}</(?:em|strong)>[\w(]", made) == []


@pytest.mark.parametrize(
    ("page", "message"),
    [
        ("```console\n$ echo one\ntwo\n```\n", "shows\ntwo\nbut prints\none"),
        ("```bash\nfalse\n```\n", "exit code 1"),
        ("```console\n$ false # exit code 2\n```\n", "exit code 1"),
        ("```python\nprint(1)\n# > 2\n```\n", "shows\n2\nbut prints\n1"),
        ("```python\nunknown\n```\n", "NameError"),
        ("```bash\ntrue\n", "has no end"),
    ],
)
def test_a_page_that_is_wrong_is_noticed(page, message, tmp_path):
    (tmp_path / "page.md").write_text(page)
    with pytest.raises(MismatchError, match=re.escape(message)):
        follow(tmp_path / "page.md", tmp_path)


def test_a_page_that_is_right_is_followed(tmp_path):
    page = "```console\n$ echo one > file; cat file\none\n$ exit 3  # exit code 3\n```\n"
    page += "<!-- not run: it fails -->\n```bash\nfalse\n```\n"
    page += "```python\nx = open('file').read()\n```\n\n```python\nprint(x)\n# > o...\n```\n"
    (tmp_path / "page.md").write_text(page)
    assert follow(tmp_path / "page.md", tmp_path) == 3
