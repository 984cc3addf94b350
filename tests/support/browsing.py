"""What a person does with the explorer's page: wait for it, read it, change something."""

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
