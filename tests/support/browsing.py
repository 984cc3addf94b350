"""What a person does with a page: wait for it, read it, change something; and what axe-core says about it."""

from pathlib import Path

AXE = Path(__file__).parents[2] / "build" / "web" / "node_modules" / "axe-core" / "axe.min.js"
CURVE = {"formula": "sin(3*x)", "on": "x=0..2", "eps": "0.1", "construction": "partition"}


def reach(page, state):
    page.wait_for_selector(f"body[data-state={state}]")


def fact(page, name):
    return page.text_content(f"dd[data-fact='{name}']")


def drawn(page):
    page.wait_for_selector("#picture-chart[data-drawn] .main-svg")
    for chart in ("error", "attention"):
        page.wait_for_selector(f"#{chart}-chart .main-svg")
    return page.get_attribute("#picture-chart", "data-drawn")


def change(page, action):
    """Do something that compiles anew, and wait until that is drawn."""
    before = page.get_attribute("body", "data-model")
    action()
    page.wait_for_selector(f"body[data-state=done]:not([data-model='{before}'])")
    now = page.get_attribute("body", "data-model")
    page.wait_for_selector(f"#picture-chart[data-drawn^='{now}']")


def serious(page):
    """Findings of axe-core that keep somebody from using the page; drawings and formulas have texts of their own."""
    page.evaluate(AXE.read_text(encoding="utf-8"))
    found = page.evaluate("() => axe.run({ exclude: [['.js-plotly-plot'], ['.katex']] })")["violations"]
    hard = [v for v in found if v["impact"] in ("serious", "critical")]
    return [(v["id"], [node["target"] for node in v["nodes"]][:3]) for v in hard]
