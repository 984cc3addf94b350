"""What is drawn, as a browser shows it: one colour convention, titles and legends, circuits that zoom, both themes."""

import re

import pytest

import transformula as tf
from support.browsing import CURVE, drawn
from transformula.show.architecture import circuit_svg
from transformula.show.figure_style import DARK, DIVERGING, LIGHT, diverging
from transformula.show.report_page import write_report

PLANE = {"formula": "sin(3*x)*y", "on": "x=0..2, y=0..1", "eps": "0.3", "construction": "partition", "show": "error"}
CIRCUIT = {"formula": "exp(-x*y)*sin(z + x)", "on": "x=0..1, y=0..1, z=0..1", "eps": "1e-3", "construction": "circuit"}


@pytest.fixture
def show(browser, tmp_path):
    """show(html or path, **device) opens a page of its own; nothing may be logged."""
    contexts, logged = [], []

    def open_page(content, **device):
        contexts.append(browser.new_context(offline=True, **device))
        tab = contexts[-1].new_page()
        tab.on("console", lambda message: logged.append(message.text))
        tab.on("pageerror", lambda error: logged.append(str(error)))
        if isinstance(content, str):
            (tmp_path / "page.html").write_text(f"<!doctype html><meta charset=utf-8>{content}", encoding="utf-8")
            content = tmp_path / "page.html"
        tab.goto(content.as_uri())
        return tab

    yield open_page
    for context in contexts:
        context.close()
    assert logged == []


@pytest.fixture(scope="module")
def circuit():
    return tf.compile(CIRCUIT["formula"], CIRCUIT["on"], 1e-3, "circuit")


def channels(colour):
    """Red and blue of #rrggbb or rgb(r, g, b)."""
    if colour.startswith("#"):
        return int(colour[1:3], 16), int(colour[5:7], 16)
    red, _, blue = map(int, re.findall(r"\d+", colour)[:3])
    return red, blue


def is_red(colour):
    red, blue = channels(colour)
    return red > blue


def colour_of(tab, selector, name="color"):
    return tab.locator(selector).first.evaluate(f"e => getComputedStyle(e)['{name}']")


def css_rgb(colour):
    return "rgb({}, {}, {})".format(*(int(colour[k : k + 2], 16) for k in (1, 3, 5)))


def test_red_is_above_zero_and_everything_is_named(visit):
    page = visit(PLANE)
    drawn(page)
    assert page.evaluate("() => document.getElementById('picture-chart').data[0].colorscale") == [
        [k / 2, colour] for k, colour in enumerate(DIVERGING)
    ]
    assert is_red(DIVERGING[2]) and not is_red(DIVERGING[0])
    assert [int(255 * part + 0.5) for part in diverging()(1.0)[:3]] == [0xB2, 0x18, 0x2B]  # report, card and files
    assert "red: the Transformer is above the formula, blue: below" in page.text_content("#picture-note")
    page.wait_for_function("() => document.getElementById('attention-chart').data?.[0].x.length > 1")
    (bars,) = page.evaluate(
        "() => document.getElementById('attention-chart').data.map(t => [t.marker.color, t.customdata])"
    )
    signs = [(is_red(colour), value.startswith("−")) for colour, (_, value) in zip(*bars, strict=True) if value != "0"]
    assert {negative for _, negative in signs} == {True, False}
    assert all(red != negative for red, negative in signs)
    assert "red above 0 and blue below" in page.text_content("#attention-note")

    texts = "selector => [...document.querySelectorAll(selector)].map(e => e.textContent)"
    assert page.evaluate(texts, "#picture-chart .xtitle, #picture-chart .ytitle") == ["x", "y"]
    assert page.evaluate(texts, "#picture-chart .infolayer [class*=cbtitle] text") == ["Transformer − formula"]
    assert {"cell borders", "chosen point"} <= set(page.evaluate(texts, "#picture-chart .legendtext"))
    assert "chosen point" in page.evaluate(texts, "#error-chart .legendtext")
    assert page.evaluate(texts, "#error-chart .ytitle") == ["Transformer − formula"]
    assert page.evaluate(texts, "#attention-chart .xtitle, #attention-chart .ytitle") == ["token", "weight"]


def test_lines_have_the_colours_of_the_report(visit):
    page, colours = visit(CURVE, color_scheme="dark"), DARK
    drawn(page)
    lines = "id => Object.fromEntries(document.getElementById(id).data.map(t => [t.name, t.line?.color]))"
    picture, error = page.evaluate(lines, "picture-chart"), page.evaluate(lines, "error-chart")
    assert picture["formula"] == colours["formula"] and picture["Transformer"] == colours["model"]
    assert error["error"] == colours["model"] and error["± proven bound"] == colours["bound"]


def test_a_circuit_fits_zooms_and_pans(visit):
    page, colours = visit(CIRCUIT, color_scheme="dark"), DARK
    drawn(page)
    drawing = page.locator("#circuit-drawing svg")
    drawing.scroll_into_view_if_needed()
    box, card = drawing.bounding_box(), page.locator("#circuit").bounding_box()
    assert box["x"] >= card["x"] and box["x"] + box["width"] <= card["x"] + card["width"]
    assert "exp(-x*y)" in drawing.locator("g.table .small").all_text_contents()
    assert colour_of(page, "#circuit-drawing g.table rect", "fill") == css_rgb(colours["table"])
    assert colour_of(page, "#circuit-drawing svg", "backgroundColor") == css_rgb(colours["paper"])

    def view():
        return [float(v) for v in drawing.get_attribute("viewBox").split()]

    whole = view()
    page.get_by_role("button", name="Zoom in").click()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.keyboard.down("Control")
    page.mouse.wheel(0, -200)
    page.keyboard.up("Control")
    page.wait_for_function("width => Number(document.querySelector('#circuit-drawing svg').viewBox.baseVal.width) < width / 2",
                           arg=whole[2])  # fmt: skip
    before = view()
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] / 2 - 60, box["y"] + box["height"] / 2, steps=4)
    page.mouse.up()
    assert view()[0] - before[0] == pytest.approx(60 * before[2] / box["width"], rel=0.1)
    drawing.focus()
    page.keyboard.press("ArrowLeft")
    assert view()[0] < before[0] + 60 * before[2] / box["width"]
    page.get_by_role("button", name="Fit", exact=True).click()
    assert view() == whole
    page.locator("#circuit-drawing g.table").last.click()
    assert "it stands for" in page.text_content("#circuit-drawing .told")


def test_a_circuit_on_its_own_follows_the_theme(show, circuit, tmp_path):
    (tmp_path / "circuit.svg").write_text(circuit_svg(circuit), encoding="utf-8")
    for scheme, colours in (("light", LIGHT), ("dark", DARK)):
        tab = show(tmp_path / "circuit.svg", color_scheme=scheme)
        assert colour_of(tab, "g.table rect", "fill") == css_rgb(colours["table"])
        assert colour_of(tab, "svg", "backgroundColor") == css_rgb(colours["paper"])


def test_a_report_on_a_phone(show, circuit, tmp_path):
    page = write_report(circuit.save(tmp_path / "model"), verify=False).page
    tab = show(page, viewport={"width": 390, "height": 844}, color_scheme="dark")
    assert tab.evaluate("document.documentElement.scrollWidth") <= 390
    tab.evaluate("document.querySelectorAll('details').forEach((fold) => { fold.open = true; })")
    assert tab.evaluate("document.documentElement.scrollWidth") <= 390
    cells = tab.locator("table.stacks td").all()
    shown = [cell for cell in cells if cell.is_visible()]
    assert shown and all(cell.bounding_box()["x"] + cell.bounding_box()["width"] <= 390 for cell in shown)
    label = shown[0].evaluate("e => getComputedStyle(e, '::before').content")
    assert label == '"wire"' and tab.locator("table.stacks thead").first.is_hidden()
    tab.get_by_role("button", name="Zoom in").click()
    assert tab.locator("pan-zoom[data-zoomed] svg").count() == 1
    chart = tab.locator(".bar-chart").first
    assert chart.locator(".scale span").all_text_contents() == ["1", "0.5", "0"]
    assert chart.locator(".up").text_content() == "attention"
    assert chart.locator(".across span").all_text_contents() == ["0", "memory token", "2"]
    top, bars = chart.locator(".scale span").first.bounding_box(), chart.locator(".bars").bounding_box()
    assert abs(top["y"] + top["height"] / 2 - bars["y"]) < 3  # the scale's 1 is where a full bar ends


@pytest.mark.parametrize("scheme, theme", [("light", "dark"), ("dark", "light"), ("dark", "")])
def test_a_card_follows_the_notebook(show, circuit, scheme, theme):
    colours = {"light": LIGHT, "dark": DARK}[theme or scheme]
    jupyter = f' data-jp-theme-light="{"true" if theme == "light" else "false"}"' if theme else ""
    tab = show(f"<body{jupyter}>{circuit._repr_html_()}", color_scheme=scheme, viewport={"width": 1000, "height": 600})
    card = ".transformula-card"
    assert colour_of(tab, card, "backgroundColor") == css_rgb(colours["paper"])
    assert colour_of(tab, card) == css_rgb(colours["ink"])
    assert colour_of(tab, f"{card} svg text", "fill") == css_rgb(colours["soft"])  # a number at an axis
    formula, facts = (tab.locator(f"{card} {part}").bounding_box() for part in (".box", ".said > div:nth-child(3)"))
    assert facts["y"] - formula["y"] - formula["height"] < 20  # no gap between the box and what is proven on it
