"""The explorer's tour, its sums, terms and time limit in a real browser: by keyboard, on a phone, for a screen reader."""

import numpy as np
import pytest

import transformula as tf
from support.browsing import AXE, CURVE, drawn, fact, serious
from transformula.explorer.payloads import MAX_ADDENDS, attention_payload

PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}
STEPS = 7
TOO_WIDE = """() => {
  const wide = [...document.querySelectorAll('header *, form *, main *')].filter((element) => {
    const box = element.getBoundingClientRect();
    const clipped = element.closest('svg, #typeset, .skip, .js-plotly-plot, .scrolling, nav');
    return !clipped && box.width > 0 && (box.right > innerWidth + 1 || box.left < -1);
  });
  return [document.documentElement.scrollWidth - innerWidth, wide.map((e) => e.id || e.tagName)];
}"""
#: On the border of two cells each of two tokens gets half of the attention, but for the rounding of the point.
SHARED = "() => document.getElementById('attention-chart').data[0].y.filter((w) => 0.4 < w && w < 0.6).length === 2"
POLITE = "() => document.getElementById('tour-after').textContent"


def press(page, name):
    """Tab to a button and press it, as one does without a mouse."""
    for _ in range(12):
        if page.evaluate("() => document.activeElement.id") == name:
            page.keyboard.press("Enter")
            return
        page.keyboard.press("Tab")
    raise AssertionError(f"{name} is not within twelve tabs")


def test_the_whole_tour_by_keyboard(visit):
    page = visit(CURVE)
    page.focus("#tour-start")
    page.keyboard.press("Enter")
    told = []
    for step in range(1, STEPS + 1):
        page.wait_for_selector("body[data-state=done]")
        assert page.text_content("#tour-count") == f"Step {step} of {STEPS}" and f"tour={step}" in page.url
        assert page.evaluate("() => document.activeElement.id") == "tour-title"  # a screen reader goes on from here
        press(page, "tour-act")
        page.wait_for_function(POLITE)
        told.append(page.text_content("#tour-after"))
        if step == 3:
            page.wait_for_function(SHARED)
        assert page.locator(".looked-at").count() == 1 and page.locator(".looked-at").is_visible()
        press(page, "tour-next")
    assert "201 memory tokens" in told[3] and "3 memory tokens" in told[4] and "3 layers" in told[5]
    assert "Approximation 0" in told[6]
    assert page.is_hidden("#tour") and page.is_visible("#tour-start") and "tour=" not in page.url
    assert page.evaluate("() => document.activeElement.id") == "tour-start"


def test_the_tour_on_a_phone(visit):
    page = visit(CURVE, **PHONE)
    page.tap("#tour-start")
    for step in range(1, STEPS + 1):
        page.wait_for_selector("body[data-state=done]")
        page.tap("#tour-act")
        page.wait_for_function(POLITE)
        assert page.evaluate(TOO_WIDE) == [0, []], step
        above = page.locator(".looked-at").bounding_box()["y"] < page.locator("#tour").bounding_box()["y"]
        assert above, f"step {step} covers what it speaks of"
        assert not AXE.exists() or serious(page) == [], step
        page.tap("#tour-next")
    assert page.is_hidden("#tour")


def test_a_link_leads_into_the_tour(visit):
    page = visit(
        {"formula": "sin(x)", "on": "x=0..2*pi", "eps": "0.01", "construction": "lookup", "tour": 5, "seconds": 30}
    )
    assert page.text_content("#tour-title") == "From 201 tokens to 3" and fact(page, "memory tokens") == "3"
    assert page.input_value("#seconds") == "30"
    page.click("#tour-end")
    assert "tour=" not in page.url and "seconds=30" in page.url
    page.fill("#seconds", "none")
    page.press("#seconds", "Enter")
    page.wait_for_function("() => document.getElementById('seconds-error').textContent.includes('seconds')")


def test_the_bars_add_up_to_the_answer(visit):
    page = visit({"formula": "sin(x)", "on": "x=0..2*pi", "eps": "0.01", "construction": "lookup"})
    drawn(page)
    page.wait_for_selector("#sum-chart .main-svg")
    bars = page.evaluate("() => document.getElementById('sum-chart').data[0]")
    *parts, answer = bars["x"]
    assert len(parts) == 4 and sum(parts) == pytest.approx(answer, abs=1e-7)
    assert bars["base"][1:-1] == pytest.approx(list(np.cumsum(parts))[:-1], abs=1e-12)
    page.click("#sum-card summary")
    rows = page.locator("#sum-table tbody tr").all_text_contents()
    assert len(rows) == 5 and "straight line" in rows[3] and "answer" in rows[4]
    assert "together" in page.get_attribute("#sum-chart", "aria-label")


def test_terms_are_explained_by_keyboard(visit):
    page = visit(CURVE)
    drawn(page)
    page.locator("dt .term", has_text="memory tokens").focus()
    page.keyboard.press("Enter")
    assert "key and a value" in page.text_content("#tip") and page.locator("#tip").is_visible()
    page.keyboard.press("Escape")
    assert page.locator("#tip").is_hidden()
    assert page.locator("dt .term").count() == page.locator("dt").count()


def test_both_comparisons_have_the_same_colours(visit):
    page = visit({"formula": "x*y", "on": "x=0..1, y=0..1", "eps": "0.1"})
    page.click("#constructions")
    page.wait_for_selector("#constructions-table tr:nth-child(4) .swatch")
    names = [text.split()[0] for text in page.locator("#constructions-table tbody td:first-child").all_text_contents()]
    shown = page.locator("#constructions-table .swatch").evaluate_all("all => all.map((e) => e.style.background)")
    colour = page.evaluate(
        "async () => { const { constructionColour } = await import('/static/charts.js');"
        " const probe = document.createElement('i'); probe.style.background = constructionColour('lookup'); return probe.style.background; }"
    )
    assert shown[names.index("lookup")] == colour


@pytest.mark.skipif(not AXE.exists(), reason="axe-core is not installed: make web")
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_has_no_serious_findings(visit, scheme):
    page = visit({**CURVE, "tour": 3}, color_scheme=scheme)
    drawn(page)
    assert serious(page) == []
    page.click("#sum-card summary")
    page.fill("#formula", "sin(")
    page.wait_for_function("() => document.getElementById('formula-error').textContent")
    assert serious(page) == []


@pytest.mark.parametrize(
    ("formula", "on", "options"),
    [
        ("sin(x) + cos(y)", "x=0..3, y=0..3", {"eps": 1e-3}),
        ("sin(x)", "x=0..6", {"eps": 1e-3, "construction": "partition"}),
        ("x**3 - 3*x*y**2 + 1", "x=-1..1, y=-1..1", {}),
        ("x*y*exp(x)", "x=0..1, y=0..1", {"eps": 1e-3, "construction": "circuit"}),
        ("x - x + 2", "x=0..1", {}),
    ],
)
def test_a_sum_is_the_models_answer(formula, on, options):
    model = tf.compile(formula, on=on, **options)
    for share in (0.0, 0.31, 1.0):
        point = {
            n: low + share * (high - low)
            for n, (low, high) in zip(model.box.variables, model.box.floats(), strict=True)
        }
        found = attention_payload(model, point, 0, 0)
        parts = [term["value"] for term in found["sum"]["terms"]]
        assert len(parts) <= MAX_ADDENDS + 1
        assert sum(parts) == pytest.approx(found["model"], abs=1e-9 * max(map(abs, [1.0, *parts])))
