"""Hooks of the documentation site (mkdocs.yml): the README as its start page, tutorials run, formulas typeset.

A tutorial (docs/tutorials) is a script in cells. It runs while the site is built, in the current folder, and its page
shows what each cell printed or returned; a warning ends the build.

KaTeX sets the formulas while the site is built, so that a page needs its style sheet and fonts and no script. They come
from npm (`make web`); without them formulas stay in TeX, as on the repository page.
"""

import ast
import contextlib
import html
import io
import json
import logging
import re
import shutil
import subprocess
import warnings
from pathlib import Path

from mkdocs.structure.files import File
from mkdocs.utils import get_relative_url

ROOT = Path(__file__).parents[1]
KATEX = ROOT / "build" / "web" / "node_modules" / "katex" / "dist"
FORMULA = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.DOTALL)
#: Expected output in the source of a tutorial: the page has the real one below the cell.
EXPECTED = re.compile(r"^# >.*\n?", re.MULTILINE)
#: A link to a tutorial's source, which is a page of the site.
TUTORIAL = re.compile(r"(\]\((?:\.\./)*(?:tutorials/)?\w+)\.py(\)|#)")
#: What Material leaves without a name, and a dash of mkdocstrings before nothing.
UNNAMED = 'data-md-component="search" role="dialog"'
DASH = re.compile(r"–\s*<div class=\"doc-md-description\">\s*</div>")
#: A tolerance at the head of a column, which would break after its hyphen.
POWER = re.compile(r"(<th[^>]*>\d+e)-(?=\d)")
RENDER = """
const katex = require(process.argv[1]);
const asked = JSON.parse(require("fs").readFileSync(0, "utf8"));
const set = ([text, display]) => katex.renderToString(text, { displayMode: display, strict: "error" });
console.log(JSON.stringify(asked.map(set)));
"""
log = logging.getLogger("mkdocs.hooks.site")
cards = []  # what cells return, as HTML; Markdown would read it as text


def typesets() -> bool:
    return KATEX.is_dir() and shutil.which("node") is not None


def on_files(files, config):
    left_out = config.exclude_docs.match_file if config.exclude_docs else lambda name: False
    for file in [f for f in files if f.src_uri.endswith(".py") and not left_out(f.src_uri)]:
        text = tutorial(Path(file.abs_src_path))
        files.append(File.generated(config, str(Path(file.src_uri).with_suffix(".md")), content=text))
    return files


def tutorial(path):
    """The page of a tutorial as Markdown."""
    variables, parts = {"__name__": "__main__"}, []
    for cell in re.split(r"^# %%", path.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
        kind, _, text = cell.partition("\n")
        if "[markdown]" in kind:
            parts.append(re.sub(r"^# ?", "", text, flags=re.MULTILINE))
            continue
        source = EXPECTED.sub("", text).strip()
        parts += [f"```python\n{source}\n```", shown(source, variables)]
    return "\n\n".join(parts)


def shown(source, variables):
    """Run a cell: what it prints and the value of its last line, as Markdown."""
    body = ast.parse(source).body
    last = ast.Expression(body.pop().value) if isinstance(body[-1], ast.Expr) else None
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), warnings.catch_warnings():
        warnings.simplefilter("error")
        exec(compile(ast.Module(body, []), "tutorial", "exec"), variables)
        value = last and eval(compile(last, "tutorial", "eval"), variables)
    made = [f"```{{.text .output}}\n{printed.getvalue().rstrip()}\n```"] if printed.getvalue() else []
    if value is not None:
        cards.append(value._repr_html_() if hasattr(value, "_repr_html_") else f"<pre>{html.escape(repr(value))}</pre>")
        made.append(f'<div data-card="{len(cards) - 1}"></div>')
    return "\n\n".join(made)


def on_page_markdown(markdown, page, config, files):
    if page.file.src_uri == "index.md":
        readme = (ROOT / "README.md").read_text(encoding="utf-8")
        markdown = markdown.replace("<!-- README -->", re.sub(r'(\]\(|")docs/', r"\1", readme))
    return TUTORIAL.sub(r"\1.md\2", markdown)


def on_page_content(content, page, config, files):
    content = POWER.sub(r"\1&#8209;", content)
    content = re.sub(r'<div data-card="(\d+)"></div>', lambda found: cards[int(found[1])], content)
    asked = [(html.unescape(found[3]), found[2] == "[") for found in FORMULA.finditer(content)]
    if not asked:
        return content
    if not typesets():
        log.info("KaTeX is not installed (make web): the formulas of %s stay in TeX", page.file.src_uri)
        return content
    command = ["node", "-e", RENDER, str(KATEX / "katex.min.js")]
    done = subprocess.run(command, input=json.dumps(asked), capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{page.file.src_uri}: {done.stderr.strip().splitlines()[-1]}\n{done.stderr}")
    made = iter(json.loads(done.stdout))
    return FORMULA.sub(lambda found: f'<{found[1]} class="typeset">{next(made)}</{found[1]}>', content)


def on_post_page(output, page, config):
    output = DASH.sub("", output.replace(UNNAMED, f'{UNNAMED} aria-label="Search"'))
    if 'class="katex"' not in output:
        return output
    style = get_relative_url("katex/katex.min.css", page.url)
    return output.replace("</head>", f'<link rel="stylesheet" href="{style}"></head>', 1)


def on_post_build(config):
    if not typesets():
        return
    out = Path(config.site_dir) / "katex"
    (out / "fonts").mkdir(parents=True, exist_ok=True)
    shutil.copy(KATEX / "katex.min.css", out)
    for font in KATEX.glob("fonts/*.woff2"):
        shutil.copy(font, out / "fonts")
