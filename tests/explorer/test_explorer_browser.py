"""The explorer's page in a real browser: what a person does with it."""

import pytest

from support.browsing import CURVE, change, drawn, fact, reach
from support.explorer import wait_until
from transformula.compiler.comparison import TRIED

PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}


def test_it_opens_with_a_proven_model(visit):
    page = visit()
    drawn(page)
    assert "Proven on the whole box, rounding included" in page.text_content("#claim")
    assert fact(page, "construction") == "lookup" and int(fact(page, "tokens")) > 3
    assert page.locator("#typeset math").count() == 2
    assert page.title() == "transformula explorer"
    shown = page.evaluate(
        "async () => { const { atMost } = await import('/static/charts.js');"
        " return [0.0384121, 2.4149e-5, 0.1, 0, 9.996e-7].map((bound) => atMost(bound)); }"
    )
    assert shown == ["0.03842", "2.42·10⁻⁵", "0.1", "0", "1.00·10⁻⁶"]  # rounded up, never down


def test_a_formula_is_typed_and_the_tolerance_moved(visit):
    page = visit(CURVE)
    first, coarse = drawn(page), int(fact(page, "memory tokens"))
    change(page, lambda: page.locator("#eps-slider").evaluate(
        "slider => { slider.value = -2; slider.dispatchEvent(new Event('input', { bubbles: true })); }"
    ))  # fmt: skip
    assert page.input_value("#eps") == "0.01"
    assert int(fact(page, "memory tokens")) > 5 * coarse and drawn(page) != first
    page.fill("#formula", "x**2 - x")
    change(page, lambda: page.press("#formula", "Enter"))
    assert page.locator("#typeset msup").count() == 1
    change(page, lambda: page.select_option("#construction", "polynomial"))
    assert fact(page, "construction") == "polynomial" and fact(page, "approximation") == "0"


def test_a_mistake_is_shown_at_its_field(visit):
    page = visit(CURVE)
    page.fill("#formula", "sin(3*x) + <b>bold</b>")
    page.press("#formula", "Enter")
    reach(page, "refused")
    assert "unexpected '<' at character 12" in page.text_content("#formula-error")
    assert page.get_attribute("#formula", "aria-invalid") == "true"
    assert "formula-error" in page.get_attribute("#formula", "aria-describedby")
    assert page.evaluate("() => document.getElementById('formula').selectionStart") == 11
    page.fill("#formula", "sin(3*x)")
    page.fill("#box", "x=2..0")
    page.wait_for_function("() => document.getElementById('box-error').textContent.includes('reversed')")
    assert page.text_content("#formula-error") == ""  # seen while typing, without compiling
    page.fill("#box", "x=0..2")
    page.fill("#eps", "-1")
    page.press("#eps", "Enter")
    assert "above 0" in page.text_content("#eps-error")
    page.fill("#eps", "0.2")
    change(page, lambda: page.press("#eps", "Enter"))
    assert page.locator("[aria-invalid=true]").count() == 0


def test_a_refusal_names_its_place_and_helps(visit):
    page = visit({"formula": "log(x)", "on": "x=-1..1"}, wait="refused")
    assert page.text_content("#refusal-title") == "Not proven"
    assert "log(x) is undefined or unbounded near x = 0" in page.text_content("#refusal-message")
    assert "The proof stopped at" in page.text_content("#refusal-place")
    assert page.is_hidden("#claim")
    page.click("text=Try the box x=0.0312..1")
    reach(page, "done")
    assert page.input_value("#box") == "x=0.0312..1"
    page = visit({"formula": "where(x > 1, 1, 0)", "on": "x=0..2"}, wait="refused")
    page.locator("#formula-error .offer").last.click()  # a mistake that is marked at its field is mended there
    reach(page, "done")
    assert "max" in page.input_value("#formula")
    page = visit({"formula": "x**3 - x/3", "on": "x=-1..1", "eps": "1e-20", "dtype": "float32"}, wait="refused")
    assert "The best that was reached is" in page.text_content("#refusal-place")
    page.click("#refusal-help button")
    reach(page, "done")
    assert page.is_hidden("#refusal") and fact(page, "floats") == "float32"


def test_the_gallery_and_a_circuit(visit):
    page = visit(CURVE)
    change(page, lambda: page.get_by_role("button", name="Gravitation").click())
    assert fact(page, "construction") == "circuit"
    assert page.locator("#circuit-drawing g.table").count() == 7
    assert page.locator("#sliders input").count() == 6
    page.select_option("#x-variable", "x1")
    page.wait_for_selector("#picture-chart[data-drawn$='x1,m2'], #picture-chart[data-drawn$='x1,m1']")
    page.select_option("#y-variable", "-")
    page.wait_for_selector("#picture-chart[data-drawn$=' x1']")


def test_a_link_brings_everything_back(visit):
    state = {"formula": "sin(x)*y; x + y", "on": "x=0..1, y=0..1", "eps": "0.05", "construction": "lookup"}
    page = visit({**state, "output": 0, "x": "y", "y": "x", "show": "error", "at": "x:0.25,y:0.75"})
    assert drawn(page).endswith("error map y,x")
    assert page.text_content("#at-y-value") == "0.75"
    change(page, lambda: page.select_option("#dtype", "float32"))
    page.click("#share")
    page.wait_for_function("() => /link/i.test(document.getElementById('status').textContent)")
    again = visit(wait="done")
    again.goto(page.url)
    again.reload()
    again.wait_for_selector("#picture-chart[data-drawn$='error map y,x']")
    assert again.input_value("#formula") == state["formula"]
    assert again.input_value("#dtype") == "float32" and again.text_content("#at-x-value") == "0.25"


def test_the_point_moves_and_attention_follows(visit):
    page = visit(CURVE)
    drawn(page)
    before = page.text_content("#answer")
    chart = page.locator("#picture-chart .nsewdrag").first.bounding_box()
    page.mouse.click(chart["x"] + chart["width"] * 0.75, chart["y"] + chart["height"] * 0.5)
    page.mouse.move(0, 0)
    page.focus("#at-x")
    for _ in range(3):
        page.keyboard.press("PageUp")
    page.wait_for_function("before => document.getElementById('answer').textContent !== before", arg=before)
    assert float(page.text_content("#at-x-value")) > 0.8
    page.uncheck("#cells")
    assert "cells=0" in page.url
    page.select_option("#show", "error")
    assert page.text_content("#picture-title") == "Transformer − formula"


def test_a_surface_turns_where_there_is_webgl(visit):
    page = visit({"formula": "x*y", "on": "x=0..1, y=0..1"})
    drawn(page)
    if page.is_hidden("#view"):
        pytest.skip("this browser has no WebGL")
    page.select_option("#view", "surface")
    page.wait_for_selector("#picture-chart[data-drawn*=' surface '] .gl-container canvas", state="attached")


#: Stops the comparison in the page, as soon as it shows two constructions.
STOPS_EARLY = """() => {
    const shown = [...document.querySelectorAll("#compare-chart .legendtext")].map((one) => one.textContent);
    if (!shown.includes("lookup, proven") || !shown.includes("partition, proven")) return false;
    document.getElementById("compare").click();
    return true;
}"""


def test_the_comparison_grows_and_stops(visit, server):
    page = visit(CURVE)
    page.click("#compare")
    page.wait_for_function(STOPS_EARLY)  # a click from here may come when the comparison has ended
    page.wait_for_function("() => document.getElementById('compare-status').textContent === 'Stopped.'")
    wait_until(lambda: server.explorer.compilers.admitted == 0, "the work has ended")
    legend = page.locator("#compare-chart .legendtext").all_text_contents()
    assert {"lookup, proven", "partition, proven", "your model, proven"} <= set(legend)
    assert page.locator("#compare-title[data-earlier]").count() == 0
    page.fill("#formula", "cos(3*x)")
    assert page.get_attribute("#compare-title", "data-earlier") == "earlier formula"
    page.fill("#formula", CURVE["formula"])
    assert page.locator("#compare-title[data-earlier]").count() == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_a_phone(visit, scheme):
    page = visit(color_scheme=scheme, **PHONE)
    drawn(page)
    too_wide = """() => {
      const wide = [...document.querySelectorAll('form *, main *')].filter((element) => {
        const box = element.getBoundingClientRect();
        const clipped = element.closest('svg, #typeset, .skip, .js-plotly-plot');
        return !clipped && box.width > 0 && (box.right > innerWidth + 1 || box.left < -1);
      });
      return [document.documentElement.scrollWidth - innerWidth, wide.map((e) => e.id || e.tagName)];
    }"""
    assert page.evaluate(too_wide) == [0, []]
    change(page, lambda: page.get_by_role("button", name="Two outputs").tap())
    for control in ("#formula", "#box", "#eps-slider", "#eps", "#compile", "#share", "#output", "#compare"):
        page.locator(control).scroll_into_view_if_needed()
        box = page.locator(control).bounding_box()
        assert box["x"] >= 0 and box["x"] + box["width"] <= 390 and box["height"] >= 24, control
    assert page.evaluate(too_wide) == [0, []]


def test_all_constructions_fill_a_table(visit):
    page = visit({"formula": "x*y", "on": "x=0..1, y=0..1", "eps": "0.05"})
    page.click("#constructions")
    page.wait_for_function("() => document.getElementById('constructions-status').textContent === 'Done.'")
    rows = page.locator("#constructions-table tbody tr")
    assert rows.count() == len(TRIED)
    means = [k for k, (construction, _) in enumerate(TRIED) if construction.name == "yun"]
    assert [rows.nth(k).locator("td").all_text_contents()[5].endswith(" (mean)") for k in means] == [True]
    assert rows.nth(0).locator("td").all_text_contents()[:3] == ["polynomial", "2", "2"]
    page.fill("#formula", "x*y + 1")
    assert page.get_attribute("#constructions-title", "data-earlier") == "earlier formula"


def test_it_can_be_used_without_a_mouse(visit):
    page = visit(CURVE)
    drawn(page)
    page.evaluate("() => document.activeElement.blur()")
    seen = []
    for _ in range(100):
        page.keyboard.press("Tab")
        seen.append(page.evaluate("() => document.activeElement.id"))
        style = page.evaluate("() => getComputedStyle(document.activeElement).outlineStyle")
        assert style != "none", f"the focus on {seen[-1]} cannot be seen"
        if seen[-1] == "compare":
            break
    order = ["formula", "box", "eps-slider", "eps", "construction", "dtype", "compile", "share",
             "download-zip", "x-variable", "show", "cells", "at-x", "compare"]  # fmt: skip
    assert [name for name in seen if name in order] == order
    page.focus("#formula")
    page.keyboard.press("Control+A")
    page.keyboard.type("cos(2*x)")
    change(page, lambda: page.keyboard.press("Enter"))
    for _ in range(8):  # past the questions beside the labels
        page.keyboard.press("Tab")
        if page.evaluate("() => document.activeElement.id") == "eps-slider":
            break
    change(page, lambda: page.keyboard.press("ArrowLeft"))  # ε, one step smaller
    assert float(page.input_value("#eps")) < 0.1
    assert page.get_attribute("#status", "aria-live") == "polite"
